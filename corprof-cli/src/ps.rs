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
/// be read. Processes in containers are listed too. In a terminal, long command lines are shortened to its width.
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
        let command = or_unknown(&process.command).replace(char::is_control, " ");
        let state = shown(process.profiler);
        let line = format!("{:>7}  {runtime:9} {architecture:6} {state:10}  ", process.pid);
        let room = width.map(|width| width.saturating_sub(line.chars().count()));
        writeln!(out, "{}", fitting(&(line + &short(&command, room)), width))?;
        for library in &process.libraries {
            let library = library.display().to_string();
            let room = width.map(|width| width.saturating_sub(LIBRARY.len()));
            writeln!(out, "{}", fitting(&format!("{LIBRARY}{}", short(&library, room)), width))?;
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

/// The beginning of a line with the library of a profiler, below its process.
const LIBRARY: &str = "          profiler: ";

/// The width of the terminal, if standard output is one.
fn width() -> Option<usize> {
    if !io::stdout().is_terminal() {
        return None;
    }
    let (columns, _) = terminal::size().ok().filter(|(columns, _)| *columns > 0)?;
    Some(columns.into())
}

/// A command line, or a path; with the names of its files instead of their paths, if they do not fit.
fn short(words: &str, room: Option<usize>) -> Cow<'_, str> {
    if room.is_none_or(|room| words.chars().count() <= room) {
        return words.into();
    }
    let name = |word: &str| match word.rsplit_once('/') {
        Some((folder, name)) if !folder.is_empty() && !name.is_empty() => format!("…/{name}"),
        _ => word.to_owned(),
    };
    let mut words = words.split(' ');
    // The program is known by its name.
    let program = words.next().map(|program| name(program).trim_start_matches("…/").to_owned());
    program.into_iter().chain(words.map(name)).collect::<Vec<_>>().join(" ").into()
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

    #[test]
    fn the_application_is_seen_where_paths_do_not_fit() {
        let command = "/usr/share/dotnet/dotnet exec /srv/shop/Shop.dll --urls http://127.0.0.1:5000/";
        assert_eq!(short(command, Some(command.len())), command);
        assert_eq!(short(command, Some(30)), "dotnet exec …/Shop.dll --urls http://127.0.0.1:5000/");
        assert_eq!(short("/opt/agent/libagent.so", Some(10)), "libagent.so");
        assert_eq!(short("/", Some(0)), "/");
    }
}
