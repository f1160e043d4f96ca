//! The command `corprof`: runs applications under profilers, attaches profilers, checks method bodies, and diagnoses
//! failures.
//!
//! Each command is a module with its options, `Args`, and one `run`. The crate `corprof-launch` runs applications under
//! profilers, and reads libraries; `embedded` has the built-in profilers, `options` what their table says of options,
//! `delayed` attaches a profiler to an application that runs, `attached_profiler` attaches a built-in one that detaches
//! by itself, `question` has one gather until it is asked. Where another profiler is in the way, `event_pipe_samples`
//! has the runtime sample the process. `async_trace` follows the async operations of a process, for `requests` and
//! `waits`; `trace_methods` knows whose code an address is; `recording` reads recordings, for `view`, `diff` and
//! `heatmap`. All print by `output`.

/// `eprintln!` here is the one that never panics.
#[macro_use(eprintln)]
extern crate corprof_profilers;

mod async_probe;
mod async_trace;
pub mod attach;
mod attach_request;
mod attached_profiler;
mod complete;
pub mod completions;
mod contents;
pub mod counters;
mod dashes;
pub mod delayed;
pub mod detach;
pub mod diff;
pub mod doctor;
pub mod embedded;
mod event_pipe_samples;
pub mod events;
pub mod exit;
mod file_hint;
pub mod heap;
pub mod heatmap;
pub mod il;
pub mod inspect;
pub mod new;
mod options;
mod output;
pub mod profiler_choice;
pub mod ps;
pub mod question;
pub mod record;
mod recording;
pub mod requests;
pub mod resume;
pub mod run;
mod screen;
mod signals;
pub mod stacks;
mod startup_wait;
pub mod tasks;
pub mod top;
mod trace_methods;
pub mod unpack;
pub mod view;
pub mod waits;

use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
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
    View(view::Args),
    Diff(diff::Args),
    Heatmap(heatmap::Args),
    Stacks(stacks::Args),
    Top(top::Args),
    Counters(counters::Args),
    #[command(flatten)]
    Question(question::Question),
    Ps(ps::Args),
    Attach(attach::Args),
    Detach(detach::Args),
    Resume(resume::Args),
    Doctor(doctor::Args),
    Requests(requests::Args),
    Waits(waits::Args),
    Tasks(tasks::Args),
    Events(events::Args),
    Heap(heap::Args),
    #[command(subcommand)]
    Il(il::Command),
    Unpack(unpack::Args),
    Completions(completions::Args),
    /// For packages of distributions: `cargo xtask release` has it.
    #[command(hide = true)]
    Man(completions::ManArgs),
    /// The exit codes of all commands.
    #[command(name = "exit-codes", long_about = exit::TABLE)]
    ExitCodes,
}

/// The command line.
pub(crate) fn command() -> clap::Command {
    take_negative_numbers(Cli::command())
}

/// Has `--rate -5` be a wrong number, which is said so, and not an unknown option `-5`.
fn take_negative_numbers(command: clap::Command) -> clap::Command {
    let take = |arg: clap::Arg| {
        let is_command = arg.is_trailing_var_arg_set() || arg.is_last_set();
        let has_value = arg.is_positional() || arg.get_action().takes_values();
        if has_value && !is_command { arg.allow_negative_numbers(true) } else { arg }
    };
    command.mut_args(take).mut_subcommands(take_negative_numbers)
}

/// Runs the command of this process, and prints its error on standard error.
pub fn main() -> ExitCode {
    let cli = command();
    let words = dashes::restored(&cli, std::env::args_os().collect());
    let matches = cli.get_matches_from(words);
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    match run_command(&cli) {
        Ok(code) => code,
        Err(failure) if output::is_closed(&failure.error) => ExitCode::SUCCESS,
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
        Command::View(args) => view::run(args),
        Command::Diff(args) => diff::run(args),
        Command::Heatmap(args) => heatmap::run(args),
        Command::Stacks(args) => stacks::run(args),
        Command::Top(args) => top::run(args),
        Command::Counters(args) => counters::run(args),
        Command::Question(question) => question::run(question),
        Command::Ps(args) => ps::run(args),
        Command::Attach(args) => attach::run(args),
        Command::Detach(args) => detach::run(args),
        Command::Resume(args) => resume::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Requests(args) => requests::run(args),
        Command::Waits(args) => waits::run(args),
        Command::Events(args) => events::run(args),
        Command::Tasks(args) => tasks::run(args),
        Command::Heap(args) => heap::run(args),
        Command::Il(command) => il::run(command),
        Command::Unpack(args) => unpack::run(args),
        Command::Completions(args) => completions::run(args, command()),
        Command::Man(args) => completions::man(args, command()),
        Command::ExitCodes => {
            writeln!(output::stdout(), "{}", exit::TABLE)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Cli, String> {
        let matches = command().try_get_matches_from(line.split(' ')).map_err(|error| error.to_string())?;
        Cli::from_arg_matches(&matches).map_err(|error| error.to_string())
    }

    #[test]
    fn the_command_line_is_sound() {
        command().debug_assert();
    }

    #[test]
    fn an_application_needs_no_dashes() {
        for (line, expected) in [
            ("corprof record dotnet App.dll --its-option -o x", "dotnet App.dll --its-option -o x"),
            ("corprof record -o x.html -- dotnet App.dll -p 1", "dotnet App.dll -p 1"),
            ("corprof record -o x.html --mode wall dotnet run -- -p 1", "dotnet run -- -p 1"),
            ("corprof run timer App --list", "App --list"),
            ("corprof run timer --env A=1 -- App -x", "App -x"),
            ("corprof run timer App -- x", "App -- x"),
            ("corprof doctor --json dotnet App.dll --json", "dotnet App.dll --json"),
            ("corprof doctor -- App", "App"),
        ] {
            let words = match parsed(line).unwrap().command {
                Command::Record(args) => args.command,
                Command::Run(args) => args.command,
                Command::Doctor(args) => args.target,
                other => panic!("{other:?}"),
            };
            let words: Vec<_> = words.iter().map(|word| word.to_str().unwrap()).collect();
            assert_eq!(words.join(" "), expected, "{line}");
        }
        let error = parsed("corprof record --its-option App").unwrap_err();
        assert!(error.contains("unexpected argument '--its-option'"), "{error}");
        assert!(parsed("corprof record -p 5 App").unwrap_err().contains("cannot be used with"));
    }

    #[test]
    fn a_negative_number_is_a_wrong_value() {
        for line in ["corprof record --rate -5 App", "corprof stacks 1 --timeout -5", "corprof stacks -5"] {
            let error = parsed(line).unwrap_err();
            assert!(error.contains("invalid value '-5'") && !error.contains("-- -5"), "{line}: {error}");
        }
    }
}
