//! The native libraries of the process: their unwind information, and the names of their functions.
//!
//! They are read from their files, not from memory, as a library may be unloaded meanwhile. Only the sampler's thread
//! reads, while everything runs. It looks for libraries when an address lies in none that is known.

use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use framehop::{
    CacheNative, ExplicitModuleSectionInfo, FrameAddress, MayAllocateDuringUnwind, Module, UnwindRegsNative, Unwinder,
    UnwinderNative,
};
use object::read::ReadCache;
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};

use crate::system::mappings::{Mapping, mappings, read_mappings};
use crate::system::signals::RawSample;
use crate::walk::native_function::NativeFunction;

use super::{NativeCaller, Place};

/// How long it does not look for libraries again: at first, and at most after repeated failures. Stubs are in no
/// library.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// The libraries that are loaded.
#[derive(Default)]
pub(crate) struct Natives {
    unwinder: UnwinderNative<Vec<u8>, MayAllocateDuringUnwind>,
    cache: CacheNative<MayAllocateDuringUnwind>,
    mapped: Vec<Mapped>,
    /// The files that were read, by path; none for a file that is not a library.
    libraries: HashMap<String, Option<Arc<Library>>>,
    next_refresh: Option<Instant>,
    pause: Duration,
}

/// Code of a library in memory.
struct Mapped {
    range: Range<usize>,
    /// The difference between addresses in memory and in the file.
    bias: usize,
    library: Arc<Library>,
}

/// The contents of a library's file.
struct Library {
    path: String,
    /// The file's name, without its folder.
    name: String,
    /// The parts of the file that are mapped as code, by addresses in the file.
    segments: Vec<Segment>,
    /// By address in the file.
    symbols: Vec<Symbol>,
    unwinding: ExplicitModuleSectionInfo<Vec<u8>>,
}

struct Segment {
    offset: usize,
    size: usize,
    address: usize,
}

struct Symbol {
    address: usize,
    size: usize,
    name: String,
}

/// Whether it is code from a file.
fn is_of_file(mapping: &Mapping<'_>) -> bool {
    // The runtime's own code is in a file without a name.
    mapping.is_executable() && mapping.name.starts_with('/') && !mapping.name.starts_with("/memfd:")
}

impl Natives {
    /// The library's code at an address, if there is one.
    fn at(&mut self, address: usize) -> Option<&Mapped> {
        if self.find(address).is_none() && self.next_refresh.is_none_or(|next| Instant::now() > next) {
            let is_changed = self.refresh();
            self.pause = if is_changed { PAUSES.0 } else { (2 * self.pause).clamp(PAUSES.0, PAUSES.1) };
            self.next_refresh = Some(Instant::now() + self.pause);
        }
        self.find(address)
    }

    fn find(&self, address: usize) -> Option<&Mapped> {
        let after = self.mapped.partition_point(|mapped| mapped.range.start <= address);
        self.mapped.get(after.checked_sub(1)?).filter(|mapped| mapped.range.contains(&address))
    }

    /// Finds the loaded libraries, and returns whether any have been loaded or unloaded.
    fn refresh(&mut self) -> bool {
        let Some(text) = read_mappings() else { return false };
        let code: Vec<_> = mappings(&text).filter(is_of_file).collect();
        let unwinder = &mut self.unwinder;
        let before = self.mapped.len();
        self.mapped.retain(|mapped| {
            let is_it = |now: &Mapping<'_>| now.range == mapped.range && now.name == mapped.library.path;
            let is_there = code.iter().any(is_it);
            if !is_there {
                unwinder.remove_module(mapped.range.start as u64);
            }
            is_there
        });
        let mut is_changed = self.mapped.len() != before;
        for mapping in code {
            if self.mapped.iter().any(|mapped| mapped.range == mapping.range) {
                continue;
            }
            let read = || Library::read(mapping.name).map(Arc::new);
            let library = self.libraries.entry(mapping.name.to_owned()).or_insert_with(read);
            let Some(library) = library.as_ref().map(Arc::clone) else { continue };
            let Some(bias) = library.bias(&mapping) else { continue };
            let range = mapping.range.start as u64..mapping.range.end as u64;
            let module = Module::new(library.name.clone(), range, bias as u64, library.unwinding.clone());
            unwinder.add_module(module);
            self.mapped.push(Mapped { range: mapping.range, bias, library });
            is_changed = true;
        }
        self.mapped.sort_by_key(|mapped| mapped.range.start);
        is_changed
    }

    /// `libc.so.6!memset`, or `libcoreclr.so (no symbols)` if the function has no name; none for an address outside all
    /// libraries.
    pub(crate) fn function(&mut self, address: usize) -> Option<NativeFunction> {
        let mapped = self.at(address)?;
        let library = &mapped.library.name;
        let (symbol, code) = mapped.library.symbol(address.wrapping_sub(mapped.bias));
        let name = match symbol {
            Some(symbol) => format!("{library}!{symbol}"),
            None => format!("{library} (no symbols)"),
        };
        let start = code.start.wrapping_add(mapped.bias).clamp(mapped.range.start, address);
        let end = code.end.saturating_add(mapped.bias).clamp(address + 1, mapped.range.end);
        Some(NativeFunction { name, code: start..end })
    }

