//! The time in which threads of the application are suspended.
//!
//! A stopped thread may hold a lock of the allocator or of a log. So from the stop to the resumption no memory may be
//! allocated, no lock taken and nothing printed (suspension rule 3). The code that runs in between is in `strategy/`, and is
//! written accordingly. To test that, the thread that has stopped others is marked: a test's allocator and corprof's own locks
//! check the mark ([`testing::suspension`](crate::testing::suspension)).

#[cfg(feature = "testing")]
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

#[cfg(feature = "testing")]
use crate::system;

/// The key of the thread that has stopped others, or 0: only one thread in the process does.
#[cfg(feature = "testing")]
static STOPPER: AtomicUsize = AtomicUsize::new(0);

/// How many times the rule was broken.
#[cfg(feature = "testing")]
static VIOLATIONS: AtomicUsize = AtomicUsize::new(0);

/// Marks the calling thread as having stopped others, until it is dropped.
pub(crate) struct Mark(());

impl Mark {
    pub(crate) fn set() -> Self {
        #[cfg(feature = "testing")]
        STOPPER.store(system::thread_key(), SeqCst);
        Self(())
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        #[cfg(feature = "testing")]
        STOPPER.store(0, SeqCst);
    }
}

/// Called where `_what` is touched, which is forbidden while the calling thread has stopped others.
#[inline]
pub(crate) fn forbid(_what: &'static str) {
    #[cfg(feature = "testing")]
    if is_here() {
        VIOLATIONS.fetch_add(1, SeqCst);
    }
}

/// Whether the calling thread has stopped others.
#[cfg(feature = "testing")]
pub(crate) fn is_here() -> bool {
    STOPPER.load(SeqCst) == system::thread_key()
}

/// How many times [`forbid`] was called on a thread that had stopped others.
#[cfg(feature = "testing")]
pub(crate) fn violations() -> usize {
    VIOLATIONS.load(SeqCst)
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;

    #[test]
    fn what_is_touched_counts_on_the_thread_that_has_stopped_others_and_only_then() {
        let before = violations();
        forbid("nothing");
        // Samplers of other tests stop their threads meanwhile, and the process has one mark: now and then it is lost.
        let is_counted = |_| {
            let before = violations();
            let mark = Mark::set();
            let is_here = is_here();
            std::thread::spawn(|| forbid("elsewhere")).join().unwrap();
            let after = violations();
            forbid("this");
            drop(mark);
            is_here && [after, violations()] == [before, before + 1]
        };
        assert!((0..1000).any(is_counted));
        let counted = violations();
        assert!(counted > before);
        forbid("afterwards");
        assert_eq!(violations(), counted);
        assert!(!is_here());
    }
}
