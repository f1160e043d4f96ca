//! Linux with musl, the C library of Alpine, on a machine with glibc: its loader comes from Debian's package, the rest
//! of it from the folder of runtimes.
//!
//! Nothing is emulated. The .NET for musl is laid over a copy of the one for glibc: only the native files differ.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cache::Cache;
use crate::folder::Folder;
use crate::process::{self, find_on_path};
use crate::target::{System, Target};
use crate::tools::{self, Packages};

/// The packages on Debian and its derivatives.
const PACKAGES: Packages =
    Packages { what: "the loader of musl and a linker for it", names: &["musl", "musl-dev", "musl-tools"] };

/// The loader, which is also the C library.
pub(crate) const LOADER: &str = "/lib/ld-musl-x86_64.so.1";
/// The C compiler for musl, which is also the linker that Rust calls for the target.
const GCC: &str = "musl-gcc";

/// The folder of libraries in a .NET for musl.
const LIBRARIES: &str = "musl";

/// The runtimes for musl, by their names for `--runtime`, the newest first.
pub const RUNTIMES: [&str; 2] = ["11", "10"];

/// The libraries of a system with musl that .NET and profilers need.
#[derive(Debug, Clone, PartialEq)]
pub struct Musl {
    /// The folder with libstdc++ and libgcc_s.
    pub libraries: PathBuf,
}

impl Musl {
    /// The environment of programs for musl: where their libraries are, and that there is no ICU, as in the images of
    /// Alpine.
    #[must_use]
    pub fn environment(&self) -> [(&'static str, OsString); 2] {
        [("LD_LIBRARY_PATH", self.libraries.clone().into()), ("DOTNET_SYSTEM_GLOBALIZATION_INVARIANT", "1".into())]
    }
}

/// Installs the loader and the linker if they are missing.
///
/// # Errors
/// If this machine cannot run programs for musl, or if they are missing and cannot be installed; the error says what to
/// type.
pub fn install_tools() -> Result<()> {
    ensure!(is_supported(), "programs for musl run on Linux x64 only: leave --musl out");
    if !has_tools() {
        tools::install_packages(&PACKAGES)?;
    }
    ensure!(has_tools(), "no {LOADER} or no {GCC}, though {} are installed", PACKAGES.names.join(" "));
    Ok(())
}

/// Why this machine cannot run the runtime `name` for musl, if that cannot be changed; `None` if it can, or if we are
/// root and [`install_tools`] can install what is missing.
#[must_use]
pub fn lacks(name: &str) -> Option<String> {
    if !is_supported() {
        return Some("for x86-64 Linux only".to_owned());
    }
    let can_install = find_on_path("apt-get").is_some() && process::is_root();
    if !has_tools() && !can_install {
        return Some(format!("no musl: as root type {}", tools::install_command(&PACKAGES)));
    }
    (!is_here(name)).then(|| missing(name))
}

/// Unpacks the runtime `name` for musl; returns its folder, and what runs it.
///
/// # Errors
/// As [`Folder::unpack`], or if no folder has it.
pub fn unpack(name: &str, cache: &Cache) -> Result<(PathBuf, Musl)> {
    let [glibc, musl] = archives(name);
    let folder = Folder::find().filter(|folder| folder.has(&glibc) && folder.has(&musl));
    let folder = folder.with_context(|| missing(name))?;
    let root = folder.unpack_over(&musl, &folder.unpack(&glibc, cache)?, cache)?;
    let emulator = Musl { libraries: root.join(LIBRARIES) };
    Ok((root, emulator))
}

/// `cargo build` for musl by `target`, linked dynamically: a library that has a C library in it cannot be loaded.
///
/// # Errors
/// As [`unpack`], whose libgcc_s it takes.
pub fn cargo_build(target: &Target, cache: &Cache) -> Result<Command> {
    // The same for all runtimes, or everything would be built anew for each.
    let newest = RUNTIMES.into_iter().find(|name| is_here(name)).unwrap_or(RUNTIMES[0]);
    let (_, Musl { libraries }) = unpack(newest, cache)?;
    let mut flags = format!("-C target-feature=-crt-static -L native={}", libraries.display());
    let mut cargo = target.cargo("build");
    cargo.env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_LINKER", GCC);
    // The linker that Rust has brought and links programs for glibc by. GNU's takes as long as the compiler.
    let linkers = System::X64.libraries()?.with_file_name("bin").join("gcc-ld");
    if linkers.join("ld.lld").is_file() {
        flags += " -C link-arg=-fuse-ld=lld";
        cargo.env("COMPILER_PATH", linkers);
    }
    cargo.env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_RUSTFLAGS", flags);
    Ok(cargo)
}

fn is_here(name: &str) -> bool {
    Folder::find().is_some_and(|folder| archives(name).iter().all(|archive| folder.has(archive)))
}

/// The archives that make up a runtime: of the one for glibc, and of what differs for musl.
fn archives(name: &str) -> [String; 2] {
    ["linux-x64", "linux-musl-x64"].map(|system| format!("dotnet-{name}-{system}"))
}

fn missing(name: &str) -> String {
    let [glibc, musl] = archives(name);
    format!(
        "there is no .NET {name} for musl here: name a folder that has {glibc}.tar.xz and {musl}.tar.xz by CORPROF_RUNTIMES \
         (CONTRIBUTING.md, Runtimes)"
    )
}

fn is_supported() -> bool {
    cfg!(all(target_os = "linux", target_arch = "x86_64"))
}

fn has_tools() -> bool {
    Path::new(LOADER).exists() && find_on_path(GCC).is_some()
}
