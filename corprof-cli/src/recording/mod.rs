//! Reads a recording, a `.nettrace` file, into sums by thread and stack: the file in one pass, in memory that depends
//! on its distinct stacks and methods, and not on its events.
//!
//! `measure` says which events are looked at and what they weigh, `kinds` counts all, `stacks` keeps each stack once,
//! and at the end `symbols` names each distinct address once. `picture` has the result of one or more files, `select`
//! what is left of it after filters, and `table` its rows. `cells` keeps when samples were, for heat maps.

mod cells;
mod kinds;
mod measure;
pub(crate) mod options;
pub(crate) mod picture;
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
use corprof_nettrace::events::universal::{ExistingProcess, ProcessCreate};
use corprof_nettrace::events::{Provider, Text};
use corprof_nettrace::{Error, Event, FormatErrorKind, Item, Label, Reader, UtcTime};
use indexmap::IndexSet;
use rustc_hash::{FxBuildHasher, FxHashMap};

pub(crate) use self::cells::Cells;
pub(crate) use self::kinds::Kind;
use self::kinds::{Kinds, Role};
pub(crate) use self::measure::{Choice, Measure};
use self::stacks::{Path as StackPath, Stacks};
use self::symbols::Symbols;
use self::threads::Threads;
pub(crate) use self::threads::{Thread, ThreadChoice, ThreadPattern};
use crate::event_pipe_samples::MOST_FRAMES;

/// The most samples that are kept with their times, 32 bytes each. If there are more, only sums are kept.
const MOST_TIMED: usize = 4_000_000;

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
    /// Whether weights are also kept by cells of time.
    pub(crate) has_cells: bool,
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
    stacks: Stacks,
    symbols: FxHashMap<u64, Symbols>,
    types: IndexSet<String, FxBuildHasher>,
    groups: IndexSet<String, FxBuildHasher>,
    sums: FxHashMap<(u32, StackPath, u32), Sum>,
    timed: Option<Vec<Timed>>,
    cells: Option<Cells>,
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

/// A sample whose time is not over.
#[derive(Debug, Clone, Copy)]
struct LastSample {
    at: Duration,
    stack: StackPath,
    group: u32,
    /// Its place among the samples with times.
    index: usize,
}

/// One pass over a file.
struct Pass<'o> {
    options: &'o Options,
    from: Duration,
    to: Duration,
    trace: Option<corprof_nettrace::Trace>,
    stats: corprof_nettrace::Stats,
    last_ticks: u64,
    kinds: Kinds,
    threads: Threads,
    processes: BTreeMap<u64, String>,
    symbols: FxHashMap<u64, Symbols>,
    stacks: Stacks,
    /// By process and the number of the stack in the trace, until the next sequence point.
    current: FxHashMap<(u64, u32), StackPath>,
    /// The best events so far.
    rank: Option<(usize, Measure)>,
    /// By thread: its last sample of the runtime's sampler, which has the time until the next one.
    last: FxHashMap<u32, LastSample>,
    /// By thread: the stack in which it began to wait for a lock.
    waiting: FxHashMap<u32, StackPath>,
    types: IndexSet<String, FxBuildHasher>,
    groups: IndexSet<String, FxBuildHasher>,
    sums: FxHashMap<(u32, StackPath, u32), Sum>,
    timed: Option<Vec<Timed>>,
    cells: Option<Cells>,
}

impl<'o> Pass<'o> {
    fn new(options: &'o Options, from: Duration, to: Duration) -> Self {
        Self {
            options,
            from,
            to,
            trace: None,
            stats: corprof_nettrace::Stats::default(),
            last_ticks: 0,
            kinds: Kinds::default(),
            threads: Threads::default(),
            processes: BTreeMap::new(),
            symbols: FxHashMap::default(),
            stacks: Stacks::default(),
            current: FxHashMap::default(),
            rank: None,
            last: FxHashMap::default(),
            waiting: FxHashMap::default(),
            types: IndexSet::default(),
            groups: IndexSet::from_iter([String::new()]),
            sums: FxHashMap::default(),
            timed: options.is_timed.then(Vec::new),
            cells: options.has_cells.then(|| Cells::new(from, to)),
        }
    }

    fn item(&mut self, item: Taken<'_>) {
        match item {
            Taken::Trace(trace) => self.trace = Some(trace.clone()),
            Taken::Item(Item::Event(event)) => self.event(&event),
            // A sequence point.
            Taken::Item(_) => {
                self.threads.sequence_point();
                self.current.clear();
            }
            Taken::End(stats) => self.stats = stats,
        }
    }

    fn event(&mut self, event: &Event<'_>) {
        self.last_ticks = self.last_ticks.max(event.ticks());
        let kind = self.kinds.count(event, &self.options.choice);
        let thread = self.threads.of(event, &self.options.threads);
        match self.kinds.role(kind) {
            Role::Other => {}
            Role::Process => self.process(event),
            Role::Symbols => self.symbols(event),
            Role::WaitBegin => {
                let stack = self.stack(event, Provider::RUNTIME);
                self.waiting.insert(thread, stack);
            }
            Role::Sample { rank, measure } => self.sample(event, thread, rank, measure),
        }
    }

