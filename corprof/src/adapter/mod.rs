//! The one COM object: `ICorProfilerCallback11` over a [`Profiler`].
//!
//! The runtime calls the thunks of its vtable (`generated/thunks.rs`, and `lifecycle.rs` for the few that do more).
//! Each goes through [`in_no_gc`] or [`in_callback`] here: through the gate (`session/gate.rs`), past the SDK's own
//! bookkeeping, under the panic guard, into the user's method. `factory.rs` makes the object when the runtime asks the
//! library for it.

pub(crate) mod bookkeeping;
mod catch_up;
mod detach;
pub(crate) mod exception_pins;
mod export;
pub(crate) mod factory;
pub(crate) mod lifecycle;
mod settle;

use std::cell::Cell;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering, fence};
use std::sync::{Arc, OnceLock};

use corprof_sys as sys;
use windows_core::{GUID, HRESULT, IUnknown, Interface};

use crate::context::{Heap, InCallback, InNoGc};
use crate::error::{E_NOINTERFACE, E_POINTER, S_OK};
use crate::event_mask::Event;
use crate::info::Info;
use crate::profiler::Profiler;
use crate::session::catch_up::must_see;
use crate::session::ending_threads::{self, Called, LateCallback};
use crate::session::event_pipe_sessions::Callback;
use crate::session::liveness::Subject;
use crate::session::panics::{PanicPlace, ProfilerState, catch};
use crate::session::searches::InSuspension;
use crate::session::thread_slot::Inside;

use exception_pins::ExceptionPins;

/// A profiler, as the COM object that the runtime holds.
#[repr(C)]
pub(crate) struct Adapter<P: Profiler> {
    /// First, because a COM interface pointer points at a vtable pointer.
    vtable: &'static sys::ICorProfilerCallback11_Vtbl,
    references: AtomicU32,
    /// Shared with the profiler's threads.
    state: Arc<ProfilerState>,
    /// Set by Initialize, before any event is turned on.
    info: OnceLock<Info>,
    /// Set with it, for runtimes that need pins.
    exception_pins: OnceLock<ExceptionPins>,
    /// A box that `initialize` makes, and null before. The callbacks share it. It is dropped once: by Shutdown when it
    /// has closed the gate, otherwise with the object; null again after that.
    profiler: AtomicPtr<P>,
}

impl<P: Profiler> Adapter<P> {
    /// Makes the COM object with one reference, the caller's.
    fn create() -> *mut c_void {
        let adapter = Self {
            vtable: Self::VTABLE,
            references: AtomicU32::new(1),
            state: Arc::new(ProfilerState::new(P::NAME, P::NOTIFICATION_ONLY, P::EVENTS)),
            info: OnceLock::new(),
            exception_pins: OnceLock::new(),
            profiler: AtomicPtr::new(std::ptr::null_mut()),
        };
        Box::into_raw(Box::new(adapter)).cast()
    }

    /// The object behind one of the runtime's interface pointers.
    ///
    /// # Safety
    /// `this` came from [`create`](Self::create) and a reference to it is held for `'a`.
    #[inline]
    unsafe fn of<'a>(this: *mut c_void) -> &'a Self {
        // SAFETY: the caller's promise.
        unsafe { &*this.cast() }
    }

    /// The handle to the runtime behind one of its interface pointers, once Initialize has been called.
    ///
    /// # Safety
    /// The runtime calls a thunk on `this`, which came from [`create`](Self::create).
    #[inline]
    pub(crate) unsafe fn info_of<'a>(this: *mut c_void) -> Option<&'a Info> {
        // SAFETY: the runtime holds a reference while it calls (fact: profiler-object).
        unsafe { Self::of(this) }.info.get()
    }

    /// The user's profiler, once it is made.
    ///
    /// # Safety
    /// The caller is inside the gate, or has closed it: nothing drops the profiler while the result is used.
    #[inline]
    unsafe fn profiler(&self) -> Option<&P> {
        // SAFETY: null, or from `Box::into_raw`; only `drop_profiler` frees it, which the caller rules out.
        unsafe { self.profiler.load(Ordering::Acquire).as_ref() }
    }

