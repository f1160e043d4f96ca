//! `cargo xtask clippy`: lints the code for this system and for Windows.

use std::process::{Command, ExitCode};

use anyhow::Result;
use corprof_launch::exit;

use crate::cargo;
use crate::process::{self, announce, note};
use crate::target::{System, Target};

/// Lint all code by clippy, for this system and for Windows. A warning is an error.
///
/// The lints for Windows need Rust's standard library for it, which rustup brings; if it cannot, they are skipped, with
/// a note.
#[derive(Debug, Default, clap::Args)]
pub struct Args {
    /// For Windows, lint all crates with their tests, not only those that have code for Windows
    #[arg(long)]
    pub(crate) all: bool,
}

/// The crates with code for Windows.
const FOR_WINDOWS: [&str; 6] =
    ["corprof", "corprof-cli", "corprof-diagnostics", "corprof-export", "corprof-launch", "corprof-profilers"];

const EVERYTHING: [&str; 2] = ["--workspace", "--all-targets"];

/// Runs the command.
///
/// # Errors
/// If clippy does not start. What it finds is in the exit code.
pub fn run(args: &Args) -> Result<ExitCode> {
    let here = lint(cargo::cargo().arg("clippy").args(EVERYTHING))?;
    let Some(windows) = Target::by_rustup(System::Windows)? else {
        note("SKIPPED: lints for Windows: rustup cannot bring the standard library for it");
        return Ok(here.into());
    };
    let mut windows = windows.cargo("clippy");
    let crates: Vec<_> = FOR_WINDOWS.iter().flat_map(|name| ["-p", name]).collect();
    windows.args(if args.all { &EVERYTHING[..] } else { &crates });
    let windows = lint(&mut windows)?;
    Ok(here.max(windows).into())
}

fn lint(command: &mut Command) -> Result<u8> {
    command.arg("--all-features");
    // The profilers that the command has built in are linted by themselves.
    command.env("CORPROF_BUNDLE", "");
    command.args(["--", "-D", "warnings"]);
    announce(process::shown(command));
    Ok(exit::code(process::status(command)?))
}
