//! Finds the reasons for which a runtime would silently not load a library. Each finding has a name and a cure.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use object::BinaryFormat;
use serde::Serialize;

use crate::image::{self, FACTORY, Image, Libc};

/// A problem, with its cure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its name, for scripts and for the table in the book.
    pub id: &'static str,
    /// The problem.
    pub what: String,
    /// The cure.
    pub cure: String,
}

impl Finding {
    /// A finding with this name.
    pub fn new(id: &'static str, what: impl Into<String>, cure: impl Into<String>) -> Self {
        Self { id, what: what.into(), cure: cure.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}\n    cure: {}", self.id, self.what, self.cure)
    }
}

/// The oldest .NET that profilers load into.
pub const OLDEST: u32 = 8;

/// The number before the first dot of a runtime's version.
pub fn major(version: &str) -> Option<u32> {
    version.split('.').next()?.parse().ok()
}

/// The finding about a process whose runtime has this version, if it is older than profilers need.
pub fn too_old(version: &str) -> Option<Finding> {
    let is_old = major(version).is_some_and(|major| major < OLDEST);
    let what = || format!("the process runs .NET {version}, and profilers need .NET {OLDEST} or later");
    is_old.then(|| Finding::new("runtime-too-old", what(), format!("run the application on .NET {OLDEST} or later")))
}

/// The finding about a program that has no CLR, and so no profilers, because it was compiled ahead of time.
pub fn compiled_ahead(program: Option<&Image>) -> Option<Finding> {
    program.filter(|program| program.is_native_aot).map(|_| {
        let what = "the application is compiled ahead of time (NativeAOT): it has no CLR, and profilers of the CLR are not loaded";
        let cure = "publish it without PublishAot to profile it; a profiler of native code (perf) sees it as it is";
        Finding::new("compiled-ahead", what, cure)
    })
}

/// The same about a running process that has a diagnostics port: its program has the marks, or it has neither mapped a
/// runtime nor contains one. Of a library that a native program has loaded, only the latter tells.
pub fn runs_compiled_ahead(mapped: Option<&BTreeSet<PathBuf>>, program: Option<&Image>) -> Option<Finding> {
    if let Some(finding) = compiled_ahead(program) {
        return Some(finding);
    }
    let mapped = mapped.filter(|mapped| !mapped.is_empty())?;
    let program = program?;
    let is_runtime = |path: &PathBuf| {
        let name = path.file_name().map(OsStr::to_string_lossy).unwrap_or_default();
        name == "libcoreclr.so" || name.starts_with("libmono")
    };
    if program.has_clr || mapped.iter().any(is_runtime) {
        return None;
    }
    let what = "the process has a diagnostics port and no CLR: its code is compiled ahead of time (NativeAOT)";
    let cure =
        "publish it without PublishAot to profile it; `corprof events` works, and a profiler of native code (perf)";
    Some(Finding::new("compiled-ahead", what, cure))
}

/// On Linux the runtime does not read a longer CORECLR_PROFILER_PATH (tested on .NET 8).
const LONGEST_PATH: usize = 1023;

/// The place that a library is to be loaded into.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// The application's program, which determines loader and C library.
    pub program: Option<&'a Image>,
    /// The application's LD_LIBRARY_PATH.
    pub library_path: Option<&'a OsStr>,
}

/// The problems of the library at `path` in `place`. The checks have an order; some end the search.
pub fn library(path: &Path, place: Place<'_>) -> Vec<Finding> {
    let shown = path.display();
    if !path.is_absolute() {
        let what = format!("the path {shown} is not absolute: the runtime searches for it as for any library");
        return vec![Finding::new("path-not-absolute", what, "give the absolute path")];
    }
    if cfg!(unix) && path.as_os_str().len() > LONGEST_PATH {
        let what =
            format!("the path has {} bytes, and the runtime reads {LONGEST_PATH}: {shown}", path.as_os_str().len());
        return vec![Finding::new("path-too-long", what, "copy the library to a folder with a shorter path")];
    }
    let bytes = match image::read(path) {
        Ok(bytes) => bytes,
        Err(error) => return vec![unreadable(path, &error)],
    };
    let missing = image::missing_bytes(&bytes);
    if missing > 0 {
        let what = format!("{shown} lacks its last {missing} bytes: a process that loads it dies of SIGBUS");
        return vec![Finding::new("library-truncated", what, "copy or build it again (was the disk full?)")];
    }
    let image = match Image::parse(&bytes) {
        Ok(image) => image,
        Err(error) => {
            let what = format!("{shown} is not a library: {error:#}");
            let cure = "name the .so, .dll or .dylib that cargo has built, which is in target/debug or target/release";
            return vec![Finding::new("not-a-library", what, cure)];
        }
    };
    let of_place = in_place(path, &image, place);
    if !of_place.is_empty() {
        return of_place;
    }
    let mut findings = dependencies(path, &image, place);
    findings.extend(no_code_from(path, &std::fs::read_to_string("/proc/self/mounts").unwrap_or_default()));
    findings
}

