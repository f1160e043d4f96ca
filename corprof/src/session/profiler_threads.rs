//! The threads that a profiler has made: which ones run, how they are asked to stop, and the wait for their end.
//!
//! A thread gets a [`ThreadPermit`] before it is made and returns it when the user's code on it has finished. At
//! Shutdown the threads are asked to stop before anything is waited for, which also releases a callback that waits for
//! one of them.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::lock::unpoisoned;
use crate::report;
use crate::suspension;
use crate::system;

/// The threads of one profiler.
pub(crate) struct ProfilerThreads {
    profiler: &'static str,
    /// Changed under the lock and read without it: whoever asks may hold a lock that others want under this one.
    is_stopping: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    has_panicked: bool,
    /// The running threads, by number and name.
    running: Vec<(u64, String)>,
    /// Handles of the threads, until their end has been seen.
    handles: Vec<(u64, JoinHandle<()>)>,
    next: u64,
}

/// The registration of one running thread.
pub(crate) struct ThreadPermit {
    threads: Arc<ProfilerThreads>,
    number: u64,
}

impl ProfilerThreads {
    /// The threads of the profiler called `profiler`.
    pub(crate) fn new(profiler: &'static str) -> Arc<Self> {
        let (state, changed) = (Mutex::default(), Condvar::new());
        Arc::new(Self { profiler, is_stopping: AtomicBool::new(false), state, changed })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        suspension::forbid("the lock of the profiler's threads");
        unpoisoned(self.state.lock())
    }

    /// Registers a thread that is about to be made; an error once the threads are being stopped.
    pub(crate) fn permit(self: &Arc<Self>, name: &str) -> io::Result<ThreadPermit> {
        let mut state = self.state();
        if self.is_stopping() {
            return Err(io::Error::other("the profiler is being shut down and starts no more threads"));
        }
        let number = state.next;
        state.next += 1;
        state.running.push((number, name.to_owned()));
        Ok(ThreadPermit { threads: Arc::clone(self), number })
    }

