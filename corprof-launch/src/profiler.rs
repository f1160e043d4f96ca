//! Reads the profilers of a built library from its file, without loading it.
//!
//! For each profiler, the library exports a symbol `CORPROF_PROFILER_<Name>` that is a NUL-terminated text:
//! `corprof-profiler 1 {BDD57A0C-D4F7-486D-A8CA-86070DC12FA0} Name`.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use object::{Object, ObjectSection, ReadRef};

use crate::image;

const SYMBOL_PREFIX: &str = "CORPROF_PROFILER_";
const MAGIC: &str = "corprof-profiler";
const VERSION: &str = "1";

/// Longer than any valid text; a longer text is not corprof's.
const LONGEST_TEXT: u64 = 1024;

/// One profiler of a library.
#[derive(Debug, Clone, PartialEq)]
pub struct Profiler {
    /// The CLSID in braces and upper case, in the form of CORECLR_PROFILER.
    pub clsid: String,
    /// The name of the struct.
    pub name: String,
}

/// The profilers of `library`, by name.
///
/// # Errors
/// If the file cannot be read, is not a library, or has a text that this tool does not understand.
pub fn profilers(library: &Path) -> Result<Vec<Profiler>> {
    let image = image::read(library).with_context(|| format!("cannot read {}", library.display()))?;
    let mut found = profilers_of_image(&image).with_context(|| format!("in {}", library.display()))?;
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// The profiler `name` of `library`; without a name, the only one.
///
/// # Errors
/// As [`profilers`], or if there is no such profiler, or there are several and no name was given.
pub fn pick(library: &Path, name: Option<&str>) -> Result<Profiler> {
    let mut found = profilers(library)?;
    ensure!(!found.is_empty(), "{} holds no corprof profiler (no symbol {SYMBOL_PREFIX}…)", library.display());
    let names = found.iter().map(|profiler| profiler.name.as_str()).collect::<Vec<_>>().join(", ");
    let index = match name {
        Some(name) => found.iter().position(|profiler| profiler.name == name),
        None => (found.len() == 1).then_some(0),
    };
    let index = index.with_context(|| match name {
        Some(name) => format!("{} holds no profiler {name}, but {names}", library.display()),
        None => format!("{} holds several profilers, so one must be named: {names}", library.display()),
    })?;
    Ok(found.swap_remove(index))
}

fn profilers_of_image<'image>(image: impl ReadRef<'image>) -> Result<Vec<Profiler>> {
    let file = object::File::parse(image).context("not a library of a known format")?;
    let exports = file.exports().context("cannot read the exported symbols")?;
    let mut found = Vec::new();
    for export in exports {
        // Mach-O puts an underscore before every name.
        let symbol = String::from_utf8_lossy(export.name());
        let symbol = symbol.strip_prefix('_').unwrap_or(&symbol);
        if let Some(name) = symbol.strip_prefix(SYMBOL_PREFIX) {
            let profiler = text_at(&file, export.address()).and_then(parse);
            let profiler = profiler.with_context(|| format!("at the symbol {symbol}"))?;
            ensure!(profiler.name == name, "the symbol {symbol} is of a profiler named {}", profiler.name);
            found.push(profiler);
        }
    }
    Ok(found)
}

/// The text that the library has at `address` once it is loaded.
fn text_at<'image, R: ReadRef<'image>>(file: &object::File<'image, R>, address: u64) -> Result<&'image str> {
    let holds = |section: &object::Section<'image, '_, R>| {
        (section.address()..section.address().saturating_add(section.size())).contains(&address)
    };
    let section = file.sections().find(holds).context("its address lies in no section")?;
    let length = LONGEST_TEXT.min(section.address() + section.size() - address);
    let bytes = section.data_range(address, length).context("its bytes cannot be read")?;
    let bytes = bytes.context("its section has no bytes in the file")?;
    let end = bytes.iter().position(|byte| *byte == 0).context("its text has no end")?;
    std::str::from_utf8(&bytes[..end]).context("its text is not UTF-8")
}

fn parse(text: &str) -> Result<Profiler> {
    let fields: Vec<_> = text.split(' ').collect();
    match fields[..] {
        [MAGIC, VERSION, clsid, name] if is_clsid(clsid) && !name.is_empty() => {
            Ok(Profiler { clsid: clsid.to_owned(), name: name.to_owned() })
        }
        [MAGIC, version, ..] if version != VERSION => {
            bail!("its text has version {version}, and this tool knows version {VERSION} only")
        }
        _ => bail!("expected `{MAGIC} {VERSION} {{CLSID}} NAME`, found `{text}`"),
    }
}

fn is_clsid(text: &str) -> bool {
    let Some(digits) = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')) else { return false };
    let groups: Vec<_> = digits.split('-').collect();
    let is_digit = |c: char| c.is_ascii_digit() || ('A'..='F').contains(&c);
    groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12])
        && groups.iter().all(|group| group.chars().all(is_digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLSID: &str = "{BDD57A0C-D4F7-486D-A8CA-86070DC12FA0}";

    #[test]
    fn a_text_has_four_fields() {
        let profiler = parse(&format!("corprof-profiler 1 {CLSID} Logger")).unwrap();
        assert_eq!((profiler.clsid.as_str(), profiler.name.as_str()), (CLSID, "Logger"));
    }

    #[test]
    fn other_texts_are_refused_with_the_reason() {
        let refusal = |text: String| parse(&text).unwrap_err().to_string();
        assert!(refusal(format!("corprof-profiler 2 {CLSID} Logger x")).contains("has version 2"));
        assert!(refusal(format!("corprof-profiler 1 {} Logger", CLSID.to_lowercase())).contains("expected"));
        assert!(refusal(format!("corprof-profiler 1 {CLSID}")).contains("expected"));
        assert!(refusal(format!("corprof-profiler 1 {CLSID} ")).contains("expected"));
        assert!(refusal("corprof-profiler 1 {BDD57A0C-D4F7} Logger".to_owned()).contains("expected"));
        assert!(refusal(String::new()).contains("expected"));
    }

    #[test]
    fn a_file_that_is_no_library_is_named() {
        let error = format!("{:#}", profilers(Path::new(file!()).file_name().unwrap().as_ref()).unwrap_err());
        assert!(error.contains("profiler.rs"), "{error}");
        assert!(format!("{:#}", profilers_of_image(&b"text"[..]).unwrap_err()).contains("not a library"));
    }

    /// The whole way, through a library that the system's own C compiler makes, where there is one.
    #[cfg(target_os = "linux")]
    #[test]
    fn profilers_are_read_from_a_real_library() {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("two.c");
        let library = dir.path().join("libtwo.so");
        let one =
            |name: &str| format!("const char CORPROF_PROFILER_{name}[] = \"corprof-profiler 1 {CLSID} {name}\";\n");
        std::fs::write(&source, one("Zebra") + &one("Ant") + "const char other[] = \"x\";\n").unwrap();
        let cc = std::process::Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status();
        if !cc.is_ok_and(|status| status.success()) {
            eprintln!("no C compiler: skipped");
            return;
        }
        let names: Vec<_> = profilers(&library).unwrap().into_iter().map(|profiler| profiler.name).collect();
        assert_eq!(names, ["Ant", "Zebra"]);
        assert_eq!(pick(&library, Some("Zebra")).unwrap().clsid, CLSID);
        assert!(pick(&library, None).unwrap_err().to_string().contains("one must be named: Ant, Zebra"));
        assert!(pick(&library, Some("Bee")).unwrap_err().to_string().contains("no profiler Bee, but Ant, Zebra"));
    }
}
