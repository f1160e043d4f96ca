//! The file of a recording: puts samples in order of time, and writes them.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use corprof::id::Inert;
use corprof::prelude::*;
use corprof::sampler::{ticks, ticks_per_second};
use corprof_export::{OutputFile, application_name};
use corprof_nettrace::events::Provider;
use corprof_nettrace::events::universal::{ExistingProcess, Measured, ProcessMapping, ProcessSymbol};
use corprof_nettrace::{Label, Metadata, NewEvent, Thread, Trace, UtcTime, Uuid, WriteError, Writer};

/// The name of the event of a thread that waits. Readers that know processor samples only pass it over.
const WAIT: &str = "wait";

/// The definitions of events.
const PROCESS_EVENT: u32 = 1;
const MAPPING_EVENT: u32 = 2;
const SYMBOL_EVENT: u32 = 3;
const CPU_EVENT: u32 = 4;
const WAIT_EVENT: u32 = 5;
/// Those of the runtime's events follow.
const FIRST_OF_RUNTIME: u32 = 6;

/// The thread of what no thread of the application has done.
const OWN_THREAD: u64 = 1;

/// How late a sample may come: it is read in the round after it was taken, and rounds may be late.
const LATEST: Duration = Duration::from_millis(500);
/// Threads that were not seen for so long are forgotten, if there are more than so many.
const UNSEEN: Duration = Duration::from_secs(60);
const FEW_THREADS: usize = 256;

/// How the samples of a recording were taken.
pub(in crate::sampler) struct Timing {
    pub(in crate::sampler) interval: Duration,
    pub(in crate::sampler) mode: &'static str,
}

/// A thread of the runtime, and of the system, as far as these are known.
pub(super) type TraceThread = (Option<Inert<ThreadId>>, Option<u32>);

/// What waits for older ones.
pub(super) enum Entry {
    Sample(TraceSample),
    Event(TraceEvent),
}

/// A sample of a thread.
pub(super) struct TraceSample {
    pub(super) thread: TraceThread,
    pub(super) ticks: u64,
    pub(super) weight: Duration,
    pub(super) is_waiting: bool,
    pub(super) stack: Box<[u64]>,
}

/// An event of the runtime.
pub(super) struct TraceEvent {
    pub(super) thread: TraceThread,
    pub(super) ticks: u64,
    /// Its number and version.
    pub(super) kind: (u32, u32),
    pub(super) activity: Option<u128>,
    pub(super) payload: Box<[u8]>,
    pub(super) stack: Box<[u64]>,
}

impl Entry {
    fn ticks(&self) -> u64 {
        match self {
            Self::Sample(sample) => sample.ticks,
            Self::Event(event) => event.ticks,
        }
    }

    fn thread(&self) -> TraceThread {
        match self {
            Self::Sample(sample) => sample.thread,
            Self::Event(event) => event.thread,
        }
    }
}

/// The file.
pub(super) struct TraceFile {
    file: OutputFile,
    timing: Timing,
    /// None before the first event, and after the last.
    writer: Option<Writer<File>>,
    is_finished: bool,
    /// When it began, by both clocks.
    begun: (SystemTime, u64),
    /// By time, and by the order in which they came.
    queue: BTreeMap<(u64, u64), Entry>,
    pushed: u64,
    /// No event is older than this any more.
    written_until: u64,
    threads: HashMap<TraceThread, KnownThread>,
    /// The definitions of the runtime's events.
    runtime_events: HashMap<(u32, u32), u32>,
    events: u64,
    lost: u64,
    thread_count: u64,
    threads_checked: Instant,
    payload: Vec<u8>,
    /// Why nothing more is written.
    failure: Option<String>,
}

/// A thread that samples refer to.
struct KnownThread {
    index: u64,
    name: Option<Box<str>>,
    seen: Instant,
    /// The weight of its samples that their numbers lack so far, in intervals.
    rest: f64,
}

impl TraceFile {
    pub(super) fn new(file: OutputFile, timing: Timing) -> Self {
        let begun = ticks();
        Self {
            file,
            timing,
            begun: (SystemTime::now(), begun),
            writer: None,
            is_finished: false,
            queue: BTreeMap::new(),
            pushed: 0,
            written_until: begun,
            threads: HashMap::new(),
            runtime_events: HashMap::new(),
            events: 0,
            lost: 0,
            thread_count: OWN_THREAD,
            threads_checked: Instant::now(),
            payload: Vec::new(),
            failure: None,
        }
    }

    pub(super) fn file(&self) -> &OutputFile {
        &self.file
    }

    /// Says the name of a thread. One that got another name is another thread in the trace.
    pub(super) fn name_thread(&mut self, key: TraceThread, name: Option<&str>) {
        let now = Instant::now();
        if let Some(known) = self.threads.get_mut(&key)
            && known.name.as_deref() == name
        {
            known.seen = now;
            return;
        }
        self.thread_count += 1;
        let index = self.thread_count;
        let mut thread = Thread::new(index);
        thread.name = name.map(str::to_owned);
        thread.os_thread_id = key.1.map(u64::from);
        thread.process_id = Some(std::process::id().into());
        self.write(|writer, _| writer.define_thread(&thread));
        let rest = self.threads.get(&key).map_or(0.0, |before| before.rest);
        self.threads.insert(key, KnownThread { index, name: name.map(Into::into), seen: now, rest });
    }

