//! The threads that signals can sample. None receives a signal before it is prepared or after its end.
//!
//! A thread prepares itself when the runtime reports that it runs: it gets a larger alternate stack and a slot. At its end,
//! again on the thread itself, it is removed from the list and gets its old alternate stack back, which the runtime then frees. The
//! end of a thread that the runtime did not make is reported later, on another thread; then both its stacks are freed here.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use crate::id::ThreadId;
use crate::info::Info;
use crate::lock::unpoisoned;
use crate::system;
use crate::system::signals::{Address, AlternateStack, Sending, Slot, own_stack};

/// The threads of this process, which has one sampler.
static THREADS: OnceLock<Threads> = OnceLock::new();

/// The prepared threads, and the slots of ended ones.
#[derive(Default)]
pub(super) struct Threads {
    state: Mutex<State>,
    /// Threads that could not be prepared: they are not sampled.
    refused: AtomicUsize,
}

#[derive(Default)]
struct State {
    /// The capacity of a slot in frames.
    depth: usize,
    ready: HashMap<usize, (Arc<Watched>, Option<AlternateStack>)>,
    /// Prepared threads that the sampler has not taken over yet.
    joined: Vec<Arc<Watched>>,
    free: Vec<&'static Slot>,
    /// The alternate stacks of threads whose end was reported on another thread, until the system has ended them as well.
    left: Vec<(Address, AlternateStack)>,
}

/// A thread that can be sampled.
pub(super) struct Watched {
    pub(super) thread: ThreadId,
    pub(super) slot: &'static Slot,
    address: Address,
    /// Its processor time when it was prepared.
    pub(super) run_before: Duration,
    /// Its processor time at its end, in nanoseconds; 0 before.
    run_in_all: AtomicU64,
    has_ended: AtomicBool,
    /// Held while a signal is sent. The thread's end waits for it: afterwards another thread may have its id.
    sending: Mutex<()>,
}

impl Threads {
    /// Prepares threads from now on, with room for stacks of `depth` frames.
    pub(super) fn begin(depth: usize) -> &'static Self {
        let threads = THREADS.get_or_init(Self::default);
        {
            let mut state = threads.state();
            state.depth = depth;
            // The threads of an earlier sampler.
            let known = state.ready.values().map(|(watched, _)| Arc::clone(watched)).collect();
            state.joined = known;
        }
        threads
    }

    fn state(&self) -> MutexGuard<'_, State> {
        unpoisoned(self.state.lock())
    }

    /// The threads that were prepared since the last call.
    pub(super) fn joined(&self) -> Vec<Arc<Watched>> {
        std::mem::take(&mut self.state().joined)
    }

    /// How many threads could not be prepared.
    pub(super) fn refused(&self) -> usize {
        self.refused.load(Ordering::Relaxed)
    }

    /// Returns the slot of a thread that has ended and will not write to it any more.
    pub(super) fn give_back(&self, slot: &'static Slot) {
        self.state().free.push(slot);
    }

    fn prepare(&self, thread: ThreadId) -> Option<()> {
        let stack = own_stack()?;
        let alternate = AlternateStack::enlarge().ok()?;
        let mut state = self.state();
        let slot = state.free.pop().or_else(|| Slot::new(state.depth));
        let Some(slot) = slot else {
            drop(state);
            alternate.into_iter().for_each(AlternateStack::restore);
            return None;
        };
        slot.take(&stack);
        let address = Address::own();
        let run_before = system::cpu_time(address.thread.cast_unsigned()).unwrap_or_default();
        let (run_in_all, has_ended, sending) = (AtomicU64::new(0), AtomicBool::new(false), Mutex::new(()));
        let watched = Arc::new(Watched { thread, slot, address, run_before, run_in_all, has_ended, sending });
        state.joined.push(Arc::clone(&watched));
        state.ready.insert(thread.as_raw(), (watched, alternate));
        Some(())
    }
}

/// A managed thread has begun to run, nearly always the calling one; for another the runtime would call on that thread.
pub(crate) fn thread_assigned(info: &Info) {
    let Some(threads) = THREADS.get() else { return };
    let is_ready = |thread: ThreadId| threads.state().ready.contains_key(&thread.as_raw());
    if let Some(own) = info.current_thread().ok().flatten().filter(|&own| !is_ready(own))
        && threads.prepare(own).is_none()
    {
        threads.refused.fetch_add(1, Ordering::Relaxed);
    }
}

/// The thread ends: it receives no signal from now on.
pub(crate) fn thread_ending(thread: usize) {
    let Some(threads) = THREADS.get() else { return };
    let Some((watched, alternate)) = threads.state().ready.remove(&thread) else { return };
    let run_in_all = watched.cpu_time().unwrap_or_default().as_nanos();
    watched.run_in_all.store(u64::try_from(run_in_all).unwrap_or(u64::MAX), Ordering::Relaxed);
    let sending = unpoisoned(watched.sending.lock());
    watched.has_ended.store(true, Ordering::Release);
    drop(sending);
    let Some(alternate) = alternate else { return };
    // A key alone is not enough: the control block of a new thread may lie where that of the ended one was.
    if watched.slot.is_own() && watched.address == Address::own() {
        alternate.restore();
        return;
    }
    let mut state = threads.state();
    state.left.push((watched.address, alternate));
    let ended: Vec<_> = state.left.extract_if(.., |(address, _)| address.has_ended()).collect();
    drop(state);
    ended.into_iter().for_each(|(_, alternate)| alternate.free());
}

impl Watched {
    /// Requests a sample.
    pub(super) fn request(&self) -> Sending {
        let _sending = unpoisoned(self.sending.lock());
        if self.has_ended() { Sending::NotNow } else { self.slot.request(self.address) }
    }

    /// Its processor time in all, once it has ended.
    pub(super) fn run_in_all(&self) -> Duration {
        Duration::from_nanos(self.run_in_all.load(Ordering::Relaxed))
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// Whether it has ended and no signal handler will write to its slot any more.
    pub(super) fn is_done(&self) -> bool {
        if !self.has_ended() {
            return false;
        }
        // A foreign thread lives on when it is no longer a managed one, and may still receive a signal.
        if self.address.has_ended() {
            self.slot.withdraw();
        }
        self.slot.is_idle()
    }

    pub(super) fn os_id(&self) -> u32 {
        self.address.thread.cast_unsigned()
    }

    /// Its processor time.
    pub(super) fn cpu_time(&self) -> Option<Duration> {
        system::cpu_time(self.os_id())
    }

    /// Whether it runs, or waits only for a processor.
    pub(super) fn is_runnable(&self) -> bool {
        system::is_runnable(self.os_id()) == Some(true)
    }
}
