//! Reads a recording, a `.nettrace` file, into sums by thread and stack: the file in one pass, in memory that depends
//! on its distinct stacks and methods, and not on its events.
//!
//! `pass` takes the events: `measure` says which are looked at and what they weigh, `kinds` counts all, `samples` has the
//! sums, `stacks` keeps each stack once, and at the end `symbols` names each distinct address once. `picture` has the result of one or more files, `select`
//! what is left of it after filters, and `table` its rows. `cells` keeps when samples were, and `lanes` what the
//! runtime did then, for heat maps and timelines.

mod cells;
mod kinds;
mod lanes;
mod measure;
pub(crate) mod options;
mod pass;
pub(crate) mod picture;
mod samples;
pub(crate) mod select;
mod stacks;
mod symbols;
pub(crate) mod table;
#[cfg(test)]
mod tests;
mod threads;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use corprof_export::FrameKind;
use corprof_nettrace::{Error, FormatErrorKind, Item, Reader, UtcTime};

pub(crate) use self::cells::{Cells, CellsOf};
pub(crate) use self::kinds::Kind;
pub(crate) use self::lanes::Lanes;
pub(crate) use self::measure::{Choice, Measure};
use self::pass::Pass;
use self::samples::Samples;
pub(crate) use self::threads::{Thread, ThreadChoice, ThreadPattern};

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
    /// Whether the times of samples are kept.
    pub(crate) is_timed: bool,
    /// What weights are kept by cells of time of.
    pub(crate) cells: Option<CellsOf>,
    /// Whether it is kept what the runtime did at each moment.
    pub(crate) has_lanes: bool,
    /// Whether frames by which the runtime calls managed code and stops threads are on stacks.
    pub(crate) has_runtime_frames: bool,
}

/// A moment of a recording.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Moment {
    /// Since its beginning.
    At(Duration),
    /// As a part of its time.
    Share(f64),
}

impl Moment {
    fn at(self, duration: Duration) -> Duration {
        match self {
            Self::At(at) => at,
            Self::Share(share) => duration.mul_f64(share),
        }
    }
}

/// What is told of a file beside its samples.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    pub(crate) path: PathBuf,
    /// Of the format.
    pub(crate) version: u32,
    pub(crate) process: Option<u64>,
    /// Names of processes, by their numbers.
    pub(crate) processes: BTreeMap<u64, String>,
    pub(crate) started: UtcTime,
    /// From the beginning to the last event.
    pub(crate) duration: Duration,
    pub(crate) events: u64,
    pub(crate) lost: u64,
    pub(crate) threads: usize,
    pub(crate) kinds: Vec<Kind>,
    /// The byte after which nothing was read, because the file ends in the middle.
    pub(crate) cut_at: Option<u64>,
    /// How often a stack was cut, as there were too many.
    pub(crate) stacks_cut: u64,
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

/// Reads a file. A file that ends in the middle is read up to there.
///
/// # Errors
/// If it cannot be read, is damaged, or is not a trace.
fn read(path: &Path, options: &Options) -> Result<Gathered> {
    let needs_duration = [options.from, options.to].iter().any(|moment| matches!(moment, Some(Moment::Share(_))));
    if needs_duration && is_standard_input(path) {
        bail!("a percentage of standard input is not known before its end: give --from and --to in seconds");
    }
    let whole = if needs_duration { duration(path)? } else { Duration::ZERO };
    let from = options.from.map_or(Duration::ZERO, |moment| moment.at(whole));
    let to = options.to.map_or(Duration::MAX, |moment| moment.at(whole));
    if from >= to {
        let seconds = |time: Duration| time.as_secs_f64();
        bail!(
            "there is nothing from {:.3} s to {:.3} s: give --from a smaller value than --to",
            seconds(from),
            seconds(to)
        );
    }
    let mut pass = Pass::new(options, from, to);
    let cut_at = read_items(path, |item| pass.item(item))?;
    pass.finish(path, cut_at)
}

/// The time of the last event.
fn duration(path: &Path) -> Result<Duration> {
    let mut last = Duration::ZERO;
    read_items(path, |item| {
        if let Taken::Item(Item::Event(event)) = item {
            last = last.max(event.since_start());
        }
    })?;
    Ok(last)
}

fn is_standard_input(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// What a pass over a file takes.
enum Taken<'a> {
    Trace(&'a corprof_nettrace::Trace),
    Item(Item<'a>),
    End(corprof_nettrace::Stats),
}

/// Opens a recording, or standard input for `-`.
///
/// # Errors
/// If it cannot be read, or is not a trace.
pub(crate) fn open(path: &Path) -> Result<Reader<Box<dyn Read>>> {
    let source: Box<dyn Read> = if is_standard_input(path) {
        Box::new(std::io::stdin().lock())
    } else {
        Box::new(File::open(path).with_context(|| format!("cannot read {}", path.display()))?)
    };
    let mut reader = Reader::new(source);
    reader.trace().with_context(|| {
        let shown = path.display();
        format!(
            "{shown} is not a recording that can be read: give a .nettrace file, such as `dotnet-trace collect` writes"
        )
    })?;
    Ok(reader)
}

/// What is said of a file that ends in the middle.
pub(crate) fn cut_words(path: &Path, bytes: u64) -> String {
    format!("{} ends in the middle: read up to its last whole block, at byte {bytes}", path.display())
}

/// Hands out the header, all items and the counts of a file. Answers with the byte where it was cut, if it was.
fn read_items(path: &Path, mut take: impl FnMut(Taken<'_>)) -> Result<Option<u64>> {
    let shown = || path.display().to_string();
    let mut reader = open(path)?;
    let trace = reader.trace()?;
    take(Taken::Trace(trace));
    let cut_at = loop {
        match reader.next_item() {
            Ok(Some(item)) => take(Taken::Item(item)),
            Ok(None) => break None,
            Err(Error::Format(error)) if error.kind == FormatErrorKind::Truncated => break Some(reader.stats().bytes),
            Err(error) => return Err(error).with_context(|| format!("cannot read {} to its end", shown())),
        }
    };
    take(Taken::End(reader.stats()));
    Ok(cut_at)
}
