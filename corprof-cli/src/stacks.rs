//! `corprof stacks`: what every thread of a process does now, by the built-in profiler of that name.

mod event_pipe;
mod groups;
mod locks;

use std::fmt;
use std::io::Write;
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use corprof_diagnostics::Process;
use corprof_launch::processes;
use serde::Serialize;

use crate::attach_request::Occupied;
use crate::attached_profiler::{self, Place};
use crate::event_pipe_samples::{self, Callers, LIMITS};
use crate::exit::{Failure, Outcome};
use crate::options::{self, Names};
use crate::output;
use crate::signals::Signals;

use locks::Locks;

/// The beginning of the line in place of outer frames that are missing.
const CUT: &str = "[outer frames are missing";

/// Show what every thread of a process does now.
///
/// Attaches a small profiler, which suspends all managed threads once for some milliseconds, writes their stacks, and
/// detaches. The process needs no preparation. This also works if the application hangs: threads that wait for each
/// other's locks (`lock`, `Monitor`, `System.Threading.Lock`) come first, as a deadlock, with the classes of the
/// objects, however long they have waited. Then comes who waits for whom without a deadlock. On Linux.
///
/// Under a resumed async method stand the methods that await it, if the thread waits: --physical shows the stack as the
/// thread has it.
///
/// If another profiler stays in the process, the runtime's own sampler takes the stacks, by EventPipe: of the
/// threads that have managed methods on their stacks. On .NET 11 it tells who awaits a method that a thread has resumed
/// since then, not of one that hangs. It does not tell whether a thread waits (one `in native code` may
/// do either), nor who holds which lock.
///
/// The innermost method comes first. `>` marks the methods of the application, `[native]` is native code of the runtime
/// or of a library. `in Orders.cs:41` is the statement that runs or has called, where a portable PDB beside the module
/// or in it tells. Threads with equal stacks are shown once, and what the framework does to start a thread or to give
/// it work is one line: `--all-frames` shows each thread and each frame. A thread `waits` if it was neither running nor
/// ready to run just before it was stopped. Thread names come from the system: Linux cuts them to 15 bytes.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  corprof stacks 4711
  corprof stacks 4711 --all-frames
  corprof stacks 4711 --json | jq '.threads[] | select(.state == \"runs\")'

Exits with 1 if the runtime refused the profiler, and with 3 if there is no such process, it is not a .NET process, it belongs to
another user, or its threads were not suspended in time. Exit codes: corprof help exit-codes")]
pub struct Args {
    /// The process, as `corprof ps` numbers it
    #[arg(value_parser = options::pid)]
    pid: u32,

    /// Print one JSON document, with all threads and frames
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    names: Names,

    /// Show stacks as threads have them, not who awaits a resumed async method
    #[arg(long)]
    physical: bool,

    /// Show each thread, and every frame of its stack
    #[arg(long)]
    all_frames: bool,

    /// The time limit for suspending the threads, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    timeout: u64,
}

/// The stacks of a process.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct Stacks {
    pid: u32,
    command: Option<String>,
    /// Whether the runtime's own sampler has taken them.
    by_event_pipe: bool,
    threads: Vec<Thread>,
    /// The number of further managed threads, without managed frames or that could not be walked. Unknown by EventPipe.
    others: Option<usize>,
    /// The threads in resumed async methods of which it is not known who awaits these: of state machines, and of those
    /// that the runtime resumes.
    callers_unknown: usize,
    callers_by_runtime: usize,
    /// Who waits for which lock. Unknown by EventPipe.
    locks: Option<Locks>,
    /// The threads of each deadlock: each waits for a lock that the next one holds, and the last for one of the first.
    deadlocks: Vec<Vec<u32>>,
}

impl Stacks {
    /// Spells the methods as they are shown. The next frame is the caller.
    fn spell(&mut self, names: Names) {
        for thread in &mut self.threads {
            let callers = thread.frames.iter().skip(1).map(|frame| Some(frame.method.as_str())).chain([None]);
            let methods: Vec<String> =
                thread.frames.iter().zip(callers).map(|(frame, caller)| names.method(&frame.method, caller)).collect();
            for (frame, method) in thread.frames.iter_mut().zip(methods) {
                frame.method = method;
            }
        }
    }
}

/// The stack of a thread.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Thread {
    /// The system's thread id.
    id: u32,
    name: Option<String>,
    /// `runs` or `waits`; by EventPipe `in managed code` or `in native code`.
    state: String,
    /// Whether outer frames are missing.
    is_cut: bool,
    /// The innermost first.
    frames: Vec<Frame>,
}

/// A frame of a stack.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
struct Frame {
    /// A method, `[native]`, or that frames are missing.
    method: String,
    /// The path of the source, as the compiler was told it, if a PDB tells.
    file: Option<String>,
    line: Option<u32>,
}

