//! Reads a recording, a `.nettrace` file or the text of `perf script`, into sums by thread and stack: in one pass, in
//! memory that depends on its distinct stacks and methods, and not on its events.
//!
//! `pass` takes the events of a trace, `perf` those of a text: `measure` says which are looked at and what they weigh,
//! `kinds` counts all, `samples` has the sums, `stacks` keeps each stack once, and at the end `symbols` names each
//! distinct address once. `callers` finds who awaits sampled methods, for which a trace that tells that is read twice.
//! `picture` has the result of one or more files, `select` what is left of it after filters, and
//! `table` its rows. `cells` keeps when samples were, and `lanes` what the runtime did then, for heat maps and
//! timelines.

mod callers;
mod cells;
mod kinds;
mod lanes;
mod measure;
pub(crate) mod options;
mod pass;
mod perf;
pub(crate) mod picture;
mod requests;
mod samples;
pub(crate) mod selection;
mod stacks;
mod symbols;
pub(crate) mod table;
#[cfg(test)]
mod tests;
mod threads;

use std::collections::BTreeMap;
use std::io::{BufReader, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use corprof_export::FrameKind;
use corprof_nettrace::{Error, FormatErrorKind, Item, Reader, UtcTime};

pub(crate) use self::callers::CallerCounts;
use self::callers::TraceCallers;
pub(crate) use self::cells::{Cells, CellsOf};
pub(crate) use self::kinds::Kind;
pub(crate) use self::lanes::Lanes;
pub(crate) use self::measure::{Choice, Measure};
use self::pass::Pass;
use self::requests::RequestTimes;
use self::samples::{Samples, Time};
pub(crate) use self::threads::{Thread, ThreadChoice, ThreadPattern};
use crate::contents::{self, is_standard_input};
use crate::options::Names;

/// What is read of a file.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) choice: Choice,
    pub(crate) threads: ThreadChoice,
    pub(crate) from: Option<Moment>,
    pub(crate) to: Option<Moment>,
    /// Only events that have this label.
    pub(crate) label: Option<(String, String)>,
    /// The label by whose values sums are kept apart.
    pub(crate) group_label: Option<String>,
    /// Only samples of so large a part of the requests, the slowest ones of each endpoint.
    pub(crate) slowest: Option<f64>,
    /// Whether the times of samples are kept.
    pub(crate) is_timed: bool,
    /// What weights are kept by cells of time of.
    pub(crate) cells: Option<CellsOf>,
    /// Whether it is kept what the runtime did at each moment.
    pub(crate) has_lanes: bool,
    /// Whether several files are of one time: recordings that follow each other.
    pub(crate) is_joined: bool,
    /// Whether frames by which the runtime calls managed code and stops threads are on stacks.
    pub(crate) has_runtime_frames: bool,
    /// Whether stacks are those of the threads, where the trace tells who awaits a resumed method.
    pub(crate) is_physical: bool,
    pub(crate) names: Names,
}

impl Options {
    /// Whether a moment is a part of the whole time.
    fn needs_duration(&self) -> bool {
        [self.from, self.to].iter().any(|moment| matches!(moment, Some(Moment::Share(_))))
    }

    /// Whether labels of requests or the slowest ones are asked for.
    fn needs_requests(&self) -> bool {
        let mut labels = self.label.iter().map(|(name, _)| name).chain(&self.group_label);
        self.slowest.is_some() || labels.any(|name| requests::is_label(name))
    }
}

/// A moment of a recording.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Moment {
    /// Since its beginning.
    At(Duration),
    /// As a part of its time.
    Share(f64),
    /// A time of the day, by UTC: since midnight.
    Clock(Duration),
}

