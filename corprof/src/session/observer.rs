//! [`Observer`]: how a feature hears of callbacks. The session stores the observers (`extensions.rs`) and knows none of
//! them; the adapter calls them around the user's method.

use std::any::Any;

use corprof_sys as sys;
use windows_core::HRESULT;

use super::Info;
use crate::event_mask::{Event, EventMask};
use crate::id::{FunctionId, ReJitId};

bitflags::bitflags! {
    /// Groups of callbacks. A callback of a group that nobody observes costs one load.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(crate) struct Interests: u32 {
        /// Modules are loaded and unloaded.
        const MODULES = 1 << 0;
        /// Threads begin to run managed code.
        const THREADS = 1 << 1;
        /// Functions are compiled or inlined, or have precompiled code.
        const COMPILATIONS = 1 << 2;
        /// Methods are compiled again at a profiler's request.
        const REJITS = 1 << 3;
        /// Exceptions unwind stacks.
        const UNWINDING = 1 << 4;
        /// EventPipe delivers events.
        const EVENTS = 1 << 5;
    }
}

/// A method: its module and its token.
pub(crate) type MethodKey = (usize, u32);

/// An event that the runtime delivers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeliveredEvent<'a> {
    /// The identifier of its provider.
    pub(crate) provider: usize,
    pub(crate) id: u32,
    pub(crate) version: u32,
    /// The values of its fields.
    pub(crate) data: &'a [u8],
}

/// A feature that hears of callbacks. What it keeps in the session is its own fields.
///
/// Observers are called in the order in which they were registered, without a lock of the session, and whether the
/// profiler is disabled or not. A method is called only if [`interests`](Self::interests) has its group; those without
/// a group are called always.
pub(crate) trait Observer: Any + Send + Sync {
    /// What it observes; always the same.
    fn interests(&self) -> Interests {
        Interests::empty()
    }

    // Group `MODULES`.

    /// A module was loaded: before the user's method.
    fn module_loaded(&self, _module: usize) {}

    /// The callback about a loaded module is about to return: after the user's method.
    fn module_load_ends(&self, _info: &Info) {}

    /// A module is being unloaded: after the user's method.
    fn module_unloading(&self, _module: usize) {}

    /// A module has gone: the next one with this id is another module.
    fn module_gone(&self, _module: usize) {}

    // Group `THREADS`.

    /// The calling thread runs managed code, and it is nearly always new.
    fn thread_began(&self) {}

    // Group `COMPILATIONS`.

    /// A function is about to be compiled: the last moment to give it another body.
    ///
    /// # Safety
    /// The calling thread is inside `jit_compilation_started` of this function.
    unsafe fn compilation_started(&self, _function: FunctionId) {}

    /// Whether the compiler may inline a function, which needs the consent of all observers.
    ///
    /// # Safety
    /// The calling thread is inside `jit_inlining` with this function as the callee.
    unsafe fn may_inline(&self, _info: &Info, _caller: usize, _function: FunctionId) -> bool {
        true
    }

    /// Whether the runtime may use precompiled code of a function, which needs the consent of all observers.
    ///
    /// # Safety
    /// The calling thread is inside `jit_cached_function_search_started` of this function.
    unsafe fn may_use_precompiled(&self, _function: FunctionId) -> bool {
        true
    }

    /// The runtime uses precompiled code of a function.
    fn precompiled_code_found(&self, _function: FunctionId) {}

    // Group `REJITS`.

    /// The runtime asks for the body of a method. `is_sole`: the profiler makes no requests by itself.
    fn rejit_parameters(&self, _method: MethodKey, _control: &sys::ICorProfilerFunctionControl, _is_sole: bool) {}

    /// A function of the method is about to be compiled from a requested body.
    fn rejit_started(&self, _method: MethodKey, _function: FunctionId, _rejit: ReJitId) {}

    /// A function of the method was compiled from a requested body, or could not be.
    fn rejit_finished(&self, _method: MethodKey, _function: FunctionId, _rejit: ReJitId, _status: HRESULT) {}

    /// The request for a method has failed.
    fn rejit_failed(&self, _method: MethodKey, _status: HRESULT) {}

    // Group `UNWINDING`.

    /// An exception event, which shows how far the stack has been unwound.
    fn unwound(&self, _event: Event) {}

    // Group `EVENTS`.

    /// Whether it keeps the event: then neither later observers nor the profiler see it.
    fn keeps_event(&self, _info: &Info, _event: DeliveredEvent<'_>) -> bool {
        false
    }

    // Without a group.

    /// The session is about to set this event mask.
    fn event_mask_changes(&self, _info: &Info, _mask: EventMask) {}

    /// What keeps the runtime from detaching the profiler, and the rule.
    fn detach_obstacle(&self) -> Option<(&'static str, &'static str)> {
        None
    }

    /// The profiler ends: before its last method is called.
    ///
    /// # Safety
    /// The gate is closed and no thread is inside.
    unsafe fn profiler_ending(&self, _is_disabled: bool) {}

    /// The profiler ends: after its last method, and perhaps once more.
    ///
    /// # Safety
    /// As [`profiler_ending`](Self::profiler_ending).
    unsafe fn profiler_ended(&self) {}
}
