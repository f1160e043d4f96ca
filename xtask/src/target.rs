//! Building for another system: the target's standard library, had in one of two ways.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::arm64;
use crate::cargo;
use crate::process::{self, announce, find_on_path, note};
use crate::tools::{self, Packages};

/// A compiler whose package has the sources of its standard library, so that it can be built for any target.
const PACKAGES: Packages =
    Packages { what: "a Rust compiler with the sources of its library", names: &["rustc-web", "rust-web-src"] };

/// Where that compiler is.
const PACKAGED_RUSTC: &str = "/usr/bin/rustc";
/// Where its sources are.
const PACKAGED_SOURCES: &str = "/usr/lib/rustlib/src/rust/library/std";

/// Another system to build for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum System {
    /// Windows x64, linked with mingw, which every Linux has.
    Windows,
    /// Linux on arm64, with glibc.
    Arm64,
}

impl System {
    /// What Rust calls it.
    #[must_use]
    pub fn triple(self) -> &'static str {
        match self {
            Self::Windows => "x86_64-pc-windows-gnu",
            Self::Arm64 => "aarch64-unknown-linux-gnu",
        }
    }

    /// The folder of its builds, where they are not made by the compiler that builds everything else.
    fn folder(self) -> &'static str {
        match self {
            Self::Windows => "windows",
            Self::Arm64 => "arm64",
        }
    }

    /// Whether the compiler that cargo uses here has the library.
    fn is_installed(self) -> Result<bool> {
        let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
        rustc.current_dir(cargo::workspace_root());
        let folder = process::output(rustc.args(["--print", "target-libdir", "--target", self.triple()]))?;
        Ok(Path::new(folder.trim()).is_dir())
    }
}

/// A system to build for, and how its standard library comes about.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    system: System,
    /// Where everything is built by Debian's compiler, the library included; else rustup has installed that.
    built_in: Option<PathBuf>,
}

impl Target {
    /// Sees whether the library is there, and else has rustup bring it; where that cannot be, Debian's packages.
    ///
    /// # Errors
    /// If neither way works here; the error says what to type.
    pub fn prepare(system: System, target_directory: &Path) -> Result<Self> {
        let installed = Self { system, built_in: None };
        let triple = system.triple();
        if system.is_installed()? {
            return Ok(installed);
        }
        announce(format_args!("Rust's standard library for {triple} is missing: having rustup bring it"));
        let added = match find_on_path("rustup") {
            // Once again is enough: a machine without access should not wait for minutes.
            Some(rustup) => process::run_as_progress(
                Command::new(rustup)
                    .current_dir(cargo::workspace_root())
                    .args(["target", "add", triple])
                    .env("RUSTUP_MAX_RETRIES", "1"),
            ),
            None => Err(anyhow::anyhow!("there is no rustup on PATH")),
        };
        match added {
            Ok(()) if system.is_installed()? => return Ok(installed),
            Ok(()) => note("rustup brought it, but not for the compiler that cargo uses here"),
            Err(error) => note(format_args!("that does not work: {error:#}")),
        }
        note(format_args!("building it instead, from Debian's sources by Debian's compiler"));
        if !process::is_executable(Path::new(PACKAGED_RUSTC)) || !Path::new(PACKAGED_SOURCES).is_dir() {
            tools::install_packages(&PACKAGES)
                .with_context(|| format!("no standard library for {triple}: `rustup target add {triple}`, or"))?;
        }
        Ok(Self { system, built_in: Some(target_directory.join(system.folder())) })
    }

    /// `cargo SUBCOMMAND` for the system.
    #[must_use]
    pub fn cargo(&self, subcommand: &str) -> Command {
        let mut command = cargo::cargo();
        command.args([subcommand, "--target", self.system.triple()]);
        // The command's built-in profilers are a build of their own, and nobody runs the command there.
        command.env("CORPROF_BUNDLE", "");
        if self.system == System::Arm64 {
            command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", arm64::GCC);
        }
        if let Some(folder) = &self.built_in {
            command.arg("-Zbuild-std=std,panic_unwind,test").arg("--target-dir").arg(folder);
            // The flag above is not stable; the compiler's version is what Debian pins.
            command.env("RUSTC", PACKAGED_RUSTC).env("RUSTC_BOOTSTRAP", "1");
        }
        command
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
