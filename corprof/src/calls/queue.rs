//! [`EventQueue`]: passes events from hooks to one reader, through a buffer for each thread.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use rtrb::{Consumer, Producer, PushError, RingBuffer};

use crate::context::InCallback;
use crate::lock::{try_unpoisoned, unpoisoned};
use crate::profiler::BoxError;

/// How many events a thread drops for lack of a buffer before it asks for one again.
const ASK_AGAIN: u32 = 1024;

/// How long a hook waits for a reader that makes no progress. After that no hook waits until the reader has read again.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long a hook sleeps before it checks for room again. It does not wake the reader, as that would be a system call
/// too.
const PAUSE: Duration = Duration::from_micros(50);

/// Buffers of events, one for each writing thread, which a profiler thread reads.
///
/// A hook may not wait for a disk. So it pushes an event into its thread's buffer, which takes no lock, and the reader
/// does the slow work. Memory is bounded, however long the application runs and however slow the reader is: at most
/// `threads` buffers of `room` events, `room * threads * size_of::<E>()` bytes. An event without room is dropped and
/// counted ([`dropped`](Self::dropped)), or its thread waits ([`push_waiting`](EventWriter::push_waiting)).
///
/// ```
/// use corprof::calls::{EventQueue, EventReader, EventWriter};
/// use corprof::prelude::*;
/// use std::{sync::Arc, time::Duration};
///
/// struct Calls(EventQueue<FunctionId>);
///
/// impl FunctionHooks for Calls {
///     type Function = ();
///     type Thread = EventWriter<FunctionId>;
///     const KINDS: HookKinds = HookKinds::ENTER;
///     # fn select(&self, _cx: &mut InCallback<'_>, _function: FunctionId) -> Hook<()> { Hook::Inlinable(()) }
///     fn thread_started(&self) -> EventWriter<FunctionId> {
///         self.0.writer()
///     }
///     fn enter(&self, cx: &InHook<'_>, calls: &mut EventWriter<FunctionId>, _function: &()) {
///         calls.push(cx.function());
///     }
/// }
///
/// struct Print;
///
/// impl EventReader<FunctionId> for Print {
///     type Thread = u32;
///     fn thread_started(&mut self, number: u32) -> u32 {
///         number
///     }
///     fn event(&mut self, thread: &mut u32, function: FunctionId) -> Result<(), BoxError> {
///         println!("thread {thread} calls {function:?}");
///         Ok(())
///     }
/// }
///
/// fn initialize(cx: &mut InInitialize<'_>) -> Result<(), BoxError> {
///     let calls = Arc::new(Calls(EventQueue::new(4096, 64))); // kept, for `finish` in `shutdown`
///     cx.hooks(calls.clone()).install()?;
///     Ok(calls.0.start(cx, "calls", Duration::from_millis(5), Print)?)
/// }
/// ```
#[derive(Debug)]
pub struct EventQueue<E>(Arc<Shared<E>>);

/// The state that writers and reader share.
#[derive(Debug)]
struct Shared<E> {
    room: usize,
    threads: usize,
    /// The number of buffers.
    buffers: AtomicUsize,
    /// The next thread's number.
    next: AtomicU32,
    dropped: AtomicU64,
    /// Whether a thread reads; otherwise waiting for room is useless.
    is_read: AtomicBool,
    /// How many threads wait for room, and how many nanoseconds all threads have waited.
    waiting: AtomicUsize,
    waited: AtomicU64,
    /// Whether a thread has waited in vain since the reader last read.
    is_stuck: AtomicBool,
    /// Buffers that the reader has not seen yet. The lock is held for a push or a swap, so a thread may wait for it.
    fresh: Mutex<Vec<(u32, Consumer<E>)>>,
    /// Held while events are read, which may take long: no hook takes this one.
    reading: Mutex<Reading<E>>,
}

/// The reader, once it is set.
struct Reading<E>(Option<Box<dyn Read<E>>>);