impl Frame {
    /// One of which only the name is known.
    fn named(method: &str) -> Self {
        Self { method: method.to_owned(), file: None, line: None }
    }

    /// Parses a frame of the profiler: the method, the line and the file, separated by tabs.
    fn parse(text: &str) -> Self {
        let mut parts = text.splitn(3, '\t');
        let method = parts.next().unwrap_or_default();
        let line = parts.next().and_then(|line| line.parse().ok());
        let file = parts.next().filter(|_| line.is_some());
        Self { method: method.to_owned(), file: file.map(str::to_owned), line }
    }
}

/// As `App.Orders.Save() in Orders.cs:41`.
impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.method)?;
        match (&self.file, self.line) {
            (Some(file), Some(line)) => write!(f, " in {}:{line}", file.rsplit(['/', '\\']).next().unwrap_or(file)),
            _ => Ok(()),
        }
    }
}

/// Runs the command.
///
/// # Errors
/// If the process is not there, the runtime refuses, or the threads are not stopped in time.
pub fn run(args: &Args) -> Outcome {
    let process = Process::open(args.pid)?;
    let signals = Signals::catch().context("cannot catch signals")?;
    let place = Place::new(&process)?;
    let out = place.file("stacks");
    let progress = Progress::start(args.pid);
    let out_for_process = place.path_for_process(&out);
    let stacks = if args.physical { "physical" } else { "async" };
    let settings = [("STACKS_OUT", out_for_process.as_os_str()), ("STACKS_STACKS", stacks.as_ref())];
    match place.attach(&process, "stacks", &settings) {
        Err(failure) if failure.error.is::<Occupied>() => {
            event_pipe_samples::announce(&failure.error);
            let callers = if args.physical { Callers::Physical } else { Callers::AtEnd };
            let mut stacks = event_pipe::take(&process, callers, Duration::from_secs(args.timeout), &signals)?;
            stacks.spell(args.names);
            print(&stacks, args)?;
            return Ok(ExitCode::SUCCESS);
        }
        attached => attached?,
    }
    let text = written(&place, args, &signals)?;
    drop(progress);
    let mut stacks =
        parse(&text, args.pid).ok_or_else(|| anyhow!("the profiler has written an unknown format:\n{text}"))?;
    stacks.spell(args.names);
    print(&stacks, args)?;
    attached_profiler::tell("stacks", args.pid, &place.wait(&out, &signals));
    Ok(ExitCode::SUCCESS)
}

/// Waits for the file of the profiler.
fn written(place: &Place, args: &Args, signals: &Signals) -> Result<String, Failure> {
    let file = place.of_process(&place.file("stacks"), "");
    let pid = args.pid;
    let start = Instant::now();
    loop {
        // Asked before the file: a process may create the file and end right afterwards.
        let has_ended = place.has_ended();
        if file.exists() {
            return Ok(attached_profiler::folder::read(&file).context("cannot read the stacks")?);
        }
        if has_ended {
            return Err(anyhow!("process {pid} ended before its threads were suspended").into());
        }
        if signals.is_interrupted() {
            return Err(anyhow!("interrupted before the threads of process {pid} were suspended").into());
        }
        if start.elapsed() > Duration::from_secs(args.timeout) {
            let text = "a collection lasts that long, a thread cannot be suspended, or the process is stopped (in a debugger, \
                        or by SIGSTOP). Increase the limit by --timeout";
            return Err(
                anyhow!("the threads of process {pid} were not suspended within {} s: {text}", args.timeout).into()
            );
        }
        thread::sleep(attached_profiler::LOOK);
    }
}

/// Parses the format of the built-in profiler `stacks`: a line for each thread, then its frames, indented.
fn parse(text: &str, pid: u32) -> Option<Stacks> {
    let command = processes::command_line(pid);
    let mut stacks = Stacks { pid, command, ..Stacks::default() };
    let mut locks = Locks::default();
    for line in text.lines() {
        if let Some(frame) = line.strip_prefix("  ") {
            let thread = stacks.threads.last_mut()?;
            thread.is_cut |= frame.starts_with(CUT);
            thread.frames.push(Frame::parse(frame));
        } else if let Some(rest) = line.strip_prefix("thread ") {
            let mut words = rest.splitn(3, ' ');
            let id = words.next()?.parse().ok()?;
            let state = words.next()?.to_owned();
            let name = words.next().filter(|name| !name.is_empty()).map(str::to_owned);
            stacks.threads.push(Thread { id, name, state, is_cut: false, frames: Vec::new() });
        } else if let Some(others) = line.strip_prefix("others ") {
            stacks.others = Some(others.parse().ok()?);
        } else if let Some(threads) = line.strip_prefix("callers-unknown ") {
            stacks.callers_unknown = threads.parse().ok()?;
        } else if let Some(threads) = line.strip_prefix("callers-by-runtime ") {
            stacks.callers_by_runtime = threads.parse().ok()?;
        } else if let Some(threads) = line.strip_prefix("deadlock ") {
            let threads: Result<_, _> = threads.split(' ').map(str::parse).collect();
            stacks.deadlocks.push(threads.ok()?);
        } else {
            locks.read(line)?;
        }
    }
    stacks.locks = Some(locks);
    Some(stacks)
}

