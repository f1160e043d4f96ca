//! Heap snapshots, taken from inside the application.
//!
//! The runtime collects the whole heap and reports each object, reference and root while the application's threads are
//! suspended. [`take_heap_snapshot`](ProfilerThread::take_heap_snapshot) passes these reports to a [`BlockSink`] in
//! blocks of up to 64 KB, as they come: there is no buffer between that could overflow. Blocks that are missing, or
//! that come twice, are an error: there is no result that only looks whole.
//!
//! The first snapshot costs the application some 5 MB of memory, for code of the runtime. While it reports an object,
//! the runtime has an array of its references, 8 bytes each (`HeapWalkHelper` in vm/gcenv.ee.cpp): 16 MB for an array
//! of two million objects.
//!
//! ```
//! use std::path::Path;
//! use std::time::Duration;
//!
//! use corprof::heap_dump::BlockFile;
//! use corprof::prelude::*;
//!
//! # #[derive(Profiler)]
//! # #[profiler(clsid = "5F0D6D0E-4C4B-4E0C-9B53-6C2B6E6D1C0D", no_export)]
//! struct Dumper;
//!
//! #[callbacks]
//! impl Callbacks for Dumper {
//!     fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
//!         cx.spawn_profiler_thread("dumper", move |cx| {
//!             if cx.wait(Duration::from_secs(30)).is_break() {
//!                 return;
//!             }
//!             let Ok(file) = BlockFile::create(Path::new("heap.blocks")) else { return };
//!             match cx.take_heap_snapshot(Duration::from_secs(60), file) {
//!                 Ok(dump) => eprintln!("{} objects; pause: {:?}", dump.cost.objects, dump.cost.pause),
//!                 Err(error) => eprintln!("no snapshot: {error}"),
//!             }
//!         })?;
//!         Ok(Self)
//!     }
//! }
//! ```
//!
//! On .NET 8 the runtime itself crashes now and then when it reports its heap while the application makes collectible
//! code (`AssemblyBuilderAccess.RunAndCollect`, contexts that are unloaded), also without a profiler, for a session
//! over the diagnostics port.
//!
//! A block is the payload of an event of the provider `Microsoft-Windows-DotNETRuntime`. The crate `corprof-heap` makes
//! a graph of them (its `BulkReader`), which needs 40 bytes an object: do that in another process, or know that the
//! application pays for it.

mod blocks;
mod error;
mod fields;
mod file;
mod run;

use std::any::Any;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use corprof_events::{KeywordSet, Keywords, Level, Provider};

use crate::error::Result;
use crate::event_mask::EventMask;
use crate::id::{ClassId, EventPipeProviderId};
use crate::info::EventPipeProviderConfig;
use crate::lock::unpoisoned;
use crate::profiler_thread::ProfilerThread;
use crate::session::{DeliveredEvent, Info, Interests, Observer};

pub use error::HeapDumpError;
use fields::FieldReader;
pub use fields::FieldsOf;
pub use file::BlockFile;
use run::Run;

/// The time between two checks for the profiler's end.
const LOOK: Duration = Duration::from_millis(50);

/// If no collection has begun so long after the call that forces one, the runtime was not ready to make it.
const QUIET: Duration = Duration::from_secs(1);

/// Receives the blocks of a dump. Closures `FnMut(u16, &[u8]) -> io::Result<()>` are sinks.
pub trait BlockSink: Any + Send {
    /// Takes one block: the id of its event, and the payload.
    ///
    /// The application's threads are suspended during the call: do not wait for any of them, and do not call the
    /// runtime. The call may come on any thread.
    ///
    /// # Errors
    /// The first one ends the snapshot: no more blocks follow, and [`ProfilerThread::take_heap_snapshot`] returns it.
    fn block(&mut self, event: u16, payload: &[u8]) -> io::Result<()>;

    /// Takes the values of an object's fields, in the order in which they were added to number `of` of the
    /// [`FieldsOf`], before the block that has the object. Of a reference, the value is an address as in the blocks.
    ///
    /// As for [`block`](Self::block), the application's threads are suspended.
    ///
    /// # Errors
    /// As those of [`block`](Self::block).
    fn fields(&mut self, of: usize, object: u64, values: &[u64]) -> io::Result<()> {
        let _ = (of, object, values);
        Ok(())
    }

