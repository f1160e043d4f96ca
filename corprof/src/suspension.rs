//! The time in which threads of the application are suspended.
//!
//! A stopped thread may hold a lock of the allocator or of a log. So from the stop to the resumption no memory may be
//! allocated, no lock taken and nothing printed (suspension rule 3). The code that runs in between is in `walk/` and
//! `sampler/strategy/`, and is written accordingly. To test that, the thread that has stopped others is marked: a
//! test's allocator and corprof's own locks check the mark ([`testing::suspension`](crate::testing::suspension)).

#[cfg(feature = "testing")]
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

#[cfg(feature = "testing")]
use crate::system;

/// The keys of the threads that have stopped others, or 0: in a process a few threads of one sampler, in tests more.
#[cfg(feature = "testing")]
static STOPPERS: [AtomicUsize; 16] = [const { AtomicUsize::new(0) }; 16];

/// How many times the rule was broken.
#[cfg(feature = "testing")]
static VIOLATIONS: AtomicUsize = AtomicUsize::new(0);

/// Marks the calling thread as having stopped others, until it is dropped.
pub(crate) struct Mark(());

impl Mark {
    pub(crate) fn set() -> Self {
        #[cfg(feature = "testing")]
        {
            let key = system::thread_key();
            STOPPERS.iter().any(|stopper| stopper.compare_exchange(0, key, SeqCst, SeqCst).is_ok());
        }
        Self(())
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        #[cfg(feature = "testing")]
        {
            let key = system::thread_key();
            STOPPERS.iter().any(|stopper| stopper.compare_exchange(key, 0, SeqCst, SeqCst).is_ok());
        }
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
    let key = system::thread_key();
    STOPPERS.iter().any(|stopper| stopper.load(SeqCst) == key)
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
        // Other tests, whose threads are marked as well, may break the rule meanwhile.
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
