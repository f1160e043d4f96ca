//! Reads the text of `perf script`, in one pass.

mod line;

use std::io::{self, BufRead, Read};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustc_hash::FxHashMap;

use self::line::{Head, Line, switched};
use super::kinds::Kind;
use super::measure::Choice;
use super::samples::{OpenSample, Sample, Samples, Time};
use super::symbols::{named, unnamed};
use super::threads::Threads;
use super::{Facts, Gathered, Measure, Options};

/// The provider of these events.
pub(crate) const PROVIDER: &str = "perf";
/// A longer line is damaged.
const LONGEST: usize = 1 << 16;
/// More frames of a stack are left out, the outermost ones.
const DEEPEST: usize = 4_096;
/// Compiled code, where the runtime writes to it by another address than it runs at.
const COMPILED: &str = "/memfd:doublemapper";
/// The idle task of each processor.
const IDLE: u64 = 0;

/// Lines of any bytes.
pub(super) struct Lines<R> {
    source: R,
    bytes: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(source: R) -> Self {
        Self { source, bytes: Vec::new() }
    }

    /// The next line, of which at most [`LONGEST`] bytes are kept. None at the end.
    fn next(&mut self) -> io::Result<Option<std::borrow::Cow<'_, str>>> {
        self.bytes.clear();
        let limit = LONGEST as u64;
        if self.source.by_ref().take(limit).read_until(b'\n', &mut self.bytes)? == 0 {
            return Ok(None);
        }
        Ok(Some(String::from_utf8_lossy(&self.bytes)))
    }
}

/// The time from the first event to the last one.
pub(super) fn duration(mut lines: Lines<impl BufRead>) -> Result<Duration> {
    let mut span: Option<(Duration, Duration)> = None;
    while let Some(line) = lines.next()? {
        if let Line::Head(head) = Line::new(&line) {
            let (first, last) = span.unwrap_or((head.at, head.at));
            span = Some((first, last.max(head.at)));
        }
    }
    Ok(span.map_or(Duration::ZERO, |(first, last)| last - first))
}

/// Reads all lines.
///
/// # Errors
/// If it cannot be read, or has no event of `perf script`.
pub(super) fn read(path: &Path, mut lines: Lines<impl BufRead>, options: &Options, time: Time) -> Result<Gathered> {
    let mut pass = Pass::new(options, time);
    while let Some(line) = lines.next().with_context(|| format!("cannot read {} to its end", path.display()))? {
        pass.line(Line::new(&line));
    }
    pass.finish(path)
}

/// An event whose stack is being read.
struct Open {
    thread: u32,
    thread_id: u64,
    at: Duration,
    kind: usize,
    switched_to: Option<u64>,
    /// Numbers of frames, the innermost first.
    frames: Vec<u32>,
}

/// One pass over a text.
struct Pass<'o> {
    options: &'o Options,
    from: Duration,
    to: Duration,
    /// The time of the first event.
    begin: Option<Duration>,
    last: Duration,
    events: u64,
    damaged: u64,
    lacks_names: bool,
    kinds: Vec<Kind>,
    threads: Threads,
    open: Option<Open>,
    /// By the system's number: the threads that have left their processor, with their numbers here.
    away: FxHashMap<u64, OpenSample>,
    samples: Samples,
}

impl<'o> Pass<'o> {
    fn new(options: &'o Options, time: Time) -> Self {
        let Time { from, to, .. } = time;
        Self {
            options,
            from,
            to,
            begin: None,
            last: Duration::ZERO,
            events: 0,
            damaged: 0,
            lacks_names: false,
            kinds: Vec::new(),
            threads: Threads::default(),
            open: None,
            away: FxHashMap::default(),
            samples: Samples::new(options, time),
        }
    }

    fn line(&mut self, line: Line<'_>) {
        match line {
            Line::Nothing => self.end_event(),
            Line::Head(head) => {
                self.end_event();
                self.begin_event(&head);
            }
            Line::Frame(frame) => {
                let number = self.frame(&frame);
                match &mut self.open {
                    Some(open) if open.frames.len() < DEEPEST => open.frames.push(number),
                    Some(_) => {}
                    None => self.damaged += 1,
                }
            }
            Line::Damaged => self.damaged += 1,
        }
    }

