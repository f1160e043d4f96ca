//! Resumes a stopped thread whose walk does not end.
//!
//! The stopped thread may hold a lock that the walk needs. Then the sampler's thread waits for a thread that only
//! itself can resume. So another thread watches: it resumes a target that has been stopped for [`LIMIT`] while the
//! sampler's thread used no processor time. That releases the lock, and the walk ends with the frames that it has
//! found.
//!
//! One word decides which of the two resumes: the sampler sets it back from "stopped" to "running", or the watchdog is
//! first.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{io, ptr, thread};

use crate::system::thread::{Stopped, Thread, current_id};

/// How long a target is stopped before the watchdog resumes it.
const LIMIT: Duration = Duration::from_millis(500);
/// How often it checks.
const PERIOD: Duration = Duration::from_millis(100);

/// The low bits of [`Shared::state`].
const PHASE: u64 = 3;
/// No thread is stopped.
const RUNNING: u64 = 0;
/// The target is stopped, and the sampler will resume it.
const STOPPED: u64 = 1;
/// The watchdog is resuming it: the target's handle stays open.
const RESUMING: u64 = 2;
/// The watchdog has resumed it.
const RESUMED: u64 = 3;

struct Shared {
    /// The number of the stop, above its phase.
    state: AtomicU64,
    /// The stopped thread; valid while the phase is not [`RUNNING`].
    target: AtomicPtr<Thread>,
    /// Whether the sampler is inside DoStackSnapshot, which itself stops the target once more.
    is_in_runtime: AtomicBool,
}

/// The watching thread, until this is dropped.
pub(super) struct Watchdog {
    shared: Arc<Shared>,
    thread: Option<(Sender<()>, JoinHandle<()>)>,
}

/// A stopped thread, resumed when this is dropped or before that by the watchdog.
pub(super) struct WatchedStop<'w> {
    shared: &'w Shared,
    number: u64,
    stopped: Option<Stopped<'w>>,
}

impl Watchdog {
    /// A watchdog over the calling thread.
    ///
    /// # Errors
    /// If the system cannot make a thread.
    pub(super) fn new() -> io::Result<Self> {
        let shared = Arc::new(Shared {
            state: AtomicU64::new(RUNNING),
            target: AtomicPtr::new(ptr::null_mut()),
            is_in_runtime: AtomicBool::new(false),
        });
        let (end, over) = mpsc::channel::<()>();
        let theirs = shared.clone();
        let sampler = current_id();
        let thread = thread::Builder::new().name("corprof watchdog".to_owned()).spawn(move || {
            let mut sampler = SamplerThread { thread: Thread::open(sampler), last_found: None };
            while over.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                theirs.resume_if_stuck(&mut sampler);
            }
        })?;
        Ok(Self { shared, thread: Some((end, thread)) })
    }

    /// Stops `thread`; none if it has ended.
    pub(super) fn stop<'w>(&'w mut self, thread: &'w Thread) -> Option<WatchedStop<'w>> {
        let stopped = thread.stop()?;
        let number = (self.shared.state.load(SeqCst) & !PHASE) + PHASE + 1;
        self.shared.target.store(ptr::from_ref(thread).cast_mut(), SeqCst);
        self.shared.state.store(number | STOPPED, SeqCst);
        Some(WatchedStop { shared: &self.shared, number, stopped: Some(stopped) })
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.thread.take() {
            drop(end);
            // It checks the flag at once, and waits for no other thread.
            let _ = thread.join();
        }
    }
}

impl<'w> WatchedStop<'w> {
    /// The stopped thread; none once the watchdog has resumed it.
    pub(super) fn stopped(&self) -> Option<&Stopped<'w>> {
        self.stopped.as_ref().filter(|_| !self.is_abandoned())
    }

    /// Whether the watchdog has resumed it: anything read of it from now on is unreliable.
    pub(super) fn is_abandoned(&self) -> bool {
        self.shared.state.load(SeqCst) != self.number | STOPPED
    }

    /// Calls the runtime, which may stop the thread once more.
    pub(super) fn in_runtime<R>(&self, call: impl FnOnce() -> R) -> R {
        self.shared.is_in_runtime.store(true, SeqCst);
        let answer = call();
        self.shared.is_in_runtime.store(false, SeqCst);
        answer
    }
}

impl Drop for WatchedStop<'_> {
    fn drop(&mut self) {
        let Self { shared, number, .. } = *self;
        let Some(stopped) = self.stopped.take() else { return };
        let take = |phase| shared.state.compare_exchange(number | phase, number | RUNNING, SeqCst, SeqCst).is_ok();
        if take(STOPPED) {
            return drop(stopped);
        }
        // The watchdog uses the handle for one call, which does not wait.
        while !take(RESUMED) {
            thread::yield_now();
        }
        stopped.was_resumed();
    }
}

/// The watchdog's record of the sampler's thread.
struct SamplerThread {
    thread: Option<Thread>,
    /// The state in which it was last found, since when, and its processor time by then.
    last_found: Option<(u64, Instant, Option<Duration>)>,
}