fn print(stacks: &Stacks, args: &Args) -> Result<()> {
    let mut out = output::stdout();
    if args.json {
        return Ok(writeln!(out, "{}", serde_json::to_string(stacks)?)?);
    }
    writeln!(out, "process {}: {}", stacks.pid, stacks.command.as_deref().unwrap_or("?"))?;
    let printed = locks::print(stacks, args.all_frames, &mut out)?;
    let others = stacks.threads.iter().filter(|thread| !printed.contains(&thread.id));
    for group in groups::groups(others, args.all_frames) {
        group.print(&mut out)?;
    }
    if let Some(others @ 1..) = stacks.others {
        let have = if others == 1 { "thread has" } else { "threads have" };
        writeln!(out, "\n{others} more {have} no managed frames, or could not be walked")?;
    }
    if stacks.callers_unknown > 0 && stacks.by_event_pipe {
        writeln!(
            out,
            "\nWho awaits the resumed methods of {} is not known: from outside only .NET 11 tells it, of methods that \
             are resumed from now on",
            output::count(stacks.callers_unknown, "thread")
        )?;
    } else if stacks.callers_unknown > 0 {
        writeln!(
            out,
            "\nWho awaits the resumed methods of {} is not known: a thread runs, its method is of a debug build, \
             what resumed it was inlined, or several would fit",
            output::count(stacks.callers_unknown, "thread")
        )?;
    }
    if stacks.callers_by_runtime > 0 {
        writeln!(
            out,
            "\nWho awaits methods of runtime async cannot be known from a stack, of {}: `corprof record -p` shows it of \
             threads that run",
            output::count(stacks.callers_by_runtime, "thread")
        )?;
    }
    if let Some(error) = stacks.locks.as_ref().and_then(|locks| locks.error.as_ref()) {
        writeln!(out, "\nWho holds which lock is not known: {error}")?;
    } else if stacks.locks.as_ref().is_some_and(|locks| !locks.sees_monitors) {
        writeln!(out, "\nWho holds a monitor (`lock` of an object) cannot be known on this system")?;
    }
    if stacks.by_event_pipe {
        writeln!(
            out,
            "\n{LIMITS}.\nOnly threads with managed methods are shown, as the runtime's sampler saw them last"
        )?;
    }
    Ok(out.flush()?)
}

/// Prints a line if the command takes more than a second.
struct Progress(Option<mpsc::Sender<()>>);

impl Progress {
    fn start(pid: u32) -> Self {
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            if receiver.recv_timeout(Duration::from_secs(1)) == Err(mpsc::RecvTimeoutError::Timeout) {
                eprintln!("corprof: waiting for the threads of process {pid} …");
            }
        });
        Self(Some(sender))
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        drop(self.0.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_of_the_profiler_is_parsed() {
        let text = "thread 7 waits my worker\n  A.B(int)\t41\t/src/a b.cs\n  [native]\nthread 8 runs \n  C.D()\n  \
                    [outer frames are missing: it has more than 2000]\nothers 2\n";
        let stacks = parse(text, 0).unwrap();
        let thread = |id, name: Option<&str>, state: &str, frames: &[&str]| Thread {
            id,
            name: name.map(str::to_owned),
            state: state.to_owned(),
            is_cut: frames.iter().any(|frame| frame.starts_with(CUT)),
            frames: frames.iter().map(|frame| Frame::parse(frame)).collect(),
        };
        let expected = [
            thread(7, Some("my worker"), "waits", &["A.B(int)\t41\t/src/a b.cs", "[native]"]),
            thread(8, None, "runs", &["C.D()", "[outer frames are missing: it has more than 2000]"]),
        ];
        assert!(stacks.threads.iter().map(|thread| thread.is_cut).eq([false, true]));
        assert_eq!(stacks.threads, expected);
        assert_eq!(stacks.threads[0].frames[0].to_string(), "A.B(int) in a b.cs:41");
        assert_eq!(stacks.others, Some(2));
        for wrong in ["  frame first\n", "thread x runs \n", "nonsense\n"] {
            assert_eq!(parse(wrong, 0), None, "{wrong}");
        }
    }
}