    /// Called after the last block of a whole dump, on the thread that takes the snapshot.
    ///
    /// # Errors
    /// [`ProfilerThread::take_heap_snapshot`] returns it.
    fn end(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<F: FnMut(u16, &[u8]) -> io::Result<()> + Any + Send> BlockSink for F {
    fn block(&mut self, event: u16, payload: &[u8]) -> io::Result<()> {
        self(event, payload)
    }
}

/// A whole dump.
#[derive(Debug)]
#[non_exhaustive]
pub struct HeapDump<S> {
    /// The sink, which has received all blocks.
    pub sink: S,
    /// The classes of the objects, each with the number that the blocks have for it, by number. Ask for their names
    /// now; a class whose assembly has been unloaded meanwhile has none any more.
    pub classes: Vec<(u64, ClassId)>,
    /// What it has cost.
    pub cost: HeapDumpCost,
}

/// What a snapshot has cost.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct HeapDumpCost {
    /// How many objects the heap has.
    pub objects: u64,
    /// How many references they have.
    pub references: u64,
    /// Blocks of the dump.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// For how long the application's threads were suspended for the collection that the dump is made in.
    pub pause: Duration,
    /// The share of `pause` from the first block to the last.
    pub delivery: Duration,
    /// The share of `delivery` in which corprof and the sink handled blocks. The rest is the runtime's.
    pub handling: Duration,
    /// How long they were suspended for further forced collections of the whole heap while the session ended. .NET 8
    /// makes one.
    pub later_pauses: Vec<Duration>,
    /// From the call to the end of the session.
    pub took: Duration,
    /// Blocks of dumps that other tools requested at the same time. They were not passed to the sink.
    pub foreign_blocks: u64,
}

/// The snapshots of one profiler, one at a time.
#[derive(Default)]
struct Snapshots {
    /// Whether a dump is under way, so that events are looked at.
    is_listening: AtomicBool,
    /// Held for single events and changes, never across a call that waits.
    run: Mutex<Option<Run>>,
    changed: Condvar,
}

impl ProfilerThread<'_> {
    /// Takes a snapshot of the heap: `sink` receives all blocks before this returns.
    ///
    /// It turns on `HIGH_MONITOR_EVENT_PIPE`, by which the blocks come. A profiler takes one snapshot at a time. While
    /// the runtime starts, the snapshot waits.
    ///
    /// The application stands still while the heap is collected and reported. .NET 8 collects a second time when the
    /// session ends. The runtime collects on a thread of this call, so that no callback can take a snapshot. An
    /// application in a region without collections leaves it ([`force_gc`](ProfilerThread::force_gc)).
    ///
    /// After `deadline` this returns [`HeapDumpError::Deadline`]. A collection cannot be stopped: if it has begun, it
    /// goes on, its blocks are dropped, and the next snapshot is refused until it has ended. While the sink handles a
    /// block, a second call waits before it is refused, and this one before it sees its deadline.
    ///
    /// # Errors
    /// [`HeapDumpError`] says what each means.
    pub fn take_heap_snapshot<S: BlockSink>(
        &mut self,
        deadline: Duration,
        sink: S,
    ) -> Result<HeapDump<S>, HeapDumpError> {
        self.take_heap_snapshot_with_fields(deadline, sink, Vec::new())
    }

    /// As [`take_heap_snapshot`](Self::take_heap_snapshot), and passes the values of `fields` to
    /// [`BlockSink::fields`].
    ///
    /// The application stands still for that as well. If the system does not let a process read its own memory
    /// (`process_vm_readv` and pipes are forbidden), no fields come.
    ///
    /// # Errors
    /// [`HeapDumpError`] says what each means.
    pub fn take_heap_snapshot_with_fields<S: BlockSink>(
        &mut self,
        deadline: Duration,
        sink: S,
        fields: Vec<FieldsOf>,
    ) -> Result<HeapDump<S>, HeapDumpError> {
        let until = Instant::now().checked_add(deadline);
        self.add_events(EventMask::HIGH_MONITOR_EVENT_PIPE).map_err(HeapDumpError::Runtime)?;
        let snapshots = Snapshots::of(self);
        let reader = (!fields.is_empty()).then(|| FieldReader::new(self, fields));
        snapshots.begin(Box::new(sink), reader)?;
        let dumping = Arc::clone(&snapshots);
        if let Err(error) = self.spawn_profiler_thread("heap snapshot", move |cx| dumping.dump(cx, until)) {
            snapshots.end();
            return Err(HeapDumpError::Thread(error));
        }
        let run = snapshots.wait(self, deadline, until)?;
        if run.has_ended() || run.has_failed() {
            return run.finish();
        }
        if self.is_stopping() {
            return Err(HeapDumpError::Stopping);
        }
        Err(deadline_error(deadline, &run))
    }
}

impl Observer for Arc<Snapshots> {
    fn interests(&self) -> Interests {
        Interests::EVENTS
    }

    fn keeps_event(&self, info: &Info, event: DeliveredEvent<'_>) -> bool {
        self.is_listening.load(Relaxed) && self.event(info, event)
    }
}

/// The error for a dump that has not ended in time.
fn deadline_error(deadline: Duration, run: &Run) -> HeapDumpError {
    let reason = if run.has_begun() {
        "the runtime is still reporting objects"
    } else if run.has_events {
        "the collection has not come as far as the objects"
    } else {
        "no event has come: do the application's threads reach points where they can be suspended?"
    };
    HeapDumpError::Deadline(deadline, reason)
}