    /// Whether the threads are asked to stop.
    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::SeqCst)
    }

    /// Notes a panic on one of them; returns whether it is the first.
    pub(super) fn note_panic(&self) -> bool {
        !std::mem::replace(&mut self.state().has_panicked, true)
    }

    /// Whether one of them has panicked.
    pub(crate) fn has_panicked(&self) -> bool {
        self.state().has_panicked
    }

    /// Asks the threads to stop.
    pub(crate) fn stop(&self) {
        {
            // Who is between its look and its sleep has the lock.
            let _state = self.state();
            self.is_stopping.store(true, Ordering::SeqCst);
        }
        self.changed.notify_all();
    }

    /// Sleeps for `duration`, or until the threads are asked to stop; returns whether they are.
    pub(crate) fn sleep(&self, duration: Duration) -> bool {
        // Where such waits end late, the last part is another one, which `stop` does not end.
        let start = Instant::now();
        let latest = system::latest_wake_up();
        let most = duration.saturating_sub(latest);
        drop(self.changed.wait_timeout_while(self.state(), most, |_| !self.is_stopping()));
        let is_stopping = self.is_stopping();
        let rest = duration.saturating_sub(start.elapsed());
        if is_stopping || latest.is_zero() || rest.is_zero() {
            return is_stopping;
        }
        std::thread::sleep(rest);
        self.is_stopping()
    }

    /// Sleeps until `is_done`, which is asked again after each [`nudge`](Self::nudge); for `duration` at most, or until
    /// the threads are asked to stop. Returns whether they are. `is_done` must not call these methods.
    pub(crate) fn sleep_until(&self, duration: Duration, mut is_done: impl FnMut() -> bool) -> bool {
        drop(self.changed.wait_timeout_while(self.state(), duration, |_| !self.is_stopping() && !is_done()));
        self.is_stopping()
    }

    /// Has those that [sleep until](Self::sleep_until) something look again.
    pub(crate) fn nudge(&self) {
        // Who is between its look and its sleep has the lock.
        drop(self.state());
        self.changed.notify_all();
    }

    /// Whether no thread runs except, perhaps, the calling one.
    pub(crate) fn have_ended(&self) -> bool {
        let own = NUMBER.get();
        self.state().running.iter().all(|&(number, _)| Some(number) == own)
    }

    /// Waits up to `patience` for the threads to end, and reports those that have not. It does not wait for the calling
    /// thread, which is one of them if its code has ended the process.
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
        let others = state.running.iter().filter(|&&(number, _)| Some(number) != own);
        let late: Vec<_> = others.map(|(_, name)| name.as_str()).collect();
        if !late.is_empty() {
            report::line(format_args!(
                "threads of the profiler {} were still running {patience:?} after they were asked to stop: {}; poll \
                 `is_stopping` more often",
                self.profiler,
                late.join(", ")
            ));
        }
    }

    /// Takes the handle of a thread that was made for the permit with this number.
    pub(crate) fn keep(&self, number: u64, handle: JoinHandle<()>) {
        let mut state = self.state();
        state.handles.retain(|(_, handle)| !handle.is_finished());
        state.handles.push((number, handle));
    }

    /// Call it after [`wait`](Self::wait), when the runtime is about to release the profiler and the process lives on:
    /// a thread that has returned its permit may still have an `Info`.
    ///
    /// Never call it at the end of the process: a thread that ran managed code may then wait for ever in the runtime.
    pub(crate) fn join(&self) {
        let own = NUMBER.get();
        let (handles, running) = {
            let mut state = self.state();
            let running: Vec<u64> = state.running.iter().map(|&(number, _)| number).collect();
            (std::mem::take(&mut state.handles), running)
        };
        // A late thread goes on by itself: the library stays in memory (`corprof/src/system/`).
        for (_, handle) in handles.into_iter().filter(|(number, _)| !running.contains(number) && Some(*number) != own) {
            // A panic on the thread has been reported.
            let _ = handle.join();
        }
    }
}

std::thread_local! {
    /// The number of the calling thread, if a profiler made it.
    static NUMBER: std::cell::Cell<Option<u64>> = const { std::cell::Cell::new(None) };
}

/// Whether a profiler made the calling thread.
pub(crate) fn is_current() -> bool {
    NUMBER.get().is_some()
}

impl ThreadPermit {
    /// The number of its thread.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Call it on the thread itself, before anything else.
    pub(crate) fn take(&self) {
        NUMBER.set(Some(self.number));
    }
}

impl Drop for ThreadPermit {
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
        let permit = threads.permit("sleeper").unwrap();
        let sleepers = Arc::clone(&threads);
        let (slept, has_slept) = std::sync::mpsc::channel();
        let sleeper = std::thread::spawn(move || {
            permit.take();
            let threads = sleepers;
            assert!(!threads.sleep(Duration::from_millis(1)), "no stop was requested");
            slept.send(()).unwrap();
            assert!(threads.sleep(Duration::from_secs(3600)));
            std::thread::sleep(Duration::from_millis(20));
        });
        has_slept.recv().unwrap();
        threads.stop();
        threads.wait(Duration::from_secs(60));
        assert!(threads.state().running.is_empty());
        sleeper.join().unwrap();
        assert!(threads.permit("late").is_err());
    }

    #[test]
    fn a_thread_that_does_not_stop_is_not_waited_for_for_ever_nor_is_ones_own() {
        let threads = threads();
        let _stuck = threads.permit("stuck").unwrap();
        let start = Instant::now();
        threads.wait(Duration::from_millis(20));
        assert!(start.elapsed() >= Duration::from_millis(20));

        let own = self::threads();
        let permit = own.permit("own").unwrap();
        std::thread::spawn(move || {
            permit.take();
            let start = Instant::now();
            own.wait(Duration::from_secs(60));
            assert!(start.elapsed() < Duration::from_secs(30));
        })
        .join()
        .unwrap();
    }
}
