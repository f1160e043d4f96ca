//! Searches for code by address, and the suspensions in which the runtime removes code.
//!
//! The runtime removes the code of unloaded assemblies, and of dynamic methods that have ended, while it is suspended.
//! A search in the middle of that reads freed memory: the lock that the runtime takes for a search covers only its list
//! of ranges, and on threads that never ran managed code it takes none (`ExecutionManager::GetScanFlags` in
//! vm/codeman.cpp; seen on .NET 8 and 10). So a suspension waits for the searches under way outside of callbacks, and
//! while it lasts no other begins there.
//!
//! A search that waited for the end of the suspension would break suspension rule 3: its caller may hold a lock that a
//! callback of the collection wants. So it is refused, except where the context says that the call may wait. In
//! callbacks it is made at any time: the runtime holds locks around some, which the suspension waits for.
//!
//! After an unload lists are freed at other times as well: see `searcher.rs`.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use corprof_sys as sys;

use crate::error::{Error, Result};
use crate::report;
use crate::system;

use super::thread_slot;

/// The searches of one profiler.
#[derive(Default)]
pub(crate) struct Searches {
    under_way: AtomicUsize,
    /// Those on threads that the runtime knows.
    on_known_threads: AtomicUsize,
    /// How many suspensions have begun and are not over. More than one if a thread asks for one while another holds it.
    suspensions: AtomicUsize,
    /// The [key](system::thread_key) of the thread that has suspended the runtime, or 0.
    suspender: AtomicUsize,
    /// Whether lists of code may have been freed.
    has_code_gone: AtomicBool,
}

thread_local! {
    /// Whether the calling thread runs a callback of a suspension.
    static IS_SUSPENDED: Cell<bool> = const { Cell::new(false) };
}

/// A callback of a suspension. Nothing is removed while it lasts: the runtime does that between such callbacks.
pub(crate) struct InSuspension {
    /// Whether another one encloses it.
    is_inner: bool,
}

impl InSuspension {
    /// The calling thread enters such a callback.
    pub(crate) fn begin() -> Self {
        Self { is_inner: IS_SUSPENDED.replace(true) }
    }
}

impl Drop for InSuspension {
    fn drop(&mut self) {
        IS_SUSPENDED.set(self.is_inner);
    }
}

/// The error of a search that is not made.
pub(super) fn refusal(call: &'static str) -> Error {
    Error::new(sys::CORPROF_E_SUSPENSION_IN_PROGRESS, call)
        .about("code", "the runtime is suspended, and may be removing code: ask again a moment later")
}

/// A search: a suspension that begins waits until it is dropped.
#[must_use]
pub(crate) struct Search<'a>(Option<&'a AtomicUsize>);

impl Search<'_> {
    /// One that no suspension waits for.
    pub(super) const NONE: Self = Self(None);
}

impl Drop for Search<'_> {
    fn drop(&mut self) {
        if let Some(under_way) = self.0 {
            under_way.fetch_sub(1, SeqCst);
        }
    }
}

impl Searches {
    /// Call it before a search on a thread that the runtime does not know.
    ///
    /// # Errors
    /// `CORPROF_E_SUSPENSION_IN_PROGRESS` outside of callbacks, while another thread has suspended the runtime.
    #[inline]
    pub(crate) fn begin(&self, call: &'static str) -> Result<Search<'_>> {
        if IS_SUSPENDED.get() {
            return Ok(Search::NONE);
        }
        self.begin_in(&self.under_way, call)
            .or_else(|refusal| if thread_slot::is_inside() { Ok(Search::NONE) } else { Err(refusal) })
    }

    /// Call it before a search on a thread that the runtime knows, for code that may be gone. There a search may wait
    /// for a suspension under way (on .NET 8, which makes a part of it in cooperative mode), so a suspension waits for
    /// it briefly only.
    ///
    /// # Errors
    /// `CORPROF_E_SUSPENSION_IN_PROGRESS` while another thread has suspended the runtime.
    pub(super) fn begin_on_known_thread(&self, call: &'static str) -> Result<Search<'_>> {
        self.begin_in(&self.on_known_threads, call)
    }

    fn begin_in<'a>(&'a self, count: &'a AtomicUsize, call: &'static str) -> Result<Search<'a>> {
        let search = Search(Some(count));
        count.fetch_add(1, SeqCst);
        // A suspension that begins later sees this search.
        if self.suspensions.load(SeqCst) == 0 || self.is_suspender() {
            return Ok(search);
        }
        drop(search);
        Err(refusal(call))
    }

