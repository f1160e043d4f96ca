//! `corprof events`: prints the events of a process as they happen, or those of a recording.

mod output;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use corprof_diagnostics::{EventPipeSession, FullBuffer, KeywordSet, Level, Process, Provider, SessionConfig};
use corprof_launch::processes;
use corprof_nettrace::{Event, FormatErrorKind, Item, Reader, Sorter};

use crate::attach_request::leave_alone_if_stopped;
use crate::exit::{self, Failure, Outcome};
use crate::recording;
use crate::signals;

/// Print the events of a running process, decoded, as they happen, in order of time; or those of a recording.
///
/// Without --set and --provider, prints events of collections, exceptions, contention and the thread pool. Ctrl-C and
/// the end of the process end the session. The last line counts lost events. An event that is unknown, or not written
/// as it is described, is shown with its bytes and `(inexact)`, after the fields that are certain.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  corprof events 4711
  corprof events 4711 --set gc --event GCStart --event GCEnd
  corprof events 4711 --set contention --duration 10 --json > locks.jsonl
  corprof events 4711 --provider System.Net.Http --provider My-Source:0x3:verbose
  corprof events app.nettrace --event GCStart --event GCEnd

Sets: gc, allocation-ticks, allocation-samples (.NET 10), contention, exceptions, thread-pool, thread-pool-work, waits (.NET 9), jit,
tiering, loader, profiler.")]
pub struct Args {
    /// The process id, or a recording: a .nettrace file (`-`: standard input)
    #[arg(value_name = "PID|FILE")]
    target: Target,

    /// Sets of the runtime's events, separated by commas
    #[arg(long, value_name = "SET", value_delimiter = ',')]
    set: Vec<Set>,

    /// Events of a provider, such as an EventSource. Keywords are all unless given, the level is informational, and
    /// ARGUMENTS are KEY=VALUE;KEY=VALUE, as the provider wants them
    #[arg(long, value_name = "NAME[:KEYWORDS[:LEVEL[:ARGUMENTS]]]")]
    provider: Vec<Source>,

    /// Print only events of this name. Repeatable
    #[arg(long, value_name = "NAME")]
    event: Vec<String>,

    /// End after this many seconds
    #[arg(long, value_name = "SECONDS")]
    duration: Option<f64>,

    /// Print a line of JSON for each event: ms, thread, provider, id, version, event, fields; if the fields do not
    /// account for all bytes, also `"exact": false` and bytes (in hexadecimal)
    #[arg(long)]
    json: bool,

    /// The highest memory use of the process for unread events, in MB
    #[arg(long, value_name = "MB", default_value_t = 64)]
    buffer_mb: u32,

    /// Lose no event: threads of the application wait while the buffer is full (.NET 11; older runtimes drop events)
    #[arg(long)]
    no_loss: bool,
}

/// What has the events.
#[derive(Debug, Clone)]
enum Target {
    Process(u32),
    File(PathBuf),
}

impl FromStr for Target {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(text.parse().map_or_else(|_| Self::File(text.into()), Self::Process))
    }
}

/// A named set.
#[derive(Debug, Clone, Copy)]
struct Set(KeywordSet);

impl FromStr for Set {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "heap-dump" {
            return Err("a dump of the heap is taken by `corprof heap`".to_owned());
        }
        let found = KeywordSet::ALL.into_iter().find(|(name, _)| *name == text);
        found.map(|(_, set)| Self(set)).ok_or_else(|| {
            let names: Vec<&str> =
                KeywordSet::ALL.iter().map(|(name, _)| *name).filter(|name| *name != "heap-dump").collect();
            format!("there is no such set; there are {}", names.join(", "))
        })
    }
}

/// A provider by name.
#[derive(Debug, Clone)]
struct Source(Provider);

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // Arguments may have colons.
        let mut parts = text.splitn(4, ':');
        let name = parts.next().filter(|name| !name.is_empty()).ok_or("a provider has a name")?;
        let keywords = match parts.next().filter(|part| !part.is_empty()) {
            None => u64::MAX,
            Some(part) => {
                let digits = part.strip_prefix("0x").or_else(|| part.strip_prefix("0X"));
                let number = digits.map_or_else(|| part.parse(), |digits| u64::from_str_radix(digits, 16));
                number.map_err(|_| format!("`{part}` is not a number of keywords, such as 0x10"))?
            }
        };
        let level = match parts.next().map(str::to_ascii_lowercase).as_deref() {
            None | Some("" | "informational" | "4") => Level::Informational,
            Some("verbose" | "5") => Level::Verbose,
            Some("warning" | "3") => Level::Warning,
            Some("error" | "2") => Level::Error,
            Some("critical" | "1") => Level::Critical,
            Some(other) => {
                return Err(format!("`{other}` is not a level: critical, error, warning, informational, verbose"));
            }
        };
        let provider = Provider::new(name, keywords, level);
        Ok(Self(match parts.next().filter(|part| !part.is_empty()) {
            None => provider,
            Some(arguments) if arguments.contains('=') => provider.with_arguments(arguments),
            Some(other) => return Err(format!("`{other}` is no argument of a provider: KEY=VALUE;KEY=VALUE")),
        }))
    }
}

