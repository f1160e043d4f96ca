//! Counts the calls to the runtime under way. A detach needs the count: after it, the runtime deletes the object that
//! answers calls.
//!
//! Any thread may keep a clone of [`Info`](super::Info) for ever, so the gate that counts callbacks does not see its
//! calls. A profiler that may be detached counts each call in the slot of the calling thread; the detach closes calls
//! and waits until none is under way. From then on calls return errors.
//!
//! Counting costs two locked instructions on the thread's own cache line. A profiler that cannot be detached pays for
//! one load instead.

use std::ops::Deref;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use corprof_sys as sys;

use super::thread_slot;
use crate::error::{Error, Result};

/// Calls are made and not counted: the runtime's object stays.
const UNCOUNTED: u8 = 0;
/// Calls are made and counted.
const COUNTED: u8 = 1;
/// Calls return an error.
const CLOSED: u8 = 2;

/// How many reads in a row must find a counter above zero before its calls count as under way.
const LOOKS: usize = 100;

/// Whether calls are made, and whether they are counted.
pub(crate) struct Calls(AtomicU8);

/// An interface of the runtime, borrowed for one call. Dropping it ends the count of that call.
pub(crate) struct Call<'a, V> {
    interface: &'a V,
    _counted: Counted,
}

/// The counter that a call was added to; none if calls are not counted.
struct Counted(Option<&'static AtomicUsize>);

impl Calls {
    pub(super) fn new(are_counted: bool) -> Self {
        Self(AtomicU8::new(if are_counted { COUNTED } else { UNCOUNTED }))
    }

    /// Turns counting on. No other thread may be able to make a call yet: that call would not be counted, and the
    /// detach would not wait for it.
    pub(crate) fn count(&self) {
        let _ = self.0.compare_exchange(UNCOUNTED, COUNTED, Ordering::SeqCst, Ordering::SeqCst); // or it is on already
    }

    /// Lends out an interface of the runtime for the call named `call`.
    #[inline]
    pub(super) fn begin<'a, V>(&self, interface: &'a V, call: &'static str) -> Result<Call<'a, V>> {
        let counted =
            if self.0.load(Ordering::Relaxed) == UNCOUNTED { Counted(None) } else { self.begin_counted(call)? };
        Ok(Call { interface, _counted: counted })
    }

    #[inline(never)]
    fn begin_counted(&self, call: &'static str) -> Result<Counted> {
        let calls = thread_slot::own_calls();
        // Sequentially consistent, like the load that follows and both operations of `close`: either this call sees
        // that calls are closed, or the closing thread sees this call.
        calls.fetch_add(1, Ordering::SeqCst);
        let counted = Counted(Some(calls));
        if self.are_open() { Ok(counted) } else { Err(detached(call)) }
    }

    /// Whether calls are still made.
    pub(crate) fn are_open(&self) -> bool {
        self.0.load(Ordering::SeqCst) != CLOSED
    }

    /// Refuses calls from now on. The closure that it returns says whether all earlier calls have ended: poll it until
    /// it does.
    pub(crate) fn close(&self) -> impl FnMut() -> bool + use<> {
        self.0.store(CLOSED, Ordering::SeqCst);
        let mut all = thread_slot::all_calls();
        let mut next = all.next();
        // A counter seen at zero once stays there, except for calls that are refused. Each counter is polled until it
        // was zero once and then never again, so refused calls made without pause do not block the detach.
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

/// The error of a call made after a detach.
#[cold]
fn detached(call: &'static str) -> Error {
    Error::new(sys::CORPROF_E_PROFILER_DETACHING, call).about(
        "after a detach",
        "the runtime has released the profiler: drop this `Info`, or make the call before `shutdown` returns",
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
