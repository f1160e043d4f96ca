//! `corprof ps`: which .NET processes there are.

use std::io::{self, Write};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use corprof_diagnostics::Process;

use crate::exit::Outcome;
use crate::inspect::{Inspected, State, inspect};

/// List the .NET processes of this system, with their profilers.
///
/// PROFILER is `mapped` where the library of a profiler is in the process, `configured` where the variables ask for one that
/// is not mapped (or not seen to be: only Linux tells), `-` where there is none, `unknown` where nothing can be seen. Processes
/// in containers are listed too. Each is asked for a second at most.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// One line of JSON a process: pid, runtime, architecture, command, profiler (none, configured, mapped, unknown), libraries, error
    #[arg(long)]
    json: bool,

    /// How long a process may take for each answer; of one that takes longer only what the system knows is listed
    #[arg(long, value_name = "SECONDS", default_value_t = 1)]
    wait: u64,
}

/// Runs the command.
///
/// # Errors
/// If the system will not list processes.
pub fn run(args: &Args) -> Outcome {
    let scan = Process::scan().context("cannot list the processes")?;
    let timeout = Duration::from_secs(args.wait.max(1));
    // A process that does not answer makes nobody else wait.
    let all: Vec<Inspected> = thread::scope(|scope| {
        let asked: Vec<_> = scan.processes.iter().map(|process| scope.spawn(|| inspect(process, timeout))).collect();
        asked.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    let mut out = io::stdout().lock();
    if args.json {
        for process in &all {
            writeln!(out, "{}", serde_json::to_string(process)?)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(out, "{:>7}  {:9} {:6} {:10}  COMMAND", "PID", "RUNTIME", "ARCH", "PROFILER")?;
    for process in &all {
        let or_unknown = |text: &Option<String>| text.clone().unwrap_or_else(|| "?".into());
        let (runtime, architecture) = (or_unknown(&process.runtime), or_unknown(&process.architecture));
        let command = or_unknown(&process.command);
        writeln!(out, "{:>7}  {runtime:9} {architecture:6} {:10}  {command}", process.pid, shown(process.profiler))?;
        for library in &process.libraries {
            writeln!(out, "{:37}  profiler: {}", "", library.display())?;
        }
        if let Some(error) = &process.error {
            writeln!(out, "{:37}  {error}", "")?;
        }
    }
    if let Some(first) = scan.stale.first() {
        let count = scan.stale.len();
        writeln!(out, "{count} sockets of processes that were killed, or cannot be seen, such as {}", first.display())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn shown(state: State) -> &'static str {
    match state {
        State::None => "-",
        State::Configured => "configured",
        State::Mapped => "mapped",
        State::Unknown => "unknown",
    }
}
