//! The time in which threads of the application are suspended.
//!
//! A stopped thread may hold a lock of the allocator or of a log. So from the stop to the resumption no memory may be
//! allocated, no lock taken and nothing printed (suspension rule 3). The code that runs in between is in `walk/` and
//! `sampler/strategy/`, and is written accordingly. To test that, the thread that has stopped others is marked: a
//! test's allocator and corprof's own locks check the mark ([`testing::suspension`](crate::testing::suspension)).
//!
//! Threads of profilers suspend the runtime one after another ([`Turn`]).

use std::marker::PhantomData;
use std::sync::OnceLock;
#[cfg(feature = "testing")]
use std::sync::atomic::AtomicUsize;
#[cfg(feature = "testing")]
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};
use std::time::{Duration, Instant};

use crate::system;

/// The keys of the threads that have stopped others, or 0: in a process a few threads of one sampler, in tests more.
#[cfg(feature = "testing")]
static STOPPERS: [AtomicUsize; 16] = [const { AtomicUsize::new(0) }; 16];

/// How many times the rule was broken.
#[cfg(feature = "testing")]
static VIOLATIONS: AtomicUsize = AtomicUsize::new(0);

/// The turn to suspend the runtime, which has one mark for all suspensions by profilers. Where two threads suspend it
/// in turn, the resumption by one may clear the mark of the other, whose own resumption is refused then: the
/// application stands still for ever. On .NET 8 that takes seconds, as `tests/live/suspending.rs` shows, and
/// `sampling::two_samplers_that_suspend_in_turn_let_the_application_go_on`.
///
/// Nobody waits for it without an end: the code that runs during a walk of the heap is the user's, and may itself wait
/// for a thread that wants the turn.
pub(crate) struct Turn {
    word: &'static AtomicU32,
    /// It stays on its thread.
    _not_send: PhantomData<*mut ()>,
}

/// The values of the word.
const FREE: u32 = 0;
const TAKEN: u32 = 1;

/// How long a thread that waits for the turn sleeps: at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_micros(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(1);

/// The word of a program that is not a library of profilers.
static OWN_WORD: AtomicU32 = AtomicU32::new(FREE);

/// The word of all libraries in the process that are made with corprof: each has one, which `export!` defines, and all
/// use that of the library that was loaded first.
fn word() -> &'static AtomicU32 {
    static WORD: OnceLock<&AtomicU32> = OnceLock::new();
    WORD.get_or_init(|| match system::first_symbol(c"corprof_turn_to_suspend_1") {
        // SAFETY: a symbol of that name is a static of this type, by `export!`, in a library that stays loaded.
        Some(address) => unsafe { &*std::ptr::with_exposed_provenance(address) },
        None => &OWN_WORD,
    })
}

impl Turn {
    /// Waits for the turn, for this long at most.
    pub(crate) fn wait(limit: Duration) -> Option<Self> {
        let word = word();
        let begun = Instant::now();
        let mut pause = FIRST_PAUSE;
        while word.compare_exchange(FREE, TAKEN, Acquire, Relaxed).is_err() {
            if begun.elapsed() >= limit {
                return None;
            }
            std::thread::sleep(pause);
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
        Some(Self { word, _not_send: PhantomData })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.word.store(FREE, Release);
    }
}

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
    fn a_turn_is_waited_for_and_not_for_ever() {
        let patience = Duration::from_secs(60);
        let turn = Turn::wait(patience).unwrap();
        std::thread::scope(|scope| {
            let refused = scope.spawn(|| Turn::wait(Duration::from_millis(5)).is_none());
            assert!(refused.join().unwrap());
            let waits = scope.spawn(|| Turn::wait(patience).is_some());
            drop(turn);
            assert!(waits.join().unwrap());
        });
    }

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