    /// Notes that a module with code that can be removed begins to unload, or may have begun.
    pub(crate) fn code_goes(&self) {
        self.has_code_gone.store(true, SeqCst);
    }

    /// Whether no list of code has been freed: then any thread may search, and walk others.
    #[inline]
    pub(crate) fn are_safe_everywhere(&self) -> bool {
        !self.has_code_gone.load(SeqCst)
    }

    /// Whether the calling thread has suspended the runtime.
    pub(super) fn is_suspender(&self) -> bool {
        self.suspender.load(SeqCst) == system::thread_key()
    }

    /// Whether a call that may wait should wait and ask again after this error.
    pub(crate) fn is_passing(error: &Error) -> bool {
        error.code() == sys::CORPROF_E_SUSPENSION_IN_PROGRESS
    }

    /// Waits until no thread has suspended the runtime, or until `gives_up` says so.
    pub(crate) fn wait(&self, gives_up: impl Fn() -> bool) {
        const PAUSE: Duration = Duration::from_micros(100);
        while self.suspensions.load(SeqCst) != 0 && !gives_up() {
            std::thread::sleep(PAUSE);
        }
    }

    /// Before the runtime suspends managed threads. It waits for the searches under way, which take microseconds.
    pub(crate) fn suspension_begins(&self) {
        /// Nearly always the search is over by then.
        const SPINS: u32 = 200;
        const PATIENCE: Duration = Duration::from_secs(2);
        const BRIEFLY: Duration = Duration::from_millis(1);
        self.suspensions.fetch_add(1, SeqCst);
        let begin = Instant::now();
        while self.on_known_threads.load(SeqCst) != 0 && begin.elapsed() < BRIEFLY {
            std::hint::spin_loop();
        }
        for _ in 0..SPINS {
            if self.under_way.load(SeqCst) == 0 {
                return;
            }
            std::hint::spin_loop();
        }
        while self.under_way.load(SeqCst) != 0 {
            if begin.elapsed() > PATIENCE {
                report::line(format_args!(
                    "a search for code has lasted {PATIENCE:?}; a collection waits no longer for it"
                ));
                return;
            }
            std::thread::yield_now();
        }
    }

    /// When the calling thread has suspended the runtime: its own searches find nothing that is being removed.
    pub(crate) fn suspended(&self) {
        self.suspender.store(system::thread_key(), SeqCst);
    }

    /// Before the runtime resumes managed threads, or when it gives up a suspension.
    pub(crate) fn suspension_ends(&self) {
        self.suspender.store(0, SeqCst);
        // Not reported as begun if it had begun before an attach.
        let _ = self.suspensions.fetch_update(SeqCst, SeqCst, |suspensions| suspensions.checked_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    const CALL: &str = "X";

    fn is_refused(searches: &Searches) -> bool {
        searches.begin(CALL).is_err_and(|error| error.code() == sys::CORPROF_E_SUSPENSION_IN_PROGRESS)
    }

    #[test]
    fn a_suspension_waits_for_searches_and_refuses_others() {
        let searches = Searches::default();
        let has_begun = AtomicBool::new(false);
        let search = searches.begin(CALL).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                searches.suspension_begins();
                has_begun.store(true, SeqCst);
            });
            while !is_refused(&searches) {
                std::thread::yield_now();
            }
            assert!(!has_begun.load(SeqCst), "the search goes on");
            drop(search);
        });
        assert!(is_refused(&searches));
        searches.suspension_ends();
        assert!(searches.begin(CALL).is_ok());
    }

    #[test]
    fn who_has_suspended_the_runtime_may_search() {
        let searches = Searches::default();
        searches.suspension_begins();
        searches.suspended();
        assert!(searches.begin(CALL).is_ok());
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(is_refused(&searches)));
        });
    }

    #[test]
    fn an_end_without_a_beginning_changes_nothing() {
        let searches = Searches::default();
        searches.suspension_ends();
        searches.suspension_begins();
        assert!(is_refused(&searches));
        searches.suspension_ends();
        searches.wait(|| false);
        assert!(searches.begin(CALL).is_ok());
    }
}
