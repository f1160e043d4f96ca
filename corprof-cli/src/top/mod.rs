//! `corprof top`: which methods of a process use the processor now, by the built-in profiler of that name; or those of
//! a recording.

mod counts;
mod event_pipe;
mod file;
mod lease;
mod rates;
mod table;

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail};
use corprof_diagnostics::Process;
use corprof_launch::processes;
use corprof_profilers::table::TOP;
use serde_json::{Value, json};

use self::counts::{Column, Counts, Snapshot};
use self::event_pipe::Sampled;
use self::lease::Lease;
use self::rates::Session;
use self::table::{Condition, View};
use crate::async_probe;
use crate::attach_request::Occupied;
use crate::attached_profiler::{self, Left, Place};
use crate::event_pipe_samples::{self, Callers, LIMITS};
use crate::exit::Outcome;
use crate::options::{self, Names, seconds};
use crate::output;
use crate::screen::{self, Pressed, Screen};
use crate::signals::Signals;

/// The time that the percentages of the live table are of.
const WINDOW: Duration = Duration::from_secs(5);
/// The duration without a terminal.
const DURATION: f64 = 5.0;
/// The rows of the printed table.
const ROWS: usize = 30;
/// The time limit for numbers of a process that has not ended.
const PATIENCE: Duration = Duration::from_secs(120);
/// The time without new numbers after which the table says so.
const SILENCE: Duration = Duration::from_secs(5);
/// The interval at which the terminal is asked for keys and the process for numbers.
const LOOK: Duration = Duration::from_millis(100);

/// Show which methods of a process use the processor, live; or of a recording.
///
/// Attaches the built-in sampler until `q`, Esc or Ctrl-C, and shows a table: the processor time of each method itself
/// (own), and with the methods that it calls (total). Percentages are of one processor and of the last 5 seconds; the
/// other columns are seconds since the start. The lines above have rates of allocations, exceptions and collections (of
/// generation 0, 1 and 2), which the runtime sends each second. The process needs no preparation. If this command is
/// killed, the sampler detaches by itself within a minute.
///
/// On .NET 11 the total of an async method has what a thread does when it goes on with a method that this one awaits,
/// or has started: its callers are those, as in `record`, and not the thread pool. That time comes up to two seconds
/// later. It is not known of lines, and on .NET 8 to 10 with --async-probe only.
///
/// If another profiler stays in the process, the runtime's own sampler takes the samples, by EventPipe: times are
/// then those in which threads were in managed code, whether they had a processor or not, and the table comes some four
/// seconds later, as it has async callers.
///
/// Without a terminal, or with --once or --json, prints one table after --duration, and ends. Its percentages and rates
/// are averages.
///
/// Of a recording, a .nettrace file or a text of `perf script`, prints the table of `corprof view`, whose options
/// choose what is looked at.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  corprof top 4711
  corprof top 4711 --sort total
  corprof top 4711 --lines
  corprof top 4711 --once --duration 30 --rows 10
  corprof top app.nettrace --sort total
  corprof top 4711 --json | jq -r '.methods[] | select(.own_seconds > 1) | .method'

Keys: q, Esc or Ctrl-C quit; 1 to 4 sort by a column; p or space pauses the display; arrows and page keys scroll.

Exits with 1 if the runtime refused the profiler, and with 3 if there is no such process, it is not a .NET process, it belongs to
another user, or it sent no numbers. Exit codes: corprof help exit-codes")]
pub struct Args {
    /// The process, as `corprof ps` numbers it; or a recording (./4711 if its name is a number)
    #[arg(value_name = "PID|FILE")]
    target: Target,

    /// Print one table and end
    #[arg(long)]
    once: bool,

    /// Print one JSON document and end: methods with times in seconds, and what the runtime counted in that time
    /// (`events`); of a recording, the document of `view`
    #[arg(long)]
    json: bool,

    /// Show source lines in place of methods, where a portable PDB beside the module or in it tells
    #[arg(long)]
    lines: bool,

    /// End after this many seconds [default without a terminal: 5]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    duration: Option<f64>,

