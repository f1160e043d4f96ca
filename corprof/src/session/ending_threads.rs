//! Threads that end: a part of what the runtime keeps for them is gone, and code must not be searched for there.
//!
//! The runtime detaches a thread that it has not started in a destructor of thread-local data. Other destructors have
//! run by then, that of the tables through which the runtime finds precompiled code among them: .NET 11 ends the
//! process when a thread searches after it ("Attempt to reattach detached thread", vm/ebr.cpp). Callbacks still come:
//! if a collection meets the thread, `RuntimeThreadSuspended` and `RuntimeThreadResumed`, then `ThreadDestroyed`.
//!
//! Thread-local data of corprof's own tells. They are made after the runtime's, in a callback that comes while the
//! thread lives, so with glibc they are destroyed before the runtime's. musl and Windows promise no order.
//!
//! The profiler's own thread-local data may make calls when they are destroyed, before or after those tables: the
//! runtime makes these when it first needs them. So a thread that the runtime has not called, and that is not one of
//! corprof's at work, may end ([`is_outside`]).

use std::cell::Cell;

use corprof_sys as sys;

use crate::error::{Error, Result};
use crate::event_mask::Event;

use super::thread_slot;

thread_local! {
    static IS_IN_THREAD_DESTROYED: Cell<bool> = const { Cell::new(false) };
}

/// Notes that the calling thread enters or leaves `thread_destroyed`.
pub(crate) fn set_in_thread_destroyed(is_inside: bool) {
    IS_IN_THREAD_DESTROYED.set(is_inside);
}

/// Whether the calling thread runs `thread_destroyed`.
pub(crate) fn is_in_thread_destroyed() -> bool {
    IS_IN_THREAD_DESTROYED.get()
}

/// Refuses a call in `thread_destroyed`.
pub(crate) fn refuse_in_thread_destroyed(call: &'static str, rule: &'static str) -> Result<()> {
    if !is_in_thread_destroyed() {
        return Ok(());
    }
    Err(Error::new(sys::CORPROF_E_UNSUPPORTED_CALL_SEQUENCE, call).about("thread_destroyed", rule))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    /// No callback has come that shows that the thread lives.
    Unknown,
    Lives,
    Ends,
}

/// Its end is that of the thread.
struct Mark;

impl Drop for Mark {
    fn drop(&mut self) {
        LIFE.set(Life::Ends);
    }
}

thread_local! {
    static LIFE: Cell<Life> = const { Cell::new(Life::Unknown) };
    static MARK: Mark = const { Mark };
    /// Whether the calling thread is in a callback that may come at its end.
    static IS_LATE: Cell<bool> = const { Cell::new(false) };
    /// Whether the runtime has called the profiler on the calling thread, or corprof is at work there.
    static IS_CALLED: Cell<bool> = const { Cell::new(false) };
    /// Whether the calling thread makes a call from outside, inside of which callbacks may come.
    static IS_CALLING_FROM_OUTSIDE: Cell<bool> = const { Cell::new(false) };
}

/// The runtime has called the profiler on this thread, or corprof begins to work on it.
pub(crate) struct Called {
    /// Whether another one encloses it.
    is_inner: bool,
}

impl Called {
    pub(crate) fn begin() -> Self {
        Self { is_inner: IS_CALLED.replace(true) }
    }
}

impl Drop for Called {
    fn drop(&mut self) {
        IS_CALLED.set(self.is_inner);
    }
}

/// A call that any thread may make, inside of which callbacks may come.
pub(crate) struct AnyCall {
    is_inner: bool,
}

impl AnyCall {
    pub(crate) fn begin() -> Self {
        Self { is_inner: IS_CALLING_FROM_OUTSIDE.replace(is_outside()) }
    }
}

impl Drop for AnyCall {
    fn drop(&mut self) {
        IS_CALLING_FROM_OUTSIDE.set(self.is_inner);
    }
}