/// Receives the events of an [`EventQueue`]: those of one thread in the order in which it wrote them, those of
/// different threads in no order.
///
/// It runs on the thread that [`EventQueue::start`] makes, and at the end on the thread that calls
/// [`EventQueue::finish`]. After an error it receives nothing more: later events are discarded unread, and `finish`
/// returns the error.
pub trait EventReader<E>: Send + 'static {
    /// The reader's state for each writing thread.
    type Thread: Send;

    /// The first events of a thread are about to be read. Threads are numbered from 0, in the order in which they began
    /// to write; numbers are not reused.
    fn thread_started(&mut self, number: u32) -> Self::Thread;

    /// Receives one event.
    ///
    /// # Errors
    /// An error ends the reading.
    fn event(&mut self, thread: &mut Self::Thread, event: E) -> Result<(), BoxError>;

    /// A thread has ended and all its events have been read; or the profiler ends.
    ///
    /// # Errors
    /// An error ends the reading.
    fn thread_ended(&mut self, thread: Self::Thread) -> Result<(), BoxError> {
        drop(thread);
        Ok(())
    }

    /// All events so far have been read: a reader that buffers its output may write it now.
    ///
    /// # Errors
    /// An error ends the reading.
    fn pause(&mut self) -> Result<(), BoxError> {
        Ok(())
    }
}

/// One thread's writer to an [`EventQueue`].
#[derive(Debug)]
pub struct EventWriter<E> {
    events: Arc<Shared<E>>,
    buffer: Option<Producer<E>>,
    /// How many more events until a thread without a buffer asks for one.
    ask_in: u32,
}

impl<E: Send + 'static> EventQueue<E> {
    /// Buffers for at most `threads` threads at a time, of `room` events each.
    ///
    /// A thread without a buffer loses its events until another thread has ended.
    pub fn new(room: usize, threads: usize) -> Self {
        Self(Arc::new(Shared {
            room,
            threads,
            buffers: AtomicUsize::new(0),
            next: AtomicU32::new(0),
            dropped: AtomicU64::new(0),
            is_read: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            waited: AtomicU64::new(0),
            is_stuck: AtomicBool::new(false),
            fresh: Mutex::default(),
            reading: Mutex::new(Reading(None)),
        }))
    }

    /// A thread's writer; make it in [`thread_started`](crate::hooks::FunctionHooks::thread_started). Its buffer is
    /// freed when the writer was dropped and all its events are read.
    pub fn writer(&self) -> EventWriter<E> {
        EventWriter { buffer: self.0.buffer(), events: self.0.clone(), ask_in: ASK_AGAIN }
    }

    /// How many events were dropped so far, for lack of room.
    pub fn dropped(&self) -> u64 {
        self.0.dropped.load(Relaxed)
    }

    /// How long threads have waited for room so far, summed over all threads.
    pub fn waited(&self) -> Duration {
        Duration::from_nanos(self.0.waited.load(Relaxed))
    }

    /// Drains into `reader` every `every`, on a thread called `name`.
    ///
    /// Call [`finish`](Self::finish) at the end. The longer `every`, the more room the events need.
    ///
    /// # Errors
    /// Those of [`spawn_profiler_thread`](InCallback::spawn_profiler_thread).
    pub fn start<R: EventReader<E>>(
        &self,
        cx: &InCallback<'_>,
        name: &str,
        every: Duration,
        reader: R,
    ) -> io::Result<()> {
        self.read_by(reader);
        let shared = self.0.clone();
        let profiler = Arc::clone(cx.profiler());
        let reads = Reads::begin(shared.clone());
        cx.spawn_profiler_thread(name, move |cx| {
            let _reads = reads;
            let mut pause = every;
            loop {
                let is_stopping = cx.wait(pause).is_break();
                // A thread that fills its buffer faster than it is emptied would wait for a sleeping reader.
                let is_behind = shared.read(&mut lock(&shared.reading));
                pause = if is_behind { Duration::ZERO } else { every };
                // Hooks that still run may wait for room.
                if is_stopping && !profiler.gate.is_open() && shared.waiting.load(Relaxed) == 0 {
                    break;
                }
                if is_stopping && !is_behind {
                    std::thread::sleep(PAUSE);
                }
            }
        })
    }

    /// Sets a reader that reads only when the caller asks.
    pub(super) fn read_by<R: EventReader<E>>(&self, reader: R) {
        lock(&self.0.reading).0 = Some(Box::new(Readers { reader, threads: Vec::new(), result: Ok(()) }));
    }

    /// Reads the remaining events, ends the reader, and returns how many events were dropped. Call it in the profiler's
    /// `shutdown`, when no hook runs any more.
    ///
    /// # Errors
    /// The reader's error, if it had one. `WouldBlock` if the reader is still busy with earlier events after the two
    /// seconds that Shutdown gives it: the events that it has not read by then are lost, and their number is unknown.
    pub fn finish(&self) -> io::Result<u64> {
        let Some(mut reading) = try_unpoisoned(self.0.reading.try_lock()) else {
            let text = "the reader of events is still busy: the events that it has not read are lost";
            return Err(io::Error::new(io::ErrorKind::WouldBlock, text));
        };
        self.0.read(&mut reading);
        if let Some(mut reader) = reading.0.take() {
            reader.end().map_err(io::Error::other)?;
        }
        Ok(self.dropped())
    }
}

