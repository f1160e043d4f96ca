//! One pass over a `.nettrace`.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use corprof_async::LogicalFrame;
use corprof_export::{FrameKind, STARTED_BY};
use corprof_nettrace::events::universal::{ExistingProcess, ProcessCreate};
use corprof_nettrace::events::{Provider, Text};
use corprof_nettrace::{Event, Item, Label};
use rustc_hash::FxHashMap;

use super::callers::{TraceCallers, Waiting, WaitingSample};
use super::kinds::{Kinds, Role};
use super::measure::Clock;
use super::requests::{Labelled, RequestTimes, is_value};
use super::samples::{OpenSample, Sample, Samples, Time};
use super::stacks::Path as StackPath;
use super::threads::Threads;
use super::{Facts, Frame, Gathered, Lanes, Measure, Options, Taken};
use crate::event_pipe_samples::MOST_FRAMES;

/// The last version of the format that the runtime writes.
const LAST_OF_RUNTIME: u32 = 5;

/// One pass over a file.
pub(super) struct Pass<'o> {
    options: &'o Options,
    from: Duration,
    to: Duration,
    requests: Option<&'o RequestTimes>,
    /// Who awaits the methods of samples, once that has been asked for.
    callers: Option<TraceCallers>,
    /// Whether the trace tells of async operations.
    has_operations: bool,
    trace: Option<corprof_nettrace::Trace>,
    clock: Clock,
    stats: corprof_nettrace::Stats,
    last_ticks: u64,
    kinds: Kinds,
    threads: Threads,
    processes: BTreeMap<u64, String>,
    /// By process and the number of the stack in the trace, until the next sequence point.
    current: FxHashMap<(u64, u32), StackPath>,
    /// By thread: its last sample of the runtime's sampler, which has the time until the next one.
    last: FxHashMap<u32, OpenSample>,
    /// By thread: the stack in which it began to wait for a lock.
    waiting: FxHashMap<u32, StackPath>,
    samples: Samples,
    lanes: Option<Lanes>,
}

impl<'o> Pass<'o> {
    pub(super) fn new(
        options: &'o Options,
        time: Time,
        requests: Option<&'o RequestTimes>,
        callers: Option<TraceCallers>,
    ) -> Self {
        let Time { from, to, .. } = time;
        Self {
            options,
            from,
            to,
            requests,
            callers,
            has_operations: false,
            trace: None,
            clock: Clock::default(),
            stats: corprof_nettrace::Stats::default(),
            last_ticks: 0,
            kinds: Kinds::default(),
            threads: Threads::default(),
            processes: BTreeMap::new(),
            current: FxHashMap::default(),
            last: FxHashMap::default(),
            waiting: FxHashMap::default(),
            samples: Samples::new(options, time),
            lanes: options.has_lanes.then(|| Lanes::new(from, to)),
        }
    }

    /// Whether the trace tells who awaits the methods on its stacks, and a pass with these is needed. In recordings of
    /// corprof, which have a later format than the runtime writes, they are on the stacks.
    pub(super) fn lacks_callers(&self) -> bool {
        let is_of_runtime = self.trace.as_ref().is_some_and(|trace| trace.version <= LAST_OF_RUNTIME);
        self.callers.is_none() && self.has_operations && is_of_runtime
    }

    pub(super) fn item(&mut self, item: Taken<'_>) {
        match item {
            Taken::Trace(trace) => {
                self.clock = Clock::of(trace);
                self.trace = Some(trace.clone());
            }
            Taken::Item(Item::Event(event)) => self.event(&event),
            // A sequence point.
            Taken::Item(_) => {
                self.threads.sequence_point();
                self.current.clear();
                if let Some(callers) = &mut self.callers {
                    callers.sequence_point();
                }
            }
            Taken::End(stats) => self.stats = stats,
        }
    }