    /// Shows the user's profiler to the callbacks.
    fn set_profiler(&self, profiler: P) {
        let previous = self.profiler.swap(Box::into_raw(Box::new(profiler)), Ordering::Release);
        debug_assert!(previous.is_null(), "the runtime initializes once");
    }

    /// Drops the user's profiler, the first time.
    ///
    /// # Safety
    /// It has no other user: the gate is closed and empty, or the last reference is gone.
    unsafe fn drop_profiler(&self) {
        let profiler = self.profiler.swap(std::ptr::null_mut(), Ordering::Acquire);
        if profiler.is_null() {
            return;
        }
        // SAFETY: from `Box::into_raw`, without other users by the caller's promise; the swap makes this the only time.
        let profiler = unsafe { Box::from_raw(profiler) };
        catch(|| drop(profiler), || self.state.report_last_panic("drop"));
    }

    /// Disables the profiler after a panic in a callback.
    #[cold]
    fn disable_after_panic(&self, method: &str) {
        self.state.disable_after_panic(PanicPlace::Method(method));
    }

    /// `QueryInterface`: one object with all eleven callback interfaces.
    pub(crate) unsafe extern "system" fn query_interface(
        this: *mut c_void,
        iid: *const GUID,
        out: *mut *mut c_void,
    ) -> HRESULT {
        if iid.is_null() || out.is_null() {
            return E_POINTER;
        }
        // SAFETY: neither is null, and by COM's rules they point at a GUID and at room for a pointer; the vtable serves
        // every interface that it answers for, as each extends the one before (fact: com).
        unsafe {
            if *iid != IUnknown::IID && !sys::ICorProfilerCallback11_Vtbl::matches(&*iid) {
                *out = std::ptr::null_mut();
                return E_NOINTERFACE;
            }
            Self::add_ref(this);
            *out = this;
        }
        S_OK
    }

