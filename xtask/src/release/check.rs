//! Checks what was built against what its systems have, and starts it where that is possible here.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use corprof_launch::image::{Image, Libc};
use corprof_launch::profiler;
use corprof_profilers::table::ALL;
use object::{Architecture, BinaryFormat};

use super::build::Built;
use super::system::{GLIBC, System};
use crate::arm64;
use crate::cache::Cache;
use crate::process::{self, note};
use crate::tools::{self, Packages};
use crate::windows::Wine;

/// The C library of Alpine.
const MUSL: Packages = Packages { what: "musl, the C library of Alpine", names: &["musl"] };
/// Its loader.
const MUSL_LOADER: &str = crate::musl::LOADER;

/// A program that loads the library as a runtime does, and creates each profiler's factory.
const LOADER: &str = include_str!("loader.c");

impl System {
    /// The libraries that every supported system of the kind has.
    fn libraries(self) -> &'static [&'static str] {
        match self {
            // .NET needs libgcc_s itself.
            Self::LinuxX64 | Self::LinuxArm64 => &[
                "libc.so.6",
                "libm.so.6",
                "libdl.so.2",
                "libpthread.so.0",
                "librt.so.1",
                "libgcc_s.so.1",
                "ld-linux-x86-64.so.2",
                "ld-linux-aarch64.so.1",
            ],
            Self::LinuxMuslX64 | Self::LinuxMuslArm64 => &["libc.so"],
            Self::WinX64 => &[
                "advapi32.dll",
                "combase.dll",
                "kernel32.dll",
                "msvcrt.dll",
                "ntdll.dll",
                "oleaut32.dll",
                "psapi.dll",
                "rpcrt4.dll",
                "shell32.dll",
                "user32.dll",
                "userenv.dll",
                "ws2_32.dll",
            ],
        }
    }

    fn is_part_of(self, library: &str) -> bool {
        let name = if self == Self::WinX64 { library.to_lowercase() } else { library.to_owned() };
        // Windows names its parts so since version 7.
        self.libraries().contains(&name.as_str()) || self == Self::WinX64 && is_api_set(&name)
    }
}

fn is_api_set(name: &str) -> bool {
    name.starts_with("api-ms-win-") || name == "bcryptprimitives.dll"
}

/// Checks the files, and starts them where this machine can.
pub(super) fn check(system: System, built: &Built, cache: &Cache, target_directory: &Path) -> Result<()> {
    for file in [&built.command, &built.library] {
        requirements(system, &Image::open(file)?).with_context(|| format!("{}", file.display()))?;
    }
    let found = profiler::profilers(&built.library)?;
    ensure!(found.len() == ALL.len(), "{} lacks profilers", built.library.display());
    let scratch = target_directory.join("release-check");
    match system {
        System::LinuxX64 => check_command(&built.command, &scratch),
        System::LinuxMuslX64 => load_with_musl(built, &found, cache, &scratch),
        // The loader of musl for arm64 is not in Debian.
        System::LinuxArm64 | System::LinuxMuslArm64 => {
            if let Some(why) = arm64::lacks() {
                note(format_args!("SKIPPED: starting the command for arm64: {why}"));
                return Ok(());
            }
            arm64::install_tools()?;
            starts(arm64::Qemu::start(&built.command))
        }
        System::WinX64 => {
            if process::find_on_path("wine").is_none() {
                note("SKIPPED: starting the command for Windows: no wine on PATH (on Debian: apt-get install wine)");
                return Ok(());
            }
            starts(Wine::install(cache)?.command(&built.command))
        }
    }
}

/// Checks that the command contains its profilers.
fn check_command(command: &Path, cache: &Path) -> Result<()> {
    if cache.exists() {
        std::fs::remove_dir_all(cache).with_context(|| format!("cannot empty {}", cache.display()))?;
    }
    // It unpacks them before it looks at the application, which is no .NET application here.
    let mut run = Command::new(command);
    run.args(["run", "sampler", "--"]).arg(command).arg("exit-codes").env("CORPROF_CACHE", cache);
    process::output(&mut run)?;
    let folder = cache.join("profilers");
    let library = std::fs::read_dir(&folder).with_context(|| folder.display().to_string())?.next();
    let library = library.context("the command has unpacked no profilers")??.path();
    let found: Vec<_> = profiler::profilers(&library)?.into_iter().map(|profiler| profiler.name).collect();
    ensure!(found.len() == ALL.len(), "{} has only {}", library.display(), found.join(", "));
    note(format_args!("{} brings {}", command.display(), found.join(", ")));
    Ok(())
}

