//! Contexts: each proves that the calling thread is in a place where the runtime allows certain calls.
//!
//! A callback receives a context as its first argument, and the calls are methods of contexts. The contract table
//! (corprof-sys/gen/contracts.toml) decides which context offers a call, so a call that the runtime would refuse does
//! not compile:
//!
//! | context | who has it | offers |
//! |---|---|---|
//! | [`Info`] | all code, on any thread | calls that the runtime answers everywhere (async) |
//! | [`InNoGc`] | callbacks during a collection, a suspension or an unwind, and callbacks with objects | the calls of `Info`, and calls inside a callback that let no collection in |
//! | [`InCallback`] | the other callbacks | the calls of `InNoGc`, and by `&mut self` calls that start a collection or let one in |
//! | [`InInitialize`] | `initialize` | the calls of `InCallback`, and those that work at start-up only |
//! | [`InAttach`] | `initialize_for_attach` | the calls of `InCallback`, and the [`Detacher`] |
//! | [`ProfilerThread`] | a thread that the profiler has made | the calls of `InCallback`, and those that no callback may make, such as a collection |
//! | [`InHook`] | enter, leave and tailcall hooks | the calls of `Info`, and the hooked function |
//! | [`InSlowHook`] | the same hooks, if they receive arguments and results | the calls of `InNoGc` |
//!
//! Each dereferences to the one above it, with these exceptions: `InHook` dereferences to [`Info`], `InSlowHook` to
//! [`InNoGc`], `InAttach` and `ProfilerThread` to [`InCallback`]. They cannot outlive their callback and cannot leave
//! its thread:
//!
//! ```compile_fail,E0277
//! # use corprof::prelude::*;
//! fn send(cx: &InNoGc<'_>) {
//!     std::thread::scope(|scope| { scope.spawn(|| cx.current_thread()); }); // a context stays on its thread
//! }
//! ```
//!
//! The `&mut` of a call enforces the third suspension rule: a guard of [`sync::Mutex`](crate::sync::Mutex) borrows the
//! context, so no collection can start while the guard lives.
//!
//! [`Detacher`]: crate::detach::Detacher

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use corprof_sys as sys;

use crate::error::{Error, Result};
use crate::event_mask::EventMask;
#[cfg(doc)]
use crate::hooks::{InHook, InSlowHook};
#[cfg(doc)]
use crate::profiler_thread::ProfilerThread;
use crate::session::{Info, WalkStart};

/// Whether objects may move while a context lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Heap {
    /// A collection may move or free objects at any time, or is doing so.
    Moves,
    /// The thread holds collections up, or the context is inside a collection that has not begun to move objects or has
    /// finished moving them.
    Still,
    /// Like [`Still`](Self::Still) if collections are monitored, which rules out collections that run beside the
    /// application.
    StillIfMonitored,
    /// Like [`Still`](Self::Still), but a collection is marking live objects, by a bit in the first word of each.
    StillAndMarked,
}

/// The caller of the profiler, which decides where a walk of the own stack begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// The runtime, which knows where managed code has called it.
    Callback,
    /// Managed code, through the runtime's wrapper: with the registers there, if the wrapper has saved them.
    SlowHook(Option<WalkStart>),
}

/// The context of a callback from which no collection may start.
///
/// Offers the calls that the contract table marks *sync* and not *triggers*, and all calls of [`Info`].
pub struct InNoGc<'cb> {
    info: &'cb Info,
    heap: Heap,
    place: Place,
    /// The permission belongs to the thread that the runtime called.
    _not_send: PhantomData<*mut ()>,
}

/// The context of a callback from which a collection may start.
///
/// Calls that may start one take `&mut self`: no lock guard ([`sync::Mutex`](crate::sync::Mutex)) and no [`ObjectId`]
/// can be held across them.
///
/// [`ObjectId`]: crate::id::ObjectId
pub struct InCallback<'cb> {
    inner: InNoGc<'cb>,
}

/// The context of `initialize`: only here can immutable event flags be set, and [hooks](InInitialize::hooks) that the
/// runtime calls.
pub struct InInitialize<'cb> {
    inner: InCallback<'cb>,
}

