//! Pins every exception while the runtime searches for its handler, on runtimes that may otherwise lose it.
//!
//! # The fault
//!
//! Since .NET 9 managed code dispatches exceptions. Its native helper that calls a filter (`CallFilterFunclet` in the
//! runtime's exceptionhandling.cpp) reads the exception's address into a local that collections do not update, then
//! makes the callback `ExceptionSearchFilterEnter`, during which a collection may run, and then calls the filter with
//! the old address. If the collection has moved the exception, the filter reads garbage: it returns "no", or the
//! process dies. Every profiler that sets `MONITOR_EXCEPTIONS` causes this, whatever its callbacks do. Reported as
//! dotnet/runtime issue 132462; pull request 132482 fixes it for .NET 11. No fix was found for .NET 9 and 10 (November
//! 2026).
//!
//! # The workaround
//!
//! An object with a pinned handle is not moved. `ExceptionThrown` comes before all filters and in cooperative mode, so
//! the handle is made there. When the first function is unwound, all filters have run, so the handle is freed there. A
//! thrown object that is not an exception travels inside a `RuntimeWrappedException`, and filters may receive the
//! object itself: both are pinned. `stack.rs` decides when each handle is freed; `wrapped.rs` finds the object inside.
//!
//! Pinning follows the callbacks, not the event mask: it does not matter how `MONITOR_EXCEPTIONS` was turned on, nor
//! which of its callbacks the profiler implements. It goes on after a panic and after Shutdown, because the runtime
//! goes on making the callbacks.
//!
//! # When to remove it
//!
//! When corprof no longer supports .NET 9 and 10, or when a servicing release fixes them: only
//! [`ReleaseFact::MovesExceptionsBeforeFilters`] knows the versions. The live test `filters` shows whether a runtime
//! still has the fault.

mod stack;
mod wrapped;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::context::{Heap, InNoGc};
use crate::event_mask::Event;
use crate::id::ObjectId;
use crate::info::{HandleKind, Info, ObjectHandle};
use crate::lock::unpoisoned;
use crate::session::ReleaseFact;

use stack::Stack;
use wrapped::Wrapper;

/// The environment variable that turns pinning off if it is `0`.
const SWITCH: &str = "CORPROF_PIN_EXCEPTIONS";

/// Handles to the exception, and to the object that it wraps.
type Handles = [Option<ObjectHandle>; 2];

/// The pins of one profiler.
pub(super) struct ExceptionPins {
    /// Distinguishes this profiler's pins from those of others in the same library.
    key: u64,
    /// By thread, of the threads that have thrown. Locked for a thread's first exception and for its end.
    threads: Mutex<HashMap<usize, Arc<ThreadPins>>>,
    wrapper: Wrapper,
}

/// The pins of one thread, which makes and frees them itself. The lock is for the thread's end, which the runtime may
/// report on another thread; no thread ever waits for it, and no call to the runtime is made under it.
#[derive(Default)]
struct ThreadPins {
    stack: Mutex<Stack<Handles>>,
    /// Whether the managed thread has ended. The operating-system thread may carry another one later.
    has_ended: AtomicBool,
}

thread_local! {
    /// The calling thread's pins, by [`ExceptionPins::key`].
    static OWN: RefCell<Vec<(u64, Arc<ThreadPins>)>> = const { RefCell::new(Vec::new()) };
    /// Whether the calling thread is making or freeing one of these handles.
    static IS_AT_WORK: Cell<bool> = const { Cell::new(false) };
}

/// Whether pins change at an event.
#[inline]
pub(super) const fn depend_on(event: Event) -> bool {
    matches!(
        event,
        Event::ExceptionThrown
            | Event::ExceptionUnwindFunctionEnter
            | Event::ExceptionCatcherEnter
            | Event::ThreadDestroyed
    )
}

/// Whether an event is about one of these handles, which the user's callbacks do not see.
#[inline]
pub(super) fn cause(event: Event) -> bool {
    matches!(event, Event::HandleCreated | Event::HandleDestroyed) && IS_AT_WORK.get()
}

/// Whether the calling thread is making or freeing one of these handles: the fake CLR reserves the failures that a test
/// has ordered for the test's profiler.
#[cfg(feature = "testing")]
pub(crate) fn is_at_work() -> bool {
    IS_AT_WORK.get()
}

fn is_switched_off(value: Option<&OsStr>) -> bool {
    value.is_some_and(|value| value == "0")
}

impl ExceptionPins {
    /// Pins for a runtime that needs them, unless they are switched off.
    pub(super) fn for_runtime(info: &Info) -> Option<Self> {
        static LAST_KEY: AtomicU64 = AtomicU64::new(0);
        // SAFETY: called from Initialize, which is a callback; nothing is claimed about the heap (fact: contexts).
        let cx = unsafe { InNoGc::new(info, Heap::Moves) };
        let runtime = cx.runtime_info().ok()?;
        let is_wanted = runtime.has(ReleaseFact::MovesExceptionsBeforeFilters)
            && !is_switched_off(std::env::var_os(SWITCH).as_deref());
        is_wanted.then(|| Self {
            key: LAST_KEY.fetch_add(1, Ordering::Relaxed),
            threads: Mutex::default(),
            wrapper: Wrapper::default(),
        })
    }