/// Checks what the loader will look for.
fn requirements(system: System, image: &Image) -> Result<()> {
    let (format, processor, libc) = match system {
        System::LinuxX64 => (BinaryFormat::Elf, Architecture::X86_64, Some(Libc::Glibc)),
        System::LinuxArm64 => (BinaryFormat::Elf, Architecture::Aarch64, Some(Libc::Glibc)),
        // Zig links a program to musl statically, and a library dynamically.
        System::LinuxMuslX64 => (BinaryFormat::Elf, Architecture::X86_64, image.has_factory.then_some(Libc::Musl)),
        System::LinuxMuslArm64 => (BinaryFormat::Elf, Architecture::Aarch64, image.has_factory.then_some(Libc::Musl)),
        System::WinX64 => (BinaryFormat::Pe, Architecture::X86_64, None),
    };
    ensure!(
        (image.format, image.architecture, image.libc) == (format, processor, libc),
        "it is for {} on {:?} with {:?}, not for {}",
        image.system(),
        image.architecture,
        image.libc,
        system.name()
    );
    let foreign: Vec<_> = image.needed.iter().filter(|library| !system.is_part_of(library)).cloned().collect();
    ensure!(foreign.is_empty(), "it needs {}, which not every {} has", foreign.join(", "), system.name());
    let newer: Vec<_> = image.versions.iter().filter(|version| is_newer(version)).cloned().collect();
    ensure!(
        newer.is_empty(),
        "it needs {}, newer than the glibc {}.{} that a release is for",
        newer.join(", "),
        GLIBC.0,
        GLIBC.1
    );
    Ok(())
}

/// Whether `version`, such as `GLIBC_2.34`, is newer than the oldest glibc of a release.
fn is_newer(version: &str) -> bool {
    let Some(numbers) = version.strip_prefix("GLIBC_") else { return false };
    let mut numbers = numbers.split('.').map(|number| number.parse().unwrap_or(u32::MAX));
    (numbers.next().unwrap_or(u32::MAX), numbers.next().unwrap_or(0)) > GLIBC
}

/// Starts the command, which prints its version.
fn starts(mut command: Command) -> Result<()> {
    let said = process::output(command.arg("--version"))?;
    ensure!(said.starts_with("corprof "), "it prints `{said}`");
    note(format_args!("`{}` prints {}", process::shown(&command), said.trim_end()));
    Ok(())
}

/// Has a program for musl load the library.
fn load_with_musl(built: &Built, profilers: &[profiler::Profiler], cache: &Cache, scratch: &Path) -> Result<()> {
    if !Path::new(MUSL_LOADER).exists()
        && let Err(error) = tools::install_packages(&MUSL)
    {
        note(format_args!("SKIPPED: loading the library with musl: {error:#}"));
        return Ok(());
    }
    std::fs::create_dir_all(scratch).with_context(|| format!("cannot make {}", scratch.display()))?;
    let source: PathBuf = scratch.join("loader.c");
    let program: PathBuf = scratch.join("loader");
    std::fs::write(&source, LOADER).with_context(|| format!("cannot write {}", source.display()))?;
    let (_, zig) = tools::zigbuild(cache)?;
    let mut compile = Command::new(zig);
    compile.args(["cc", "-target", "x86_64-linux-musl", "-dynamic", "-O1", "-o"]).arg(&program).arg(&source);
    process::output(compile.env("ZIG_GLOBAL_CACHE_DIR", scratch.join("zig")))?;
    let mut load = Command::new(&program);
    load.arg(&built.library).args(profilers.iter().map(|profiler| &profiler.clsid));
    let said = process::output(&mut load)?;
    note(format_args!("{MUSL_LOADER} loads {}: {}", built.library.display(), said.trim_end()));
    starts(Command::new(&built.command))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image() -> Image {
        Image {
            has_clr: false,
            format: BinaryFormat::Elf,
            architecture: Architecture::X86_64,
            is_library: true,
            has_factory: true,
            is_native_aot: false,
            interpreter: None,
            libc: Some(Libc::Glibc),
            needed: vec!["libc.so.6".into(), "libgcc_s.so.1".into()],
            versions: vec!["GLIBC_2.28".into(), "GLIBC_2.2.5".into(), "GCC_3.0".into()],
        }
    }

    #[test]
    fn what_old_systems_lack_is_refused_by_name() {
        requirements(System::LinuxX64, &image()).unwrap();
        let refused = |image: Image| requirements(System::LinuxX64, &image).unwrap_err().to_string();
        let newer = refused(Image { versions: vec!["GLIBC_2.28".into(), "GLIBC_2.34".into()], ..image() });
        assert!(newer.contains("needs GLIBC_2.34,"), "{newer}");
        let foreign = refused(Image { needed: vec!["libc.so.6".into(), "libssl.so.3".into()], ..image() });
        assert!(foreign.contains("libssl.so.3"), "{foreign}");
        assert!(refused(Image { libc: Some(Libc::Musl), ..image() }).contains("not for linux-x64"));
    }

    #[test]
    fn versions_are_numbers() {
        assert!(
            is_newer("GLIBC_2.34") && is_newer("GLIBC_2.100") && is_newer("GLIBC_3.0") && is_newer("GLIBC_PRIVATE")
        );
        assert!(
            !is_newer("GLIBC_2.4") && !is_newer("GLIBC_2.28") && !is_newer("GLIBC_2.2.5") && !is_newer("GCC_4.2.0")
        );
    }
}