    pub(super) fn push(&mut self, entry: Entry) {
        self.pushed += 1;
        self.queue.insert((entry.ticks(), self.pushed), entry);
    }

    /// Defines an event of the runtime, as its session describes it.
    pub(super) fn define_event(&mut self, kind: (u32, u32), description: &[u8]) {
        let number = FIRST_OF_RUNTIME + u32::try_from(self.runtime_events.len()).unwrap_or(u32::MAX);
        if let Some(definition) = Metadata::described(number, Provider::RUNTIME.name(), description)
            && self.write(|writer, _| writer.define_event(&definition))
        {
            self.runtime_events.insert(kind, number);
        }
    }

    /// Says that a thread has lost events of the runtime.
    pub(super) fn lose(&mut self, thread: TraceThread, count: u32) {
        self.lost += u64::from(count);
        if !self.threads.contains_key(&thread) {
            self.name_thread(thread, None);
        }
        if let Some(index) = self.threads.get(&thread).map(|known| known.index) {
            self.write(|writer, _| writer.lose(index, count));
        }
    }

    /// How many events of the runtime it has, and how many were lost.
    pub(super) fn events(&self) -> (u64, u64) {
        (self.events, self.lost)
    }

    pub(super) fn map(&mut self, mapping: &ProcessMapping<'_>) {
        self.define(MAPPING_EVENT, |payload| mapping.write(payload).is_ok());
    }

    pub(super) fn name_code(&mut self, symbol: &ProcessSymbol<'_>) {
        self.define(SYMBOL_EVENT, |payload| symbol.write(payload).is_ok());
    }

    /// Writes an event that later ones build on, before all samples that are not written yet.
    fn define(&mut self, event: u32, write: impl FnOnce(&mut Vec<u8>) -> bool) {
        let mut payload = std::mem::take(&mut self.payload);
        payload.clear();
        if write(&mut payload) {
            self.write(|writer, until| {
                let mut new = NewEvent::new(event, OWN_THREAD, until);
                new.payload = &payload;
                writer.write(&new)
            });
        }
        self.payload = payload;
    }

    /// Writes the samples that are older than all that may still come.
    pub(super) fn settle(&mut self, oldest_waiting: Option<u64>, is_last: bool) {
        let latest = LATEST.as_nanos() * u128::from(ticks_per_second()) / 1_000_000_000;
        let settled = ticks().saturating_sub(u64::try_from(latest).unwrap_or(u64::MAX));
        let until = if is_last { u64::MAX } else { settled.min(oldest_waiting.unwrap_or(u64::MAX)) };
        while let Some(next) = self.queue.first_entry()
            && next.key().0 < until
        {
            match next.remove() {
                Entry::Sample(sample) => self.write_sample(&sample),
                Entry::Event(event) => self.write_event(&event),
            }
        }
        if self.threads_checked.elapsed() >= UNSEEN {
            self.threads_checked = Instant::now();
            self.forget_threads();
        }
    }

    fn write_sample(&mut self, sample: &TraceSample) {
        let Some(thread) = self.threads.get_mut(&sample.thread) else { return };
        // The sum of these numbers is that of the weights, so that shares are right however weights differ.
        let weight = sample.weight.as_secs_f64() / self.timing.interval.as_secs_f64() + thread.rest;
        let value = weight.round().max(0.0);
        thread.rest = weight - value;
        let index = thread.index;
        let mut payload = std::mem::take(&mut self.payload);
        payload.clear();
        Measured { value: value as u64 }.write(&mut payload);
        self.write(|writer, until| {
            let event = if sample.is_waiting { WAIT_EVENT } else { CPU_EVENT };
            let mut new = NewEvent::new(event, index, sample.ticks.max(until));
            (new.payload, new.stack) = (&payload, &sample.stack);
            writer.write(&new)
        });
        self.payload = payload;
        self.written_until = self.written_until.max(sample.ticks);
    }

    fn write_event(&mut self, event: &TraceEvent) {
        let thread = self.threads.get(&event.thread).map(|thread| thread.index);
        let definition = self.runtime_events.get(&event.kind).copied();
        let (Some(thread), Some(definition)) = (thread, definition) else {
            self.lost += 1;
            return;
        };
        let label = event.activity.map(|activity| Label::Activity(Uuid::from_u128(activity)));
        let is_written = self.write(|writer, until| {
            let mut new = NewEvent::new(definition, thread, event.ticks.max(until));
            (new.payload, new.stack, new.labels) = (&event.payload, &event.stack, label.as_slice());
            writer.write(&new)
        });
        *(if is_written { &mut self.events } else { &mut self.lost }) += 1;
        self.written_until = self.written_until.max(event.ticks);
    }

