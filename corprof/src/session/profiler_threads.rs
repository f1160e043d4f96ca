//! The threads that a profiler has made: who runs, and how they are told to stop and waited for.
//!
//! A thread takes a [`ThreadSlot`] before it is made and gives it up when the user's code on it is done. At Shutdown the threads are
//! told to stop before anything is waited for, so that a callback which waits for one of them is let go, too.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::lock::unpoisoned;
use crate::report;
use crate::suspension;

/// The threads of one profiler.
pub(crate) struct ProfilerThreads {
    profiler: &'static str,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_stopping: bool,
    has_panicked: bool,
    /// The running threads, by number and name.
    running: Vec<(u64, String)>,
    /// The threads themselves, until they are seen to have ended.
    handles: Vec<(u64, JoinHandle<()>)>,
    next: u64,
}

/// A running thread's place among the others.
pub(crate) struct ThreadSlot {
    threads: Arc<ProfilerThreads>,
    number: u64,
}

impl ProfilerThreads {
    /// Those of the profiler of this name.
    pub(super) fn new(profiler: &'static str) -> Arc<Self> {
        Arc::new(Self { profiler, state: Mutex::default(), changed: Condvar::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        suspension::forbid("the lock of the profiler's threads");
        unpoisoned(self.state.lock())
    }

    /// A place for a thread that is about to be made; none any more when the others are being stopped.
    pub(crate) fn slot(self: &Arc<Self>, name: &str) -> io::Result<ThreadSlot> {
        let mut state = self.state();
        if state.is_stopping {
            return Err(io::Error::other("the profiler is being shut down: no thread is started any more"));
        }
        let number = state.next;
        state.next += 1;
        state.running.push((number, name.to_owned()));
        Ok(ThreadSlot { threads: Arc::clone(self), number })
    }

    /// Whether the threads are to come to an end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.state().is_stopping
    }

    /// One of them has panicked; answers whether it is the first.
    pub(super) fn note_panic(&self) -> bool {
        !std::mem::replace(&mut self.state().has_panicked, true)
    }

    /// Whether one of them has panicked.
    pub(crate) fn has_panicked(&self) -> bool {
        self.state().has_panicked
    }

    /// Tells the threads to come to an end.
    pub(crate) fn stop(&self) {
        self.state().is_stopping = true;
        self.changed.notify_all();
    }

    /// Sleeps for `duration`, or until the threads are told to stop; answers whether they are.
    pub(crate) fn sleep(&self, duration: Duration) -> bool {
        let awake = self.changed.wait_timeout_while(self.state(), duration, |state| !state.is_stopping);
        unpoisoned(awake).0.is_stopping
    }

    /// Whether no thread runs, but perhaps the calling one.
    pub(crate) fn have_ended(&self) -> bool {
        let own = NUMBER.get();
        self.state().running.iter().all(|&(number, _)| Some(number) == own)
    }

    /// Waits for the threads to end, at most `patience` long; those that have not are reported. The calling thread is not
    /// waited for: it is one of them if its code has ended the process.
    pub(crate) fn wait(&self, patience: Duration) {
        let own = NUMBER.get();
        let others = |state: &State| state.running.iter().any(|&(number, _)| Some(number) != own);
        let deadline = Instant::now() + patience;
        let mut state = self.state();
        while others(&state) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = unpoisoned(self.changed.wait_timeout(state, left)).0;
        }
        let late: Vec<_> = state.running.iter().filter(|&&(number, _)| Some(number) != own).collect();
        let late: Vec<_> = late.iter().map(|(_, name)| name.as_str()).collect();
        if !late.is_empty() {
            report::line(format_args!(
                "threads of the profiler {} were still running {patience:?} after they were told to stop: {}; let them look \
                 at `is_stopping` more often",
                self.profiler,
                late.join(", ")
            ));
        }
    }

    /// Takes charge of a thread that has been made for a slot with this number.
    pub(crate) fn keep(&self, number: u64, handle: JoinHandle<()>) {
        let mut state = self.state();
        state.handles.retain(|(_, handle)| !handle.is_finished());
        state.handles.push((number, handle));
    }

    /// To be called after [`wait`](Self::wait) when the runtime is about to let go of the profiler and the process lives
    /// on: a thread that gave up its slot may still have `Info`.
    ///
    /// At the end of the process this must not be done: a thread that ran managed code may wait for ever in the runtime then.
    pub(crate) fn join(&self) {
        let own = NUMBER.get();
        let (handles, running) = {
            let mut state = self.state();
            let running: Vec<u64> = state.running.iter().map(|&(number, _)| number).collect();
            (std::mem::take(&mut state.handles), running)
        };
        // One that is late goes on by itself, in a library that stays in memory (`corprof/src/system/`).
        for (_, handle) in handles.into_iter().filter(|(number, _)| !running.contains(number) && Some(*number) != own) {
            // A panic on the thread has been reported.
            let _ = handle.join();
        }
    }
}

std::thread_local! {
    /// The number of the calling thread, if it is one of a profiler's.
    static NUMBER: std::cell::Cell<Option<u64>> = const { std::cell::Cell::new(None) };
}

/// Whether the calling thread is one of a profiler's.
pub(crate) fn is_current() -> bool {
    NUMBER.get().is_some()
}

impl ThreadSlot {
    /// Which of its profiler's threads it is for.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Called on the thread itself, first of all.
    pub(crate) fn take(&self) {
        NUMBER.set(Some(self.number));
    }
}

impl Drop for ThreadSlot {
    fn drop(&mut self) {
        self.threads.state().running.retain(|&(number, _)| number != self.number);
        self.threads.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn threads() -> Arc<ProfilerThreads> {
        ProfilerThreads::new("Test")
    }

    #[test]
    fn a_thread_that_sleeps_is_woken_to_stop_and_waited_for() {
        let threads = threads();
        let slot = threads.slot("sleeper").unwrap();
        let sleepers = Arc::clone(&threads);
        let sleeper = std::thread::spawn(move || {
            slot.take();
            let threads = sleepers;
            assert!(!threads.sleep(Duration::from_millis(1)), "nobody has said stop");
            assert!(threads.sleep(Duration::from_secs(3600)));
            std::thread::sleep(Duration::from_millis(20));
        });
        std::thread::sleep(Duration::from_millis(10));
        threads.stop();
        threads.wait(Duration::from_secs(60));
        assert!(threads.state().running.is_empty());
        sleeper.join().unwrap();
        assert!(threads.slot("late").is_err());
    }

    #[test]
    fn a_thread_that_does_not_stop_is_not_waited_for_for_ever_nor_is_ones_own() {
        let threads = threads();
        let _stuck = threads.slot("stuck").unwrap();
        let start = Instant::now();
        threads.wait(Duration::from_millis(20));
        assert!(start.elapsed() >= Duration::from_millis(20));

        let own = self::threads();
        let slot = own.slot("own").unwrap();
        std::thread::spawn(move || {
            slot.take();
            let start = Instant::now();
            own.wait(Duration::from_secs(60));
            assert!(start.elapsed() < Duration::from_secs(30));
        })
        .join()
        .unwrap();
    }
}
