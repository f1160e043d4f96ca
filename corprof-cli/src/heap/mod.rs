//! `corprof heap`: which objects use the memory of a process, and which references keep them alive.

pub(crate) mod cost;
mod dump;
mod file;
pub(crate) mod inside;
mod names;
mod ranges;
mod title;
mod walks;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

use anyhow::{Context, anyhow};
use clap::Subcommand;
use corprof_diagnostics::Process;
use corprof_heap::diff::{DEFAULT_DEPTH, Summary};
use corprof_heap::report::{Changes, Options, Report};
use corprof_heap::{Class, Dominators, HeapGraph};

use crate::attach_request;
use crate::exit::{Failure, Outcome};
use crate::options::{self, Names, RAW_CLASSES_HELP};
use crate::output;
use crate::signals;
use crate::startup_wait::WaitsFor;

use cost::Cost;
use dump::Dump;
use file::Format;

/// Take a snapshot of a process's heap, and show what keeps objects alive.
///
/// Attaches a small profiler, which has the runtime suspend the application, collect the whole heap and report every
/// object and reference. It writes them into a file in the folder for temporary files (TMPDIR; some 48 bytes an
/// object), and detaches. The command prints how long the application stood still. .NET 8 collects once more
/// afterwards.
///
/// If the profiler cannot attach, because the process has another one or runs in a container, with --session, and on
/// Windows, the runtime sends the same over the diagnostics port, through a buffer in the memory of the process. If an
/// event is lost, the command fails and writes no file, because a snapshot with gaps would show wrong owners.
///
/// .NET 8 itself crashes now and then while it reports the heap of an application that makes and unloads code all the
/// time (collectible load contexts, `RunAndCollect` assemblies), for any tool.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  corprof heap 4711                      prints a report
  corprof heap 4711 -o before.heap       writes the snapshot
  corprof heap top before.heap           prints the same from the file
  corprof heap diff before.heap after.heap
  corprof heap top after.heap -o x.pftrace    for https://ui.perfetto.dev

The extension chooses the format: .heap (read by `top` and `diff`), .pftrace (Perfetto), .gcdump (Visual Studio, PerfView),
.heapsnapshot (Chrome, VS Code), .html, .json, .txt. Exit codes: corprof help exit-codes"
)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,

    /// The process id
    #[arg(required = true, value_parser = options::pid)]
    pid: Option<u32>,

    /// The file to write; its extension chooses the format. Without it, a report is printed
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Print the report as JSON
    #[arg(long, conflicts_with = "output")]
    json: bool,

    /// Take the snapshot over the diagnostics port, without a profiler
    #[arg(long)]
    session: bool,

    /// The highest memory use of the process for unread events, in MB; implies --session [default: twice its memory
    /// now, at least 256]
    #[arg(long, value_name = "MB")]
    buffer_mb: Option<u32>,

    /// The longest time without a part of the heap from the process, in seconds; the whole takes at most ten times as
    /// long
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    timeout: u64,

    #[arg(long, help = RAW_CLASSES_HELP)]
    raw_names: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print the largest classes and objects of a snapshot, or write it in another format
    Top {
        /// A snapshot that `corprof heap PID -o FILE.heap` has written
        file: PathBuf,

        /// The file to write; its extension chooses the format
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,

        /// Print it as JSON
        #[arg(long, conflicts_with = "output")]
        json: bool,

        /// The number of classes to print
        #[arg(long, value_name = "COUNT", default_value_t = 30)]
        classes: usize,

        #[arg(long, help = RAW_CLASSES_HELP)]
        raw_names: bool,
    },
    /// Print the growth between two snapshots, by class and by owner
    Diff {
        /// The older snapshot
        before: PathBuf,

        /// The newer snapshot
        after: PathBuf,

        /// The number of classes and of owners to print
        #[arg(long, value_name = "COUNT", default_value_t = 30)]
        count: usize,

        /// As JSON
        #[arg(long)]
        json: bool,

        #[arg(long, help = RAW_CLASSES_HELP)]
        raw_names: bool,
    },
}

/// The number of classes in a printed report.
const CLASSES: usize = 30;
/// The number of objects in a printed report.
const OBJECTS: usize = 10;

/// Runs the command.
///
/// # Errors
/// If the process does not answer, events were lost, or a file cannot be read or written.
pub fn run(args: &Args) -> Outcome {
    match (&args.command, args.pid) {
        (Some(Command::Top { file, output, json, classes, raw_names }), _) => {
            let graph = file::read(file)?;
            let names = Names { raw_names: *raw_names };
            match output {
                Some(path) => file::write(&graph, path, 0, names)?,
                None => print(&graph, *json, *classes, names)?,
            }
        }
        (Some(Command::Diff { before, after, count, json, raw_names }), _) => {
            let names = Names { raw_names: *raw_names };
            diff([before, after], *count, *json, names)?;
        }
        (None, Some(pid)) => {
            let process = open(pid)?;
            take(args, &process)?;
        }
        (None, None) => return Err(anyhow!("which process? `corprof ps` lists them").into()),
    }
    Ok(ExitCode::SUCCESS)
}

