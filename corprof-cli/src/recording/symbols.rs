//! Names of code: by the runtime's events of methods, and by the mappings and symbols of `Universal.System`.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use corprof_export::{FrameKind, SourceLines};
use corprof_nettrace::events::recording::MethodCode;
use corprof_nettrace::events::universal::{ProcessMapping, ProcessSymbol};
use corprof_nettrace::events::{Event, Text, Value};

use super::Frame;
use crate::event_pipe_samples::UNKNOWN;
use crate::trace_methods::{Change, Methods, of_perf_map};

/// The number of ranges before an address that may reach as far as there.
const MOST_BEFORE: usize = 16;

/// What is known of the memory of a process.
#[derive(Debug, Default)]
pub(super) struct Symbols {
    methods: Methods,
    mappings: Ranges<PathBuf>,
    files: HashMap<u64, PathBuf>,
    /// Names, with the numbers of their mappings.
    symbols: Ranges<(String, u64)>,
    /// The code of methods in a recording of corprof, by its beginning.
    code: BTreeMap<u64, RecordedCode>,
}

/// Code of a method with its file, and with its module left out.
#[derive(Debug)]
struct RecordedCode {
    module: PathBuf,
    code: MethodCode<'static>,
}

/// Values of ranges of addresses, by their beginnings. A range may have had several.
#[derive(Debug)]
struct Ranges<T>(BTreeMap<u64, Vec<Range<T>>>);

#[derive(Debug)]
struct Range<T> {
    last: u64,
    /// When the trace says it.
    ticks: u64,
    value: T,
}

impl<T> Default for Ranges<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: PartialEq> Ranges<T> {
    /// Adds a range; answers whether another one began there.
    fn add(&mut self, first: u64, last: u64, ticks: u64, value: T) -> bool {
        let here = self.0.entry(first).or_default();
        let is_known = here.last().is_some_and(|known| known.last == last && known.value == value);
        let is_other = !is_known && !here.is_empty();
        if !is_known {
            here.push(Range { last, ticks, value });
        }
        is_other
    }

    /// The last one before that time, or else the first of all: traces say what is where a little late.
    fn at(&self, address: u64, ticks: u64) -> Option<&T> {
        let before = self.0.range(..=address).rev().take(MOST_BEFORE).map(|(_, here)| here);
        let here = before.map(|here| here.iter().filter(move |range| address <= range.last));
        here.filter_map(|ranges| {
            let ranges: Vec<_> = ranges.collect();
            let valid = ranges.iter().rfind(|range| range.ticks <= ticks).or(ranges.first());
            valid.map(|range| &range.value)
        })
        .next()
    }
}

impl Symbols {
    /// Takes an event of code or memory. Answers with the addresses that may have other code from now on.
    pub(super) fn event(&mut self, event: &Event<'_>, ticks: u64) -> Option<(u64, u64)> {
        if let Ok(mapping) = event.decode::<ProcessMapping<'_>>() {
            let path = PathBuf::from(mapping.file_name.to_string());
            self.files.insert(mapping.id, path.clone());
            let is_other = self.mappings.add(mapping.start_address, mapping.end_address, ticks, path);
            return is_other.then_some((mapping.start_address, mapping.end_address));
        }
        if let Ok(symbol) = event.decode::<ProcessSymbol<'_>>() {
            // Obfuscated names may contain line breaks.
            let name = symbol.name.to_string().replace(char::is_control, " ");
            let value = (name, symbol.mapping_id);
            let is_other = self.symbols.add(symbol.start_address, symbol.end_address, ticks, value);
            return is_other.then_some((symbol.start_address, symbol.end_address));
        }
        if let Ok(code) = event.decode::<MethodCode<'_>>() {
            let module = PathBuf::from(code.module.to_string());
            let MethodCode { start_address, end_address, token, offsets, .. } = code;
            let code = MethodCode { start_address, end_address, module: Text::from(""), token, offsets };
            self.code.insert(start_address, RecordedCode { module, code });
            return None;
        }
        if self.methods.event(event, ticks) == Change::None {
            return None;
        }
        let number = |field| event.field(field).and_then(Value::as_u64);
        let start = number("MethodStartAddress")?;
        Some((start, start.saturating_add(number("MethodSize")?).saturating_sub(1)))
    }

    /// The frame of the code that was at an address at that time. `lines` finds its file and line, if that is wanted.
    pub(super) fn frame(&self, address: u64, ticks: u64, lines: Option<&mut SourceLines>) -> Frame {
        if let Some(method) = self.methods.at(address, ticks) {
            let mut frame = Frame::new(method.name, FrameKind::Managed);
            if let Some((module, token)) = method.definition {
                frame.module = Some(module.to_string_lossy().into_owned());
                frame.place = lines.and_then(|lines| self.line(lines, address, ticks, module, token));
            }
            return frame;
        }
        let mapped = self.mappings.at(address, ticks).filter(|path| !path.as_os_str().is_empty());
        let Some((name, mapping)) = self.symbols.at(address, ticks) else {
            return unnamed(mapped.map(PathBuf::as_path));
        };
        let module = self.files.get(mapping).filter(|path| !path.as_os_str().is_empty()).or(mapped);
        let mut frame = named(name, module.map(PathBuf::as_path));
        frame.place = lines.and_then(|lines| self.recorded_line(lines, address));
        frame
    }

    /// The line of an address in a recording of corprof, where an address belongs to one method in the whole file.
    fn recorded_line(&self, lines: &mut SourceLines, address: u64) -> Option<(String, u32)> {
        let (_, RecordedCode { module, code }) = self.code.range(..=address).next_back()?;
        let (file, line) = lines.of_offset(module, code.token, code.il_offset(address)?)?;
        Some((file.to_owned(), line))
    }

    fn line(
        &self,
        lines: &mut SourceLines,
        address: u64,
        ticks: u64,
        module: &Path,
        token: u32,
    ) -> Option<(String, u32)> {
        let offset = *self.methods.il_offsets(address, ticks).first()?;
        let (file, line) = lines.of_offset(module, token, offset)?;
        Some((file.to_owned(), line))
    }
}

