//! The hook stubs for arm64, tested on x86-64 Linux in an emulator of its processor.
//!
//! There is no .NET to be had for it here, and none is needed: the tests call the stubs from assembly.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::cargo;
use crate::process::{self, announce, find_on_path};

const TRIPLE: &str = "aarch64-unknown-linux-gnu";
const EMULATOR: &str = "qemu-aarch64-static";
const LINKER: &str = "aarch64-linux-gnu-gcc";
/// The C library of that system, as Debian installs it beside one's own.
const SYSTEM: &str = "/usr/aarch64-linux-gnu";

/// What is missing, and what to type; nothing if the tests can be run.
pub fn lacks() -> Option<&'static str> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Some("for x86-64 Linux only");
    }
    let has_tools = [EMULATOR, LINKER].iter().all(|tool| find_on_path(tool).is_some()) && Path::new(SYSTEM).is_dir();
    if !has_tools {
        return Some("no emulator: apt-get install qemu-user-static gcc-aarch64-linux-gnu libc6-dev-arm64-cross");
    }
    match has_library() {
        Ok(true) => None,
        Ok(false) | Err(_) => Some("no standard library: rustup target add aarch64-unknown-linux-gnu"),
    }
}

/// Whether the compiler that cargo uses has a standard library for arm64.
fn has_library() -> Result<bool> {
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc.current_dir(cargo::workspace_root()).args(["--print", "target-libdir", "--target", TRIPLE]);
    let output = rustc.output().with_context(|| format!("cannot start `{}`", process::shown(&rustc)))?;
    Ok(Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir())
}

/// Builds corprof's tests for arm64 and runs those of the hooks.
///
/// # Errors
/// If they cannot be built, or one fails.
pub fn test_stubs(is_release: bool) -> Result<()> {
    let mut command = cargo::cargo();
    command.args(["test", "--package", "corprof", "--lib", "--target", TRIPLE]);
    if is_release {
        command.arg("--release");
    }
    command.args(["--", "hooks::stubs"]);
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER);
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", format!("{EMULATOR} -L {SYSTEM}"));
    announce(process::shown(&command));
    process::run(&mut command)
}