    /// The caller of native code.
    pub(super) fn caller(&mut self, sample: &RawSample, here: Place, is_top: bool) -> NativeCaller {
        match self.unwind(sample, here, is_top) {
            Some(Some(caller)) => NativeCaller::Found(caller),
            Some(None) => NativeCaller::Outermost,
            None => NativeCaller::Unknown,
        }
    }

    /// One step of the unwinder; none if it has no information about the code.
    fn unwind(&mut self, sample: &RawSample, here: Place, is_top: bool) -> Option<Option<Place>> {
        self.at(if is_top { here.ip } else { here.ip.wrapping_sub(1) })?;
        let address = if is_top {
            FrameAddress::from_instruction_pointer(here.ip as u64)
        } else {
            FrameAddress::from_return_address(here.ip as u64)?
        };
        let mut registers = registers(here);
        let mut read = |place: u64| sample.read(place as usize).map(|word| word as u64).ok_or(());
        let found = self.unwinder.unwind_frame(address, &mut registers, &mut self.cache, &mut read).ok()?;
        Some(found.map(|ip| place(ip as usize, registers)))
    }
}

#[cfg(target_arch = "x86_64")]
fn registers(here: Place) -> UnwindRegsNative {
    UnwindRegsNative::new(here.ip as u64, here.stack_pointer as u64, here.frame_pointer as u64)
}

#[cfg(target_arch = "x86_64")]
fn place(ip: usize, registers: UnwindRegsNative) -> Place {
    let [stack_pointer, frame_pointer] = [registers.sp(), registers.bp()].map(|it| it as usize);
    Place { ip, stack_pointer, frame_pointer, link: 0, is_certain: true }
}

#[cfg(target_arch = "aarch64")]
fn registers(here: Place) -> UnwindRegsNative {
    UnwindRegsNative::new(here.link as u64, here.stack_pointer as u64, here.frame_pointer as u64)
}

#[cfg(target_arch = "aarch64")]
fn place(ip: usize, registers: UnwindRegsNative) -> Place {
    let [stack_pointer, frame_pointer, link] = [registers.sp(), registers.fp(), registers.lr()].map(|it| it as usize);
    Place { ip, stack_pointer, frame_pointer, link, is_certain: true }
}

