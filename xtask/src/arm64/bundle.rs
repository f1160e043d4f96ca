//! Executables for arm64: a host with the runtime linked into it, made to run one managed program.
//!
//! The host finds its program by a name in its data. It reads its settings and the list of its libraries from a single-file
//! bundle, which is appended to it: files, then a manifest, whose offset is in the host before the bundle's signature. The host
//! looks for libraries that are not in the bundle beside the executable. So the bundle has only the necessary files (settings,
//! list, and CoreLib); the program and the framework are links beside it, and have paths, as under `dotnet exec`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value, json};

/// The eight bytes before it hold the offset of the manifest.
const SIGNATURE: [u8; 32] = [
    0x8b, 0x12, 0x02, 0xb9, 0x6a, 0x61, 0x20, 0x38, 0x72, 0x7b, 0x93, 0x02, 0x14, 0xd7, 0xa0, 0x32, 0x13, 0xf5, 0xb9,
    0xe6, 0xef, 0xae, 0x33, 0x18, 0xee, 0x3b, 0x2d, 0xce, 0x24, 0xb3, 0x6a, 0xae,
];
/// The name of the program that the archive's host was made for; ours replaces it, padded with zeros.
const NAME_BEFORE: &[u8] = b"azmcp.dll";
const NAME_LENGTH: usize = 64;

const CORE_LIBRARY: &str = "System.Private.CoreLib.dll";
/// The name of the framework in the list. No file is looked for by it.
const FRAMEWORK: &str = "runtimepack.Microsoft.NETCore.App.Runtime.linux-arm64";
const FRAMEWORK_VERSION: &str = "10.0.11";
const TARGET: &str = ".NETCoreApp,Version=v10.0/linux-arm64";

/// Kinds of files in a manifest.
const ASSEMBLY: u8 = 1;
const DEPENDENCIES: u8 = 3;
const RUNTIME_CONFIG: u8 = 4;

/// Makes executables in a folder.
pub(super) struct Bundler<'f> {
    /// The unpacked archive.
    pub(super) root: &'f Path,
    /// The folder of the executables, with links to all that they need.
    pub(super) folder: &'f Path,
}

impl Bundler<'_> {
    /// The executable that runs `dll`; makes it if necessary. Other processes may make it at the same time.
    pub(super) fn executable(&self, dll: &Path) -> Result<PathBuf> {
        let name = dll.file_stem().and_then(|name| name.to_str()).context("a program has a name")?;
        fs::create_dir_all(self.folder).with_context(|| format!("cannot make {}", self.folder.display()))?;
        // Programs load each other from their own folder.
        let beside = dll.parent().context("a program lies in a folder")?;
        let framework = self.root.join("framework");
        for library in libraries(beside)?.into_iter().chain(libraries(&framework)?) {
            self.link(&library)?;
        }
        let executable = self.folder.join(name);
        // It is newer than its inputs, unless another archive has been unpacked since.
        let host = self.root.join("host");
        let made = |path: &Path| path.metadata().and_then(|metadata| metadata.modified()).ok();
        let stamp = self.folder.join(name).with_extension("made-of");
        let made_of = format!("{} {:?} {}", host.display(), made(&host), env!("CARGO_PKG_VERSION"));
        if executable.is_file() && fs::read_to_string(&stamp).is_ok_and(|stamped| stamped == made_of) {
            return Ok(executable);
        }
        let read = |path: &Path| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
        let names: Vec<String> = libraries(&framework)?.iter().filter_map(|path| file_name(path)).collect();
        let core = read(&framework.join(CORE_LIBRARY))?;
        let image = image(read(&host)?, name, &names, &core)?;
        // A file with its final name is complete: a running program cannot be written to.
        let mut partial = tempfile::NamedTempFile::new_in(self.folder).context("cannot make a file")?;
        std::io::Write::write_all(&mut partial, &image).context("cannot write (is the disk full?)")?;
        #[cfg(unix)]
        fs::set_permissions(partial.path(), <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755))?;
        // Closed for writing before any process starts it.
        partial.into_temp_path().persist(&executable).context("cannot name it")?;
        fs::write(&stamp, made_of).with_context(|| format!("cannot write {}", stamp.display()))?;
        Ok(executable)
    }

    /// A link in the folder to `library`.
    fn link(&self, library: &Path) -> Result<()> {
        let link = self.folder.join(library.file_name().context("a library has a name")?);
        if fs::read_link(&link).is_ok_and(|target| target == library) {
            return Ok(());
        }
        let make = || {
            let partial = tempfile::TempDir::new_in(self.folder)?;
            let new = partial.path().join("link");
            symlink(library, &new)?;
            fs::rename(new, &link)
        };
        make().with_context(|| format!("cannot link {} to {}", link.display(), library.display()))
    }
}