/// The time between two checks for Ctrl-C and the end, in a session without events.
const POLL: Duration = Duration::from_millis(200);

/// The most lines that wait for older events of other threads.
const HELD: usize = 100_000;

/// After so long it is asked whether the process is stopped.
const SILENCE: Duration = Duration::from_secs(5);
/// The time limit for the runtime to end the session.
const END: Duration = Duration::from_secs(60);

/// Runs the command.
///
/// # Errors
/// If the process does not answer, or its events or those of the file cannot be read.
pub fn run(args: &Args) -> Outcome {
    match &args.target {
        Target::Process(pid) => of_process(args, *pid),
        Target::File(path) => of_file(args, path),
    }
}

/// Prints the events of a recording.
fn of_file(args: &Args, path: &Path) -> Outcome {
    let is_of_session = !args.set.is_empty() || !args.provider.is_empty() || args.duration.is_some() || args.no_loss;
    if is_of_session {
        let words =
            "--set, --provider, --duration and --no-loss are for a process: what a recording has is chosen by --event";
        return Err(Failure::new(exit::USAGE, anyhow!(words)));
    }
    let mut reader = recording::open(path)?;
    let mut out = crate::output::stdout();
    let mut lines = Sorter::new(HELD);
    let mut printed = 0;
    loop {
        match reader.next_item() {
            Ok(None) => break,
            Ok(Some(item)) => hold(args, &item, &mut lines)?,
            Err(corprof_nettrace::Error::Format(error)) if error.kind == FormatErrorKind::Truncated => {
                eprintln!("corprof: {}", recording::cut_words(path, reader.stats().bytes));
                break;
            }
            Err(error) => {
                return Err(anyhow::Error::from(error)
                    .context(format!("cannot read {} to its end", path.display()))
                    .into());
            }
        }
        printed += print(&mut lines, &mut out)?;
    }
    lines.release();
    printed += print(&mut lines, &mut out)?;
    out.flush()?;
    let stats = reader.stats();
    eprintln!("corprof: {printed} events printed, of {} in the recording, {} lost", stats.events, stats.lost);
    Ok(ExitCode::SUCCESS)
}

/// Prints the events of a process.
fn of_process(args: &Args, pid: u32) -> Outcome {
    let stop = signals::stop_requests()?;
    leave_alone_if_stopped(pid)?;
    let client = Process::open(pid)?.client();
    let full_buffer = if args.no_loss { FullBuffer::WaitIfPossible } else { FullBuffer::Drop };
    let config = SessionConfig::new(providers(args)).with_buffer_mb(args.buffer_mb).with_full_buffer(full_buffer);
    let mut session = client.start_session(&config)?;
    if args.no_loss && session.drops_events() {
        eprintln!("corprof: the runtime is older than .NET 11: it drops events while its buffer is full");
    }
    session.set_read_timeout(Some(POLL));
    let mut reader = Reader::new(session);
    let mut out = crate::output::stdout();
    let printed = match follow(args, pid, &mut reader, &stop, &mut out) {
        // The reader has closed the pipe.
        Err(error) if is_broken_pipe(&error) => return Ok(ExitCode::SUCCESS),
        other => other?,
    };
    let stats = reader.stats();
    eprintln!("corprof: {printed} events printed, {} received, {} lost", stats.events, stats.lost);
    Ok(ExitCode::SUCCESS)
}

fn providers(args: &Args) -> Vec<Provider> {
    let mut providers: Vec<Provider> = args.provider.iter().map(|source| source.0.clone()).collect();
    let sets = args.set.iter().map(|set| set.0).reduce(|all, set| all | set);
    let usual = KeywordSet::GC | KeywordSet::EXCEPTIONS | KeywordSet::CONTENTION | KeywordSet::THREAD_POOL;
    let set = sets.or_else(|| providers.is_empty().then_some(usual));
    providers.extend(set.map(Provider::runtime));
    providers
}