    /// Handles an event before the user's callback. `subject` is the exception, or the thread that ends.
    ///
    /// The stack pointers of different exceptions are compared, so all exceptions must come here by the same path.
    ///
    /// # Safety
    /// The calling thread is in the callback that `event` names, and `subject` is the value that the runtime passed.
    #[inline(never)]
    pub(super) unsafe fn note(&self, info: &Info, event: Event, subject: usize) {
        let marker = 0_u8;
        let stack_pointer = black_box(&raw const marker).addr();
        match event {
            // SAFETY: the caller's promise.
            Event::ExceptionThrown => unsafe { self.thrown(info, stack_pointer, subject) },
            Event::ExceptionUnwindFunctionEnter => self.change_own(Stack::search_over),
            Event::ExceptionCatcherEnter => self.change_own(|stack| stack.caught(subject)),
            Event::ThreadDestroyed => self.thread_ended(subject),
            _ => {}
        }
    }

    /// # Safety
    /// The calling thread is in `ExceptionThrown` for this exception.
    unsafe fn thrown(&self, info: &Info, stack_pointer: usize, exception: usize) {
        let Some(own) = self.own().or_else(|| self.start_thread(info)) else { return };
        own.change(|stack| {
            stack.leave(stack_pointer);
            // SAFETY: the thread is in `ExceptionThrown`, which the runtime makes in cooperative mode, so that no
            // collection moves objects until a call leaves that mode; the calls made here do not (fact: still).
            let cx = unsafe { InNoGc::new(info, Heap::Still) };
            let pin = |object: ObjectId<'_>| cx.create_handle(object, HandleKind::Pinned).ok();
            // SAFETY: the object of `ExceptionThrown`, in that callback; as above (fact: still).
            let handles = match unsafe { ObjectId::from_raw(exception) } {
                Some(object) => [pin(object), self.wrapper.object_in(&cx, object).and_then(pin)],
                None => [None, None],
            };
            stack.push(stack_pointer, exception, handles);
        });
    }

    fn change_own(&self, change: impl FnOnce(&mut Stack<Handles>)) {
        if let Some(own) = self.own() {
            own.change(change);
        }
    }

    /// The calling thread's pins, if it has thrown before.
    fn own(&self) -> Option<Arc<ThreadPins>> {
        let find = |own: &RefCell<Vec<(u64, Arc<ThreadPins>)>>| {
            let own = own.borrow();
            let is_mine =
                |(key, pins): &&(u64, Arc<ThreadPins>)| *key == self.key && !pins.has_ended.load(Ordering::Relaxed);
            own.iter().find(is_mine).map(|(_, pins)| pins.clone())
        };
        // A thread that is ending has none.
        OWN.try_with(find).ok().flatten()
    }

    #[cold]
    fn start_thread(&self, info: &Info) -> Option<Arc<ThreadPins>> {
        let thread = info.current_thread().ok().flatten()?;
        let pins = Arc::<ThreadPins>::default();
        let keep = |own: &RefCell<Vec<_>>| {
            let mut own = own.borrow_mut();
            own.retain(|(_, pins): &(u64, Arc<ThreadPins>)| !pins.has_ended.load(Ordering::Relaxed));
            own.push((self.key, pins.clone()));
        };
        OWN.try_with(keep).ok()?;
        self.threads().insert(thread.as_raw(), pins.clone());
        Some(pins)
    }

    fn thread_ended(&self, thread: usize) {
        let pins = self.threads().remove(&thread);
        if let Some(pins) = pins {
            pins.has_ended.store(true, Ordering::Relaxed);
            pins.change(|stack| *stack = Stack::default());
        }
    }

    fn threads(&self) -> MutexGuard<'_, HashMap<usize, Arc<ThreadPins>>> {
        unpoisoned(self.threads.lock())
    }
}

impl Drop for ExceptionPins {
    /// The runtime has released the profiler. Threads live on: their pins of this profiler are dropped when they next
    /// throw under another profiler. The handle of an exception that is on its way can no longer be freed.
    fn drop(&mut self) {
        for (_, pins) in unpoisoned(self.threads.get_mut()).drain() {
            pins.has_ended.store(true, Ordering::Relaxed);
            pins.change(|stack| *stack = Stack::default());
        }
    }
}

impl ThreadPins {
    /// Changes the stack, outside the lock: making and freeing handles are calls to the runtime, which make callbacks.
    fn change(&self, change: impl FnOnce(&mut Stack<Handles>)) {
        let lock = || unpoisoned(self.stack.lock());
        let mut stack = std::mem::take(&mut *lock());
        let was_at_work = IS_AT_WORK.replace(true);
        change(&mut stack);
        IS_AT_WORK.set(was_at_work);
        *lock() = stack;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_switch_is_off_at_0_only() {
        assert!(is_switched_off(Some(OsStr::new("0"))));
        assert!(
            [None, Some(""), Some("1"), Some("00")].into_iter().all(|value| !is_switched_off(value.map(OsStr::new)))
        );
    }
}
