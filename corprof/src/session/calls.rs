//! Which calls to the runtime are under way, for a detach: the runtime then deletes the object that calls are made of.
//!
//! Anybody may have a clone of [`Info`](super::Info), on any thread and for ever, so the gate that counts callbacks knows nothing
//! of their calls. A profiler that may be detached has each call counted, in the slot of the thread that makes it; the detach
//! closes calls and waits until none is under way. From then on calls are errors.
//!
//! Counting costs two locked instructions on a cache line of the thread's own. A profiler that cannot be detached pays
//! for one load instead.

use std::ops::Deref;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use corprof_sys as sys;

use super::slot;
use crate::error::{Error, Result};

/// Calls are made and not counted: the runtime stays.
const UNCOUNTED: u8 = 0;
/// Calls are made and counted.
const COUNTED: u8 = 1;
/// No call is made any more.
const CLOSED: u8 = 2;

/// How often a place is looked at before its call is waited for.
const LOOKS: usize = 100;

/// Whether calls are made.
pub(crate) struct Calls(AtomicU8);

/// An interface of the runtime, for as long as this lives.
pub(crate) struct Call<'a, V> {
    interface: &'a V,
    _counted: Counted,
}

/// A call that is counted, and where; none if the runtime stays.
struct Counted(Option<&'static AtomicUsize>);

impl Calls {
    pub(super) fn new(are_counted: bool) -> Self {
        Self(AtomicU8::new(if are_counted { COUNTED } else { UNCOUNTED }))
    }

    /// Has calls counted. Nobody else may be able to make one yet: it would not be counted, and not be waited for.
    pub(crate) fn count(&self) {
        let _ = self.0.compare_exchange(UNCOUNTED, COUNTED, Ordering::SeqCst, Ordering::SeqCst); // or they are
    }

    /// Lends out an interface of the runtime for the call of this name.
    #[inline]
    pub(super) fn begin<'a, V>(&self, interface: &'a V, call: &'static str) -> Result<Call<'a, V>> {
        let counted =
            if self.0.load(Ordering::Relaxed) == UNCOUNTED { Counted(None) } else { self.begin_counted(call)? };
        Ok(Call { interface, _counted: counted })
    }

    #[inline(never)]
    fn begin_counted(&self, call: &'static str) -> Result<Counted> {
        let calls = slot::own_calls();
        // Sequentially consistent, as the look that follows and the two of `close`: either this call sees that calls are closed, or
        // whoever closes them sees this call.
        calls.fetch_add(1, Ordering::SeqCst);
        let counted = Counted(Some(calls));
        if self.are_open() { Ok(counted) } else { Err(detached(call)) }
    }

    /// Whether calls are made.
    pub(crate) fn are_open(&self) -> bool {
        self.0.load(Ordering::SeqCst) != CLOSED
    }

    /// From now on no call begins. The answer says whether none is under way any more: ask it until that is so.
    pub(crate) fn close(&self) -> impl FnMut() -> bool + use<> {
        self.0.store(CLOSED, Ordering::SeqCst);
        let mut all = slot::all_calls();
        let mut next = all.next();
        // A place seen empty once stays so, but for calls that are refused. Whoever makes these without pause does not keep it from
        // being seen: each place is looked at until then, and not again.
        move || {
            while let Some(calls) = next {
                if (0..LOOKS).all(|_| calls.load(Ordering::SeqCst) != 0) {
                    return false;
                }
                next = all.next();
            }
            true
        }
    }
}

/// What a call answers after a detach.
#[cold]
fn detached(call: &'static str) -> Error {
    Error::new(sys::CORPROF_E_PROFILER_DETACHING, call).about(
        "after a detach",
        "the runtime has let go of the profiler: drop this `Info`, or ask before `shutdown` returns",
    )
}

impl<V> Deref for Call<'_, V> {
    type Target = V;

    #[inline]
    fn deref(&self) -> &V {
        self.interface
    }
}

impl Drop for Counted {
    #[inline]
    fn drop(&mut self) {
        if let Some(calls) = self.0 {
            calls.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_calls_are_errors_and_those_under_way_are_seen() {
        let calls = Calls::new(false);
        assert!(calls.begin(&7, "X").is_ok());
        calls.count();
        let call = calls.begin(&7, "X").unwrap();
        assert_eq!(*call, 7);
        let mut are_over = calls.close();
        assert!(!are_over(), "one is under way");
        let refused = calls.begin(&7, "X").map(drop).unwrap_err();
        assert_eq!(refused.code(), sys::CORPROF_E_PROFILER_DETACHING);
        drop(call);
        // Calls of other tests are counted in the same slots, and are soon over.
        while !are_over() {
            std::thread::yield_now();
        }
        calls.count();
        assert!(!calls.are_open(), "closed stays closed");
    }
}
