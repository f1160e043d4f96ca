//! Heap snapshots, taken from inside the application.
//!
//! The runtime collects the whole heap and reports each object, reference and root while the application's threads are
//! suspended. [`HeapSnapshots::take`] passes these reports to a [`BlockSink`] in blocks of up to 64 KB, as they come: there is
//! no buffer between that could overflow. Blocks that are missing, or that come twice, are an error: there is no result that
//! only looks whole.
//!
//! The first snapshot costs the application some 5 MB of memory, for code of the runtime. While it reports an object, the
//! runtime has an array of its references, 8 bytes each (`HeapWalkHelper` in vm/gcenv.ee.cpp): 16 MB for an array of two million
//! objects.
//!
//! ```
//! use std::path::Path;
//! use std::time::Duration;
//!
//! use corprof::args::EventPipeEvent;
//! use corprof::heap_dump::{BlockFile, HeapSnapshots};
//! use corprof::prelude::*;
//!
//! # #[derive(Profiler)]
//! # #[profiler(clsid = "5F0D6D0E-4C4B-4E0C-9B53-6C2B6E6D1C0D", no_export)]
//! #[derive(Default)]
//! struct Dumper {
//!     snapshots: HeapSnapshots,
//! }
//!
//! #[callbacks]
//! impl Callbacks for Dumper {
//!     fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
//!         let profiler = Self::default();
//!         let snapshots = profiler.snapshots.clone();
//!         cx.spawn_profiler_thread("dumper", move |cx| {
//!             if cx.wait(Duration::from_secs(30)).is_break() {
//!                 return;
//!             }
//!             let Ok(file) = BlockFile::create(Path::new("heap.blocks")) else { return };
//!             match snapshots.take(cx, Duration::from_secs(60), file) {
//!                 Ok(dump) => eprintln!("{} objects; pause: {:?}", dump.cost.objects, dump.cost.pause),
//!                 Err(error) => eprintln!("no snapshot: {error}"),
//!             }
//!         })?;
//!         Ok(profiler)
//!     }
//!
//!     fn event_pipe_event_delivered(&self, cx: &InNoGc<'_>, event: EventPipeEvent<'_>) {
//!         self.snapshots.event_pipe_event_delivered(cx, &event);
//!     }
//! }
//! ```
//!
//! On .NET 8 the runtime itself crashes now and then when it reports its heap while the application makes collectible code
//! (`AssemblyBuilderAccess.RunAndCollect`, contexts that are unloaded), also without a profiler, for a session over the
//! diagnostics port.
//!
//! A block is the payload of an event of the provider `Microsoft-Windows-DotNETRuntime`. The crate `corprof-heap` makes a graph of
//! them (its `BulkReader`), which needs 40 bytes an object: do that in another process, or know that the application pays for it.

mod blocks;
mod error;
mod file;
mod run;

use std::any::Any;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use corprof_events::{KeywordSet, Keywords, Level, Provider};

use crate::args::EventPipeEvent;
use crate::context::InNoGc;
use crate::error::Result;
use crate::id::{ClassId, EventPipeProviderId};
use crate::info::EventPipeProviderConfig;
use crate::lock::unpoisoned;
use crate::profiler_thread::ProfilerThread;

pub use error::HeapDumpError;
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
    /// The application's threads are suspended during the call: do not wait for any of them, and do not call the runtime. The call may
    /// come on any thread.
    ///
    /// # Errors
    /// The first one ends the snapshot: no more blocks follow, and [`HeapSnapshots::take`] returns it.
    fn block(&mut self, event: u16, payload: &[u8]) -> io::Result<()>;

    /// Called after the last block of a whole dump, on the thread that takes the snapshot.
    ///
    /// # Errors
    /// [`HeapSnapshots::take`] returns it.
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
    /// The classes of the objects, each with the number that the blocks have for it, by number. Ask for their names now; a class
    /// whose assembly has been unloaded meanwhile has none any more.
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
    /// How long they were suspended for further forced collections of the whole heap while the session ended. .NET 8 makes one.
    pub later_pauses: Vec<Duration>,
    /// From the call to the end of the session.
    pub took: Duration,
    /// Blocks of dumps that other tools requested at the same time. They were not passed to the sink.
    pub foreign_blocks: u64,
}

/// Takes snapshots, one at a time. Clones share their state.
///
/// Pass it the events of [`event_pipe_event_delivered`](crate::Callbacks::event_pipe_event_delivered): see the [module](self).
#[derive(Clone, Default)]
pub struct HeapSnapshots(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// Whether a dump is under way, so that events are looked at.
    is_listening: AtomicBool,
    /// The runtime's provider, once it is known.
    provider: AtomicUsize,
    /// Held for single events and changes, never across a call that waits.
    run: Mutex<Option<Run>>,
    changed: Condvar,
}

impl fmt::Debug for HeapSnapshots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeapSnapshots").field("is_taking", &self.0.is_listening).finish_non_exhaustive()
    }
}