    /// Forgets the threads that were not seen for long, and have no samples that wait.
    fn forget_threads(&mut self) {
        if self.threads.len() <= FEW_THREADS {
            return;
        }
        let waiting: Vec<TraceThread> = self.queue.values().map(Entry::thread).collect();
        let is_gone =
            |(key, thread): &(&TraceThread, &KnownThread)| thread.seen.elapsed() >= UNSEEN && !waiting.contains(key);
        let gone: Vec<_> = self.threads.iter().filter(is_gone).map(|(key, thread)| (*key, thread.index)).collect();
        for (key, index) in gone {
            self.threads.remove(&key);
            self.write(|writer, _| writer.remove_thread(index));
        }
    }

    /// Has the file get what was written.
    pub(super) fn flush(&mut self) -> Result<(), BoxError> {
        if self.writer.is_some() {
            self.write(|writer, _| writer.flush());
        }
        self.result()
    }

    /// Ends the file.
    pub(super) fn finish(&mut self) -> Result<(), BoxError> {
        self.is_finished = true;
        if let Some(writer) = self.writer.take().filter(|_| self.failure.is_none())
            && let Err(error) = writer.finish()
        {
            self.failure = Some(error.to_string());
        }
        self.result()
    }

    fn result(&self) -> Result<(), BoxError> {
        match &self.failure {
            Some(failure) => Err(format!("{}: {failure}", self.file.path().display()).into()),
            None => Ok(()),
        }
    }

    /// Writes, unless that has failed before; `write` gets the time before which nothing may be. Returns whether it is
    /// written: the format has no room for some things.
    fn write(&mut self, write: impl FnOnce(&mut Writer<File>, u64) -> Result<(), WriteError>) -> bool {
        if self.failure.is_some() || self.is_finished {
            return false;
        }
        if self.writer.is_none() {
            match self.begin() {
                Ok(writer) => self.writer = Some(writer),
                Err(error) => {
                    self.failure = Some(error.to_string());
                    return false;
                }
            }
        }
        let until = self.written_until;
        let Some(writer) = &mut self.writer else { return false };
        match write(writer, until) {
            Ok(()) => true,
            Err(error @ (WriteError::Io(_) | WriteError::Broken)) => {
                self.failure = Some(error.to_string());
                false
            }
            Err(_) => false,
        }
    }

    /// Makes the file, with all that does not depend on samples.
    fn begin(&mut self) -> Result<Writer<File>, BoxError> {
        let (file, kept) = self.file.create()?;
        if let Some(kept) = kept {
            report!("sampler: the file of another run is kept as {}", kept.display());
        }
        let (time, begun) = self.begun;
        let time = UtcTime::from_system_time(time).ok_or("the clock of the system is not set")?;
        let mut trace = Trace::new(time, begun, ticks_per_second());
        let process = std::process::id();
        trace.process_id = Some(process.into());
        trace.processors = thread::available_parallelism().ok().map(|count| count.get() as u64);
        let interval = self.timing.interval.as_nanos();
        for (name, value) in [
            ("ExpectedCPUSamplingRate", interval.to_string()),
            ("SamplingMode", self.timing.mode.to_owned()),
            ("Writer", concat!("corprof ", env!("CARGO_PKG_VERSION")).to_owned()),
        ] {
            trace.properties.push((name.to_owned(), value));
        }
        let mut writer = Writer::new(file, &trace)?;
        let system = |id, number, name| Metadata::new(id, Provider::UNIVERSAL_SYSTEM.name(), number, name);
        let events =
            |id, name| Metadata::new(id, Provider::UNIVERSAL_EVENTS.name(), id, name).with_fields(Measured::fields());
        for definition in [
            system(PROCESS_EVENT, ExistingProcess::ID, ExistingProcess::NAME).with_fields(ExistingProcess::fields()),
            system(MAPPING_EVENT, ProcessMapping::ID, ProcessMapping::NAME).with_fields(ProcessMapping::fields()),
            system(SYMBOL_EVENT, ProcessSymbol::ID, ProcessSymbol::NAME).with_fields(ProcessSymbol::fields()),
            events(CPU_EVENT, Measured::CPU),
            events(WAIT_EVENT, WAIT),
        ] {
            writer.define_event(&definition)?;
        }
        let mut thread = Thread::new(OWN_THREAD);
        (thread.name, thread.process_id) = (Some("corprof".to_owned()), Some(process.into()));
        writer.define_thread(&thread)?;
        let name = application_name();
        let existing =
            ExistingProcess { namespace_id: process.into(), name: name.as_str().into(), namespace_name: "".into() };
        let mut payload = Vec::new();
        existing.write(&mut payload)?;
        let mut event = NewEvent::new(PROCESS_EVENT, OWN_THREAD, self.written_until);
        event.payload = &payload;
        writer.write(&event)?;
        Ok(writer)
    }
}