fn is_past(until: Option<Instant>) -> bool {
    until.is_some_and(|until| Instant::now() >= until)
}

impl Snapshots {
    /// Those of the profiler whose thread this is.
    fn of(info: &Info) -> Arc<Self> {
        Arc::clone(info.extension::<Arc<Self>>())
    }

    fn begin(&self, sink: Box<dyn BlockSink>, fields: Option<FieldReader>) -> Result<(), HeapDumpError> {
        let mut run = self.lock();
        if run.is_some() {
            return Err(HeapDumpError::Busy);
        }
        *run = Some(Run::new(sink, fields));
        self.is_listening.store(true, Relaxed);
        Ok(())
    }

    /// Waits until the session of the dump is stopped, and takes what it has come to.
    fn wait(&self, cx: &ProfilerThread<'_>, deadline: Duration, until: Option<Instant>) -> Result<Run, HeapDumpError> {
        let mut run = self.lock();
        loop {
            let Some(current) = run.as_mut() else { return Err(HeapDumpError::Stopping) };
            if current.session_result.is_some() {
                break;
            }
            if cx.is_stopping() {
                current.give_up();
                return Err(HeapDumpError::Stopping);
            }
            if is_past(until) {
                let error = deadline_error(deadline, current);
                current.give_up();
                return Err(error);
            }
            run = unpoisoned(self.changed.wait_timeout(run, LOOK)).0;
        }
        run.take().ok_or(HeapDumpError::Stopping)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Run>> {
        unpoisoned(self.run.lock())
    }

    /// Forgets the dump.
    fn end(&self) {
        *self.lock() = None;
        self.is_listening.store(false, Relaxed);
    }

    #[cold]
    fn event(&self, info: &Info, event: DeliveredEvent<'_>) -> bool {
        let is_named_so = || match EventPipeProviderId::from_raw(event.provider) {
            Some(provider) => {
                info.event_pipe_provider_info(provider).is_ok_and(|name| name == Provider::RUNTIME.name())
            }
            None => false,
        };
        let is_runtime = info.event_pipe_sessions().is_runtime_provider(event.provider, is_named_so);
        is_runtime && self.lock().as_mut().is_some_and(|run| run.event(info, event))
    }

    /// Starts the session, waits for the dump and stops the session.
    fn dump(&self, cx: &mut ProfilerThread<'_>, until: Option<Instant>) {
        let is_given_up = |run: &Run| run.is_abandoned;
        if self.lock().as_ref().is_none_or(is_given_up) {
            return self.end();
        }
        let result = self.dump_by_session(cx, until);
        self.is_listening.store(false, Relaxed);
        let mut run = self.lock();
        match run.as_mut().filter(|run| !run.is_abandoned) {
            Some(current) => current.session_result = Some(result),
            None => *run = None,
        }
        drop(run);
        self.changed.notify_all();
    }

    fn dump_by_session(&self, cx: &mut ProfilerThread<'_>, until: Option<Instant>) -> Result<()> {
        // Until the runtime has started, a collection would be refused.
        while !cx.startup().is_over() && !is_past(until) && cx.wait(LOOK).is_continue() {}
        // The events of collections come by a session of their own, which ends last: it also sees the collection that
        // .NET 8 makes when the session with the dump ends.
        let watching = cx.event_pipe_start_session(&[EventPipeProviderConfig::runtime(KeywordSet::GC)], false)?;
        let dump = KeywordSet::new(Keywords::GC_HEAP_DUMP | Keywords::MANAGED_HEAP_COLLECT, Level::Informational);
        let is_late = || is_past(until);
        let dumped = loop {
            let result = self.dump_once(cx, dump, &is_late);
            let has_ended = self.lock().as_ref().is_none_or(Run::has_ended);
            if result.is_err() || has_ended || is_late() || cx.wait(LOOK).is_break() {
                break result;
            }
        };
        dumped.and(cx.event_pipe_stop_session(watching))
    }

    /// Starts the session that forces the dump, waits for the dump and stops the session. A runtime that is not ready
    /// forces no collection, and returns no error.
    fn dump_once(&self, cx: &mut ProfilerThread<'_>, set: KeywordSet, is_late: &impl Fn() -> bool) -> Result<()> {
        let session = cx.event_pipe_start_session(&[EventPipeProviderConfig::runtime(set)], false)?;
        let started = Instant::now();
        let is_over = |run: &Run| run.has_ended() || started.elapsed() > QUIET && !run.is_collecting();
        while !self.lock().as_ref().is_none_or(is_over) && !is_late() && cx.wait(LOOK).is_continue() {}
        cx.event_pipe_stop_session(session)
    }
}