    /// `AddRef`.
    pub(crate) unsafe extern "system" fn add_ref(this: *mut c_void) -> u32 {
        // SAFETY: the caller holds a reference.
        unsafe { Self::of(this) }.references.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// `Release`: the last one drops the profiler, if Shutdown has not.
    pub(crate) unsafe extern "system" fn release(this: *mut c_void) -> u32 {
        // SAFETY: the caller holds a reference, and releases it.
        let adapter = unsafe { Self::of(this) };
        let left = adapter.references.fetch_sub(1, Ordering::Release) - 1;
        if left == 0 {
            fence(Ordering::Acquire);
            // A detach looks for the object there, under a lock, and finds it or nothing.
            adapter.state.ending.set_object(None);
            // SAFETY: that was the last reference, so no other code can reach the object; it came from `Box::into_raw`
            // (fact: profiler-object).
            unsafe {
                adapter.drop_profiler();
                drop(Box::from_raw(this.cast::<Self>()));
            }
        }
        left
    }
}

/// The user's profiler behind an interface pointer, if it is made and not dropped yet: for the fake CLR.
///
/// # Safety
/// `this` is an [`Adapter`] of this `P`; for `'a`, no code calls Shutdown or releases the last reference.
#[cfg(feature = "testing")]
pub(crate) unsafe fn profiler_of<'a, P: Profiler>(this: *mut c_void) -> Option<&'a P> {
    // SAFETY: the caller's promise; only Shutdown and the last Release drop the profiler.
    unsafe {
        let adapter: &Adapter<P> = Adapter::of(this);
        adapter.profiler()
    }
}

/// Whether the user's code behind an interface pointer has panicked anywhere: for the fake CLR.
///
/// # Safety
/// `this` is an [`Adapter`] of this `P`, and a reference to it is held.
#[cfg(feature = "testing")]
pub(crate) unsafe fn has_panicked<P: Profiler>(this: *mut c_void) -> bool {
    // SAFETY: the caller's promise.
    let adapter: &Adapter<P> = unsafe { Adapter::of(this) };
    adapter.state.has_panicked()
}

/// Runs a callback from which no collection may start.
///
/// # Safety
/// The runtime calls the thunk of `event` on `this`, an [`Adapter`] of this `P`.
#[inline]
pub(crate) unsafe fn in_no_gc<P: Profiler>(
    this: *mut c_void,
    event: Event,
    subject: usize,
    user: impl FnOnce(&P, &InNoGc<'_>),
) -> HRESULT {
    // SAFETY: the same promise.
    unsafe {
        enter(this, event, subject, move |profiler, info| {
            // Also, the calling thread is inside the callback `event` until `user` returns.
            user(profiler, &InNoGc::new(info, heap_at(event)))
        })
    }
}

/// Runs a callback from which a collection may start.
///
/// # Safety
/// As [`in_no_gc`].
#[inline]
pub(crate) unsafe fn in_callback<P: Profiler>(
    this: *mut c_void,
    event: Event,
    subject: usize,
    user: impl FnOnce(&P, &mut InCallback<'_>),
) -> HRESULT {
    // SAFETY: the same promise.
    unsafe {
        enter(this, event, subject, move |profiler, info| {
            // Also, the calling thread is inside the callback `event` until `user` returns. The table that thunks are
            // generated from sends only callbacks here from which a collection may start.
            let _callback = Callback::begin(event);
            if !ending_threads::may_be_late(event) {
                ending_threads::thread_lives();
            }
            user(profiler, &mut InCallback::new(info))
        })
    }
}

/// Runs a callback that the user has not implemented, for the SDK's own bookkeeping.
///
/// # Safety
/// As [`in_no_gc`].
#[inline]
pub(crate) unsafe fn without_user<P: Profiler>(this: *mut c_void, event: Event, subject: usize) -> HRESULT {
    // SAFETY: the same promise.
    unsafe { enter(this, event, subject, |_: &P, _| {}) }
}

/// Whether the user's code can be called in a callback.
#[inline]
pub(crate) const fn is_for_user<P: Profiler>(event: Event) -> bool {
    // Features of the SDK receive events of EventPipe as well, where the profiler's own method would.
    P::EVENTS.contains(event) || matches!(event, Event::EventPipeEventDelivered)
}

/// Whether the SDK has something to do in a callback that the user has not implemented.
#[inline]
pub(crate) const fn is_for_sdk<P: Profiler>(event: Event) -> bool {
    must_see(P::EVENTS, event) || bookkeeping::needs_bookkeeping(event) || exception_pins::depend_on(event)
}

/// Passes the gate, the bookkeeping and the panic guard. The runtime ignores any other result than `S_OK`, or aborts,
/// so there is not another.
#[inline]
unsafe fn enter<P: Profiler>(this: *mut c_void, event: Event, subject: usize, user: impl FnOnce(&P, &Info)) -> HRESULT {
    let is_implemented = is_for_user::<P>(event);
    if !is_implemented && !is_for_sdk::<P>(event) {
        return S_OK;
    }
    if exception_pins::cause(event) {
        return S_OK;
    }
    // SAFETY: the runtime holds a reference while it calls (fact: profiler-object).
    let adapter: &Adapter<P> = unsafe { Adapter::of(this) };
    let Some(info) = adapter.info.get() else { return outline(|| S_OK) };
    let is_for_profiler = match info.catch_up() {
        Some(catch_up) if must_see(P::EVENTS, event) => catch_up.is_for_profiler(event, subject),
        _ => true,
    };
    // Bookkeeping may search for code; it does not for an object.
    let _called = (!matches!(event, Event::ObjectAllocated)).then(Called::begin);
    // Bookkeeping goes on when the profiler is disabled, as an earlier callback may still be running.
    bookkeeping::before(info, event, subject);
    if exception_pins::depend_on(event)
        && let Some(pins) = adapter.exception_pins.get()
    {
        // SAFETY: this is that callback; the thunks pass on the runtime's arguments (fact: arguments).
        unsafe { pins.note(info, event, subject) };
    }
    let delivery = Delivery::of(event);
    let _suspended = bookkeeping::is_in_suspension(event).then(InSuspension::begin);
    let _late = ending_threads::may_be_late(event).then(LateCallback::begin);
    let _subject = bookkeeping::is_about_function(event).then(|| Subject::begin(subject));
    if is_implemented && is_for_profiler && !delivery.is_nested() {
        let run = move |_inside: Inside| {
            // SAFETY: inside the gate.
            let Some(profiler) = (unsafe { adapter.profiler() }) else {
                return; // an event of a session that `initialize` has started, before it returned
            };
            catch(|| user(profiler, info), || adapter.disable_after_panic(event.method()));
        };
        // The rare cases are outlined, so that the usual one saves no registers for them: 34.0 ns an object in place of
        // 35.2 (`cargo xtask bench --only storm`, against `gate.enter` alone).
        match adapter.state.gate.enter_as_usual() {
            Some(inside) => run(inside),
            None => {
                outline(move || adapter.state.gate.enter().map(run));
            }
        }
    }
    bookkeeping::after(info, event, subject);
    S_OK
}

thread_local! {
    /// Whether the calling thread is inside `event_pipe_event_delivered`.
    static IS_DELIVERING: Cell<bool> = const { Cell::new(false) };
}

/// Whether a callback delivers an EventPipe event, which it marks on the calling thread.
///
/// Events written meanwhile, by the callback or by the runtime in one of the callback's calls, would be delivered
/// inside the callback, and so on until the stack is exhausted. So they are not delivered.
enum Delivery {
    /// Another callback.
    None,
    Outermost(DeliveryMark),
    Nested,
}

impl Delivery {
    /// That of a callback. `event` is a constant in each thunk: other callbacks pay nothing.
    #[inline]
    fn of(event: Event) -> Self {
        match event {
            Event::EventPipeEventDelivered => Self::begin(),
            _ => Self::None,
        }
    }

    fn begin() -> Self {
        if IS_DELIVERING.replace(true) {
            return Self::Nested;
        }
        Self::Outermost(DeliveryMark(PhantomData))
    }

    #[inline]
    fn is_nested(&self) -> bool {
        matches!(self, Self::Nested)
    }
}

/// The mark of the outermost delivery.
struct DeliveryMark(PhantomData<*mut ()>);

impl Drop for DeliveryMark {
    fn drop(&mut self) {
        IS_DELIVERING.set(false);
    }
}

/// Calls `rare` without inlining it into the caller.
#[cold]
#[inline(never)]
pub(crate) fn outline<R>(rare: impl FnOnce() -> R) -> R {
    rare()
}

/// Whether objects may move during a callback.
#[inline]
const fn heap_at(event: Event) -> Heap {
    match event {
        // In cooperative mode: a collection must wait for this thread.
        Event::ObjectAllocated | Event::ExceptionThrown | Event::ExceptionCatcherEnter => Heap::Still,
        // Inside a collection that stops all threads, before objects move or after all have moved.
        Event::ObjectReferences
        | Event::ObjectsAllocatedByClass
        | Event::RootReferences
        | Event::RootReferences2
        | Event::ConditionalWeakTableElementReferences => Heap::Still,
        // Seen live: the lowest bit of an object's first word is set in it.
        Event::FinalizeableObjectQueued => Heap::StillAndMarked,
        // With HIGH_BASIC_GC alone these are also made for a background collection, while the threads run.
        Event::GarbageCollectionStarted | Event::GarbageCollectionFinished => Heap::StillIfMonitored,
        _ => Heap::Moves,
    }
}

#[cfg(test)]
mod tests {
    use super::Delivery;

    #[test]
    fn deliveries_within_a_delivery_are_refused_until_it_ends() {
        let outer = Delivery::begin();
        assert!(!outer.is_nested());
        // A refusal must not end the delivery.
        assert!(Delivery::begin().is_nested() && Delivery::begin().is_nested());
        drop(outer);
        assert!(!Delivery::begin().is_nested());
    }
}
