//! Windows on another machine: profilers are built for it, and run under Wine.
//!
//! [`Wine`] runs them, [`Target`](crate::target::Target) builds them. Both report what they install. The runtimes are
//! pinned like the others, in `known.rs`.

mod wine;

pub use wine::Wine;

use anyhow::{Result, ensure};

use crate::process::{self, find_on_path};
use crate::tools::{self, Packages};

/// The packages of Wine, and of the linker and C compiler for Windows, on Debian and its derivatives.
const PACKAGES: Packages = Packages {
    what: "Wine and a linker for Windows",
    names: &["wine", "wine64", "gcc-mingw-w64-x86-64", "mingw-w64-x86-64-dev"],
};

/// What they bring.
const PROGRAMS: [&str; 3] = ["wine", "wineserver", GCC];

/// The linker alone.
const LINKER: Packages =
    Packages { what: "a linker for Windows", names: &["gcc-mingw-w64-x86-64", "mingw-w64-x86-64-dev"] };

/// The C compiler for Windows, which is also the linker that Rust calls for the target.
const GCC: &str = "x86_64-w64-mingw32-gcc";

/// The C compiler for this system, which is also the linker that Rust calls for it.
const CC: &str = "cc";

/// Installs Wine and the linker if they are missing.
///
/// # Errors
/// If Wine does not run on this machine, or if they are missing and cannot be installed; the error says what to type.
pub fn install_tools() -> Result<()> {
    ensure!(
        cfg!(all(target_os = "linux", target_arch = "x86_64")),
        "profilers are run for Windows under Wine, and for that on Linux x64 only: leave --windows out"
    );
    tools::ensure_programs(&PROGRAMS, &PACKAGES)
}

/// Why this machine cannot run programs for Windows, if that cannot be changed; `None` if it can run them, or if we are
/// root and [`install_tools`] can install what is missing.
#[must_use]
pub fn lacks() -> Option<String> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Some("under Wine, and for that on Linux x64 only".to_owned());
    }
    let has_tools = PROGRAMS.iter().all(|tool| find_on_path(tool).is_some());
    let can_install = find_on_path("apt-get").is_some() && process::is_root();
    let what = || format!("no Wine: as root type {}", tools::install_command(&PACKAGES));
    (!has_tools && !can_install).then(what)
}

/// Installs the linker if it is missing.
///
/// # Errors
/// If it is missing and cannot be installed; the error says what to type.
pub(crate) fn install_linker() -> Result<()> {
    tools::ensure_programs(&[GCC], &LINKER)
}