/// The frame of a symbol of a module.
pub(super) fn named(name: &str, module: Option<&Path>) -> Frame {
    let managed = of_perf_map(name);
    let is_managed = managed.is_some() || module.is_some_and(|path| is_assembly(path) || is_compiled(path, name));
    let kind = if is_managed { FrameKind::Managed } else { FrameKind::Native };
    let in_library = module.filter(|_| !is_managed).and_then(|path| in_library(path, name));
    let mut frame = Frame::new(managed.as_deref().or(in_library.as_deref()).unwrap_or(name), kind);
    // The file of compiled code is no module, by which its methods could be judged.
    let module = module.filter(|path| !is_managed || is_assembly(path));
    frame.module = module.map(|path| path.to_string_lossy().into_owned());
    frame
}

/// Code of a file that has no symbol there.
pub(super) fn unnamed(mapped: Option<&Path>) -> Frame {
    let Some(path) = mapped else { return Frame::new(UNKNOWN, FrameKind::Native) };
    let file = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    let mut frame = Frame::new(&format!("[{file}]"), FrameKind::Native);
    frame.module = Some(path.to_string_lossy().into_owned());
    frame
}

/// A native function with its library, as the sampler's pages have it: `libc.so.6!memset`. None if the name says
/// enough.
fn in_library(path: &Path, name: &str) -> Option<String> {
    let file = path.file_name()?.to_string_lossy();
    let is_enough = is_special(name) || file.starts_with(COMPILED);
    (!is_enough).then(|| format!("{file}!{name}"))
}

/// Whether the name is a method that the runtime has compiled, in a recording of the sampler's.
fn is_compiled(path: &Path, name: &str) -> bool {
    path.to_string_lossy().starts_with(&format!("/{COMPILED}")) && !is_special(name)
}

/// Whether the name is no method's: `[started by]`, `libcoreclr.so (no symbols)`, or one with its library.
fn is_special(name: &str) -> bool {
    name.starts_with('[') || name.ends_with(" (no symbols)") || name.contains('!')
}

/// The file of compiled code for readers.
const COMPILED: &str = "memfd:doublemapper";

fn is_assembly(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case("dll") || extension.eq_ignore_ascii_case("exe"))
}

#[cfg(test)]
mod tests {
    use corprof_nettrace::events::{Provider, Text};

    use super::*;

    #[test]
    fn a_symbol_is_the_one_of_its_time_and_its_file_the_module() {
        let mut symbols = Symbols::default();
        let mut add = |id, ticks, payload: Vec<u8>| {
            symbols.event(&Event::new(Provider::UNIVERSAL_SYSTEM, id, 0, &payload, true), ticks)
        };
        let mut payload = Vec::new();
        let mapping = ProcessMapping {
            id: 3,
            start_address: 0x1000,
            end_address: 0x1fff,
            file_offset: 0,
            file_name: Text::from("/app/Shop.dll"),
            metadata_id: 0,
        };
        mapping.write(&mut payload).unwrap();
        assert_eq!(add(ProcessMapping::ID, 5, payload), None);
        for (ticks, name, freed) in [(5, "Shop.First()", None), (90, "Shop.Second()", Some((0x1100, 0x11ff)))] {
            let symbol = ProcessSymbol {
                id: 1,
                mapping_id: 3,
                start_address: 0x1100,
                end_address: 0x11ff,
                name: Text::from(name),
            };
            let mut payload = Vec::new();
            symbol.write(&mut payload).unwrap();
            assert_eq!(add(ProcessSymbol::ID, ticks, payload), freed);
        }
        let named = |address, ticks| symbols.frame(address, ticks, None).name;
        assert_eq!((named(0x1180, 1), named(0x1180, 50)), ("Shop.First()".to_owned(), "Shop.First()".to_owned()));
        assert_eq!((named(0x11ff, 99), named(0x1200, 99)), ("Shop.Second()".to_owned(), "[Shop.dll]".to_owned()));
        assert_eq!(named(0x2000, 99), UNKNOWN);
        let named = |path: &str, name| in_library(Path::new(path), name);
        assert_eq!(named("/lib/libc.so.6", "memset").as_deref(), Some("libc.so.6!memset"));
        assert_eq!(named("/app/libcoreclr.so", "libcoreclr.so (no symbols)"), None);
        assert_eq!(named("/memfd:doublemapper", "Shop.Pay()"), None);
        let is_method = |name| is_compiled(Path::new("/memfd:doublemapper (logical frames)"), name);
        assert!(is_method("Shop.Pay()") && !is_method("[started by]"));
        let frame = symbols.frame(0x1180, 99, None);
        assert_eq!((frame.module.as_deref(), frame.kind), (Some("/app/Shop.dll"), FrameKind::Managed));
    }
}
