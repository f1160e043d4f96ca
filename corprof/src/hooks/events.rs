//! [`Events`]: what hooks have to tell, from a buffer for each thread to one reader.

use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use rtrb::{Consumer, Producer, RingBuffer};

use crate::context::InTriggers;
use crate::profiler::BoxError;

/// How many events a thread loses for want of a buffer before it asks again for one.
const ASK_AGAIN: u32 = 1024;

/// Buffers of events, one for each thread that writes, which a thread of the profiler's own reads.
///
/// A hook may not wait for a disk. So it puts an event into its thread's buffer, which takes no lock, and somebody else does
/// what takes time. Memory is bounded however long the application runs and however slow the reader is: there are at most
/// `threads` buffers of `room` events, `room * threads * size_of::<E>()` bytes. An event without room is dropped and counted
/// ([`dropped`](Self::dropped)).
///
/// ```
/// use corprof::hooks::{EventReader, EventWriter, Events};
/// use corprof::prelude::*;
/// use std::{sync::Arc, time::Duration};
///
/// struct Calls(Events<FunctionId>);
///
/// impl FunctionHooks for Calls {
///     type Function = ();
///     type Thread = EventWriter<FunctionId>;
///     # fn select(&self, _cx: &mut InTriggers<'_>, _function: FunctionId) -> Hook<()> { Hook::Yes(()) }
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
///     let calls = Arc::new(Calls(Events::new(4096, 64))); // kept, for `finish` in `shutdown`
///     cx.hook_functions(calls.clone())?;
///     Ok(calls.0.start(cx, "calls", Duration::from_millis(5), Print)?)
/// }
/// ```
#[derive(Debug)]
pub struct Events<E>(Arc<Shared<E>>);

/// What writers and reader have in common.
#[derive(Debug)]
struct Shared<E> {
    room: usize,
    threads: usize,
    /// How many buffers there are.
    buffers: AtomicUsize,
    /// The next thread's number.
    next: AtomicU32,
    dropped: AtomicU64,
    /// Buffers that the reader has not seen yet. The lock is held for a push or a swap, so a thread may wait for it.
    fresh: Mutex<Vec<(u32, Consumer<E>)>>,
    /// Held while events are read, which may take long: no hook takes this one.
    reading: Mutex<Reading<E>>,
}

/// The reader, when there is one.
struct Reading<E>(Option<Box<dyn Read<E>>>);

/// What is done with [`Events`], in the order in which a thread wrote them; those of different threads are not in order.
///
/// It runs on the thread that [`Events::start`] makes, and at last on that of [`Events::finish`]. After an error it is told
/// nothing more: what threads still write is thrown away unread, and `finish` hands out the error.
pub trait EventReader<E>: Send + 'static {
    /// What it keeps for each thread that writes.
    type Thread: Send;

    /// The first events of a thread are about to be read. Threads are numbered from 0, in the order in which they began to
    /// write; a number does not come again.
    fn thread_started(&mut self, number: u32) -> Self::Thread;

    /// One event.
    ///
    /// # Errors
    /// If nothing more is to be read.
    fn event(&mut self, thread: &mut Self::Thread, event: E) -> Result<(), BoxError>;

    /// A thread has ended and all its events have been read; or the profiler ends.
    ///
    /// # Errors
    /// If nothing more is to be read.
    fn thread_ended(&mut self, thread: Self::Thread) -> Result<(), BoxError> {
        drop(thread);
        Ok(())
    }

    /// There was something to read, and now there is nothing more: whoever buffers may write.
    ///
    /// # Errors
    /// If nothing more is to be read.
    fn pause(&mut self) -> Result<(), BoxError> {
        Ok(())
    }
}

/// One thread's end of [`Events`].
#[derive(Debug)]
pub struct EventWriter<E> {
    events: Arc<Shared<E>>,
    buffer: Option<Producer<E>>,
    /// How many events until another buffer is asked for, when there is none.
    ask_in: u32,
}