    fn frame(&mut self, frame: &line::Frame<'_>) -> u32 {
        let module = frame.file.filter(|file| !is_map(file)).map(Path::new);
        let frame = match frame.symbol {
            // Obfuscated names may contain control characters.
            Some(symbol) => named(&symbol.replace(char::is_control, " "), module),
            None => {
                self.lacks_names |= frame.file == Some(COMPILED);
                unnamed(module)
            }
        };
        self.samples.frame(frame)
    }

    fn begin_event(&mut self, head: &Head<'_>) {
        let begin = *self.begin.get_or_insert(head.at);
        let at = head.at.saturating_sub(begin);
        self.last = self.last.max(at);
        self.events += 1;
        let kind = self.kind(head.event);
        let thread = self.threads.named(head.process, head.thread, head.name, &self.options.threads);
        // Whoever has an event runs again.
        self.runs(head.thread, at);
        let frames = head.frame.iter().map(|frame| self.frame(frame)).collect();
        let switched_to = switched(head.rest).map(|(_, to)| to);
        self.open = Some(Open { thread, thread_id: head.thread, at, kind, switched_to, frames });
    }

    /// The number of a kind of events, which it counts.
    fn kind(&mut self, event: &str) -> usize {
        let known = self.kinds.iter().position(|kind| kind.name == event);
        let index = known.unwrap_or_else(|| {
            self.kinds.push(Kind::named(PROVIDER, event, &self.options.choice));
            self.kinds.len() - 1
        });
        if let Some(kind) = self.kinds.get_mut(index) {
            kind.events += 1;
        }
        index
    }

    fn end_event(&mut self) {
        let Some(open) = self.open.take() else { return };
        if let Some(kind) = self.kinds.get_mut(open.kind).filter(|_| !open.frames.is_empty()) {
            kind.stacks += 1;
        }
        self.sample(&open);
        if let Some(to) = open.switched_to {
            self.runs(to, open.at);
        }
    }

    fn sample(&mut self, open: &Open) {
        let Some((rank, measure)) = self.kinds.get(open.kind).and_then(Kind::measured) else { return };
        if !self.samples.takes(rank, measure, self.options, || self.away.clear()) {
            return;
        }
        let is_wanted = self.threads.get(open.thread).is_some_and(|thread| thread.is_wanted);
        // Labels are of other recordings.
        if !is_wanted || open.at < self.from || open.at > self.to || self.options.label.is_some() {
            return;
        }
        let stack = self.samples.stacks.add_named(&open.frames);
        let sample = Sample { at: open.at, thread: open.thread, stack, group: 0, weight: 1 };
        if measure != Measure::Switch {
            self.samples.add(sample);
        } else if open.thread_id != IDLE {
            let left = self.samples.open(sample);
            self.away.insert(open.thread_id, left);
        }
    }

    /// A thread runs again, if it had left its processor.
    fn runs(&mut self, thread: u64, now: Duration) {
        let Some(left) = self.away.remove(&thread) else { return };
        let away = now.min(self.to).saturating_sub(left.at());
        self.samples.close(left, u64::try_from(away.as_nanos()).unwrap_or(u64::MAX));
    }

    fn finish(mut self, path: &Path) -> Result<Gathered> {
        self.end_event();
        if self.events == 0 {
            bail!(super::unreadable(path));
        }
        self.samples.finish(self.last);
        let threads = self.threads.into_threads();
        let facts = Facts {
            path: path.to_owned(),
            version: None,
            process: None,
            processes: std::collections::BTreeMap::new(),
            started: None,
            duration: self.last,
            looked_at: self.to.min(self.last).saturating_sub(self.from),
            events: self.events,
            lost: 0,
            damaged: self.damaged,
            lacks_names: self.lacks_names,
            threads: threads.len(),
            kinds: self.kinds,
            cut_at: None,
            stacks_cut: self.samples.stacks.cut(),
            callers: None,
        };
        Ok(Gathered { facts, measure: self.samples.measure(), threads, samples: self.samples, lanes: None })
    }
}

/// Whether a file is that in which a runtime says where its code is, as `/tmp/perf-4712.map`.
fn is_map(file: &str) -> bool {
    let name = file.rsplit('/').next().unwrap_or(file);
    name.starts_with("perf-") && name.ends_with(".map")
}

/// The rank and measure of an event of perf.
pub(super) fn measured(choice: &Choice, event: &str) -> Option<(usize, Measure)> {
    let rank = choice.rank_of_perf(event)?;
    Some((rank, Measure::of_perf(event)))
}
