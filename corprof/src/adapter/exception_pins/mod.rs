//! Pins every exception while the runtime searches a handler for it, on the runtimes that lose it otherwise.
//!
//! # The fault
//!
//! Since .NET 9 managed code dispatches exceptions. Its native helper that calls a filter (`CallFilterFunclet` in the runtime's
//! exceptionhandling.cpp) reads the exception's address into a local that collections do not know, then tells the profiler
//! `ExceptionSearchFilterEnter`, during which a collection may run, and then calls the filter with the old address. If the
//! collection has moved the exception, the filter reads garbage: it says no, or the process dies. Every profiler that asks for
//! `MONITOR_EXCEPTIONS` brings this about, whatever its callbacks do. Reported as dotnet/runtime issue 132462; pull request
//! 132482 mends it for .NET 11. Nothing was found for .NET 9 and 10 (November 2026).
//!
//! # What is done
//!
//! An object with a pinned handle is not moved. `ExceptionThrown` comes before all filters and in cooperative mode, so the
//! handle is made there; the filters have all been asked when the first function is unwound, so it is freed there. An object
//! that is no exception is thrown inside a `RuntimeWrappedException`, and filters may be given the object itself: both are
//! pinned. `stack.rs` says which handles are freed when; `wrapped.rs` finds the object inside.
//!
//! This follows the callbacks, not the event mask: whoever has turned `MONITOR_EXCEPTIONS` on, and whichever of its callbacks
//! are implemented. It goes on after a panic and after Shutdown, for the runtime goes on making the callbacks.
//!
//! # When it can go
//!
//! When corprof no longer supports .NET 9 and 10, or when a servicing release mends them: [`has_fault`] is the one place that
//! knows the versions. The live test `filters` shows whether a runtime still has the fault.

mod stack;
mod wrapped;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::context::{Heap, InCallback};
use crate::event_mask::Event;
use crate::id::ObjectId;
use crate::info::{HandleKind, Info, ObjectHandle, RuntimeInfo, RuntimeKind};
use crate::lock::unpoisoned;

use stack::Stack;
use wrapped::Wrapper;

/// The environment variable that turns pinning off: `0`.
const SWITCH: &str = "CORPROF_PIN_EXCEPTIONS";

/// The exception, and what it wraps.
type Handles = [Option<ObjectHandle>; 2];

/// The pins of one profiler.
pub(super) struct ExceptionPins {
    /// Tells this profiler's pins from those of others in the same library.
    key: u64,
    /// By thread, of the threads that have thrown. Locked for a thread's first exception and for its end.
    threads: Mutex<HashMap<usize, Arc<ThreadPins>>>,
    wrapper: Wrapper,
}

/// The pins of one thread, which it makes and frees itself. The lock is for its end, which the runtime may tell of on another
/// thread; nobody ever waits for it, and no call into the runtime is made under it.
#[derive(Default)]
struct ThreadPins {
    stack: Mutex<Stack<Handles>>,
    /// The managed thread has ended. The system's thread may become another one.
    has_ended: AtomicBool,
}

thread_local! {
    /// The calling thread's pins, by [`ExceptionPins::key`].
    static OWN: RefCell<Vec<(u64, Arc<ThreadPins>)>> = const { RefCell::new(Vec::new()) };
    /// The calling thread is making or freeing a handle of ours.
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

/// Whether an event is about a handle of ours, which is no business of the user's.
#[inline]
pub(super) fn cause(event: Event) -> bool {
    matches!(event, Event::HandleCreated | Event::HandleDestroyed) && IS_AT_WORK.get()
}

/// Whether the calling thread is making or freeing a handle of ours: the fake CLR leaves the failures that a test has ordered to
/// the test's profiler.
#[cfg(feature = "testing")]
pub(crate) fn is_at_work() -> bool {
    IS_AT_WORK.get()
}

/// Whether a runtime may move an exception that it is about to give to a filter.
fn has_fault(runtime: RuntimeInfo) -> bool {
    runtime.kind == RuntimeKind::Core && matches!(runtime.major, 9 | 10)
}

fn is_switched_off(value: Option<&OsStr>) -> bool {
    value.is_some_and(|value| value == "0")
}

impl ExceptionPins {
    /// Pins for a runtime that needs them, unless they are switched off.
    pub(super) fn for_runtime(info: &Info) -> Option<Self> {
        static LAST_KEY: AtomicU64 = AtomicU64::new(0);
        // SAFETY: called from Initialize, which is a callback; nothing is promised of the heap.
        let cx = unsafe { InCallback::new(info, Heap::Moves, 0) };
        let runtime = cx.runtime_info().ok()?;
        let is_wanted = has_fault(runtime) && !is_switched_off(std::env::var_os(SWITCH).as_deref());
        is_wanted.then(|| Self {
            key: LAST_KEY.fetch_add(1, Ordering::Relaxed),
            threads: Mutex::default(),
            wrapper: Wrapper::default(),
        })
    }

    /// Takes note of an event before the user hears of it. `subject` is the exception, or the thread that ends.
    ///
    /// The stack pointers of different exceptions are compared, so everybody comes by the same way.
    ///
    /// # Safety
    /// The calling thread is in the callback that `event` names, and `subject` is what the runtime passed.
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
            // SAFETY: the thread is in `ExceptionThrown`, which the runtime makes in cooperative mode, so that no collection
            // moves anything until a call leaves that mode; those made here do not.
            let cx = unsafe { InCallback::new(info, Heap::Still, 0) };
            let pin = |object: ObjectId<'_>| cx.create_handle(object, HandleKind::Pinned).ok();
            // SAFETY: the object that `ExceptionThrown` is about, in that callback; as above.
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
    /// The runtime has let go of the profiler. Threads live on: what they keep of it is dropped when they next throw under another.
    /// A handle of an exception that is on its way cannot be freed any more.
    fn drop(&mut self) {
        for (_, pins) in unpoisoned(self.threads.get_mut()).drain() {
            pins.has_ended.store(true, Ordering::Relaxed);
            pins.change(|stack| *stack = Stack::default());
        }
    }
}

impl ThreadPins {
    /// Changes the stack, outside of the lock: to make and to free handles are calls into the runtime, which makes callbacks.
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
    fn runtimes_with_the_fault_are_9_and_10() {
        let runtime = |kind, major| RuntimeInfo { kind, major, minor: 0, build: 0 };
        let faulty: Vec<u16> = (4..13).filter(|&major| has_fault(runtime(RuntimeKind::Core, major))).collect();
        assert_eq!(faulty, [9, 10]);
        assert!(!has_fault(runtime(RuntimeKind::Framework, 10)));
    }

    #[test]
    fn the_switch_is_off_at_0_only() {
        assert!(is_switched_off(Some(OsStr::new("0"))));
        assert!(
            [None, Some(""), Some("1"), Some("00")].into_iter().all(|value| !is_switched_off(value.map(OsStr::new)))
        );
    }
}