impl SamplerThread {
    /// Whether it has been in this state for the limit, without running.
    fn is_stuck(&mut self, state: u64) -> bool {
        let time = self.thread.as_ref().and_then(Thread::cpu_time);
        match self.last_found {
            Some((seen, since, before)) if seen == state && time == before => since.elapsed() >= LIMIT,
            _ => {
                self.last_found = Some((state, Instant::now(), time));
                false
            }
        }
    }
}

impl Shared {
    /// Resumes the target, if the sampler is stuck.
    fn resume_if_stuck(&self, sampler: &mut SamplerThread) {
        let state = self.state.load(SeqCst);
        let number = state & !PHASE;
        let phase = state & PHASE;
        let is_in_runtime = self.is_in_runtime.load(SeqCst);
        // The watchdog has resumed the target, but the runtime may have stopped it again and be stuck in turn.
        if phase == RUNNING || (phase == RESUMED && !is_in_runtime) {
            sampler.last_found = None;
            return;
        }
        if !sampler.is_stuck(state) || self.state.compare_exchange(state, number | RESUMING, SeqCst, SeqCst).is_err() {
            return;
        }
        // SAFETY: the sampler keeps the thread open until it has taken the word back, which it cannot before the store
        // below.
        let target = unsafe { &*self.target.load(SeqCst) };
        let stops = target.resume_for_another();
        // The second stop is the runtime's own, made by the stuck walk; the runtime keeps its collector from stopping
        // the thread meanwhile.
        if stops == 2 && is_in_runtime {
            target.resume_for_another();
        }
        sampler.last_found = None;
        self.state.store(number | RESUMED, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    /// A thread that counts until it is asked to end.
    struct Counter {
        shared: Arc<(AtomicU64, AtomicBool, AtomicU32)>,
        thread: Option<JoinHandle<()>>,
    }

    impl Counter {
        fn start() -> Self {
            let shared = Arc::new((AtomicU64::new(0), AtomicBool::new(false), AtomicU32::new(0)));
            let theirs = shared.clone();
            let thread = thread::spawn(move || {
                theirs.2.store(current_id(), SeqCst);
                while !theirs.1.load(SeqCst) {
                    theirs.0.fetch_add(1, SeqCst);
                    thread::yield_now();
                }
            });
            while shared.0.load(SeqCst) == 0 {
                thread::yield_now();
            }
            Self { shared, thread: Some(thread) }
        }

        fn open(&self) -> Thread {
            Thread::open(self.shared.2.load(SeqCst)).unwrap()
        }

        fn count(&self) -> u64 {
            self.shared.0.load(SeqCst)
        }

        fn runs(&self) -> bool {
            let before = self.count();
            let start = Instant::now();
            while self.count() == before && start.elapsed() < Duration::from_secs(10) {
                thread::sleep(Duration::from_millis(1));
            }
            self.count() != before
        }
    }

    impl Drop for Counter {
        fn drop(&mut self) {
            self.shared.1.store(true, SeqCst);
            self.thread.take().unwrap().join().unwrap();
        }
    }

    #[test]
    fn a_target_is_resumed_by_the_drop_and_stands_still_until_then() {
        let counter = Counter::start();
        let thread = counter.open();
        let mut watchdog = Watchdog::new().unwrap();
        for _ in 0..20 {
            let stop = watchdog.stop(&thread).unwrap();
            stop.stopped().unwrap().registers().unwrap();
            let before = counter.count();
            thread::sleep(Duration::from_millis(5));
            assert_eq!(counter.count(), before);
            assert!(!stop.is_abandoned());
            drop(stop);
            assert!(counter.runs());
        }
    }

    #[test]
    fn a_target_that_the_sampler_cannot_resume_is_by_the_watchdog() {
        let counter = Counter::start();
        let thread = counter.open();
        let mut watchdog = Watchdog::new().unwrap();
        for is_stopped_twice in [false, true] {
            let stop = watchdog.stop(&thread).unwrap();
            stop.stopped().unwrap().registers().unwrap();
            let start = Instant::now();
            let before = counter.count();
            let wait = || {
                // The sampler's thread is stuck: it uses no processor time until the target runs again.
                thread::sleep(LIMIT + 3 * PERIOD);
                while counter.count() == before && start.elapsed() < Duration::from_secs(30) {
                    thread::sleep(2 * LIMIT);
                }
                assert!(counter.runs(), "no thread has resumed it");
            };
            if is_stopped_twice {
                let theirs = thread.stop().unwrap();
                stop.in_runtime(wait);
                // The runtime would do this too: it does not know that the thread runs.
                drop(theirs);
            } else {
                wait();
            }
            assert!(stop.is_abandoned() && stop.stopped().is_none());
            assert!(start.elapsed() >= LIMIT);
            drop(stop);
            assert!(counter.runs());
        }
        // No state is left over: the thread stops again, and runs again.
        drop(watchdog.stop(&thread).unwrap());
        assert!(counter.runs());
    }
}