/// A process whose heap can be told.
pub(crate) fn open(pid: u32) -> Result<Process, Failure> {
    attach_request::leave_alone_if_stopped(pid)?;
    let process = Process::open(pid)?;
    // Its runtime sends a heap without the names of classes.
    attach_request::leave_alone_if_compiled_ahead(pid)?;
    // It would begin to send when it goes on.
    match WaitsFor::of_process(pid) {
        Some(waits_for) => Err(waits_for.left_alone(pid)),
        None => Ok(process),
    }
}

/// One snapshot: from inside, or over the port, if that is asked for or nothing can attach.
pub(crate) fn snapshot(
    process: &Process,
    session: bool,
    buffer_mb: Option<u32>,
    timeout: Duration,
    stop: &AtomicBool,
) -> anyhow::Result<(HeapGraph, Cost)> {
    let pid = process.pid();
    let client = process.client().with_timeout(timeout);
    let info = client.process_info()?;
    let over_port = || {
        let buffer_mb = buffer_mb.unwrap_or_else(|| buffer_for(pid));
        let mut dump = Dump::take(&client, &info, buffer_mb, timeout, stop)?;
        dump.builder().set_taken(now());
        dump.finish(pid)
    };
    // On Windows the way from inside has not been tested.
    if session || buffer_mb.is_some() || cfg!(windows) {
        return over_port();
    }
    match inside::take(process, &info, timeout, stop, None)? {
        Ok(both) => Ok(both),
        Err(why) => {
            let why = format!("{why:#}");
            let why: Vec<&str> = why.lines().map(str::trim).collect();
            let why = why.join("; ");
            eprintln!("corprof: no profiler can attach, so the runtime sends the heap over its port: {why}");
            over_port()
        }
    }
}

fn take(args: &Args, process: &Process) -> anyhow::Result<()> {
    let pid = process.pid();
    // Checked first: the application must not be suspended for a file that cannot be written.
    args.output.as_ref().map(|path| Format::of(path)).transpose()?;
    let timeout = Duration::from_secs(args.timeout.max(1));
    let stop = signals::stop_requests()?;
    let (graph, cost) = snapshot(process, args.session, args.buffer_mb, timeout, &stop)?;
    eprintln!("corprof: {cost}");
    debug_assert!(!graph.losses().is_cut());
    let names = Names { raw_names: args.raw_names };
    match &args.output {
        Some(path) => file::write(&graph, path, pid, names),
        None => print(&graph, args.json, CLASSES, names),
    }
}

/// Prints a report.
fn print(graph: &HeapGraph, json: bool, classes: usize, names: Names) -> anyhow::Result<()> {
    let tree = Dominators::of(graph);
    let size = Options { classes, objects: OBJECTS, ..Options::default() };
    let report = Report::of(&tree, size, &names.of_heap(graph.classes()));
    let mut out = output::stdout();
    printed(if json { report.write_json(&mut out) } else { report.write_text(&mut out) })?;
    printed(out.flush())
}

fn diff([before, after]: [&PathBuf; 2], count: usize, json: bool, names: Names) -> anyhow::Result<()> {
    let mut classes: Vec<Class> = Vec::new();
    let mut summary = |path| {
        let graph = file::read(path)?;
        classes.extend_from_slice(graph.classes());
        Ok::<_, anyhow::Error>(Summary::of(&Dominators::of(&graph), DEFAULT_DEPTH))
    };
    let before = summary(before)?;
    let after = summary(after)?;
    let changes = Changes::of(&before, &after, count, count, &names.of_heap(&classes));
    let mut out = output::stdout();
    printed(if json { changes.write_json(&mut out) } else { changes.write_text(&mut out) })?;
    printed(out.flush())
}

/// A closed pipe is not an error: the reader has seen enough.
fn printed(result: io::Result<()>) -> anyhow::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.context("cannot print the report"),
    }
}

/// A dump has some 48 bytes for an object, and no object has less than 24.
fn buffer_for(pid: u32) -> u32 {
    const LEAST: u64 = 256;
    const MOST: u64 = 16 * 1024;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let resident =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse().ok());
    let megabytes = (2 * resident.unwrap_or(0_u64) / 1024).clamp(LEAST, MOST);
    u32::try_from(megabytes).unwrap_or(u32::MAX)
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
