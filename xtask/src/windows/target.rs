//! Building for Windows: the target's standard library, had in one of two ways.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::cargo;
use crate::process::{self, announce, find_on_path, note};
use crate::tools::{self, Packages};

/// What profilers for Windows are built for. This one links with mingw, which every Linux has.
const TRIPLE: &str = "x86_64-pc-windows-gnu";

/// A compiler whose package has the sources of its standard library, so that it can be built for any target.
const PACKAGES: Packages =
    Packages { what: "a Rust compiler with the sources of its library", names: &["rustc-web", "rust-web-src"] };

/// Where that compiler is.
const PACKAGED_RUSTC: &str = "/usr/bin/rustc";
/// Where its sources are.
const PACKAGED_SOURCES: &str = "/usr/lib/rustlib/src/rust/library/std";

/// How the standard library for Windows comes about.
#[derive(Debug, Clone, PartialEq)]
pub enum Target {
    /// It is beside the compiler that builds everything else.
    Installed,
    /// It is built with the profilers, by a compiler of its own, and everything into a folder of its own.
    Built {
        /// The folder.
        target_dir: PathBuf,
    },
}

impl Target {
    /// Sees whether the library is there, and else has rustup bring it; where that cannot be, Debian's packages.
    ///
    /// # Errors
    /// If neither way works here; the error says what to type.
    pub fn prepare(target_directory: &Path) -> Result<Self> {
        if is_installed()? {
            return Ok(Self::Installed);
        }
        announce(format_args!("Rust's standard library for {TRIPLE} is missing: having rustup bring it"));
        let added = match find_on_path("rustup") {
            // Once again is enough: a machine without access should not wait for minutes.
            Some(rustup) => process::run_as_progress(
                Command::new(rustup).args(["target", "add", TRIPLE]).env("RUSTUP_MAX_RETRIES", "1"),
            ),
            None => Err(anyhow::anyhow!("there is no rustup on PATH")),
        };
        match added {
            Ok(()) if is_installed()? => return Ok(Self::Installed),
            Ok(()) => note("rustup brought it, but not for the compiler that cargo uses here"),
            Err(error) => note(format_args!("that does not work: {error:#}")),
        }
        note(format_args!("building it instead, from Debian's sources by Debian's compiler"));
        if !process::is_executable(Path::new(PACKAGED_RUSTC)) || !Path::new(PACKAGED_SOURCES).is_dir() {
            tools::install_packages(&PACKAGES)
                .with_context(|| format!("no standard library for {TRIPLE}: `rustup target add {TRIPLE}`, or"))?;
        }
        Ok(Self::Built { target_dir: target_directory.join("windows") })
    }

    /// `cargo SUBCOMMAND` for Windows.
    #[must_use]
    pub fn cargo(&self, subcommand: &str) -> Command {
        let mut command = cargo::cargo();
        command.args([subcommand, "--target", TRIPLE]);
        if let Self::Built { target_dir } = self {
            command.arg("-Zbuild-std=std,panic_unwind,test").arg("--target-dir").arg(target_dir);
            // The flag above is not stable; the compiler's version is what Debian pins.
            command.env("RUSTC", PACKAGED_RUSTC).env("RUSTC_BOOTSTRAP", "1");
        }
        command
    }
}

/// Whether the compiler that cargo uses here has the library.
fn is_installed() -> Result<bool> {
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    let folder = process::output(rustc.args(["--print", "target-libdir", "--target", TRIPLE]))?;
    Ok(Path::new(folder.trim()).is_dir())
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Installed => write!(f, "{TRIPLE}, with the standard library that rustup has installed"),
            Self::Built { .. } => write!(f, "{TRIPLE}, with a standard library built by {PACKAGED_RUSTC}"),
        }
    }
}