/// The folder and the options of the mount that `path` is on, by a table of mounts.
pub fn mount_of<'m>(path: &Path, mounts: &'m str) -> Option<(String, &'m str)> {
    let mounts = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        // A later mount over the same folder hides the earlier one.
        Some((fields.next()?.replace("\\040", " "), fields.nth(1)?))
    });
    mounts.filter(|(folder, _)| path.starts_with(folder)).max_by_key(|(folder, _)| folder.len())
}

/// Whether the file is on a file system without permission to execute, by a table of mounts.
fn no_code_from(path: &Path, mounts: &str) -> Option<Finding> {
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let (folder, options) = mount_of(&real, mounts)?;
    options.split(',').any(|option| option == "noexec").then(|| {
        let what = format!(
            "{} is on the file system {folder}, which is mounted noexec: no code is loaded from it",
            path.display()
        );
        Finding::new("noexec-mount", what, "copy the library to a file system without noexec")
    })
}

fn unreadable(path: &Path, error: &std::io::Error) -> Finding {
    let shown = path.display();
    if error.kind() == std::io::ErrorKind::NotFound {
        let cure = "build it (`cargo build --release`), and give the path of the file that cargo has made";
        return Finding::new("library-missing", format!("there is no library {shown}"), cure);
    }
    let cure = "let the user who runs the application read the file, and enter all folders above it";
    Finding::new("library-unreadable", format!("{shown} cannot be read: {error}"), cure)
}

/// The problems of the image itself.
fn in_place(path: &Path, image: &Image, place: Place<'_>) -> Vec<Finding> {
    let shown = path.display();
    let one = |id, what: String, cure: &str| vec![Finding::new(id, what, cure)];
    if !image.is_library {
        let cure = "give the library: the crate of a profiler has crate-type = [\"cdylib\"]";
        return one("not-a-library", format!("{shown} is an executable"), cure);
    }
    let own_format = if cfg!(windows) {
        BinaryFormat::Pe
    } else if cfg!(target_os = "macos") {
        BinaryFormat::MachO
    } else {
        BinaryFormat::Elf
    };
    let format = place.program.map_or(own_format, |program| program.format);
    if image.format != format {
        let here = place.program.map_or(std::env::consts::OS, Image::system);
        let what = format!("{shown} is a library for {}, and the application runs on {here}", image.system());
        return one(
            "wrong-system",
            what,
            "build the profiler for the system of the application (`cargo build --target …`)",
        );
    }
    let architecture = place.program.map_or_else(image::own_architecture, |program| program.architecture);
    if image.architecture != architecture {
        let library = image::processor(image.architecture);
        let application = image::processor(architecture);
        let what = format!("{shown} is for {library}, and the application is for {application}");
        return one(
            "wrong-architecture",
            what,
            "build the profiler for the application's processor (`cargo build --target …`)",
        );
    }
    if let (Some(library), Some(application)) = (image.libc, place.program.and_then(|program| program.libc))
        && library != application
    {
        let what = format!("{shown} is linked against {library}, and the application against {application}");
        let target = match application {
            Libc::Musl => {
                "musl: `cargo build --target x86_64-unknown-linux-musl` with RUSTFLAGS=-Ctarget-feature=-crt-static"
            }
            Libc::Glibc => "glibc: `cargo build --target x86_64-unknown-linux-gnu`",
        };
        return vec![Finding::new("wrong-libc", what, format!("build the profiler for {target}"))];
    }
    if !image.has_factory {
        let what = format!("{shown} does not export {FACTORY}, so it is not a profiler");
        let cure =
            "derive Profiler in the crate of the library itself (crate-type = [\"cdylib\"]), or call corprof::export!";
        return one("no-entry-point", what, cure);
    }
    Vec::new()
}