impl<E> Clone for EventQueue<E> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<E: Send + 'static> EventWriter<E> {
    /// Adds an event and returns `true`; without room, drops and counts the event and returns `false`.
    #[inline]
    pub fn push(&mut self, event: E) -> bool {
        let is_there = self.buffer.as_mut().is_some_and(|buffer| buffer.push(event).is_ok());
        is_there || self.lose()
    }

    /// Adds an event, after waiting for room if necessary. Returns `false`, with the event dropped and counted, only if
    /// the reader makes no progress for a second or is gone.
    ///
    /// While a hook waits here, a collection waits for it, and the application with it: no event is lost, at the speed
    /// of the disk. So the reader must not call the runtime, nor take a lock that another thread holds during such a
    /// call.
    #[inline]
    pub fn push_waiting(&mut self, event: E) -> bool {
        match &mut self.buffer {
            None => self.begin_with(event),
            Some(buffer) => match buffer.push(event) {
                Ok(()) => true,
                Err(PushError::Full(event)) => self.wait_with(event),
            },
        }
    }

    /// Counts `count` events as dropped that their thread has not pushed.
    pub(super) fn note_dropped(&self, count: u64) {
        self.events.dropped.fetch_add(count, Relaxed);
    }

    /// Asks for a buffer, then pushes.
    #[cold]
    #[inline(never)]
    fn begin_with(&mut self, event: E) -> bool {
        self.buffer = self.events.buffer();
        let is_there = self.buffer.as_mut().is_some_and(|buffer| buffer.push(event).is_ok());
        is_there || self.lose()
    }

    #[cold]
    #[inline(never)]
    fn wait_with(&mut self, mut event: E) -> bool {
        let begin = Instant::now();
        self.events.waiting.fetch_add(1, Relaxed);
        let is_there = loop {
            let Some(buffer) = &mut self.buffer else { break false };
            match buffer.push(event) {
                Ok(()) => break true,
                Err(PushError::Full(back)) => event = back,
            }
            if self.events.is_stuck.load(Relaxed) {
                break false;
            } else if begin.elapsed() > PATIENCE {
                self.events.is_stuck.store(true, Relaxed);
            } else if self.events.is_read.load(Relaxed) {
                std::thread::sleep(PAUSE);
            } else if !self.events.read_here() {
                break false;
            }
        };
        self.events.waiting.fetch_sub(1, Relaxed);
        self.events.waited.fetch_add(u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX), Relaxed);
        is_there || self.lose()
    }

    #[cold]
    #[inline(never)]
    fn lose(&mut self) -> bool {
        self.events.dropped.fetch_add(1, Relaxed);
        if self.buffer.is_none() {
            self.ask_in -= 1;
            if self.ask_in == 0 {
                self.ask_in = ASK_AGAIN;
                self.buffer = self.events.buffer();
            }
        }
        false
    }
}

