//! Reads the target of a library or an executable from its file, without loading it.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use object::read::elf::{Dyn, ElfFile, FileHeader, ProgramHeader};
use object::{Architecture, BinaryFormat, Endianness, Object, ObjectKind, ObjectSegment, ReadCache, ReadRef, elf};

/// The C library that a file is linked against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Libc {
    /// The C library of most distributions.
    Glibc,
    /// The C library of Alpine.
    Musl,
}

impl fmt::Display for Libc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Glibc => "glibc",
            Self::Musl => "musl",
        })
    }
}

/// A library or an executable.
#[derive(Debug, Clone)]
pub struct Image {
    /// ELF (Linux), PE (Windows) or Mach-O (macOS).
    pub format: BinaryFormat,
    /// The processor.
    pub architecture: Architecture,
    /// Whether it is a shared library.
    pub is_library: bool,
    /// Whether it exports the function that runtimes call to create the profiler.
    pub has_factory: bool,
    /// Whether it is managed code that was compiled ahead of time (NativeAOT), which runs without the CLR.
    pub is_native_aot: bool,
    /// Whether it contains the CLR itself, as the program of a self-contained single-file application does.
    pub has_clr: bool,
    /// The loader that an ELF executable names.
    pub interpreter: Option<PathBuf>,
    /// The C library, if it can be determined; for ELF files only.
    pub libc: Option<Libc>,
    /// The libraries that the loader loads with it, by name; for ELF and PE files.
    pub needed: Vec<String>,
    /// The versions that it requires of their functions, such as `GLIBC_2.28`; for ELF files only.
    pub versions: Vec<String>,
}

/// The function that runtimes call to create the profiler.
pub const FACTORY: &str = "DllGetClassObject";

/// What every file of NativeAOT exports, for debuggers; seen in files of .NET 8 and later for Linux.
const NATIVE_AOT_EXPORT: &[u8] = b"DotNetRuntimeDebugHeader";
/// The section of its compiled methods, in files for Linux. It is left if the exports were stripped.
const NATIVE_AOT_SECTION: &[u8] = b"__managedcode";

/// A file of which only what is asked for is read. A library has tens of megabytes, and what matters is a few kilobytes.
pub(crate) fn read(path: &Path) -> io::Result<ReadCache<File>> {
    let mut file = File::open(path)?;
    // Otherwise nobody would say that it is a folder.
    let _ = file.read(&mut [0])?;
    Ok(ReadCache::new(file))
}

/// The number of bytes that a library lacks at its end, because a copy of it was interrupted. A loader maps what is not
/// there, and the process dies of SIGBUS.
pub fn missing_bytes<'data>(bytes: impl ReadRef<'data>) -> u64 {
    let end = match elf::FileHeader64::<Endianness>::parse(bytes) {
        Ok(header) => elf_end(header, bytes),
        Err(_) => object::File::parse(bytes).ok().and_then(|file| {
            let ends = file.segments().map(|segment| segment.file_range());
            ends.map(|(start, size)| start.saturating_add(size)).max()
        }),
    };
    end.unwrap_or_default().saturating_sub(bytes.len().unwrap_or_default())
}

/// Where the file ends: with the table of sections, or the last segment.
fn elf_end<'data>(header: &elf::FileHeader64<Endianness>, bytes: impl ReadRef<'data>) -> Option<u64> {
    let endian = header.endian().ok()?;
    let table = u64::from(header.e_shnum(endian)) * u64::from(header.e_shentsize(endian));
    let sections = header.e_shoff(endian).saturating_add(table);
    let segments = header.program_headers(endian, bytes).unwrap_or_default();
    let ends = segments.iter().map(|segment| segment.p_offset(endian).saturating_add(segment.p_filesz(endian)));
    ends.chain([sections]).max()
}

/// What the CLR exports for debuggers, as a library and in the program of a single-file application (dotnet/runtime,
/// corehost/apphost/static/singlefilehost_unixexports.src).
const CLR_EXPORT: &[u8] = b"DotNetRuntimeInfo";

impl Image {
    /// Reads the file.
    ///
    /// # Errors
    /// If it cannot be read, or is neither a library nor an executable.
    pub fn open(path: &Path) -> Result<Self> {
        let bytes = read(path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&bytes).with_context(|| format!("{} is neither a library nor an executable", path.display()))
    }

