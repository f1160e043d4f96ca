//! `corprof ps`: lists .NET processes.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use corprof_diagnostics::Process;
use ratatui::crossterm::terminal;

use crate::exit::Outcome;
use crate::inspect::{Inspected, State, inspect};
use crate::output;

/// List the .NET processes of this system, with their profilers.
///
/// PROFILER is `mapped` if the process has mapped the library of a profiler, `configured` if its variables name a
/// profiler that is not mapped (mapped files are visible on Linux only), `-` if it has none, `unknown` if neither can
/// be read. Processes in containers are listed too. In a terminal, long command lines are cut to its width.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print a line of JSON for each process: pid, runtime, architecture, command, profiler (none, configured, mapped,
    /// unknown), libraries, error
    #[arg(long)]
    json: bool,

    /// The time limit for each answer of a process; for a slower process, only the system's information is listed
    #[arg(long, value_name = "SECONDS", default_value_t = 1)]
    wait: u64,
}

/// Runs the command.
///
/// # Errors
/// If the system does not list processes.
pub fn run(args: &Args) -> Outcome {
    let scan = Process::scan().context("cannot list the processes")?;
    let timeout = Duration::from_secs(args.wait.max(1));
    // In parallel: a process that does not answer must not delay the others.
    let all: Vec<Inspected> = thread::scope(|scope| {
        let asked: Vec<_> = scan.processes.iter().map(|process| scope.spawn(|| inspect(process, timeout))).collect();
        asked.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    let mut out = output::stdout();
    if args.json {
        for process in &all {
            writeln!(out, "{}", serde_json::to_string(process)?)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let width = width();
    writeln!(out, "{:>7}  {:9} {:6} {:10}  COMMAND", "PID", "RUNTIME", "ARCH", "PROFILER")?;
    for process in &all {
        let or_unknown = |text: &Option<String>| text.clone().unwrap_or_else(|| "?".into());
        let runtime = or_unknown(&process.runtime);
        let architecture = or_unknown(&process.architecture);
        let command = or_unknown(&process.command);
        let state = shown(process.profiler);
        let line = format!("{:>7}  {runtime:9} {architecture:6} {state:10}  {command}", process.pid);
        writeln!(out, "{}", fitting(&line, width))?;
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

/// The width of the terminal, if standard output is one.
fn width() -> Option<usize> {
    if !io::stdout().is_terminal() {
        return None;
    }
    let (columns, _) = terminal::size().ok().filter(|(columns, _)| *columns > 0)?;
    Some(columns.into())
}

/// As much of a line as the terminal shows in one.
fn fitting(line: &str, width: Option<usize>) -> Cow<'_, str> {
    let Some(width) = width.filter(|width| line.chars().count() > *width) else { return line.into() };
    let begin: String = line.chars().take(width.saturating_sub(1)).collect();
    format!("{begin}…").into()
}

fn shown(state: State) -> &'static str {
    match state {
        State::None => "-",
        State::Configured => "configured",
        State::Mapped => "mapped",
        State::Unknown => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_fits_into_the_terminal() {
        assert_eq!(fitting("dotnet Äpp.dll", Some(14)), "dotnet Äpp.dll");
        assert_eq!(fitting("dotnet Äpp.dll", Some(9)), "dotnet Ä…");
        assert_eq!(fitting("dotnet Äpp.dll", None), "dotnet Äpp.dll");
    }
}