/// The dependencies that the loader does not find. The loader only lists them, and runs no code of the library.
fn dependencies(path: &Path, image: &Image, place: Place<'_>) -> Vec<Finding> {
    let Some(interpreter) = place.program.and_then(|program| program.interpreter.as_deref()) else { return Vec::new() };
    if image.architecture != image::own_architecture() || !interpreter.is_file() {
        return Vec::new();
    }
    let mut command = Command::new(interpreter);
    if interpreter.to_string_lossy().contains("musl") {
        command.arg("--list");
    } else {
        // As `ldd` asks: glibc's `--list` ends at the first library that is missing.
        command.env("LD_TRACE_LOADED_OBJECTS", "1");
    }
    command.arg(path).stdin(Stdio::null());
    match place.library_path {
        Some(folders) => command.env("LD_LIBRARY_PATH", folders),
        None => command.env_remove("LD_LIBRARY_PATH"),
    };
    let Ok(output) = command.output() else { return Vec::new() };
    let text = [output.stdout, output.stderr].concat();
    let missing = missing(&String::from_utf8_lossy(&text));
    if missing.is_empty() {
        return Vec::new();
    }
    let what = format!("{} has dependencies that the loader does not find: {}", path.display(), missing.join("; "));
    let cure = "install these libraries, name their folder in LD_LIBRARY_PATH of the application (`--env`), or build the \
                profiler on an older system";
    vec![Finding::new("missing-dependency", what, cure)]
}

