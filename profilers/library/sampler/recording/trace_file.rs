//! What a recording writes: puts samples in order of time, and writes each with all that it refers to, which every file
//! tells of by itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use corprof::id::Inert;
use corprof::prelude::*;
use corprof::sampler::{ticks, ticks_per_second};
use corprof_async::PROVIDER;
use corprof_async::trace::{ACTIVITY_PROVIDER, QUEUE_PROVIDER};
use corprof_export::application_name;
use corprof_nettrace::events::Provider;
use corprof_nettrace::events::recording::{self, MethodCode};
use corprof_nettrace::events::universal::{ExistingProcess, Measured, ProcessMapping, ProcessSymbol};
use corprof_nettrace::{Label, Metadata, NewEvent, Thread, Trace, UtcTime, Uuid, WriteError, Writer};
use rustc_hash::{FxHashMap, FxHashSet};

use super::code_map::CodeMap;
use super::files::Files;
use super::runtime_events::{EventKind, Source};
use super::whole_blocks::WholeBlocks;

/// The definitions of events.
const PROCESS_EVENT: u32 = 1;
const MAPPING_EVENT: u32 = 2;
const SYMBOL_EVENT: u32 = 3;
const CPU_EVENT: u32 = 4;
const WAIT_EVENT: u32 = 5;
const CODE_EVENT: u32 = 6;
/// Those of the runtime's events follow.
const FIRST_OF_RUNTIME: u32 = 7;

/// The thread that writes: it has done what no thread of the application has, and has captured what these have. With
/// one such thread the headers of events need no numbers of it, which would take most of their bytes.
const OWN_THREAD: u64 = 1;

const NANOSECONDS: u128 = 1_000_000_000;

/// How late a sample may come: it is read in the round after it was taken, and rounds may be late.
const LATEST: Duration = Duration::from_millis(500);
/// Threads that were not seen for so long are forgotten, if there are more than so many.
const UNSEEN: Duration = Duration::from_secs(60);
const FEW_THREADS: usize = 256;

/// A file is closed so many bytes before it has the most: the writer holds 64 KB, and an event has at most 128 KB
/// beside the names of its addresses.
const RESERVE: u64 = 256 << 10;
/// The most addresses that are remembered to be defined, to be fast.
const MOST_DEFINED: usize = 1 << 16;

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
    pub(super) kind: EventKind,
    pub(super) activity: Option<u128>,
    pub(super) payload: Box<[u8]>,
    pub(super) stack: Box<[u64]>,
    /// The addresses of methods in the payload.
    pub(super) methods: Box<[u64]>,
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

/// What is written, and the file that is open.
pub(super) struct TraceFile {
    files: Files,
    timing: Timing,
    /// None before the first event of a file, and after the last.
    writer: Option<Writer<WholeBlocks>>,
    /// The number of the file.
    file: u64,
    /// When its first event was.
    file_begun: u64,
    /// The addresses whose symbols the file has.
    defined: FxHashSet<u64>,
    is_finished: bool,
    /// By time, and by the order in which they came.
    queue: BTreeMap<(u64, u64), Entry>,
    pushed: u64,
    /// No event is older than this any more.
    written_until: u64,
    threads: FxHashMap<TraceThread, KnownThread>,
    runtime_events: FxHashMap<EventKind, RuntimeEventKind>,
    events: u64,
    lost: u64,
    thread_count: u64,
    threads_checked: Instant,
    payload: Vec<u8>,
    /// Why nothing more is written, because that is impossible.
    failure: Option<String>,
    /// Why nothing more is written, as was wanted.
    limit: Option<String>,
}

/// The weight of a thread's samples that their numbers lack so far, in intervals.
#[derive(Default, Clone, Copy)]
struct Rests {
    running: f64,
    waiting: f64,
}

/// A thread that samples refer to.
struct KnownThread {
    index: u64,
    name: Option<Box<str>>,
    seen: Instant,
    rests: Rests,
    /// The number of the last file that tells of it.
    defined_in: u64,
}

/// A kind of events of the runtime.
struct RuntimeEventKind {
    definition: Metadata,
    /// The number of the last file that tells of it.
    defined_in: u64,
}