    /// The column to sort by: own and total of the last seconds, or the sums since the start
    #[arg(long, value_enum, value_name = "COLUMN", default_value = "own")]
    sort: Column,

    /// The most methods to print [default: 30; with --json: all]
    #[arg(long, value_name = "N")]
    rows: Option<usize>,

    #[arg(
        long,
        value_name = "HZ",
        help = options::help(&TOP, "TOP_HZ"),
        default_value = options::default(&TOP, "TOP_HZ"),
        value_parser = options::number(&TOP, "TOP_HZ"),
    )]
    rate: f64,

    #[arg(
        long,
        value_name = "PERCENT",
        help = options::help(&TOP, "TOP_BUDGET"),
        default_value = options::default(&TOP, "TOP_BUDGET"),
        value_parser = options::number(&TOP, "TOP_BUDGET"),
    )]
    budget: f64,

    #[arg(long, help = options::PHYSICAL_HELP)]
    physical: bool,

    #[arg(long, conflicts_with_all = ["physical", "lines"], help = options::ASYNC_PROBE_HELP)]
    async_probe: bool,

    #[command(flatten)]
    names: Names,
}

/// What is looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Target {
    Process(u32),
    Recording(PathBuf),
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_number = text.trim_start_matches('-').bytes().all(|byte| byte.is_ascii_digit()) && text != "-";
        if !is_number {
            return Ok(Self::Recording(PathBuf::from(text)));
        }
        text.parse().map(Self::Process).map_err(|_| "give the number of a process, or a recording".to_owned())
    }
}

/// Runs the command.
///
/// # Errors
/// If the process is not there, the runtime refuses, or it sends no numbers; or the recording cannot be read.
pub fn run(args: &Args) -> Outcome {
    match &args.target {
        Target::Process(pid) => watch(args, *pid),
        Target::Recording(path) => file::run(args, path),
    }
}

fn watch(args: &Args, pid: u32) -> Outcome {
    let is_live = !args.once && !args.json && screen::is_there();
    let process = Process::open(pid)?;
    let signals = Signals::catch().context("cannot catch signals")?;
    let place = Place::new(&process)?;
    let out = place.file("top");
    let lease = Lease::new(place.file("top.lease")).context("cannot write into the folder for temporary files")?;
    let [rate, budget] = [args.rate, args.budget].map(|number| number.to_string());
    let out_for_process = place.path_for_process(&out);
    let lines = if args.lines { "on" } else { "off" };
    let changes_code = args.async_probe && async_probe::is_needed(&process);
    let stacks = async_probe::stacks(args.physical, changes_code);
    let settings = [
        ("TOP_OUT", out_for_process.as_os_str()),
        ("TOP_HZ", rate.as_ref()),
        ("TOP_BUDGET", budget.as_ref()),
        ("TOP_LINES", lines.as_ref()),
        ("TOP_STACKS", stacks.as_ref()),
        ("TOP_NAMES", args.names.word().as_ref()),
    ];
    let sampled = match place.attach(&process, "top", &settings) {
        Err(failure) if failure.error.is::<Occupied>() => {
            event_pipe_samples::announce(&failure.error);
            if args.lines {
                eprintln!("corprof: its samples have no lines: the table has methods");
            }
            let callers = if args.physical { Callers::Physical } else { Callers::Soon };
            Some(Sampled::start(&process, callers, args.names)?)
        }
        attached => {
            attached?;
            if changes_code {
                eprintln!("corprof: {}", attached_profiler::stays(async_probe::OPTION));
            }
            None
        }
    };
    let mut watched = Watched {
        pid,
        place: &place,
        file: place.of_process(&out, ""),
        written: None,
        counts: Counts::new(is_live.then_some(WINDOW)),
        lease,
        session: Session::start(process.client()),
        sampled,
        news: Instant::now(),
    };
    let shown = if is_live { live(args, &mut watched, &signals) } else { once(args, &mut watched, &signals) };
    if let Some(sampled) = &mut watched.sampled {
        let ended = sampled.finish(&signals);
        shown?;
        ended?;
        return Ok(ExitCode::SUCCESS);
    }
    let is_lost = watched.lease.is_lost();
    // The end of the lease has the profiler detach; meanwhile the session ends.
    drop(watched);
    if !is_lost {
        match place.wait(&out, &signals) {
            // It was said before.
            Left::Stays(_) if changes_code => {}
            left => attached_profiler::tell("top", pid, &left),
        }
    }
    shown?;
    Ok(ExitCode::SUCCESS)
}

