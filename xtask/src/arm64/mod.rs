//! Linux on arm64, on an x86-64 machine: profilers are built for it, and run in QEMU's user mode.
//!
//! [`Qemu`] runs programs, and [`Target`](crate::target::Target) builds profilers.

mod qemu;

pub use qemu::Qemu;

use std::path::Path;

use anyhow::{Result, ensure};

use crate::process::{self, find_on_path};
use crate::tools::{self, Packages};

/// QEMU for the processes of one program, without a system of their own around them.
const EMULATOR: &str = "qemu-aarch64-static";
/// The C compiler for arm64, which is also the linker that Rust calls for the target.
pub(crate) const GCC: &str = "aarch64-linux-gnu-gcc";
/// The C library for arm64, as Debian installs it beside one's own.
const SYSTEM: &str = "/usr/aarch64-linux-gnu";
/// The part of the C++ library that the runtime needs.
const CPP_LIBRARY: &str = "lib/libstdc++.so.6";

/// The packages with these on Debian and its derivatives.
const PACKAGES: Packages = Packages {
    what: "an emulator of arm64, a linker and the C and C++ libraries for it",
    names: &[
        "qemu-user-static",
        "gcc-aarch64-linux-gnu",
        "libc6-dev-arm64-cross",
        "libc6-arm64-cross",
        "libstdc++6-arm64-cross",
    ],
};

/// Installs the emulator, the linker and the libraries if they are missing.
///
/// # Errors
/// If the emulator does not support this machine, or if they are missing and cannot be installed; the error says what
/// to type.
pub fn install_tools() -> Result<()> {
    ensure!(is_supported(), "profilers are run for arm64 in an emulator on Linux x64 only: leave --arm64 out");
    tools::ensure_programs(&[EMULATOR, GCC], &PACKAGES)?;
    if !has_libraries() {
        tools::install_packages(&PACKAGES)?;
    }
    ensure!(has_libraries(), "no {CPP_LIBRARY} in {SYSTEM}, though {} are installed", PACKAGES.names.join(" "));
    Ok(())
}

/// Why this machine cannot run programs for arm64, if that cannot be changed; `None` if it can run them, or if we are
/// root and [`install_tools`] can install what is missing.
#[must_use]
pub fn lacks() -> Option<String> {
    if !is_supported() {
        return Some("for x86-64 Linux only".to_owned());
    }
    let has_tools = [EMULATOR, GCC].iter().all(|tool| find_on_path(tool).is_some()) && has_libraries();
    let can_install = find_on_path("apt-get").is_some() && process::is_root();
    let what = || format!("no emulator: as root type {}", tools::install_command(&PACKAGES));
    (!has_tools && !can_install).then(what)
}

fn is_supported() -> bool {
    cfg!(all(target_os = "linux", target_arch = "x86_64"))
}

fn has_libraries() -> bool {
    Path::new(SYSTEM).join(CPP_LIBRARY).is_file()
}