    fn process(&mut self, event: &Event<'_>) {
        let decoded = event.decoded();
        let name = decoded.decode::<ExistingProcess<'_>>().map(|process| process.name);
        let name: Option<Text<'_>> = name.or(decoded.decode::<ProcessCreate<'_>>().map(|process| process.name)).ok();
        if let (Some(process), Some(name)) = (event.process_id(), name) {
            self.processes.insert(process, name.to_string());
        }
    }

    fn symbols(&mut self, event: &Event<'_>) {
        let process = event.process_id().unwrap_or_default();
        let freed = self.symbols.entry(process).or_default().event(&event.decoded(), event.ticks());
        if let Some((first, last)) = freed {
            self.stacks.freed(process, first, last);
            self.current.clear();
        }
    }

    fn sample(&mut self, event: &Event<'_>, thread: u32, rank: usize, measure: Measure) {
        match self.rank {
            Some((best, _)) if best < rank => return,
            Some((best, _)) if best == rank => {}
            _ => {
                self.rank = Some((rank, measure));
                self.sums.clear();
                self.types.clear();
                self.last.clear();
                self.timed = self.options.is_timed.then(Vec::new);
                self.cells.iter_mut().for_each(Cells::clear);
            }
        }
        let at = event.since_start();
        let ticks_per_second = self.trace.as_ref().map_or(1, |trace| trace.ticks_per_second);
        let decoded = event.decoded();
        let (weight, type_name) = measure.weigh(&decoded, ticks_per_second);
        self.end_last(thread, at.min(self.to));
        let is_wanted = self.threads.get(thread).is_some_and(|thread| thread.is_wanted);
        if !is_wanted || at < self.from || at > self.to || !self.has_label(event) {
            return;
        }
        let mut stack = self.stack(event, decoded.provider());
        if measure == Measure::Contention
            && let Some(begin) = self.waiting.remove(&thread)
            && event.stack().is_empty()
        {
            stack = begin;
        }
        if let Some(name) = type_name {
            let frame = measure.type_frame(&name.to_string());
            let number = u32::try_from(self.types.insert_full(frame).0).unwrap_or(u32::MAX);
            stack = self.stacks.add_type(stack, number);
        }
        let group = self.group(event);
        self.sums.entry((thread, stack, group)).or_default().add(Sum { samples: 1, weight });
        if measure == Measure::Round {
            let index = self.timed.as_ref().map_or(0, Vec::len);
            self.last.insert(thread, LastSample { at, stack, group, index });
        }
        if let Some(cells) = &mut self.cells {
            cells.add(at, stack, weight);
        }
        if let Some(timed) = &mut self.timed {
            timed.push(Timed { at, thread, stack, weight });
            if timed.len() > MOST_TIMED {
                self.timed = None;
            }
        }
    }

    /// Gives the time up to now to the last sample of a thread.
    fn end_last(&mut self, thread: u32, now: Duration) {
        let Some(last) = self.last.remove(&thread) else { return };
        let weight = u64::try_from(now.saturating_sub(last.at).as_nanos()).unwrap_or(u64::MAX);
        self.sums.entry((thread, last.stack, last.group)).or_default().add(Sum { samples: 0, weight });
        if let Some(cells) = &mut self.cells {
            cells.add(last.at, last.stack, weight);
        }
        if let Some(sample) = self.timed.as_mut().and_then(|timed| timed.get_mut(last.index)) {
            sample.weight = weight;
        }
    }

    fn stack(&mut self, event: &Event<'_>, provider: Provider<'_>) -> StackPath {
        let process = event.process_id().unwrap_or_default();
        let number = event.stack_number();
        if let Some(known) = self.current.get(&(process, number)) {
            return *known;
        }
        let stack = event.stack();
        // The runtime leaves out what is further out.
        let is_cut = provider != Provider::UNIVERSAL_EVENTS && stack.addresses().len() >= MOST_FRAMES;
        let path = self.stacks.add(process, event.ticks(), stack, is_cut);
        self.current.insert((process, number), path);
        path
    }

    fn has_label(&self, event: &Event<'_>) -> bool {
        let Some((name, value)) = &self.options.label else { return true };
        event.labels().any(|label| text_of(&label, name).is_some_and(|text| text == *value))
    }

    /// The number of the value of the label that sums are kept apart by.
    fn group(&mut self, event: &Event<'_>) -> u32 {
        let Some(name) = &self.options.group_label else { return 0 };
        let value = event.labels().find_map(|label| text_of(&label, name)).unwrap_or_default();
        u32::try_from(self.groups.insert_full(value).0).unwrap_or(u32::MAX)
    }

    fn finish(mut self, path: &Path, cut_at: Option<u64>) -> Result<Gathered> {
        let trace = self.trace.context("the trace has no header")?;
        self.stacks.finish();
        let threads = self.threads.into_threads();
        let facts = Facts {
            path: path.to_owned(),
            version: trace.version,
            process: trace.process_id,
            processes: self.processes,
            started: trace.started_utc,
            duration: trace.since_start(self.last_ticks),
            events: self.stats.events,
            lost: self.stats.lost,
            threads: threads.len(),
            kinds: self.kinds.into_kinds(),
            cut_at,
            stacks_cut: self.stacks.cut(),
        };
        if let Some(cells) = &mut self.cells {
            cells.finish(facts.duration);
        }
        Ok(Gathered {
            facts,
            measure: self.rank.map(|(_, measure)| measure),
            threads,
            stacks: self.stacks,
            symbols: self.symbols,
            types: self.types,
            groups: self.groups,
            sums: self.sums,
            timed: self.timed,
            cells: self.cells,
        })
    }
}

/// The value of a label of this name, as text.
fn text_of(label: &Label, wanted: &str) -> Option<String> {
    match label {
        Label::Text(name, value) if name == wanted => Some(value.clone()),
        Label::Number(name, value) if name == wanted => Some(value.to_string()),
        _ => None,
    }
}