impl<E: Send + 'static> Events<E> {
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
            fresh: Mutex::default(),
            reading: Mutex::new(Reading(None)),
        }))
    }

    /// A thread's own end, to be made in [`thread_started`](super::FunctionHooks::thread_started). The buffer is freed when
    /// this has been dropped and all has been read.
    pub fn writer(&self) -> EventWriter<E> {
        EventWriter { buffer: self.0.buffer(), events: self.0.clone(), ask_in: ASK_AGAIN }
    }

    /// How many events were dropped, so far, as their threads had no room.
    pub fn dropped(&self) -> u64 {
        self.0.dropped.load(Relaxed)
    }

    /// Has `reader` read from now on, `every` so often, on a thread called `name`.
    ///
    /// At the end call [`finish`](Self::finish). The longer `every`, the more room events need.
    ///
    /// # Errors
    /// Those of [`spawn_own_thread`](InTriggers::spawn_own_thread).
    pub fn start<R: EventReader<E>>(
        &self,
        cx: &InTriggers<'_>,
        name: &str,
        every: Duration,
        reader: R,
    ) -> io::Result<()> {
        let shared = self.0.clone();
        lock(&shared.reading).0 = Some(Box::new(Readers { reader, threads: Vec::new(), result: Ok(()) }));
        cx.spawn_own_thread(name, move |cx| {
            while cx.wait(every).is_continue() {
                shared.read(&mut lock(&shared.reading));
            }
        })
    }

    /// Reads what is left, ends the reader, and says how many events were dropped: to be called in the profiler's
    /// `shutdown`, when no hook runs any more.
    ///
    /// # Errors
    /// That of the reader, if it had one. `WouldBlock` if the reader is still busy with what it got before, which Shutdown has given two seconds to end. What
    /// it has not read by then is lost, and how much that is cannot be told.
    pub fn finish(&self) -> io::Result<u64> {
        let mut reading = match self.0.reading.try_lock() {
            Ok(reading) => reading,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                let text = "the reader of events is still busy: what it has not read is lost";
                return Err(io::Error::new(io::ErrorKind::WouldBlock, text));
            }
        };
        self.0.read(&mut reading);
        if let Some(mut reader) = reading.0.take() {
            reader.end().map_err(io::Error::other)?;
        }
        Ok(self.dropped())
    }
}

impl<E> Clone for Events<E> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<E: Send + 'static> EventWriter<E> {
    /// Adds an event; or counts it as dropped, if there is no room, and says so by `false`.
    #[inline]
    pub fn push(&mut self, event: E) -> bool {
        let is_there = self.buffer.as_mut().is_some_and(|buffer| buffer.push(event).is_ok());
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
    /// A buffer, if there may be one more.
    fn buffer(&self) -> Option<Producer<E>> {
        let one_more = |buffers| (buffers < self.threads).then_some(buffers + 1);
        self.buffers.fetch_update(Relaxed, Relaxed, one_more).ok()?;
        let (writer, reader) = RingBuffer::new(self.room);
        lock(&self.fresh).push((self.next.fetch_add(1, Relaxed), reader));
        Some(writer)
    }

    fn read(&self, reading: &mut Reading<E>) {
        let Some(reader) = &mut reading.0 else { return };
        for (number, buffer) in std::mem::take(&mut *lock(&self.fresh)) {
            reader.begin(number, buffer);
        }
        let ended = reader.read();
        self.buffers.fetch_sub(ended, Relaxed);
    }
}

/// Nobody's code but the reader's runs under these locks, and that is over once it has panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A reader with its threads, of whatever type.
trait Read<E>: Send {
    fn begin(&mut self, number: u32, buffer: Consumer<E>);
    /// Reads what there is, and says how many threads have ended.
    fn read(&mut self) -> usize;
    /// Ends all threads, and says what the reader's error was.
    fn end(&mut self) -> Result<(), BoxError>;
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

