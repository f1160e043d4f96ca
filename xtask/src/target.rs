//! Builds for another system, with its standard library from one of two sources.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::arm64;
use crate::cargo;
use crate::process::{self, announce, find_on_path, note};
use crate::tools::{self, Packages};

/// A compiler whose package includes the sources of its standard library, so that it can build it for any target.
const PACKAGES: Packages =
    Packages { what: "a Rust compiler with the sources of its library", names: &["rustc-web", "rust-web-src"] };

/// The path of that compiler.
const PACKAGED_RUSTC: &str = "/usr/bin/rustc";
/// The path of its sources.
const PACKAGED_SOURCES: &str = "/usr/lib/rustlib/src/rust/library/std";

/// Another system to build for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum System {
    /// Windows x64, linked with mingw, which every Linux has.
    Windows,
    /// Linux on arm64, with glibc.
    Arm64,
    /// Linux on x64, with glibc.
    X64,
    /// Linux on x64, with musl.
    Musl,
    /// Linux on arm64, with musl.
    MuslArm64,
}

impl System {
    /// Its name in Rust.
    #[must_use]
    pub fn triple(self) -> &'static str {
        match self {
            Self::Windows => "x86_64-pc-windows-gnu",
            Self::Arm64 => "aarch64-unknown-linux-gnu",
            Self::X64 => "x86_64-unknown-linux-gnu",
            Self::Musl => "x86_64-unknown-linux-musl",
            Self::MuslArm64 => "aarch64-unknown-linux-musl",
        }
    }

    /// The folder of its builds, if they are not made by the compiler of all other builds.
    fn folder(self) -> &'static str {
        match self {
            Self::Windows => "windows",
            Self::Arm64 => "arm64",
            Self::X64 => "x64",
            Self::Musl => "musl",
            Self::MuslArm64 => "musl-arm64",
        }
    }

    /// Whether cargo's current compiler has the library.
    fn is_installed(self) -> Result<bool> {
        Ok(self.libraries()?.is_dir())
    }

    /// The folder where cargo's current compiler has the library, if it has it.
    pub(crate) fn libraries(self) -> Result<PathBuf> {
        let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
        rustc.current_dir(cargo::workspace_root());
        let folder = process::output(rustc.args(["--print", "target-libdir", "--target", self.triple()]))?;
        Ok(folder.trim().into())
    }
}

/// A system to build for, and the source of its standard library.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    system: System,
    /// Set if Debian's compiler builds everything, including the library; otherwise rustup has installed the library.
    built_in: Option<PathBuf>,
}

impl Target {
    /// Checks for the library; if it is missing, installs it by rustup, or if that fails by Debian's packages.
    ///
    /// # Errors
    /// If neither way works here; the error says what to type.
    pub fn prepare(system: System, target_directory: &Path) -> Result<Self> {
        if let Some(installed) = Self::by_rustup(system)? {
            return Ok(installed);
        }
        let triple = system.triple();
        note(format_args!("building it instead, from Debian's sources by Debian's compiler"));
        if !process::is_executable(Path::new(PACKAGED_RUSTC)) || !Path::new(PACKAGED_SOURCES).is_dir() {
            tools::install_packages(&PACKAGES)
                .with_context(|| format!("no standard library for {triple}: `rustup target add {triple}`, or"))?;
        }
        Ok(Self { system, built_in: Some(target_directory.join(system.folder())) })
    }

    /// The system with the library for the compiler that cargo uses here, which rustup brings if it is missing; none if
    /// it cannot.
    ///
    /// # Errors
    /// If the compiler does not say where its libraries are.
    pub fn by_rustup(system: System) -> Result<Option<Self>> {
        let installed = Self { system, built_in: None };
        if system.is_installed()? {
            return Ok(Some(installed));
        }
        let triple = system.triple();
        announce(format_args!("Rust's standard library for {triple} is missing: having rustup bring it"));
        let added = match find_on_path("rustup") {
            // One retry is enough: a machine without access should not wait for minutes.
            Some(rustup) => process::run_as_progress(
                Command::new(rustup)
                    .current_dir(cargo::workspace_root())
                    .args(["target", "add", triple])
                    .env("RUSTUP_MAX_RETRIES", "1"),
            ),
            None => Err(anyhow::anyhow!("there is no rustup on PATH")),
        };
        match added {
            Ok(()) if system.is_installed()? => return Ok(Some(installed)),
            Ok(()) => note("rustup brought it, but not for the compiler that cargo uses here"),
            Err(error) => note(format_args!("that does not work: {error:#}")),
        }
        Ok(None)
    }

    /// `cargo SUBCOMMAND` for the system.
    #[must_use]
    pub fn cargo(&self, subcommand: &str) -> Command {
        let mut command = cargo::cargo();
        command.args([subcommand, "--target", self.system.triple()]);
        // The command's built-in profilers are a separate build; there the command is tested with others.
        command.env("CORPROF_BUNDLE", "");
        if self.system == System::Arm64 {
            command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", arm64::GCC);
        }
        if let Some(folder) = &self.built_in {
            command.arg("--target-dir").arg(folder);
        }
        self.choose_compiler(&mut command);
        command
    }

    /// Has `command`, which is a cargo or starts one, use the compiler that has the library.
    pub(crate) fn choose_compiler(&self, command: &mut Command) {
        if self.built_in.is_some() {
            // The setting is unstable; Debian pins the compiler's version.
            command.env("CARGO_UNSTABLE_BUILD_STD", "std,panic_unwind,test");
            command.env("RUSTC", PACKAGED_RUSTC).env("RUSTC_BOOTSTRAP", "1");
        }
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let triple = self.system.triple();
        match self.built_in {
            None => write!(f, "{triple}, with the standard library that rustup has installed"),
            Some(_) => write!(f, "{triple}, with a standard library built by {PACKAGED_RUSTC}"),
        }
    }
}