    fn event(&mut self, event: &Event<'_>) {
        self.last_ticks = self.last_ticks.max(event.ticks());
        let kind = self.kinds.count(event, &self.options.choice, self.clock);
        let thread = self.threads.of(event, &self.options.threads);
        if let Some(lanes) = &mut self.lanes
            && let Some(sign) = self.kinds.sign(kind)
            && (!sign.is_of_thread() || self.threads.get(thread).is_some_and(|thread| thread.is_wanted))
        {
            lanes.take(sign, &event.decoded(), event.since_start());
        }
        match self.kinds.role(kind) {
            Role::Other => {}
            Role::Operations => {
                self.has_operations = true;
                if let Some(callers) = &mut self.callers {
                    callers.take(event.payload(), event.ticks());
                }
            }
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
        let freed = self.samples.symbols.entry(process).or_default().event(&event.decoded(), event.ticks());
        if let Some((first, last)) = freed {
            // Samples that wait are of the code that was there.
            self.settle(true);
            self.samples.stacks.freed(process, first, last);
            self.current.clear();
        }
    }

    fn sample(&mut self, event: &Event<'_>, thread: u32, rank: usize, measure: Measure) {
        let (last, callers) = (&mut self.last, &mut self.callers);
        let forget = || {
            last.clear();
            callers.iter_mut().for_each(TraceCallers::clear);
        };
        if !self.samples.takes(rank, measure, self.options, forget) {
            return;
        }
        let sample = self.wanted(event, thread, measure);
        let waiting = Waiting { at: event.since_start(), thread, sample };
        match &mut self.callers {
            Some(callers) => {
                callers.push(waiting);
                self.settle(false);
            }
            None => self.add(waiting, None),
        }
    }

    /// The sample of an event, if it is looked at.
    fn wanted(&mut self, event: &Event<'_>, thread: u32, measure: Measure) -> Option<WaitingSample> {
        let at = event.since_start();
        let is_wanted = self.threads.get(thread).is_some_and(|thread| thread.is_wanted);
        if !is_wanted || at < self.from || at > self.to {
            return None;
        }
        let request = self.request(event);
        let is_slow = self.options.slowest.is_none() || request.is_some_and(|request| request.is_slow);
        if !is_slow || !self.has_label(event, request) {
            return None;
        }
        let decoded = event.decoded();
        let (weight, type_name) = measure.weigh(&decoded, self.clock);
        let mut stack = self.stack(event, decoded.provider());
        if measure == Measure::Contention
            && let Some(begin) = self.waiting.remove(&thread)
            && event.stack().is_empty()
        {
            stack = begin;
        }
        let of_type = type_name.map(|name| {
            let frame = measure.type_frame(&name.to_string());
            u32::try_from(self.samples.types.insert_full(frame).0).unwrap_or(u32::MAX)
        });
        let group = self.group(event, request);
        Some(WaitingSample {
            sample: Sample { at, thread, stack, group, weight },
            process: event.process_id().unwrap_or_default(),
            os_thread: event.os_thread_id().unwrap_or_default(),
            ticks: event.ticks(),
            stack: self.callers.as_mut().and_then(|callers| callers.stack(event)),
            of_type,
            is_open: measure == Measure::Round,
        })
    }

    /// Adds the samples whose callers are known, or will never be; all of them with `is_last`.
    fn settle(&mut self, is_last: bool) {
        while let Some((waiting, joined)) =
            self.callers.as_mut().and_then(|callers| callers.next_due(self.last_ticks, is_last))
        {
            self.add(waiting, joined.as_deref());
        }
    }

    fn add(&mut self, waiting: Waiting, joined: Option<&[LogicalFrame]>) {
        self.end_last(waiting.thread, waiting.at.min(self.to));
        let Some(WaitingSample { mut sample, process, ticks, of_type, is_open, .. }) = waiting.sample else { return };
        if let Some(frames) = joined {
            let started_by = self.samples.frame(Frame::new(STARTED_BY, FrameKind::Runtime));
            sample.stack = self.samples.stacks.add_logical(process, ticks, frames, started_by);
        }
        if let Some(number) = of_type {
            sample.stack = self.samples.stacks.add_type(sample.stack, number);
        }
        if is_open {
            let open = self.samples.open(sample);
            self.last.insert(sample.thread, open);
        } else {
            self.samples.add(sample);
        }
    }

    /// Gives the time up to now to the last sample of a thread.
    fn end_last(&mut self, thread: u32, now: Duration) {
        let Some(last) = self.last.remove(&thread) else { return };
        let weight = u64::try_from(now.saturating_sub(last.at()).as_nanos()).unwrap_or(u64::MAX);
        self.samples.close(last, weight);
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
        let path = self.samples.stacks.add(process, event.ticks(), stack, is_cut);
        self.current.insert((process, number), path);
        path
    }

    /// The request that the thread of an event works for.
    fn request(&self, event: &Event<'_>) -> Option<&'o Labelled> {
        self.requests?.at(event.os_thread_id()?, event.ticks())
    }

    /// The value of a label: of the event's own, or else of its request's.
    fn label(&self, event: &Event<'_>, request: Option<&Labelled>, name: &str) -> Option<String> {
        let own = event.labels().find_map(|label| text_of(&label, name));
        own.or_else(|| self.requests?.label(request?, name))
    }

    fn has_label(&self, event: &Event<'_>, request: Option<&Labelled>) -> bool {
        let Some((name, asked)) = &self.options.label else { return true };
        // An event may have several of one name.
        let has_own = event.labels().any(|label| text_of(&label, name).is_some_and(|text| text == *asked));
        has_own || self.label(event, request, name).is_some_and(|value| is_value(name, &value, asked))
    }

    /// The number of the value of the label that sums are kept apart by.
    fn group(&mut self, event: &Event<'_>, request: Option<&Labelled>) -> u32 {
        let Some(name) = &self.options.group_label else { return 0 };
        let value = self.label(event, request, name).unwrap_or_default();
        self.samples.group(value)
    }

    pub(super) fn finish(mut self, path: &Path, cut_at: Option<u64>) -> Result<Gathered> {
        self.settle(true);
        let trace = self.trace.context("the trace has no header")?;
        let threads = self.threads.into_threads();
        let duration = trace.since_start(self.last_ticks);
        let facts = Facts {
            path: path.to_owned(),
            version: Some(trace.version),
            process: trace.process_id,
            processes: self.processes,
            started: Some(trace.started_utc),
            duration,
            looked_at: self.to.min(duration).saturating_sub(self.from),
            events: self.stats.events,
            lost: self.stats.lost,
            damaged: 0,
            lacks_names: false,
            threads: threads.len(),
            kinds: self.kinds.into_kinds(),
            cut_at,
            stacks_cut: self.samples.stacks.cut(),
            callers: self.callers.map(|callers| callers.counts()),
        };
        self.samples.finish(facts.duration);
        if let Some(lanes) = &mut self.lanes {
            lanes.finish(facts.duration);
        }
        Ok(Gathered { facts, measure: self.samples.measure(), threads, samples: self.samples, lanes: self.lanes })
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
