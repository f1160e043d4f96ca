//! `cargo xtask clippy`: lints the code for this system and for Windows.

use std::process::{Command, ExitCode};

use anyhow::Result;
use corprof_launch::exit;

use crate::cargo::{self, Metadata};
use crate::process::{self, announce, note};
use crate::target::{System, Target};

/// Lint all code by clippy, for this system and for Windows. A warning is an error.
///
/// Where rustup has no standard library for Windows, the clippy of Debian's `rust-web-clippy` lints with the library that it
/// builds. If that cannot be had either, the lints for Windows are skipped, with a note.
#[derive(Debug, Default, clap::Args)]
pub struct Args {
    /// For Windows, lint all crates with their tests, not only those that have code for Windows
    #[arg(long)]
    pub(crate) all: bool,
}

/// The crates with code for Windows.
const FOR_WINDOWS: [&str; 5] = ["corprof", "corprof-cli", "corprof-diagnostics", "corprof-export", "corprof-launch"];

const EVERYTHING: [&str; 2] = ["--workspace", "--all-targets"];

/// Runs the command.
///
/// # Errors
/// If clippy does not start. What it finds is in the exit code.
pub fn run(args: &Args) -> Result<ExitCode> {
    let here = lint(cargo::cargo().arg("clippy").args(EVERYTHING))?;
    let target = Target::prepare(System::Windows, &Metadata::load()?.target_directory);
    let windows = match target.and_then(|target| target.clippy()) {
        Ok(mut command) if args.all => lint(command.args(EVERYTHING))?,
        Ok(mut command) => lint(command.args(FOR_WINDOWS.iter().flat_map(|name| ["-p", name])))?,
        Err(error) => {
            note(format_args!("SKIPPED: lints for Windows: {error:#}"));
            0
        }
    };
    Ok(here.max(windows).into())
}

fn lint(command: &mut Command) -> Result<u8> {
    command.arg("--all-features");
    // The profilers that the command has built in are linted as the examples that they are.
    command.env("CORPROF_BUNDLE", "");
    command.args(["--", "-D", "warnings"]);
    announce(process::shown(command));
    Ok(exit::code(process::status(command)?))
}