/// The context of `initialize_for_attach`: the profiler was attached to a running application.
///
/// It does not offer what works at start-up only: immutable event flags, and hooks that the runtime calls. The runtime
/// refuses them here. [Hooks](InAttach::hooks) are called by inserted code.
pub struct InAttach<'cb> {
    inner: InCallback<'cb>,
}

static_assertions::assert_not_impl_any!(InNoGc<'static>: Send, Sync, Clone);
static_assertions::assert_not_impl_any!(InCallback<'static>: Send, Sync, Clone);
static_assertions::assert_not_impl_any!(InInitialize<'static>: Send, Sync, Clone);
static_assertions::assert_not_impl_any!(InAttach<'static>: Send, Sync, Clone);

impl<'cb> InNoGc<'cb> {
    /// The context of a place in which `heap` is true of the heap.
    ///
    /// # Safety
    /// Until the context is dropped, the calling thread is in a place where the runtime answers sync calls that start
    /// no collection: inside a callback, or on a thread without managed code. If `heap` is not [`Heap::Moves`], no
    /// collection moves or frees objects meanwhile, as long as no call lets one in.
    #[inline]
    pub(crate) unsafe fn new(info: &'cb Info, heap: Heap) -> Self {
        Self { info, heap, place: Place::Callback, _not_send: PhantomData }
    }

    /// The same in a slow hook, where walks begin at `start`.
    #[inline]
    pub(crate) fn in_slow_hook(self, start: Option<WalkStart>) -> Self {
        Self { place: Place::SlowHook(start), ..self }
    }

    /// Where a walk of the own stack begins.
    pub(crate) fn place(&self) -> Place {
        self.place
    }

    /// The runtime, for as long as the context may live.
    pub(crate) fn info(&self) -> &'cb Info {
        self.info
    }

    /// An error if objects may move or be freed while this context lives.
    ///
    /// Types cannot check this, unlike other permissions: during the callbacks around a collection objects may move or
    /// not, depending on the events that the profiler monitors.
    pub(crate) fn check_still(&self, call: &'static str) -> Result<()> {
        let is_still = match self.heap {
            Heap::Moves => false,
            Heap::Still | Heap::StillAndMarked => true,
            Heap::StillIfMonitored => self.current_event_mask()?.contains(EventMask::MONITOR_GC),
        };
        if is_still {
            return Ok(());
        }
        Err(Error::new(sys::CORPROF_E_UNSUPPORTED_CALL_SEQUENCE, call).about(
            "objects",
            "a collection may move or free the object here: make the call in a callback with an object argument, or in \
             `garbage_collection_started` or `garbage_collection_finished` with MONITOR_GC on",
        ))
    }

    /// An error if objects are marked: the runtime would take the mark for a part of the object's class.
    pub(crate) fn check_unmarked(&self, call: &'static str) -> Result<()> {
        if self.heap != Heap::StillAndMarked {
            return Ok(());
        }
        Err(Error::new(sys::CORPROF_E_UNSUPPORTED_CALL_SEQUENCE, call).about(
            "marked objects",
            "the collection is marking objects here, and the runtime would misread them: create a handle, and make the call in \
             `garbage_collection_finished`",
        ))
    }
}

impl<'cb> InCallback<'cb> {
    /// The context of a place in which a collection may start.
    ///
    /// # Safety
    /// Until the context is dropped, the calling thread is in a place where the runtime answers all sync calls: inside
    /// a callback for which the contract table says so, or on a thread without managed code.
    #[inline]
    pub(crate) unsafe fn new(info: &'cb Info) -> Self {
        // SAFETY: the caller promises more than is needed.
        Self { inner: unsafe { InNoGc::new(info, Heap::Moves) } }
    }
}

impl<'cb> InInitialize<'cb> {
    /// The context of `initialize`.
    ///
    /// # Safety
    /// Until the context is dropped, the calling thread is inside `Initialize`.
    pub(crate) unsafe fn new(info: &'cb Info) -> Self {
        // SAFETY: `Initialize` is a callback from which the runtime answers all sync calls (fact: contexts).
        Self { inner: unsafe { InCallback::new(info) } }
    }
}

impl<'cb> InAttach<'cb> {
    /// The context of `initialize_for_attach`.
    ///
    /// # Safety
    /// Until the context is dropped, the calling thread is inside `InitializeForAttach`.
    pub(crate) unsafe fn new(info: &'cb Info) -> Self {
        // SAFETY: `InitializeForAttach` is a callback from which the runtime answers all sync calls (fact: contexts).
        Self { inner: unsafe { InCallback::new(info) } }
    }
}

impl InAttach<'_> {
    /// Has corprof report what is there already, by the same callbacks as later things.
    ///
    /// When the attach is complete, corprof calls these methods of the profiler, before
    /// [`profiler_attach_complete`](crate::Callbacks::profiler_attach_complete) and on the same thread:
    /// [`app_domain_creation_finished`](crate::Callbacks::app_domain_creation_finished),
    /// [`assembly_load_finished`](crate::Callbacks::assembly_load_finished),
    /// [`module_load_finished`](crate::Callbacks::module_load_finished),
    /// [`module_attached_to_assembly`](crate::Callbacks::module_attached_to_assembly),
    /// [`thread_created`](crate::Callbacks::thread_created),
    /// [`thread_assigned_to_os_thread`](crate::Callbacks::thread_assigned_to_os_thread) and
    /// [`jit_compilation_finished`](crate::Callbacks::jit_compilation_finished). The application runs on meanwhile and
    /// makes its own events, also about things that the catch-up has not reported yet. Each thing is reported once, by
    /// the catch-up or by its event; a function that is compiled once more is reported once more. An end is reported
    /// after the beginning; only for a thing that ends before the catch-up has reached it, the end alone is reported.
    ///
    /// Some things cannot be caught up with, because the runtime does not list them: classes, dynamic methods,
    /// precompiled code and the names of threads. Callbacks that report the start of something are not repeated.
    ///
    /// `corprof attach` waits for the catch-up, and so does every other tool that asks this runtime something. Methods
    /// that take long should pass their work on to a [profiler thread](crate::profiler_thread).
    pub fn catch_up(&mut self) {
        self.begin_catch_up();
    }
}

impl Deref for InNoGc<'_> {
    type Target = Info;

    #[inline]
    fn deref(&self) -> &Info {
        self.info
    }
}

impl<'cb> Deref for InCallback<'cb> {
    type Target = InNoGc<'cb>;

    #[inline]
    fn deref(&self) -> &InNoGc<'cb> {
        &self.inner
    }
}