/// Whether callbacks on this thread come inside of a call from outside.
#[inline]
pub(super) fn is_calling_from_outside() -> bool {
    IS_CALLING_FROM_OUTSIDE.get()
}

/// Whether nothing shows that the calling thread lives: destructors of its thread-local data may be running.
pub(super) fn is_outside() -> bool {
    is_calling_from_outside() || !(thread_slot::is_surely_inside() || IS_CALLED.get() || thread_slot::is_inside())
}

/// Whether the runtime may make the callback on a thread that it detaches.
#[inline]
pub(crate) const fn may_be_late(event: Event) -> bool {
    matches!(event, Event::RuntimeThreadSuspended | Event::RuntimeThreadResumed | Event::ThreadDestroyed)
}

/// Notes that the calling thread is in a callback that comes while it lives.
#[inline]
pub(crate) fn thread_lives() {
    if LIFE.get() == Life::Unknown {
        MARK.with(|_| LIFE.set(Life::Lives));
    }
}

/// A callback that [may be late](may_be_late).
pub(crate) struct LateCallback {
    /// Whether another one encloses it.
    is_inner: bool,
}

impl LateCallback {
    pub(crate) fn begin() -> Self {
        Self { is_inner: IS_LATE.replace(true) }
    }
}

impl Drop for LateCallback {
    fn drop(&mut self) {
        IS_LATE.set(self.is_inner);
    }
}

/// Refuses a search for code on a thread that ends, or may end.
///
/// # Errors
/// `CORPROF_E_UNSUPPORTED_CALL_SEQUENCE`.
#[inline]
pub(crate) fn refuse_search(call: &'static str) -> Result<()> {
    match LIFE.get() {
        Life::Lives => Ok(()),
        Life::Unknown if !IS_LATE.get() => Ok(()),
        Life::Unknown | Life::Ends => Err(refusal(call)),
    }
}

#[cold]
pub(super) fn refusal(call: &'static str) -> Error {
    const RULE: &str =
        "it ends, and code cannot be searched for on it any more: ask in an earlier callback, or on a profiler thread";
    Error::new(sys::CORPROF_E_UNSUPPORTED_CALL_SEQUENCE, call).about("the calling thread", RULE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_may_end_must_not_search() {
        let may_search = || refuse_search("X").is_ok();
        std::thread::spawn(move || {
            assert!(may_search(), "outside of such callbacks");
            let late = LateCallback::begin();
            assert!(!may_search(), "nothing has shown that it lives");
            drop(late);
            thread_lives();
            let _late = LateCallback::begin();
            assert!(may_search(), "it lives");
        })
        .join()
        .unwrap();
    }

    #[test]
    fn who_was_not_called_may_end() {
        std::thread::spawn(|| {
            assert!(is_outside());
            let call = AnyCall::begin();
            let inner = Called::begin();
            assert!(is_outside(), "a callback in a call of a thread that may end");
            drop(inner);
            drop(call);
            let _called = Called::begin();
            let _call = AnyCall::begin();
            assert!(!is_outside());
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_thread_that_ends_must_not_search() {
        thread_local! {
            static BEFORE: AtEnd = const { AtEnd };
        }
        static MAY_SEARCH: std::sync::Mutex<Option<bool>> = std::sync::Mutex::new(None);
        /// As the runtime's own data: made before the mark, so destroyed after it.
        struct AtEnd;
        impl Drop for AtEnd {
            fn drop(&mut self) {
                *MAY_SEARCH.lock().unwrap() = Some(refuse_search("X").is_ok());
            }
        }
        std::thread::spawn(|| {
            BEFORE.with(|_| ());
            thread_lives();
        })
        .join()
        .unwrap();
        // Other systems may destroy them in another order.
        if cfg!(all(target_os = "linux", target_env = "gnu")) {
            assert_eq!(*MAY_SEARCH.lock().unwrap(), Some(false));
        }
    }
}