impl Library {
    fn read(path: &str) -> Option<Self> {
        // In parts: allocators keep what a thread has freed, and most of a large file is of no use here.
        let data = ReadCache::new(File::open(path).ok()?);
        let file = ElfFile64::<object::Endianness, _>::parse(&data).ok()?;
        let endian = file.endian();
        let headers = file.elf_header().program_headers(endian, &data).ok()?;
        // Code is mapped in whole pages, so it may overlap with the segment after it.
        let is_code = |flags: u32| flags & object::elf::PF_X != 0;
        let is_loaded = |kind: u32| kind == object::elf::PT_LOAD;
        let code = headers.iter().filter(|header| is_loaded(header.p_type(endian)) && is_code(header.p_flags(endian)));
        let segments = code.map(|header| {
            let offset = header.p_offset(endian);
            let size = header.p_filesz(endian);
            let address = header.p_vaddr(endian);
            Segment { offset: offset as usize, size: size as usize, address: address as usize }
        });
        let segments = segments.collect();
        let mut symbols: Vec<_> = file
            .symbols()
            .chain(file.dynamic_symbols())
            .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition())
            .filter_map(|symbol| {
                let name = symbol.name().ok()?.to_owned();
                Some(Symbol { address: symbol.address() as usize, size: symbol.size() as usize, name })
            })
            .collect();
        symbols.sort_by_key(|symbol| symbol.address);
        let range = |name: &str| {
            file.section_by_name(name).map(|section| section.address()..section.address() + section.size())
        };
        let bytes = |name: &str| Some(file.section_by_name(name)?.data().ok()?.to_vec());
        let unwinding = ExplicitModuleSectionInfo {
            base_svma: 0,
            text_svma: range(".text"),
            got_svma: range(".got"),
            eh_frame_svma: range(".eh_frame"),
            eh_frame: bytes(".eh_frame"),
            eh_frame_hdr_svma: range(".eh_frame_hdr"),
            eh_frame_hdr: bytes(".eh_frame_hdr"),
            ..Default::default()
        };
        let name = path.rsplit('/').next().unwrap_or(path).to_owned();
        Some(Self { path: path.to_owned(), name, segments, symbols, unwinding })
    }

    /// The difference between addresses in memory and in the file, from the place of one mapped part.
    fn bias(&self, mapping: &Mapping<'_>) -> Option<usize> {
        let mut segments = self.segments.iter();
        // Parts are mapped in whole pages, so one may begin before its segment.
        let segment = segments.rfind(|segment| {
            let end = mapping.offset + (mapping.range.end - mapping.range.start);
            segment.offset < end && mapping.offset < segment.offset + segment.size
        })?;
        Some(
            mapping.range.start.wrapping_add(segment.offset).wrapping_sub(mapping.offset).wrapping_sub(segment.address),
        )
    }

    /// The function at an address in the file, and the range of its code; of code without a name the whole gap.
    fn symbol(&self, address: usize) -> (Option<&str>, Range<usize>) {
        let after = self.symbols.partition_point(|symbol| symbol.address <= address);
        let next = self.symbols.get(after).map_or(usize::MAX, |next| next.address);
        let Some(symbol) = after.checked_sub(1).and_then(|before| self.symbols.get(before)) else {
            return (None, 0..next);
        };
        let end = symbol.address.saturating_add(symbol.size.max(1));
        if address < end { (Some(&symbol.name), symbol.address..end) } else { (None, end..next) }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::system::signals::own_stack;

    #[test]
    fn code_is_of_a_file_with_a_name() {
        let text = "7f00a000-7f00c000 r-xp 00002000 fe:01 123   /usr/lib/a name.so\n\
                    7f00a000-7f00c000 r--p 00002000 fe:01 123   /usr/lib/libc.so.6\n\
                    7f00a000-7f00c000 rwxp 00000000 00:00 0\n\
                    7f00a000-7f00c000 r-xp 00000000 00:01 123 /memfd:doublemapper (deleted)\n\
                    7fff000-7fff100 r-xp 00000000 00:00 0 [vdso]\n";
        let names: Vec<_> = mappings(text).filter(is_of_file).map(|mapping| mapping.name).collect();
        assert_eq!(names, ["/usr/lib/a name.so"]);
    }

    #[test]
    fn functions_of_libraries_have_names() {
        let mut natives = Natives::default();
        let address = libc::getpid as *const () as usize;
        let NativeFunction { name, code } = natives.function(address).unwrap();
        assert!(name.starts_with("libc") && name.ends_with("getpid"), "{name}");
        assert!(code.start == address && (1..4096).contains(&code.len()), "{address} in {code:?}");
        assert_eq!(natives.function(8), None);
    }

    thread_local! {
        static NAMES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    }

    /// Records the names of the callers of a function with these registers.
    #[inline(never)]
    fn follow(mut place: Place) {
        let Place { ip, stack_pointer, frame_pointer, .. } = place;
        let end = own_stack().unwrap().end.min(stack_pointer + 16 * 1024);
        let count = (end - stack_pointer) / size_of::<usize>();
        // SAFETY: the words from the stack pointer up to at most the stack's end are the thread's own stack.
        let words = unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(stack_pointer), count) };
        let sample = RawSample::of(ip, stack_pointer, frame_pointer, words);
        let mut natives = Natives::default();
        let mut names = Vec::new();
        while let NativeCaller::Found(next) = natives.caller(&sample, place, names.is_empty()) {
            names.push(natives.function(next.ip.wrapping_sub(1)).map(|found| found.name).unwrap_or_default());
            place = next;
        }
        NAMES.set(names);
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn here() -> Place {
        let (ip, stack_pointer, frame_pointer): (usize, usize, usize);
        // SAFETY: reads registers only.
        unsafe {
            std::arch::asm!(
                "lea {}, [rip]", "mov {}, rsp", "mov {}, rbp",
                out(reg) ip, out(reg) stack_pointer, out(reg) frame_pointer, options(nomem, nostack, preserves_flags)
            );
        }
        Place { ip, stack_pointer, frame_pointer, link: 0, is_certain: true }
    }

    #[cfg(target_arch = "aarch64")]
    #[inline(always)]
    fn here() -> Place {
        let (ip, stack_pointer, frame_pointer, link): (usize, usize, usize, usize);
        // SAFETY: reads registers only.
        unsafe {
            std::arch::asm!(
                "adr {}, .", "mov {}, sp", "mov {}, x29", "mov {}, x30",
                out(reg) ip, out(reg) stack_pointer, out(reg) frame_pointer, out(reg) link,
                options(nomem, nostack, preserves_flags)
            );
        }
        Place { ip, stack_pointer, frame_pointer, link, is_certain: true }
    }

    /// A comparison for `qsort`, which puts the C library on the stack between this and the test.
    extern "C" fn compare(_: *const libc::c_void, _: *const libc::c_void) -> libc::c_int {
        follow(here());
        0
    }

    #[test]
    fn frames_of_libraries_without_frame_pointers_are_followed() {
        let mut items = [2u64, 1];
        // SAFETY: two items of eight bytes, and a comparison whose answer is always the same.
        unsafe { libc::qsort(items.as_mut_ptr().cast(), 2, 8, Some(compare)) };
        let names = NAMES.take();
        let sort = names.iter().rposition(|name| name.contains("qsort")).unwrap_or_else(|| panic!("{names:?}"));
        assert!(names.get(sort + 1).is_some_and(|name| name.contains("corprof")), "{names:?}");
    }
}