    /// Reads the bytes of a file.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn parse<'data>(bytes: impl ReadRef<'data>) -> Result<Self> {
        let file = object::File::parse(bytes)?;
        let facts = match &file {
            object::File::Elf32(file) => elf_facts(file),
            object::File::Elf64(file) => elf_facts(file),
            _ => Facts { needed: imported_libraries(&file), ..Facts::default() },
        };
        let is_factory = |name: &[u8]| name.strip_prefix(b"_").unwrap_or(name) == FACTORY.as_bytes();
        let exports = file.exports().unwrap_or_default();
        let has_factory = exports.iter().any(|export| is_factory(export.name()));
        let is_native_aot = exports.iter().any(|export| export.name() == NATIVE_AOT_EXPORT)
            || file.section_by_name_bytes(NATIVE_AOT_SECTION).is_some();
        let names = facts.needed.iter().chain(&facts.interpreter).map(String::as_str);
        let libc = names.filter_map(libc_of).next();
        Ok(Self {
            format: file.format(),
            architecture: file.architecture(),
            is_library: file.kind() == ObjectKind::Dynamic || is_pe_library(&file),
            has_factory,
            is_native_aot,
            has_clr: exports.iter().any(|export| export.name() == CLR_EXPORT),
            interpreter: facts.interpreter.map(PathBuf::from),
            libc,
            needed: facts.needed,
            versions: facts.versions,
        })
    }

    /// The executable that starts with `program`: itself, or the interpreter of a script.
    ///
    /// # Errors
    /// If the file cannot be read or executed.
    pub fn of_program(program: &Path) -> Result<Self> {
        let mut path = program.to_owned();
        for _ in 0..4 {
            let bytes = read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let Some(line) = interpreter_line(&bytes) else { return Self::parse(&bytes) };
            path = line.split_ascii_whitespace().next().context("its first line names no program")?.into();
        }
        bail!("{} is a script that another script runs, and so on", program.display())
    }

    /// The usual name of the system.
    pub fn system(&self) -> &'static str {
        match self.format {
            BinaryFormat::Elf => "Linux",
            BinaryFormat::Pe => "Windows",
            BinaryFormat::MachO => "macOS",
            _ => "another system",
        }
    }
}

/// The first line of a script behind `#!`; the system reads no longer one.
fn interpreter_line<'data>(bytes: impl ReadRef<'data>) -> Option<String> {
    const LONGEST: u64 = 256;
    let start = bytes.read_bytes_at(0, LONGEST.min(bytes.len().ok()?)).ok()?;
    let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    Some(String::from_utf8_lossy(line).into_owned())
}

fn is_pe_library<'data>(file: &object::File<'data, impl ReadRef<'data>>) -> bool {
    file.format() == BinaryFormat::Pe && file.kind() != ObjectKind::Executable
}

/// What a file requires of the system, as strings.
#[derive(Default)]
struct Facts {
    interpreter: Option<String>,
    needed: Vec<String>,
    versions: Vec<String>,
}

fn imported_libraries<'data>(file: &object::File<'data, impl ReadRef<'data>>) -> Vec<String> {
    let imports = file.imports().unwrap_or_default();
    let libraries: BTreeSet<_> = imports.iter().map(|import| String::from_utf8_lossy(import.library())).collect();
    libraries.into_iter().map(Cow::into_owned).collect()
}

fn elf_facts<'data, Elf: FileHeader>(file: &ElfFile<'data, Elf, impl ReadRef<'data>>) -> Facts {
    let endian = file.endian();
    let data = file.data();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let interpreters = file.elf_program_headers().iter();
    let interpreter =
        interpreters.filter_map(|header| header.interpreter(endian, data).ok().flatten()).map(text).next();
    let sections = file.elf_section_table();
    let mut needed = Vec::new();
    if let Ok(Some((entries, strings))) = sections.dynamic(endian, data)
        && let Ok(strings) = sections.strings(endian, data, strings)
    {
        let entries = entries.iter().filter(|entry| entry.tag32(endian) == Some(elf::DT_NEEDED));
        needed.extend(entries.filter_map(|entry| strings.get(entry.val32(endian)?).ok()).map(text));
    }
    let mut versions = Vec::new();
    if let Ok(Some((mut libraries, strings))) = sections.gnu_verneed(endian, data)
        && let Ok(strings) = sections.strings(endian, data, strings)
    {
        while let Ok(Some((_, mut required))) = libraries.next() {
            while let Ok(Some(version)) = required.next() {
                versions.extend(version.name(endian, strings).ok().map(text));
            }
        }
    }
    Facts { interpreter, needed, versions }
}