/// Parses the messages of the loaders of glibc and musl about missing dependencies.
fn missing(text: &str) -> Vec<String> {
    let line = |line: &str| {
        let line = line.trim();
        if let Some(name) = line.strip_suffix("=> not found") {
            return Some(name.trim().to_owned());
        }
        if line.contains("version `") && line.ends_with(')') && line.contains("not found (required by") {
            let version = line.split('`').nth(1)?.split('\'').next()?;
            return Some(format!("version {version} of {}", line.split(": ").nth(1).unwrap_or("a library")));
        }
        let name = line.strip_prefix("Error loading shared library ")?;
        Some(name.split(':').next()?.to_owned())
    };
    let mut found: Vec<String> = text.lines().filter_map(line).collect();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loaders_say_what_is_missing() {
        let glibc = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibgone.so.3 => not found\n\tlibc.so.6 => /lib/libc.so.6 (0x1)\n\
                     /x/lib.so: /lib/libc.so.6: version `GLIBC_2.99' not found (required by /x/lib.so)\n";
        assert_eq!(missing(glibc), ["libgone.so.3", "version GLIBC_2.99 of /lib/libc.so.6"]);
        let musl = "Error loading shared library libgone.so: No such file or directory (needed by /x/lib.so)\n";
        assert_eq!(missing(musl), ["libgone.so"]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_system_without_code_has_a_name() {
        let mounts = "/dev/a / ext4 rw 0 0\ntmpfs /nowhere/a\\040b tmpfs rw,noexec,nosuid 0 0\n";
        let found = |path: &str| no_code_from(Path::new(path), mounts).map(|finding| finding.id);
        assert_eq!(found("/nowhere/a b/lib.so"), Some("noexec-mount"));
        assert_eq!(found("/nowhere/else/lib.so"), None);
    }

    #[cfg(target_os = "linux")]
    mod broken {
        use super::*;
        use std::fs;
        use std::path::PathBuf;

        /// The name of the first finding about a library that `change` has made of a good one.
        fn found(name: &str, place: Place<'_>, change: impl FnOnce(&Path)) -> Vec<&'static str> {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join(name);
            change(&path);
            library(&path, place).into_iter().map(|finding| finding.id).collect()
        }

        fn compile(path: &Path, source: &str, args: &[&str]) {
            let file = path.with_extension("c");
            fs::write(&file, source).unwrap();
            let mut command = Command::new("cc");
            command.args(["-shared", "-fPIC", "-o"]).arg(path).arg(&file).args(args);
            assert!(command.status().expect("the tests need a C compiler").success());
        }

        /// It needs the C library, by which libraries for another one are told.
        const FACTORY_IN_C: &str = "#include <stdlib.h>\nint DllGetClassObject(void) { return getenv(\"X\") != 0; }";

        fn shell() -> Image {
            Image::of_program(Path::new("/bin/sh")).unwrap()
        }

        #[test]
        fn each_broken_library_has_a_name() {
            let program = shell();
            let place = Place { program: Some(&program), library_path: None };
            assert_eq!(found("good.so", place, |path| compile(path, FACTORY_IN_C, &[])), [""; 0]);
            assert_eq!(found("gone.so", place, |_| {}), ["library-missing"]);
            assert_eq!(found("text.so", place, |path| fs::write(path, "text").unwrap()), ["not-a-library"]);
            assert_eq!(found("empty.so", place, |path| fs::write(path, "").unwrap()), ["not-a-library"]);
            let cut = |bytes: usize| {
                move |path: &Path| {
                    compile(path, FACTORY_IN_C, &[]);
                    let whole = fs::read(path).unwrap();
                    fs::write(path, &whole[..whole.len() - bytes]).unwrap();
                }
            };
            assert_eq!(found("cut.so", place, cut(1)), ["library-truncated"]);
            assert_eq!(found("half.so", place, cut(8_000)), ["library-truncated"]);
            assert_eq!(found("folder.so", place, |path| fs::create_dir(path).unwrap()), ["library-unreadable"]);
            let other = |path: &Path| compile(path, "int something_else(void) { return 0; }", &[]);
            assert_eq!(found("other.so", place, other), ["no-entry-point"]);
            let relative = library(Path::new("libx.so"), place);
            assert_eq!(relative[0].id, "path-not-absolute");
            let long = PathBuf::from(format!("/{}", "x".repeat(LONGEST_PATH)));
            assert_eq!(library(&long, place)[0].id, "path-too-long");
        }

        #[test]
        fn a_library_for_another_place_has_a_name() {
            let mut program = shell();
            let make = |path: &Path| compile(path, FACTORY_IN_C, &[]);
            program.libc = Some(Libc::Musl);
            assert_eq!(found("a.so", Place { program: Some(&program), library_path: None }, make), ["wrong-libc"]);
            let mut program = shell();
            program.architecture = object::Architecture::PowerPc64;
            let place = Place { program: Some(&program), library_path: None };
            assert_eq!(found("a.so", place, make), ["wrong-architecture"]);
            program.format = BinaryFormat::Pe;
            let place = Place { program: Some(&program), library_path: None };
            assert_eq!(found("a.so", place, make), ["wrong-system"]);
        }

        #[test]
        fn a_missing_dependency_is_named_and_found_by_its_folder() {
            let program = shell();
            let dir = tempfile::tempdir().unwrap();
            let needed = dir.path().join("libneeded.so");
            compile(&needed, "int needed(void) { return 1; }", &[]);
            let path = dir.path().join("needs.so");
            let folder = format!("-L{}", dir.path().display());
            let source = "int needed(void); int DllGetClassObject(void) { return needed(); }";
            compile(&path, source, &[&folder, "-lneeded"]);
            let place = Place { program: Some(&program), library_path: None };
            let findings = library(&path, place);
            assert_eq!(findings.len(), 1, "{findings:?}");
            assert_eq!(findings[0].id, "missing-dependency");
            assert!(findings[0].what.contains("libneeded.so"), "{findings:?}");
            let place = Place { library_path: Some(dir.path().as_os_str()), ..place };
            assert_eq!(library(&path, place), []);
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_process_without_a_runtime_is_compiled_ahead() {
        let shell = Image::of_program(Path::new("/bin/sh")).unwrap();
        let mapped = |name: &str| BTreeSet::from([PathBuf::from("/lib/libc.so.6"), PathBuf::from(name)]);
        let found = |name: &str, program: &Image| {
            runs_compiled_ahead(Some(&mapped(name)), Some(program)).map(|finding| finding.id)
        };
        assert_eq!(found("/x/App", &shell), Some("compiled-ahead"));
        assert_eq!(found("/x/libcoreclr.so", &shell), None);
        assert_eq!(found("/x/libmonosgen-2.0.so", &shell), None);
        assert_eq!(found("/x/App", &Image { has_clr: true, ..shell.clone() }), None, "a single file");
        assert_eq!(found("/x/App", &Image { is_native_aot: true, ..shell.clone() }), Some("compiled-ahead"));
        assert_eq!(runs_compiled_ahead(None, Some(&shell)), None, "another user's, or another system");
    }

    #[test]
    fn runtimes_before_net_8_are_too_old() {
        let finding = too_old("3.1.23").unwrap().to_string();
        assert!(finding.contains("runs .NET 3.1.23, and profilers need .NET 8 or later"), "{finding}");
        assert!(too_old("7.0.20").is_some() && too_old("8.0.4").is_none() && too_old("10.0.0").is_none());
    }
}
