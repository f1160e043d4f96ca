//! [`OwnerLock`]: a lock that one thread takes all the time, and others hardly ever.

use std::cell::UnsafeCell;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering, compiler_fence, fence};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use super::Holder;
use crate::standstill;
use crate::system;

/// How long a side sleeps before it looks again whether the other has the value.
const PAUSE: Duration = Duration::from_micros(50);

/// How long those who take values wait for what owners have written, where the system has refused them the barrier
/// (`session/gate.rs`).
const SETTLING: Duration = Duration::from_millis(50);

/// Whether owners can do without a fence, as whoever takes their values pays for it.
static HAS_BARRIER: LazyLock<bool> = LazyLock::new(system::prepare_barrier);

/// A value that its owner, one thread, changes without a locked instruction: a [`Mutex`](super::Mutex) has two, which are a
/// quarter of what counting an allocation costs (48 → 39 ns).
///
/// The owner says that it is in, and looks whether the value is wanted; whoever takes it says that, has all threads run a
/// memory barrier, and waits until the owner is out. So one of the two sees the other.
pub(super) struct OwnerLock<T> {
    /// Set while the owner is in.
    holder: Holder,
    /// Set while somebody takes the value, or waits to.
    is_wanted: AtomicBool,
    has_barrier: bool,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: the value is reached by one thread at a time, and moves between threads: see `with` and `take_all`.
unsafe impl<T: Send> Sync for OwnerLock<T> {}

/// Ends the owner's turn, also by a panic.
struct Turn<'l>(&'l Holder);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl<T> OwnerLock<T> {
    pub(super) fn new() -> Self {
        Self {
            holder: Holder::nobody(),
            is_wanted: AtomicBool::new(false),
            has_barrier: *HAS_BARRIER,
            value: UnsafeCell::new(None),
        }
    }

    /// Uses the value on its owner's thread.
    ///
    /// # Safety
    /// All calls for one lock are made on the same thread.
    ///
    /// # Panics
    /// If the thread uses the value already.
    #[inline]
    #[track_caller]
    pub(super) unsafe fn with<R>(&self, f: impl FnOnce(&mut Option<T>) -> R) -> R {
        standstill::forbid("a lock of the profiler's");
        self.holder.forbid_second_time();
        let turn = loop {
            self.holder.set(Location::caller());
            let turn = Turn(&self.holder);
            // Being in must be seen before the look whether the value is wanted.
            if self.has_barrier {
                compiler_fence(Ordering::SeqCst)
            } else {
                fence(Ordering::SeqCst)
            }
            if !self.is_wanted.load(Ordering::Acquire) {
                break turn;
            }
            drop(turn);
            self.wait();
        };
        // SAFETY: the owner is in and the value was not wanted after that, so `take_all` waits for the owner (see there); the
        // owner itself is in once, as was asked for above.
        let answer = f(unsafe { &mut *self.value.get() });
        drop(turn);
        answer
    }

    #[cold]
    fn wait(&self) {
        while self.is_wanted.load(Ordering::Acquire) {
            std::thread::sleep(PAUSE);
        }
    }

    /// Panics if the calling thread uses the value.
    #[track_caller]
    pub(super) fn forbid_use(&self) {
        self.holder.forbid_second_time();
    }

    /// Takes the values of all these, which are none afterwards.
    ///
    /// # Safety
    /// No two threads do so at a time for the same lock, and the calling one uses none of the values.
    pub(super) unsafe fn take_all<'l>(locks: impl Iterator<Item = &'l Self> + Clone) -> Vec<T>
    where
        T: 'l,
    {
        locks.clone().for_each(|lock| lock.is_wanted.store(true, Ordering::SeqCst));
        // From here on each owner sees that its value is wanted, or it is seen to be in. Owners that fence for themselves do
        // so without the barrier.
        if !system::process_wide_barrier() && *HAS_BARRIER {
            std::thread::sleep(SETTLING);
        }
        let take = |lock: &'l Self| {
            while lock.holder.is_held() {
                std::thread::sleep(PAUSE);
            }
            // SAFETY: the owner is out, and sees that the value is wanted when it comes again.
            let value = unsafe { (*lock.value.get()).take() };
            lock.is_wanted.store(false, Ordering::Release);
            value
        };
        locks.filter_map(take).collect()
    }
}

/// Locks of threads that live, as `ThreadState` has them.
pub(super) fn each<T>(locks: &[Arc<OwnerLock<T>>]) -> impl Iterator<Item = &OwnerLock<T>> + Clone {
    locks.iter().map(|lock| &**lock)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What an owner adds in many turns, while another thread takes it away.
    fn sum(lock: &OwnerLock<u64>, turns: u64) -> u64 {
        let is_over = AtomicBool::new(false);
        // SAFETY: one thread takes, and uses no value.
        let take = || unsafe { OwnerLock::take_all(std::iter::once(lock)) }.into_iter().sum::<u64>();
        let taken = std::thread::scope(|scope| {
            let taker = scope.spawn(|| {
                let mut taken = 0;
                while !is_over.load(Ordering::SeqCst) {
                    taken += take();
                }
                taken
            });
            for _ in 0..turns {
                // SAFETY: this thread is the owner.
                unsafe { lock.with(|value| *value.get_or_insert(0) += 1) };
            }
            is_over.store(true, Ordering::SeqCst);
            taker.join().unwrap()
        });
        taken + take()
    }

    #[test]
    fn nothing_is_lost_between_owner_and_taker() {
        assert_eq!(sum(&OwnerLock::new(), 300_000), 300_000);
        let fenced = OwnerLock { has_barrier: false, ..OwnerLock::new() };
        assert_eq!(sum(&fenced, 300_000), 300_000);
    }

    #[test]
    fn a_panic_ends_the_owners_turn() {
        let lock = OwnerLock::<u64>::new();
        // SAFETY: this thread is the owner, and takes when it is out.
        let values = unsafe {
            let turn = || lock.with(|_| std::panic::resume_unwind(Box::new(())));
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(turn)).unwrap_err();
            lock.with(|value| *value = Some(3));
            OwnerLock::take_all(std::iter::once(&lock))
        };
        assert_eq!(values, [3]);
    }
}