/// Prints events until it is time to end, and those that are still on their way then. Answers with how many it printed.
fn follow(
    args: &Args,
    pid: u32,
    reader: &mut Reader<EventPipeSession>,
    stop: &AtomicBool,
    out: &mut impl Write,
) -> Result<u64> {
    let end = args.duration.map(|seconds| Instant::now() + Duration::from_secs_f64(seconds.clamp(0.0, 1e9)));
    let mut stopped: Option<Instant> = None;
    let mut printed = 0;
    let mut lines = Sorter::new(HELD);
    loop {
        let mut is_quiet = false;
        match reader.next_item() {
            Ok(None) => break,
            Ok(Some(item)) => hold(args, &item, &mut lines)?,
            Err(error) if error.is_timeout() => {
                // The runtime has written all that it had.
                lines.release();
                is_quiet = true;
            }
            Err(corprof_nettrace::Error::Format(error)) if error.kind == FormatErrorKind::Truncated => {
                eprintln!("corprof: process {pid} has ended");
                break;
            }
            Err(error) => return Err(error).context("cannot read on"),
        }
        printed += print(&mut lines, out)?;
        if is_quiet {
            out.flush()?;
        }
        let is_time = stop.load(Ordering::Relaxed) || end.is_some_and(|end| Instant::now() >= end);
        match stopped {
            None if is_time => {
                reader.get_mut().stop()?;
                stopped = Some(Instant::now());
            }
            Some(since) if since.elapsed() > SILENCE && processes::is_stopped(pid) => {
                bail!("process {pid} is stopped, and does not end the session. It runs on after: kill -CONT {pid}")
            }
            Some(since) if since.elapsed() > END => bail!("the runtime does not end the session"),
            _ => {}
        }
    }
    lines.release();
    printed += print(&mut lines, out)?;
    out.flush()?;
    Ok(printed)
}

/// Holds the line of an event until no older one can come.
fn hold(args: &Args, item: &Item<'_>, lines: &mut Sorter<Vec<u8>>) -> Result<()> {
    let Item::Event(event) = item else {
        // A sequence point.
        lines.release();
        return Ok(());
    };
    if event.is_sorted() {
        lines.release_before(event.ticks());
    }
    if let Some(line) = line(args, event)? {
        lines.push(event.ticks(), line);
    }
    Ok(())
}

/// The line of an event, if it is to be printed.
fn line(args: &Args, event: &Event<'_>) -> Result<Option<Vec<u8>>> {
    let decoded = event.decoded();
    let is_own = decoded.provider().name() == "Microsoft-DotNETCore-EventPipe";
    let name = decoded.name();
    let is_wanted = args.event.is_empty() || args.event.iter().any(|wanted| name == wanted.as_str());
    if is_own || !is_wanted {
        return Ok(None);
    }
    let mut line = Vec::new();
    output::write(event, &decoded, args.json, &mut line)?;
    Ok(Some(line))
}

/// Prints the lines that are due, and returns their number.
fn print(lines: &mut Sorter<Vec<u8>>, out: &mut impl Write) -> Result<u64> {
    let mut count = 0;
    for line in lines {
        out.write_all(&line)?;
        count += 1;
    }
    Ok(count)
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn providers_and_sets_are_named() {
        let full = Source::from_str("My-Source:0x3:verbose").unwrap().0;
        assert_eq!(full, Provider::new("My-Source", 3, Level::Verbose));
        assert_eq!(Source::from_str("A").unwrap().0, Provider::new("A", u64::MAX, Level::Informational));
        assert_eq!(Source::from_str("A::error").unwrap().0, Provider::new("A", u64::MAX, Level::Error));
        let filtered = Source::from_str("A:::EventCounterIntervalSec=1;B=a:b").unwrap().0;
        let expected = Provider::new("A", u64::MAX, Level::Informational);
        assert_eq!(filtered, expected.with_arguments("EventCounterIntervalSec=1;B=a:b"));
        for wrong in ["", ":1", "A:x", "A:1:loud", "A:1:5:x"] {
            assert!(Source::from_str(wrong).is_err(), "{wrong}");
        }
        assert!(Set::from_str("gc").is_ok());
        assert!(Set::from_str("heap-dump").unwrap_err().contains("corprof heap"));
        assert!(Set::from_str("all").unwrap_err().contains("contention"));
    }
}