impl<'cb> Deref for InInitialize<'cb> {
    type Target = InCallback<'cb>;

    #[inline]
    fn deref(&self) -> &InCallback<'cb> {
        &self.inner
    }
}

impl DerefMut for InInitialize<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.inner
    }
}

impl<'cb> Deref for InAttach<'cb> {
    type Target = InCallback<'cb>;

    #[inline]
    fn deref(&self) -> &InCallback<'cb> {
        &self.inner
    }
}

impl DerefMut for InAttach<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.inner
    }
}

macro_rules! contexts {
    ($($context:ident)*) => { $(
        impl fmt::Debug for $context<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($context), "(ICorProfilerInfo{})"), self.version())
            }
        }
    )* };
}

contexts!(InNoGc InCallback InInitialize InAttach);

/// A context of a callback, for [`sync::Mutex`](crate::sync::Mutex).
///
/// `Info` is none: code with only an `Info` could keep a lock and start a collection through a context beside it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the context of a callback",
    note = "a lock is taken with the callback's own `cx`: then no call that may start a garbage collection compiles while \
            the lock is held (suspension rule 3)",
    note = "a hook is not a callback: keep its data in its thread's state"
)]
pub trait Context: sealed::Sealed {}

impl Context for InNoGc<'_> {}
impl Context for InCallback<'_> {}
impl Context for InInitialize<'_> {}
impl Context for InAttach<'_> {}

pub(crate) mod sealed {
    pub trait Sealed {}
    impl Sealed for super::InNoGc<'_> {}
    impl Sealed for super::InCallback<'_> {}
    impl Sealed for super::InInitialize<'_> {}
    impl Sealed for super::InAttach<'_> {}
}