/// The process, and what is known of it.
struct Watched<'p> {
    pid: u32,
    place: &'p Place,
    /// The profiler's file, and when it wrote the one that was read last.
    file: PathBuf,
    written: Option<SystemTime>,
    counts: Counts,
    // Dropped in this order.
    lease: Lease,
    session: Session,
    /// The samples of the runtime's own sampler, if the profiler cannot attach: then there is no file.
    sampled: Option<Sampled>,
    /// When the last numbers came.
    news: Instant,
}

impl Watched<'_> {
    /// Whether there were new numbers.
    fn look(&mut self) -> Result<bool> {
        let snapshot = match &mut self.sampled {
            Some(sampled) => sampled.look()?,
            None => self.read()?,
        };
        let is_new = snapshot.is_some_and(|snapshot| self.counts.add(snapshot));
        if is_new {
            self.news = Instant::now();
        }
        Ok(is_new)
    }

    /// Reads the profiler's file if it is a new one.
    fn read(&mut self) -> Result<Option<Snapshot>> {
        if self.lease.is_lost() {
            bail!(
                "the profiler has left process {}, because of `corprof detach`, or because this command was stopped for more than 30 s",
                self.pid
            );
        }
        // There is no file before the first second is over.
        let Ok(written) = fs::metadata(&self.file).and_then(|metadata| metadata.modified()) else { return Ok(None) };
        if self.written.replace(written) == Some(written) {
            return Ok(None);
        }
        let text = attached_profiler::folder::read(&self.file).context("cannot read the numbers of the profiler")?;
        let snapshot = Snapshot::parse(&text).with_context(|| {
            format!("the profiler has written an unknown format:\n{}", text.lines().next().unwrap_or(""))
        })?;
        Ok(Some(snapshot))
    }

    /// Whether numbers have come.
    fn has_numbers(&self) -> bool {
        !self.counts.last().elapsed.is_zero()
    }

    fn condition(&self, has_ended: bool) -> Condition {
        let silence = self.news.elapsed();
        match () {
            () if has_ended => Condition::Ended,
            () if !self.has_numbers() => Condition::Starts,
            () if silence > SILENCE => Condition::Silent(silence),
            () => Condition::Runs,
        }
    }

    /// Whether numbers of this duration have come.
    fn is_over(&self, duration: Option<f64>) -> bool {
        duration.is_some_and(|seconds| self.counts.last().elapsed.as_secs_f64() >= seconds)
    }
}

/// Collects numbers for a time, and prints them.
fn once(args: &Args, watched: &mut Watched<'_>, signals: &Signals) -> Result<()> {
    let duration = args.duration.unwrap_or(DURATION);
    let pid = watched.pid;
    // At the end the process may be gone.
    let command = processes::command_line(pid);
    match watched.sampled {
        Some(_) => eprintln!("corprof: counting time in managed code in process {pid} for {duration} s, {LIMITS}"),
        None => eprintln!("corprof: counting processor time in process {pid} for {duration} s"),
    }
    let has_ended = loop {
        // Asked before the file: a process may write the file and end right afterwards.
        let has_ended = watched.place.has_ended();
        watched.look()?;
        if has_ended || watched.is_over(Some(duration)) || signals.is_interrupted() {
            break has_ended;
        }
        if watched.news.elapsed() > PATIENCE {
            bail!("process {pid} has sent no numbers for {} s. Is it stopped?", PATIENCE.as_secs());
        }
        thread::sleep(LOOK);
    };
    if !watched.has_numbers() {
        let why = if has_ended { "the process ended" } else { "the command was interrupted" };
        bail!("there are no numbers of process {pid}: {why} before they came");
    }
    if has_ended {
        eprintln!("corprof: process {pid} has ended");
    }
    let mut out = output::stdout();
    let counts = &watched.counts;
    let delivered = watched.session.delivered();
    if args.json {
        let document = document(args, pid, command, has_ended, counts, delivered);
        return Ok(writeln!(out, "{document}")?);
    }
    writeln!(out, "process {pid}: {}", command.as_deref().unwrap_or("?"))?;
    write!(out, "{}", table::text(counts, delivered, args.sort, args.rows.unwrap_or(ROWS)))?;
    Ok(out.flush()?)
}