    fn read(&mut self) -> usize {
        let (mut has_read, mut at) = (false, 0);
        let before = self.threads.len();
        while let Some((thread, buffer)) = self.threads.get_mut(at) {
            // Asked first: what it wrote before its end is there then.
            let has_ended = buffer.is_abandoned();
            // What comes meanwhile is for the next time, or one busy thread would keep the others waiting.
            for event in (0..buffer.slots()).map_while(|_| buffer.pop().ok()) {
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
        before - self.threads.len()
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
    /// Tells the reader something, unless it has failed.
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
mod tests {
    use super::*;

    /// The event that a test's reader fails on.
    const FAILS: u64 = u64::MAX;

    /// What a test's reader was told: events, ended threads, and how many pauses.
    #[derive(Default)]
    struct Heard(Vec<(u32, u64)>, Vec<u32>, u32);

    impl EventReader<u64> for Arc<Mutex<Heard>> {
        type Thread = u32;
        fn thread_started(&mut self, number: u32) -> u32 {
            number
        }
        fn event(&mut self, thread: &mut u32, event: u64) -> Result<(), BoxError> {
            lock(self).0.push((*thread, event));
            if event == FAILS { Err("it fails".into()) } else { Ok(()) }
        }
        fn thread_ended(&mut self, thread: u32) -> Result<(), BoxError> {
            lock(self).1.push(thread);
            Ok(())
        }
        fn pause(&mut self) -> Result<(), BoxError> {
            lock(self).2 += 1;
            Ok(())
        }
    }

    /// Events with a reader that reads when the test says so.
    fn events(room: usize, threads: usize) -> (Events<u64>, Arc<Mutex<Heard>>) {
        let (events, heard) = (Events::new(room, threads), Arc::<Mutex<Heard>>::default());
        lock(&events.0.reading).0 =
            Some(Box::new(Readers { reader: heard.clone(), threads: Vec::new(), result: Ok(()) }));
        (events, heard)
    }

    fn read(events: &Events<u64>) {
        events.0.read(&mut lock(&events.0.reading));
    }

    #[test]
    fn a_full_buffer_drops_and_counts_and_takes_events_again_once_read() {
        let (events, heard) = events(4, 1);
        let mut writer = events.writer();
        let taken: Vec<_> = (0..6).map(|event| writer.push(event)).collect();
        assert_eq!(taken, [true, true, true, true, false, false]);
        assert_eq!(events.dropped(), 2);
        read(&events);
        assert!(writer.push(6));
        drop(writer);
        assert_eq!(events.finish().unwrap(), 2);
        let heard = lock(&heard);
        assert_eq!(heard.0, [(0, 0), (0, 1), (0, 2), (0, 3), (0, 6)]);
        assert_eq!(heard.1, [0]);
    }

    #[test]
    fn threads_beyond_the_bound_lose_all_until_another_has_ended() {
        let (events, heard) = events(4, 1);
        let (first, mut second) = (events.writer(), events.writer());
        assert!(!second.push(1));
        drop(first);
        read(&events);
        assert_eq!(lock(&heard).1, [0]);
        let lost = (0..2 * u64::from(ASK_AGAIN)).take_while(|&event| !second.push(event)).count();
        assert_eq!(lost, ASK_AGAIN as usize - 1, "it asks again");
        assert_eq!(events.finish().unwrap(), u64::from(ASK_AGAIN));
        assert_eq!(lock(&heard).0.len(), 1);
    }

    #[test]
    fn every_event_is_read_once_or_counted() {
        const EACH: u64 = 100_000;
        let (events, heard) = events(64, 8);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let mut writer = events.writer();
                scope.spawn(move || (0..EACH).filter(|&event| writer.push(event)).count());
            }
            for _ in 0..1000 {
                read(&events);
            }
        });
        let dropped = events.finish().unwrap();
        let heard = lock(&heard);
        assert_eq!(heard.0.len() as u64 + dropped, 4 * EACH);
        for thread in 0..4 {
            let own: Vec<_> = heard.0.iter().filter(|event| event.0 == thread).map(|event| event.1).collect();
            assert!(own.is_sorted_by(|a, b| a < b), "each once, in order");
        }
        assert_eq!(heard.1.len(), 4, "each thread ended once");
    }

    #[test]
    fn a_busy_reader_is_not_waited_for() {
        let (events, _heard) = events(4, 1);
        let _busy = lock(&events.0.reading);
        assert_eq!(events.finish().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
    #[test]
    fn after_an_error_the_reader_is_left_alone() {
        let (events, heard) = events(4, 1);
        let mut writer = events.writer();
        for event in [1, FAILS, 2] {
            assert!(writer.push(event));
        }
        read(&events);
        assert!((0..4).all(|event| writer.push(event)), "there is room: the application does not notice");
        assert_eq!(events.finish().unwrap_err().to_string(), "it fails");
        let heard = lock(&heard);
        assert_eq!((heard.0.as_slice(), heard.1.len(), heard.2), ([(0, 1), (0, FAILS)].as_slice(), 0, 0));
    }
}
