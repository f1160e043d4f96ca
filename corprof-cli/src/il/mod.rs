//! `corprof il`: method bodies of assemblies, checked and shown, without a runtime.

mod bundle;
mod check;
mod dump;
mod set;

use crate::exit::Outcome;

/// Check and show the method bodies of assemblies, without a runtime.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Check the method bodies of assemblies.
    Check(check::Args),
    /// Show the body of a method.
    Dump(dump::Args),
}

/// Runs the command.
///
/// # Errors
/// If a file cannot be read, or there is no such method.
pub fn run(command: &Command) -> Outcome {
    match command {
        Command::Check(args) => check::run(args),
        Command::Dump(args) => dump::run(args),
    }
}