impl Moment {
    /// Since the beginning of a recording that is this long and has begun then.
    fn at(self, duration: Duration, started: Option<UtcTime>) -> Result<Duration> {
        const HOUR: u64 = 3600;
        let clock = match self {
            Self::At(at) => return Ok(at),
            Self::Share(share) => return Ok(duration.mul_f64(share)),
            Self::Clock(clock) => clock,
        };
        let UtcTime { hour, minute, second, millisecond, .. } =
            started.context("the text of perf has no times of the day: give --from and --to in seconds")?;
        let seconds = u64::from(hour) * HOUR + u64::from(minute) * 60 + u64::from(second);
        let begin = Duration::from_secs(seconds) + Duration::from_millis(millisecond.into());
        // What is long before the time of the day at which the recording has begun is of the next day.
        let is_of_next_day = clock + Duration::from_secs(12 * HOUR) < begin;
        let clock = if is_of_next_day { clock + Duration::from_secs(24 * HOUR) } else { clock };
        Ok(clock.saturating_sub(begin))
    }
}

/// What the moments of a recording are counted from.
#[derive(Debug, Clone, Copy, Default)]
struct Origin {
    /// Of a percentage.
    whole: Duration,
    /// Of times of the day.
    started: Option<UtcTime>,
    /// How long after that the file began.
    after: Duration,
}

/// What is told of a file beside its samples.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    pub(crate) path: PathBuf,
    /// Of the format; none of the text of perf.
    pub(crate) version: Option<u32>,
    pub(crate) process: Option<u64>,
    /// Names of processes, by their numbers.
    pub(crate) processes: BTreeMap<u64, String>,
    /// None if the file does not say it.
    pub(crate) started: Option<UtcTime>,
    /// From the beginning to the last event.
    pub(crate) duration: Duration,
    /// The part of it that --from and --to leave.
    pub(crate) looked_at: Duration,
    pub(crate) events: u64,
    pub(crate) lost: u64,
    /// Lines that could not be read, of a text.
    pub(crate) damaged: u64,
    /// Whether code that the runtime has compiled has no names.
    pub(crate) lacks_names: bool,
    pub(crate) threads: usize,
    pub(crate) kinds: Vec<Kind>,
    /// The byte after which nothing was read, because the file ends in the middle.
    pub(crate) cut_at: Option<u64>,
    /// How often a stack was cut, as there were too many.
    pub(crate) stacks_cut: u64,
    /// Of how many samples it is known who awaits their methods, if the trace tells that.
    pub(crate) callers: Option<CallerCounts>,
}

/// A function on a stack.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Frame {
    pub(crate) name: String,
    pub(crate) module: Option<String>,
    pub(crate) kind: FrameKind,
    /// File and line of the statement.
    pub(crate) place: Option<(String, u32)>,
}

impl Frame {
    fn new(name: &str, kind: FrameKind) -> Self {
        Self { name: name.to_owned(), module: None, kind, place: None }
    }
}

/// The samples of a thread with one stack.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) samples: u64,
    pub(crate) weight: u64,
}

impl Sum {
    pub(crate) fn add(&mut self, other: Self) {
        self.samples = self.samples.saturating_add(other.samples);
        self.weight = self.weight.saturating_add(other.weight);
    }
}

/// A sample with its time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timed {
    pub(crate) at: Duration,
    pub(crate) thread: u32,
    pub(crate) stack: u32,
    pub(crate) weight: u64,
}

/// What a file had.
#[derive(Debug)]
struct Gathered {
    facts: Facts,
    measure: Option<Measure>,
    threads: Vec<Thread>,
    samples: Samples,
    lanes: Option<Lanes>,
}