#[cfg(unix)]
fn symlink(target: &Path, link: &Path) -> std::io::Result<()> {
    std::os::unix::fs::symlink(target, link)
}

#[cfg(not(unix))]
fn symlink(_target: &Path, _link: &Path) -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}

/// The managed libraries and programs in `folder`, in the order of their names.
fn libraries(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let files = entries.flatten().map(|entry| entry.path());
    let mut libraries: Vec<_> = files.filter(|path| path.extension().is_some_and(|kind| kind == "dll")).collect();
    libraries.sort();
    Ok(libraries)
}

fn file_name(path: &Path) -> Option<String> {
    Some(path.file_name()?.to_str()?.to_owned())
}

/// `host` as the executable of the program `name`. `framework` has the names of the framework's libraries.
fn image(mut host: Vec<u8>, name: &str, framework: &[String], core: &[u8]) -> Result<Vec<u8>> {
    let program = format!("{name}.dll");
    ensure!(program.len() < NAME_LENGTH, "`{program}` is longer than the {NAME_LENGTH} bytes that there are for it");
    let find = |pattern: &[u8], image: &[u8]| image.windows(pattern.len()).position(|window| window == pattern);
    let slot =
        find(&SIGNATURE, &host).and_then(|at| at.checked_sub(8)).context("the host has no place for a bundle")?;
    let place = find(&[NAME_BEFORE, &[0; NAME_LENGTH]].concat(), &host).context("the host names no program")?;
    host[place..place + NAME_LENGTH].fill(0);
    host[place..place + program.len()].copy_from_slice(program.as_bytes());

    let mut bundle = Bundle { image: host, entries: Vec::new() };
    bundle.add(CORE_LIBRARY, core, ASSEMBLY, 4096);
    bundle.add(&format!("{name}.deps.json"), dependencies(name, framework).to_string().as_bytes(), DEPENDENCIES, 16);
    bundle.add(&format!("{name}.runtimeconfig.json"), settings().to_string().as_bytes(), RUNTIME_CONFIG, 16);
    Ok(bundle.finish(slot, name))
}

/// The dependencies of the program, as the SDK writes them.
fn dependencies(name: &str, framework: &[String]) -> Value {
    let versions = json!({ "assemblyVersion": "10.0.0.0", "fileVersion": "10.0.0.0" });
    let libraries: Map<_, _> = framework.iter().map(|library| (library.clone(), versions.clone())).collect();
    let (program, pack) = (format!("{name}/1.0.0"), format!("{FRAMEWORK}/{FRAMEWORK_VERSION}"));
    let known = |kind: &str| json!({ "type": kind, "serviceable": false, "sha512": "" });
    json!({
        "runtimeTarget": { "name": TARGET, "signature": "" },
        "targets": { TARGET: {
            program.clone(): {
                "dependencies": { FRAMEWORK: FRAMEWORK_VERSION },
                "runtime": { format!("{name}.dll"): {} },
            },
            pack.clone(): { "runtime": libraries },
        } },
        "libraries": { program: known("project"), pack: known("runtimepack") },
    })
}