impl TraceFile {
    pub(super) fn new(files: Files, timing: Timing) -> Self {
        let begun = ticks();
        Self {
            files,
            timing,
            writer: None,
            file: 1,
            file_begun: begun,
            defined: FxHashSet::default(),
            is_finished: false,
            queue: BTreeMap::new(),
            pushed: 0,
            written_until: begun,
            threads: FxHashMap::default(),
            runtime_events: FxHashMap::default(),
            events: 0,
            lost: 0,
            thread_count: OWN_THREAD,
            threads_checked: Instant::now(),
            payload: Vec::new(),
            failure: None,
            limit: None,
        }
    }

    pub(super) fn files(&self) -> &Files {
        &self.files
    }

    /// Keeps the name of a thread. One that got another name is another thread in the trace.
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
        let rests = self.threads.get(&key).map(|before| before.rests).unwrap_or_default();
        self.threads.insert(key, KnownThread { index, name: name.map(Into::into), seen: now, rests, defined_in: 0 });
    }

    /// The number of a thread that is known, of which the file tells.
    fn thread(&mut self, key: TraceThread) -> Option<u64> {
        let known = self.threads.get(&key)?;
        let index = known.index;
        if known.defined_in == self.file {
            return Some(index);
        }
        let mut thread = Thread::new(index);
        thread.name = known.name.as_deref().map(str::to_owned);
        thread.os_thread_id = key.1.map(u64::from);
        thread.process_id = Some(std::process::id().into());
        if !self.write(|writer, _| writer.define_thread(&thread)) {
            return None;
        }
        let file = self.file;
        if let Some(known) = self.threads.get_mut(&key) {
            known.defined_in = file;
        }
        Some(index)
    }

    pub(super) fn push(&mut self, entry: Entry) {
        self.pushed += 1;
        self.queue.insert((entry.ticks(), self.pushed), entry);
    }

    /// Keeps how an event is described by its session.
    pub(super) fn describe_event(&mut self, kind: EventKind, description: &[u8]) {
        let provider = match kind.0 {
            Source::Runtime => Provider::RUNTIME.name(),
            Source::Activities => ACTIVITY_PROVIDER,
            Source::Operations => PROVIDER,
            Source::Queue => QUEUE_PROVIDER,
        };
        let number = FIRST_OF_RUNTIME + u32::try_from(self.runtime_events.len()).unwrap_or(u32::MAX);
        if let Some(definition) = Metadata::described(number, provider, description) {
            self.runtime_events.insert(kind, RuntimeEventKind { definition, defined_in: 0 });
        }
    }

    /// The number of a kind of events, of which the file tells.
    fn event_kind(&mut self, kind: EventKind) -> Option<u32> {
        let known = self.runtime_events.get(&kind)?;
        let number = known.definition.id;
        if known.defined_in == self.file {
            return Some(number);
        }
        let definition = known.definition.clone();
        if !self.write(|writer, _| writer.define_event(&definition)) {
            return None;
        }
        let file = self.file;
        if let Some(known) = self.runtime_events.get_mut(&kind) {
            known.defined_in = file;
        }
        Some(number)
    }

    /// Says that events of the runtime were lost.
    pub(super) fn lose(&mut self, count: u32) {
        self.lost += u64::from(count);
        self.begin_at(self.written_until);
        self.write(|writer, _| writer.lose(OWN_THREAD, count));
    }

    /// How many events of the runtime it has, and how many were lost.
    pub(super) fn events(&self) -> (u64, u64) {
        (self.events, self.lost)
    }

    /// Tells of what is at the addresses of a stack.
    fn tell_of(&mut self, code: &mut CodeMap, stack: &[u64]) {
        for address in stack {
            if self.defined.contains(address) {
                continue;
            }
            let Some(symbol) = code.symbol(*address) else { continue };
            let is_defined = std::mem::replace(&mut symbol.defined_in, self.file) == self.file;
            let (id, mapping_id, range, name, il) =
                (symbol.id, symbol.mapping, symbol.range.clone(), Arc::clone(&symbol.name), symbol.il.clone());
            if !is_defined {
                self.tell_of_mapping(code, mapping_id);
                let symbol = ProcessSymbol {
                    id,
                    mapping_id,
                    start_address: range.start,
                    end_address: range.end - 1,
                    name: (&*name).into(),
                };
                self.define(SYMBOL_EVENT, |payload| symbol.write(payload).is_ok());
                if let Some(il) = il {
                    let code = MethodCode {
                        start_address: range.start,
                        end_address: range.end - 1,
                        module: (&*il.module).into(),
                        token: il.token,
                        offsets: il.offsets.clone(),
                    };
                    self.define(CODE_EVENT, |payload| code.write(payload).is_ok());
                }
            }
            if self.defined.len() >= MOST_DEFINED {
                self.defined.clear();
            }
            self.defined.insert(*address);
        }
    }

    fn tell_of_mapping(&mut self, code: &mut CodeMap, id: u64) {
        let Some(mapping) = code.mapping(id) else { return };
        if std::mem::replace(&mut mapping.defined_in, self.file) == self.file {
            return;
        }
        let mapping = ProcessMapping {
            id,
            start_address: mapping.range.start,
            end_address: mapping.range.end - 1,
            file_offset: mapping.file_offset,
            file_name: mapping.file.as_str().into(),
            metadata_id: 0,
        };
        self.define(MAPPING_EVENT, |payload| mapping.write(payload).is_ok());
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
    pub(super) fn settle(&mut self, code: &mut CodeMap, oldest_waiting: Option<u64>, is_last: bool) {
        let settled = ticks().saturating_sub(in_ticks(LATEST));
        let until = if is_last { u64::MAX } else { settled.min(oldest_waiting.unwrap_or(u64::MAX)) };
        while let Some(next) = self.queue.first_entry()
            && next.key().0 < until
        {
            let entry = next.remove();
            self.end_file_if_due(entry.ticks());
            match entry {
                Entry::Sample(sample) => self.write_sample(code, &sample),
                Entry::Event(event) => self.write_event(code, &event),
            }
        }
        if !is_last {
            // An application that sleeps has its file closed in time, too.
            self.end_file_if_due(until);
        }
        if self.threads_checked.elapsed() >= UNSEEN {
            self.threads_checked = Instant::now();
            self.forget_threads();
        }
    }

    /// Closes the file if it is full, or if its time is over at `ticks`. The next begins with the next event.
    fn end_file_if_due(&mut self, ticks: u64) {
        let (Some(rotation), Some(writer)) = (self.files.rotation(), &self.writer) else { return };
        let is_full = rotation.largest.is_some_and(|largest| writer.get_ref().length() + RESERVE >= largest);
        let end = rotation.period.map(|period| self.file_begun.saturating_add(in_ticks(period)));
        if !is_full && end.is_none_or(|end| ticks < end) {
            return;
        }
        self.end_file();
        if is_full && rotation.ends_when_full() {
            let path = self.files.path().display();
            self.limit = Some(format!("{path} is full, and the only file to keep"));
        }
    }

    fn end_file(&mut self) {
        self.write_out();
        if let Some(writer) = self.writer.take().filter(|_| self.failure.is_none())
            && let Err(error) = writer.finish().and_then(|blocks| Ok(blocks.finish()?))
        {
            self.failure = Some(error.to_string());
        }
        self.file += 1;
        self.defined.clear();
    }

    fn write_sample(&mut self, code: &mut CodeMap, sample: &TraceSample) {
        self.begin_at(sample.ticks);
        let Some(index) = self.thread(sample.thread) else { return };
        self.tell_of(code, &sample.stack);
        let Some(thread) = self.threads.get_mut(&sample.thread) else { return };
        // The sum of these numbers is that of the weights, so that shares are right however weights differ.
        let rest = if sample.is_waiting { &mut thread.rests.waiting } else { &mut thread.rests.running };
        let weight = sample.weight.as_secs_f64() / self.timing.interval.as_secs_f64() + *rest;
        let value = weight.round().max(0.0);
        *rest = weight - value;
        let mut payload = std::mem::take(&mut self.payload);
        payload.clear();
        Measured { value: value as u64 }.write(&mut payload);
        self.write(|writer, until| {
            let event = if sample.is_waiting { WAIT_EVENT } else { CPU_EVENT };
            let mut new = NewEvent::new(event, index, sample.ticks.max(until));
            (new.capture_thread, new.payload, new.stack) = (OWN_THREAD, &payload, &sample.stack);
            writer.write(&new)
        });
        self.payload = payload;
        self.written_until = self.written_until.max(sample.ticks);
    }

    fn write_event(&mut self, code: &mut CodeMap, event: &TraceEvent) {
        self.begin_at(event.ticks);
        let (Some(thread), Some(definition)) = (self.thread(event.thread), self.event_kind(event.kind)) else {
            self.lost += 1;
            return;
        };
        self.tell_of(code, &event.stack);
        self.tell_of(code, &event.methods);
        let label = event.activity.map(|activity| Label::Activity(Uuid::from_u128(activity)));
        let is_written = self.write(|writer, until| {
            let mut new = NewEvent::new(definition, thread, event.ticks.max(until));
            (new.capture_thread, new.payload, new.stack) = (OWN_THREAD, &event.payload, &event.stack);
            new.labels = label.as_slice();
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
        let gone: Vec<_> = self.threads.iter().filter(is_gone).map(|(key, _)| *key).collect();
        for key in gone {
            let removed = self.threads.remove(&key).filter(|thread| thread.defined_in == self.file);
            if let Some(thread) = removed {
                self.write(|writer, _| writer.remove_thread(thread.index));
            }
        }
    }

    /// Has the file get what was written.
    pub(super) fn flush(&mut self) -> Result<(), BoxError> {
        self.write_out();
        self.result()
    }

    fn write_out(&mut self) {
        if self.writer.is_some() {
            self.write(|writer, _| writer.flush());
        }
    }

    /// Ends the file.
    pub(super) fn finish(&mut self) -> Result<(), BoxError> {
        self.end_file();
        self.is_finished = true;
        self.result()
    }

    /// Why nothing more is written, if the recording has ended by itself.
    pub(super) fn why_over(&self) -> Option<&str> {
        self.failure.as_deref().or(self.limit.as_deref())
    }

    /// Whether it has ended as was wanted.
    pub(super) fn limit(&self) -> Option<&str> {
        self.limit.as_deref()
    }

    fn result(&self) -> Result<(), BoxError> {
        match &self.failure {
            Some(failure) => Err(format!("{}: {failure}", self.files.path().display()).into()),
            None => Ok(()),
        }
    }

    /// Has a file that begins now begin with an event of this time.
    fn begin_at(&mut self, ticks: u64) {
        if self.writer.is_none() {
            self.written_until = self.written_until.max(ticks);
            self.file_begun = self.written_until;
        }
    }

    /// Writes, unless that has failed before; `write` gets the time before which nothing may be. Returns whether it is
    /// written: the format has no room for some things.
    fn write(&mut self, write: impl FnOnce(&mut Writer<WholeBlocks>, u64) -> Result<(), WriteError>) -> bool {
        if self.failure.is_some() || self.limit.is_some() || self.is_finished {
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
                writer.get_mut().end();
                self.failure = Some(error.to_string());
                false
            }
            Err(_) => false,
        }
    }

    /// Makes the file, with all that does not depend on samples.
    fn begin(&mut self) -> Result<Writer<WholeBlocks>, BoxError> {
        let begun = self.file_begun;
        let time = SystemTime::now() - since(begun);
        let file = self.files.create(time)?;
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
            events(WAIT_EVENT, Measured::WAIT),
            Metadata::new(CODE_EVENT, recording::PROVIDER, MethodCode::ID, MethodCode::NAME)
                .with_fields(MethodCode::fields()),
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
        let mut event = NewEvent::new(PROCESS_EVENT, OWN_THREAD, self.file_begun);
        event.payload = &payload;
        writer.write(&event)?;
        Ok(writer)
    }
}

fn in_ticks(duration: Duration) -> u64 {
    let ticks = duration.as_nanos() * u128::from(ticks_per_second()) / NANOSECONDS;
    u64::try_from(ticks).unwrap_or(u64::MAX)
}

/// The time since a moment of the past.
fn since(moment: u64) -> Duration {
    let nanoseconds = u128::from(ticks().saturating_sub(moment)) * NANOSECONDS / u128::from(ticks_per_second());
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}
