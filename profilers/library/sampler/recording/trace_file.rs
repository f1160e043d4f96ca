//! The file of a recording: puts samples in order of time, and writes them.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use corprof::prelude::*;
use corprof::sampler::{ticks, ticks_per_second};
use corprof_export::{OutputFile, application_name};
use corprof_nettrace::events::Provider;
use corprof_nettrace::events::universal::{ExistingProcess, Measured, ProcessMapping, ProcessSymbol};
use corprof_nettrace::{Metadata, NewEvent, Thread, Trace, UtcTime, WriteError, Writer};

use crate::sampler::async_callers::ThreadKey;

/// The name of the event of a thread that waits. Readers that know processor samples only pass it over.
const WAIT: &str = "wait";

/// The definitions of events.
const PROCESS_EVENT: u32 = 1;
const MAPPING_EVENT: u32 = 2;
const SYMBOL_EVENT: u32 = 3;
const CPU_EVENT: u32 = 4;
const WAIT_EVENT: u32 = 5;

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

/// A sample that waits for older ones.
pub(super) struct TraceSample {
    pub(super) thread: ThreadKey,
    pub(super) ticks: u64,
    pub(super) weight: Duration,
    pub(super) is_waiting: bool,
    pub(super) stack: Box<[u64]>,
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
    queue: BTreeMap<(u64, u64), TraceSample>,
    pushed: u64,
    /// No event is older than this any more.
    written_until: u64,
    threads: HashMap<ThreadKey, KnownThread>,
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
    pub(super) fn name_thread(&mut self, key: ThreadKey, name: Option<&str>) {
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

    pub(super) fn push(&mut self, sample: TraceSample) {
        self.pushed += 1;
        self.queue.insert((sample.ticks, self.pushed), sample);
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
            let sample = next.remove();
            self.write_sample(&sample);
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

    /// Forgets the threads that were not seen for long, and have no samples that wait.
    fn forget_threads(&mut self) {
        if self.threads.len() <= FEW_THREADS {
            return;
        }
        let waiting: Vec<ThreadKey> = self.queue.values().map(|sample| sample.thread).collect();
        let is_gone =
            |(key, thread): &(&ThreadKey, &KnownThread)| thread.seen.elapsed() >= UNSEEN && !waiting.contains(key);
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

    /// Writes, unless that has failed before; `write` gets the time before which nothing may be.
    fn write(&mut self, write: impl FnOnce(&mut Writer<File>, u64) -> Result<(), WriteError>) {
        if self.failure.is_some() || self.is_finished {
            return;
        }
        if self.writer.is_none() {
            match self.begin() {
                Ok(writer) => self.writer = Some(writer),
                Err(error) => {
                    self.failure = Some(error.to_string());
                    return;
                }
            }
        }
        let until = self.written_until;
        if let Some(writer) = &mut self.writer
            && let Err(error) = write(writer, until)
        {
            self.failure = Some(error.to_string());
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