impl<E: Send + 'static> Shared<E> {
    /// A new buffer, if one more is allowed.
    fn buffer(&self) -> Option<Producer<E>> {
        let one_more = |buffers| (buffers < self.threads).then_some(buffers + 1);
        self.buffers.fetch_update(Relaxed, Relaxed, one_more).ok()?;
        let (writer, reader) = RingBuffer::new(self.room);
        lock(&self.fresh).push((self.next.fetch_add(1, Relaxed), reader));
        Some(writer)
    }

    /// Reads once. Returns whether a thread writes faster than the reader reads.
    fn read(&self, reading: &mut Reading<E>) -> bool {
        let Some(reader) = &mut reading.0 else { return false };
        for (number, buffer) in std::mem::take(&mut *lock(&self.fresh)) {
            reader.begin(number, buffer);
        }
        let Found { ended, most } = reader.read();
        self.buffers.fetch_sub(ended, Relaxed);
        self.is_stuck.store(false, Relaxed);
        most > self.room / 4
    }

    /// Reads the remaining events on the calling thread, if no other thread reads any more; returns whether there is a
    /// reader.
    fn read_here(&self) -> bool {
        match self.reading.try_lock() {
            Ok(mut reading) => {
                self.read(&mut reading);
                reading.0.is_some()
            }
            Err(TryLockError::WouldBlock) => {
                std::thread::sleep(PAUSE);
                true
            }
            Err(TryLockError::Poisoned(_)) => false,
        }
    }
}

/// Marks that a thread reads, until it is dropped.
struct Reads<E>(Arc<Shared<E>>);

impl<E> Reads<E> {
    fn begin(shared: Arc<Shared<E>>) -> Self {
        shared.is_read.store(true, Relaxed);
        Self(shared)
    }
}

impl<E> Drop for Reads<E> {
    fn drop(&mut self) {
        self.0.is_read.store(false, Relaxed);
    }
}

/// Only the reader's code runs under these locks, and after a panic it is not called again.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    unpoisoned(mutex.lock())
}

/// A reader with the state of its threads, type-erased.
trait Read<E>: Send {
    fn begin(&mut self, number: u32, buffer: Consumer<E>);
    fn read(&mut self) -> Found;
    /// Ends all threads, and returns the reader's error.
    fn end(&mut self) -> Result<(), BoxError>;
}

/// The result of one pass: how many threads had ended, and the most events of one thread.
struct Found {
    ended: usize,
    most: usize,
}

struct Readers<E, R: EventReader<E>> {
    reader: R,
    threads: Vec<(R::Thread, Consumer<E>)>,
    result: Result<(), BoxError>,
}

impl<E: Send, R: EventReader<E>> Read<E> for Readers<E, R> {
    fn begin(&mut self, number: u32, buffer: Consumer<E>) {
        self.threads.push((self.reader.thread_started(number), buffer));
    }

    fn read(&mut self) -> Found {
        let mut has_read = false;
        let mut at = 0;
        let mut most = 0;
        let before = self.threads.len();
        while let Some((thread, buffer)) = self.threads.get_mut(at) {
            // Checked first: all that the thread wrote before its end is then visible.
            let has_ended = buffer.is_abandoned();
            // Events that come meanwhile are left for the next pass: otherwise one busy thread would block the others.
            let count = buffer.slots();
            most = most.max(count);
            for event in (0..count).map_while(|_| buffer.pop().ok()) {
                has_read = true;
                if self.result.is_ok() {
                    self.result = self.reader.event(thread, event);
                }
            }
            if has_ended {
                has_read = true;
                let (thread, _) = self.threads.swap_remove(at);
                self.tell(|reader| reader.thread_ended(thread));
            } else {
                at += 1;
            }
        }
        if has_read {
            self.tell(R::pause);
        }
        Found { ended: before - self.threads.len(), most }
    }

    fn end(&mut self) -> Result<(), BoxError> {
        for (thread, _) in std::mem::take(&mut self.threads) {
            self.tell(|reader| reader.thread_ended(thread));
        }
        self.tell(R::pause);
        std::mem::replace(&mut self.result, Ok(()))
    }
}

impl<E, R: EventReader<E>> Readers<E, R> {
    /// Calls the reader, unless it has failed.
    fn tell(&mut self, what: impl FnOnce(&mut R) -> Result<(), BoxError>) {
        if self.result.is_ok() {
            self.result = what(&mut self.reader);
        }
    }
}

impl<E> std::fmt::Debug for Reading<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reading({})", if self.0.is_some() { "started" } else { "no reader" })
    }
}

#[cfg(test)]
mod tests;