fn settings() -> Value {
    json!({ "runtimeOptions": {
        "tfm": "net10.0",
        "includedFrameworks": [{ "name": "Microsoft.NETCore.App", "version": FRAMEWORK_VERSION }],
        "configProperties": { "System.Globalization.Invariant": true },
    } })
}

/// A bundle under construction.
struct Bundle {
    image: Vec<u8>,
    entries: Vec<Entry>,
}

struct Entry {
    name: String,
    kind: u8,
    offset: usize,
    length: usize,
}

impl Bundle {
    fn add(&mut self, name: &str, content: &[u8], kind: u8, alignment: usize) {
        self.image.resize(self.image.len().next_multiple_of(alignment), 0);
        let entry = Entry { name: name.to_owned(), kind, offset: self.image.len(), length: content.len() };
        self.entries.push(entry);
        self.image.extend(content);
    }

    /// Appends the manifest, version 6 of the format, and writes its offset to the host at `slot`.
    fn finish(mut self, slot: usize, identity: &str) -> Vec<u8> {
        self.image.resize(self.image.len().next_multiple_of(16), 0);
        let manifest = self.image.len() as u64;
        self.image[slot..slot + 8].copy_from_slice(&manifest.to_le_bytes());
        let image = &mut self.image;
        image.extend(6_u32.to_le_bytes());
        image.extend(0_u32.to_le_bytes());
        image.extend((self.entries.len() as u32).to_le_bytes());
        text(image, identity);
        for kind in [DEPENDENCIES, RUNTIME_CONFIG] {
            let entry = self.entries.iter().find(|entry| entry.kind == kind);
            let place = entry.map_or((0, 0), |entry| (entry.offset, entry.length));
            image.extend([place.0 as u64, place.1 as u64].map(u64::to_le_bytes).concat());
        }
        // No flags: nothing is unpacked.
        image.extend(0_u64.to_le_bytes());
        for entry in &self.entries {
            // The third is the length when compressed, which it is not.
            image.extend([entry.offset as u64, entry.length as u64, 0].map(u64::to_le_bytes).concat());
            image.push(entry.kind);
            text(image, &entry.name);
        }
        self.image
    }
}

/// Appends a text after its length, seven bits a byte, the lowest first.
fn text(image: &mut Vec<u8>, text: &str) {
    let mut length = text.len();
    while length > 127 {
        image.push((length & 127) as u8 | 128);
        length >>= 7;
    }
    image.push(length as u8);
    image.extend(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_told_its_program_and_where_its_bundle_lies() {
        let host = [&[1; 24][..], &SIGNATURE, NAME_BEFORE, &[0; NAME_LENGTH], &[2; 5]].concat();
        let made = image(host.clone(), "Hello", &["System.Runtime.dll".to_owned()], b"core").unwrap();
        let place = 24 + SIGNATURE.len();
        assert_eq!(&made[place..place + 10], b"Hello.dll\0");
        let manifest = u64::from_le_bytes(made[16..24].try_into().unwrap()) as usize;
        assert_eq!(&made[manifest..manifest + 18], b"\x06\0\0\0\0\0\0\0\x03\0\0\0\x05Hello");
        assert!(made[host.len()..manifest].windows(4).any(|window| window == b"core"));
        let error = image(host, &"x".repeat(70), &[], b"").unwrap_err().to_string();
        assert!(error.contains("longer than"), "{error}");
        assert!(image(vec![0; 100], "Hello", &[], b"").unwrap_err().to_string().contains("no place for a bundle"));
    }

    #[test]
    fn the_length_of_a_text_takes_as_many_bytes_as_it_needs() {
        let mut image = Vec::new();
        text(&mut image, &"x".repeat(300));
        assert_eq!((&image[..2], image.len()), (&[0xac, 0x02][..], 302));
    }
}