/// The numbers as JSON. Times are in seconds; `events` is null if the runtime has sent none.
fn document(
    args: &Args,
    pid: u32,
    command: Option<String>,
    has_ended: bool,
    counts: &Counts,
    delivered: &rates::Delivered,
) -> Value {
    let last = counts.last();
    let rows = counts.rows(args.sort);
    let methods = rows.iter().take(args.rows.unwrap_or(usize::MAX)).map(|row| {
        let [own, total] = [row.times.own, row.times.total].map(|time| time.as_secs_f64());
        let (file, line) = row.place.as_ref().map(|place| (&place.file, place.line)).unzip();
        json!({ "method": row.name, "file": file, "line": line, "own_seconds": own, "total_seconds": total })
    });
    let events = delivered.rates.as_ref().map(|rates| {
        json!({
            "seconds": rates.allocated.seconds,
            "allocated_bytes": rates.allocated.sum,
            "exceptions": rates.exceptions.sum,
            "collections": rates.collections.map(|counter| counter.sum),
            "gc_percent": rates.gc_percent,
            "heap_mb": rates.heap_mb,
        })
    });
    json!({
        "pid": pid,
        "command": command,
        "has_ended": has_ended,
        "seconds": last.elapsed.as_secs_f64(),
        "processor_seconds": last.processor.as_secs_f64(),
        "suspended_seconds": last.suspended.map(|suspended| suspended.as_secs_f64()),
        "by_event_pipe": last.suspended.is_none(),
        "samplings": last.rounds,
        "threads": last.threads,
        "events": events,
        "events_problem": delivered.problem,
        "distortion": last.distortion,
        "async_callers": last.note,
        "methods": methods.collect::<Vec<_>>(),
    })
}

/// Shows the table until a key ends it.
fn live(args: &Args, watched: &mut Watched<'_>, signals: &Signals) -> Result<()> {
    let mut view = View::new(watched.pid, processes::command_line(watched.pid).as_deref(), args.sort);
    let mut screen = Screen::open()?;
    let mut shown = None;
    let has_ended = loop {
        let has_ended = watched.place.has_ended();
        let is_new = watched.look()?;
        let condition = watched.condition(has_ended);
        if is_new || shown != Some(condition) {
            shown = Some(condition);
            view.update(condition, &watched.counts, watched.session.delivered());
            screen.draw(|frame| view.draw(frame))?;
        }
        if watched.is_over(args.duration) || signals.is_interrupted() || is_quit(&mut view, &mut screen, watched)? {
            break has_ended;
        }
    };
    drop(screen);
    if has_ended {
        eprintln!("corprof: process {} has ended", watched.pid);
    }
    Ok(())
}

/// Waits a moment for keys. Whether one of them ends the command.
fn is_quit(view: &mut View, screen: &mut Screen, watched: &mut Watched<'_>) -> Result<bool> {
    let mut wait = LOOK;
    while let Some(pressed) = screen::next_key(wait, |key| view.press(key))? {
        wait = Duration::ZERO;
        match pressed {
            Pressed::Quit => return Ok(true),
            Pressed::Change => {
                view.update(watched.condition(watched.place.has_ended()), &watched.counts, watched.session.delivered());
                screen.draw(|frame| view.draw(frame))?;
            }
            Pressed::Nothing => {}
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_a_process_and_all_else_a_recording() {
        assert_eq!(Target::from_str("4711"), Ok(Target::Process(4711)));
        for path in ["./4711", "app.nettrace", "-"] {
            assert_eq!(Target::from_str(path), Ok(Target::Recording(path.into())));
        }
        assert!(Target::from_str("99999999999").is_err() && Target::from_str("-1").is_err());
    }
}