/// The C library, by the name of a library or loader.
pub(crate) fn libc_of(name: &str) -> Option<Libc> {
    let file = name.rsplit('/').next().unwrap_or(name);
    if file.starts_with("libc.musl-") || file.starts_with("ld-musl-") || file == "libc.so" {
        Some(Libc::Musl)
    } else if file == "libc.so.6" || file.starts_with("ld-linux") {
        Some(Libc::Glibc)
    } else {
        None
    }
}

/// A processor, as .NET names processors.
pub fn processor(architecture: Architecture) -> String {
    match architecture {
        Architecture::X86_64 | Architecture::X86_64_X32 => "x64".into(),
        Architecture::Aarch64 => "arm64".into(),
        Architecture::I386 => "x86".into(),
        Architecture::Arm => "arm".into(),
        other => format!("{other:?}").to_lowercase(),
    }
}

/// The processor of this program.
pub fn own_architecture() -> Architecture {
    match std::env::consts::ARCH {
        "x86_64" => Architecture::X86_64,
        "aarch64" => Architecture::Aarch64,
        "x86" => Architecture::I386,
        "arm" => Architecture::Arm,
        _ => Architecture::Unknown,
    }
}

/// The file that `program` means with this PATH.
pub fn find_program(program: &OsStr, path: Option<&OsStr>) -> Option<PathBuf> {
    let named = Path::new(program);
    if named.components().count() > 1 {
        return named.is_file().then(|| named.to_owned());
    }
    let suffixes: &[&str] = if cfg!(windows) { &["", ".exe"] } else { &[""] };
    let folders = std::env::split_paths(path?);
    let candidates = folders.flat_map(|folder| {
        suffixes.iter().map(move |suffix| {
            let mut file = OsString::from(program);
            file.push(suffix);
            folder.join(file)
        })
    });
    candidates.into_iter().find(|candidate| candidate.is_file())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn c_libraries_are_told_apart() {
        assert_eq!(libc_of("/lib/ld-musl-x86_64.so.1"), Some(Libc::Musl));
        assert_eq!(libc_of("libc.musl-x86_64.so.1"), Some(Libc::Musl));
        assert_eq!(libc_of("/lib64/ld-linux-x86-64.so.2"), Some(Libc::Glibc));
        assert_eq!(libc_of("libc.so.6"), Some(Libc::Glibc));
        assert_eq!(libc_of("libm.so.6"), None);
    }

    /// Real files have both marks; each is enough.
    #[cfg(target_os = "linux")]
    #[test]
    fn managed_code_compiled_ahead_of_time_is_told_by_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let marks = [
            ("int DotNetRuntimeDebugHeader[4] = { 0x44434E54 };", true),
            ("__attribute__((section(\"__managedcode\"))) int Program_Main(void) { return 0; }", true),
            ("static const char *name = \"DotNetRuntimeDebugHeader\";", false),
        ];
        for (number, (mark, is_native_aot)) in marks.into_iter().enumerate() {
            let source = dir.path().join(format!("{number}.c"));
            let program = dir.path().join(number.to_string());
            fs::write(&source, format!("{mark}\nint main(void) {{ return 0; }}\n")).unwrap();
            let mut cc = std::process::Command::new("cc");
            cc.args(["-Wl,--export-dynamic", "-o"]).arg(&program).arg(&source);
            assert!(cc.status().expect("the tests need a C compiler").success());
            assert_eq!(Image::of_program(&program).unwrap().is_native_aot, is_native_aot, "{mark}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_script_is_what_runs_it() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("start");
        fs::write(&script, "#!/bin/sh -e\nexec true\n").unwrap();
        let image = Image::of_program(&script).unwrap();
        assert_eq!((image.format, image.architecture), (BinaryFormat::Elf, own_architecture()));
        assert!(image.interpreter.is_some() && image.libc.is_some() && !image.has_factory);
        assert!(image.needed.iter().any(|name| libc_of(name) == image.libc), "{:?}", image.needed);
        if image.libc == Some(Libc::Glibc) {
            assert!(image.versions.iter().any(|version| version.starts_with("GLIBC_2.")), "{:?}", image.versions);
        }
        fs::write(&script, "text\n").unwrap();
        assert!(Image::of_program(&script).is_err());
        assert_eq!(find_program("sh".as_ref(), Some("/nowhere:/bin".as_ref())), Some("/bin/sh".into()));
        assert_eq!(find_program("no-such-program".as_ref(), Some("/bin".as_ref())), None);
    }
}