impl HeapSnapshots {
    /// None is being taken.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a snapshot: `sink` receives all blocks before this returns.
    ///
    /// The application stands still while the heap is collected and reported. .NET 8 collects a second time when the session
    /// ends. The runtime collects on a thread of this call, so that no callback can take a snapshot.
    ///
    /// After `deadline` this returns [`HeapDumpError::Deadline`]. A collection cannot be stopped: if it has begun, it goes on, its blocks are
    /// dropped, and the next snapshot is refused until it has ended. While the sink handles a block, a second call waits before it
    /// is refused, and this one before it sees its deadline.
    ///
    /// # Errors
    /// [`HeapDumpError`] says what each means. `Deadline`, if no events come: pass them on.
    pub fn take<S: BlockSink>(
        &self,
        cx: &mut ProfilerThread<'_>,
        deadline: Duration,
        sink: S,
    ) -> Result<HeapDump<S>, HeapDumpError> {
        let until = Instant::now().checked_add(deadline);
        self.begin(Box::new(sink))?;
        let shared = Arc::clone(&self.0);
        let thread = cx.spawn_profiler_thread("heap snapshot", move |cx| shared.dump(cx, until));
        if let Err(error) = thread {
            self.0.end();
            return Err(HeapDumpError::Thread(error));
        }
        let mut run = self.0.lock();
        loop {
            let Some(current) = run.as_mut() else { return Err(HeapDumpError::Stopping) };
            if let Some(session) = current.session.take() {
                let has_ended = current.has_ended();
                let finished = run.take();
                drop(run);
                return match finished {
                    Some(finished) if has_ended || session.is_err() => finished.finish(session),
                    _ if cx.is_stopping() => Err(HeapDumpError::Stopping),
                    finished => Err(late(deadline, finished.as_ref())),
                };
            }
            let is_stopping = cx.is_stopping();
            if is_stopping || until.is_some_and(|until| Instant::now() >= until) {
                let error = if is_stopping { HeapDumpError::Stopping } else { late(deadline, Some(current)) };
                current.give_up();
                return Err(error);
            }
            run = unpoisoned(self.0.changed.wait_timeout(run, LOOK)).0;
        }
    }

    fn begin(&self, sink: Box<dyn BlockSink>) -> Result<(), HeapDumpError> {
        let mut run = self.0.lock();
        if run.is_some() {
            return Err(HeapDumpError::Busy);
        }
        *run = Some(Run::new(sink));
        self.0.is_listening.store(true, Relaxed);
        Ok(())
    }

    /// Call this in the callback of this name. Returns whether the event is a block of a heap dump; other events are the
    /// profiler's own, or tell of the collections that a snapshot forces.
    #[inline]
    pub fn event_pipe_event_delivered(&self, cx: &InNoGc<'_>, event: &EventPipeEvent<'_>) -> bool {
        self.0.is_listening.load(Relaxed) && self.0.event(cx, event)
    }
}

/// The error for a dump that has not ended in time.
fn late(deadline: Duration, run: Option<&Run>) -> HeapDumpError {
    let reason = match run {
        Some(run) if run.has_begun() => "the runtime is still reporting objects",
        Some(run) if run.has_events => "the collection has not come as far as the objects",
        _ => {
            "no event has come: is `event_pipe_event_delivered` passed on, and do the application's threads reach points where they \
             can be suspended?"
        }
    };
    HeapDumpError::Deadline(deadline, reason)
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Option<Run>> {
        unpoisoned(self.run.lock())
    }

    /// Forgets the dump.
    fn end(&self) {
        *self.lock() = None;
        self.is_listening.store(false, Relaxed);
    }

    #[cold]
    fn event(&self, cx: &InNoGc<'_>, event: &EventPipeEvent<'_>) -> bool {
        self.is_runtime(cx, event.provider) && self.lock().as_mut().is_some_and(|run| run.event(cx, event))
    }

    /// Whether it is the runtime's provider. A provider keeps its identifier as long as the process lives.
    fn is_runtime(&self, cx: &InNoGc<'_>, provider: EventPipeProviderId<'_>) -> bool {
        let known = self.provider.load(Relaxed);
        if known != 0 {
            return known == provider.as_raw();
        }
        let is_runtime = cx.event_pipe_provider_info(provider).is_ok_and(|name| name == Provider::RUNTIME.name());
        if is_runtime {
            self.provider.store(provider.as_raw(), Relaxed);
        }
        is_runtime
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
            Some(current) => current.session = Some(result),
            None => *run = None,
        }
        drop(run);
        self.changed.notify_all();
    }

    fn dump_by_session(&self, cx: &mut ProfilerThread<'_>, until: Option<Instant>) -> Result<()> {
        // The events of collections come by a session of their own, which ends last: it also sees the collection that .NET 8 makes
        // when the session with the dump ends.
        let watching = cx.event_pipe_start_session(&[EventPipeProviderConfig::runtime(KeywordSet::GC)], false)?;
        let dump = KeywordSet::new(Keywords::GC_HEAP_DUMP | Keywords::MANAGED_HEAP_COLLECT, Level::Informational);
        let is_late = || until.is_some_and(|until| Instant::now() >= until);
        let dumped = loop {
            let result = self.dump_once(cx, dump, &is_late);
            let has_ended = self.lock().as_ref().is_none_or(Run::has_ended);
            if result.is_err() || has_ended || is_late() || cx.wait(LOOK).is_break() {
                break result;
            }
        };
        dumped.and(cx.event_pipe_stop_session(watching))
    }

    /// Starts the session that forces the dump, waits for the dump and stops the session. A runtime that is still starting forces no
    /// collection, and returns no error.
    fn dump_once(&self, cx: &mut ProfilerThread<'_>, set: KeywordSet, is_late: &impl Fn() -> bool) -> Result<()> {
        let session = cx.event_pipe_start_session(&[EventPipeProviderConfig::runtime(set)], false)?;
        let started = Instant::now();
        let is_over = |run: &Run| run.has_ended() || started.elapsed() > QUIET && !run.is_collecting();
        while !self.lock().as_ref().is_none_or(is_over) && !is_late() && cx.wait(LOOK).is_continue() {}
        cx.event_pipe_stop_session(session)
    }
}