/// Reads a file. A file that ends in the middle is read up to there. None if it began after what is looked at.
///
/// # Errors
/// If it cannot be read, is damaged, or is not a trace.
fn read(path: &Path, options: &Options, origin: Option<&Origin>) -> Result<Option<Gathered>> {
    if options.needs_duration() && is_standard_input(path) {
        bail!("a percentage of standard input is not known before its end: give --from and --to in seconds");
    }
    let needs_requests = options.needs_requests();
    if needs_requests && is_standard_input(path) {
        bail!("the requests of standard input are not known before its end: give a file");
    }
    let whole = if options.needs_duration() && origin.is_none() { duration(path)? } else { Duration::ZERO };
    let mut input = input(path)?;
    let own = Origin { whole, started: input.started(), after: Duration::ZERO };
    let Origin { whole, started, after } = *origin.unwrap_or(&own);
    let from = options.from.map_or(Ok(Duration::ZERO), |moment| moment.at(whole, started))?;
    let to = options.to.map_or(Ok(Duration::MAX), |moment| moment.at(whole, started))?;
    if from >= to {
        let seconds = |time: Duration| time.as_secs_f64();
        bail!(
            "there is nothing from {:.3} s to {:.3} s: give --from a smaller value than --to",
            seconds(from),
            seconds(to)
        );
    }
    if !after.is_zero() && to <= after {
        return Ok(None);
    }
    let time = Time { from: from.saturating_sub(after), to: to.saturating_sub(after), after };
    let gathered = match input {
        Input::Trace(mut reader) => {
            let requests = if needs_requests { Some(requests_of(path, options)?) } else { None };
            let mut pass = Pass::new(options, time, requests.as_ref(), None);
            let mut has_callers = false;
            let cut_at = read_until(path, &mut reader, |item| {
                pass.item(item);
                has_callers = !options.is_physical && pass.lacks_callers() && !is_standard_input(path);
                if has_callers { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
            if has_callers {
                pass = Pass::new(options, time, requests.as_ref(), Some(TraceCallers::read(path)?));
                let cut_at = read_items(path, &mut open(path)?, |item| pass.item(item))?;
                pass.finish(path, cut_at)?
            } else {
                pass.finish(path, cut_at)?
            }
        }
        Input::Perf(_) if options.slowest.is_some() => bail!(without_requests(path)),
        Input::Perf(lines) => perf::read(path, lines, options, time)?,
    };
    Ok(Some(gathered))
}

/// Recordings in the order of their times, each with what its moments are counted from: the beginning of the first.
///
/// # Errors
/// If one cannot be read, or does not tell when it began.
fn joined<'p>(paths: &[&'p Path], options: &Options) -> Result<Vec<(&'p Path, Origin)>> {
    let mut begun = Vec::new();
    for path in paths {
        if is_standard_input(path) {
            bail!("standard input cannot be joined with other recordings: give files");
        }
        let started = input(path)?.started();
        let time = started.and_then(|started| started.to_system_time());
        let time = time.with_context(|| format!("{} does not tell when it began", path.display()))?;
        begun.push((time, *path, started));
    }
    begun.sort_by_key(|(time, ..)| *time);
    let (Some(&(first, _, started)), Some(&(last, last_path, _))) = (begun.first(), begun.last()) else {
        return Ok(Vec::new());
    };
    let since = |time: SystemTime| time.duration_since(first).unwrap_or_default();
    let whole = if options.needs_duration() { since(last) + duration(last_path)? } else { Duration::ZERO };
    let with_origin = |(time, path, _)| (path, Origin { whole, started, after: since(time) });
    Ok(begun.into_iter().map(with_origin).collect())
}

/// The requests of a file.
fn requests_of(path: &Path, options: &Options) -> Result<RequestTimes> {
    let times = RequestTimes::read(path, options.slowest)?;
    if times.is_empty() && options.slowest.is_some() {
        bail!(without_requests(path));
    }
    Ok(times)
}

fn without_requests(path: &Path) -> String {
    format!(
        "{} tells of no requests: record it with `corprof record --events cpu,activity -o app.nettrace`",
        path.display()
    )
}

/// The time of the last event.
fn duration(path: &Path) -> Result<Duration> {
    let mut last = Duration::ZERO;
    match input(path)? {
        Input::Trace(mut reader) => {
            read_items(path, &mut reader, |item| {
                if let Taken::Item(Item::Event(event)) = item {
                    last = last.max(event.since_start());
                }
            })?;
            Ok(last)
        }
        Input::Perf(lines) => perf::duration(lines).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// What a pass over a file takes.
enum Taken<'a> {
    Trace(&'a corprof_nettrace::Trace),
    Item(Item<'a>),
    End(corprof_nettrace::Stats),
}

/// A recording of any format.
enum Input {
    Trace(Box<Reader<Box<dyn Read>>>),
    /// The text of `perf script`.
    Perf(perf::Lines<BufReader<Box<dyn Read>>>),
}

/// The first bytes of a trace, and of what `perf record` writes.
const TRACE: &[u8] = b"Nettrace";
const PERF_DATA: &[u8] = b"PERFILE2";

impl Input {
    /// When it began, if it tells that.
    fn started(&mut self) -> Option<UtcTime> {
        match self {
            Self::Trace(reader) => reader.trace().ok().map(|trace| trace.started_utc),
            Self::Perf(_) => None,
        }
    }
}

/// Opens a recording, or standard input for `-`, and finds its format by its first bytes.
fn input(path: &Path) -> Result<Input> {
    let mut source = contents::of(path)?;
    let mut head = Vec::new();
    source.by_ref().take(8).read_to_end(&mut head).with_context(|| format!("cannot read {}", path.display()))?;
    let is_text = head.iter().all(|byte| !byte.is_ascii_control() || byte.is_ascii_whitespace());
    let kind = head.clone();
    let whole: Box<dyn Read> = Box::new(std::io::Cursor::new(head).chain(source));
    match kind.as_slice() {
        TRACE => Ok(Input::Trace(Box::new(reader(path, whole)?))),
        PERF_DATA => {
            let shown = path.display();
            bail!("{shown} is of `perf record`: give its text, by `perf script -i {shown} > app.perf.txt`")
        }
        _ if !is_text => bail!(unreadable(path)),
        _ => Ok(Input::Perf(perf::Lines::new(BufReader::new(whole)))),
    }
}

/// Opens a trace, or standard input for `-`.
///
/// # Errors
/// If it cannot be read, or is not a trace.
pub(crate) fn open(path: &Path) -> Result<Reader<Box<dyn Read>>> {
    reader(path, contents::of(path)?)
}

fn reader(path: &Path, source: Box<dyn Read>) -> Result<Reader<Box<dyn Read>>> {
    let mut reader = Reader::new(source);
    reader.trace().with_context(|| unreadable(path))?;
    Ok(reader)
}

/// What is said of a file of another format.
fn unreadable(path: &Path) -> String {
    format!(
        "{} is not a recording that can be read: give a .nettrace file, such as `dotnet-trace collect` writes, or the text of \
         `perf script`",
        path.display()
    )
}

/// What is said of a file that ends in the middle.
pub(crate) fn cut_words(path: &Path, bytes: u64) -> String {
    format!("{} ends in the middle: read up to its last whole block, at byte {bytes}", path.display())
}

/// Hands out the header, all items and the counts of a trace. Answers with the byte where it was cut, if it was.
fn read_items(path: &Path, reader: &mut Reader<Box<dyn Read>>, mut take: impl FnMut(Taken<'_>)) -> Result<Option<u64>> {
    read_until(path, reader, |item| {
        take(item);
        ControlFlow::Continue(())
    })
}

/// The same, until `take` has enough.
fn read_until(
    path: &Path,
    reader: &mut Reader<Box<dyn Read>>,
    mut take: impl FnMut(Taken<'_>) -> ControlFlow<()>,
) -> Result<Option<u64>> {
    let shown = || path.display().to_string();
    let trace = reader.trace()?;
    let _ = take(Taken::Trace(trace)); // nothing has enough of that
    let cut_at = loop {
        match reader.next_item() {
            Ok(Some(item)) => {
                if take(Taken::Item(item)).is_break() {
                    return Ok(None);
                }
            }
            Ok(None) => break None,
            Err(Error::Format(error)) if error.kind == FormatErrorKind::Truncated => break Some(reader.stats().bytes),
            Err(error) => return Err(error).with_context(|| format!("cannot read {} to its end", shown())),
        }
    };
    let _ = take(Taken::End(reader.stats()));
    Ok(cut_at)
}
