//! `cargo xtask structure`: the imports between the rooms of `corprof/src`, and the public items of corprof.

mod public;

use std::process::ExitCode;

use anyhow::Result;
use corprof_launch::exit;

use crate::cargo;
use crate::process;

/// Show which rooms of corprof/src import from which.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Fail if files of several rooms import from each other in a circle, a room imports from one above it, or a
    /// comment names a test that does not exist
    #[arg(long)]
    check: bool,
    /// Count the public items of corprof instead, and list the names in its root and its prelude
    #[arg(long)]
    public: bool,
}

/// Runs the command.
///
/// # Errors
/// If the program that reads the sources cannot be built, or rustdoc fails.
pub fn run(args: &Args) -> Result<ExitCode> {
    if args.public {
        print!("{}", public::Public::of_corprof()?);
        return Ok(ExitCode::SUCCESS);
    }
    // A program of its own: only this command needs a parser of Rust.
    let mut command = cargo::program("corprof-structure")?;
    command.args(args.check.then_some("--check"));
    Ok(exit::code(process::status(&mut command)?).into())
}
