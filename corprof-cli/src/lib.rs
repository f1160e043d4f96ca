//! The command `corprof`: runs applications under profilers, attaches profilers, checks method bodies, and diagnoses
//! failures.
//!
//! Each command is a module with its options, `Args`, and one `run`. The crate `corprof-launch` runs applications under
//! profilers, and reads libraries; `embedded` has the built-in profilers, `options` what their table says of options,
//! `delayed` attaches a profiler to an application that runs, `visit` attaches a built-in profiler that detaches by
//! itself. Where another maker's profiler is in the way, `event_pipe_samples` has the runtime sample the process.

pub mod attach;
mod attach_request;
mod complete;
mod csharp;
pub mod delayed;
pub mod detach;
pub mod doctor;
pub mod embedded;
mod event_pipe_samples;
pub mod events;
pub mod exit;
pub mod heap;
pub mod il;
pub mod inspect;
pub mod new;
mod options;
pub mod ps;
pub mod record;
pub mod run;
pub mod select;
mod signals;
pub mod stacks;
pub mod top;
mod visit;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use exit::{Failure, Outcome};

/// Work with .NET profilers: run applications under them, attach them, find out why one is not loaded.
#[derive(Debug, Parser)]
#[command(name = "corprof", version, after_help = "Exit codes: corprof help exit-codes")]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    New(new::Args),
    Run(run::Args),
    Record(record::Args),
    Stacks(stacks::Args),
    Top(top::Args),
    Ps(ps::Args),
    Attach(attach::Args),
    Detach(detach::Args),
    Doctor(doctor::Args),
    Events(events::Args),
    Heap(heap::Args),
    #[command(subcommand)]
    Il(il::Command),
    /// The exit codes of all commands.
    #[command(name = "exit-codes", long_about = exit::TABLE)]
    ExitCodes,
}

/// Runs the command of this process, and prints its error on standard error.
pub fn main() -> ExitCode {
    match run_command(&Cli::parse()) {
        Ok(code) => code,
        Err(Failure { code, error }) => {
            eprintln!("corprof: error: {error:#}");
            code.into()
        }
    }
}

fn run_command(cli: &Cli) -> Outcome {
    match &cli.command {
        Command::New(args) => new::run(args),
        Command::Run(args) => run::run(args),
        Command::Record(args) => record::run(args),
        Command::Stacks(args) => stacks::run(args),
        Command::Top(args) => top::run(args),
        Command::Ps(args) => ps::run(args),
        Command::Attach(args) => attach::run(args),
        Command::Detach(args) => detach::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Events(args) => events::run(args),
        Command::Heap(args) => heap::run(args),
        Command::Il(command) => il::run(command),
        Command::ExitCodes => {
            println!("{}", exit::TABLE);
            Ok(ExitCode::SUCCESS)
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}
