//! `corprof resume`: lets a process go on that waits at its start for a tool.

use std::io::Write;
use std::process::ExitCode;

use corprof_diagnostics::Process;
use serde_json::json;

use crate::attach_request::leave_alone_if_stopped;
use crate::exit::Outcome;
use crate::options;
use crate::output;
use crate::startup_wait::WaitsFor;

/// Let a process go on that waits at its start for a tool.
///
/// A .NET process waits before its first managed code if DOTNET_DefaultDiagnosticPortSuspend is 1 in its environment.
/// What listens then misses nothing: `events`, `counters`, `waits` and `requests`, begun in another terminal. Profilers
/// cannot attach before it goes on.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  corprof resume 4711

The exit code is 1 if the process waits for another tool. Exit codes: corprof help exit-codes")]
pub struct Args {
    /// The process id
    #[arg(value_parser = options::pid)]
    pid: u32,

    /// Print a line of JSON: pid, has_waited
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// If there is no such process, if it does not answer, or if it waits for another tool.
pub fn run(args: &Args) -> Outcome {
    leave_alone_if_stopped(args.pid)?;
    let process = Process::open(args.pid)?;
    let client = process.client();
    let waits_for = WaitsFor::of_process(args.pid);
    if let Some(tool @ WaitsFor::Tool(_)) = &waits_for {
        return Err(tool.left_alone(args.pid));
    }
    // A runtime that does not wait takes this for nothing.
    client.resume_runtime()?;
    match &waits_for {
        Some(_) => eprintln!("corprof: process {} goes on", args.pid),
        None => eprintln!("corprof: process {} did not wait at its start", args.pid),
    }
    if args.json {
        writeln!(output::stdout(), "{}", json!({ "pid": args.pid, "has_waited": waits_for.is_some() }))?;
    }
    Ok(ExitCode::SUCCESS)
}
