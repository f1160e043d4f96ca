//! Bookkeeping around every callback: tracks live identifiers and evicts cached names.
//!
//! It runs before and after the user's method, even if the profiler has no method for the event or is disabled.

use std::ffi::c_void;

use corprof_sys as sys;
use windows_core::{BOOL, HRESULT, Ref};

use crate::context::{Heap, InNoGc};
use crate::event_mask::Event;
use crate::id::{FunctionId, ReJitId, ThreadId};
use crate::info::Info;
use crate::profiler::Profiler;
use crate::sampler;
use crate::session::liveness::Subject;
use crate::session::{CompileSlot, Inlinings, RejitSlot, event_pipe_sessions, searcher, wire};

use super::Adapter;

/// Whether an event changes what is tracked.
#[inline]
pub(super) const fn needs_bookkeeping(event: Event) -> bool {
    let is_about_identifiers = matches!(
        event,
        Event::ModuleLoadFinished
            | Event::ModuleAttachedToAssembly
            | Event::ModuleUnloadStarted
            | Event::ModuleUnloadFinished
            | Event::ClassUnloadStarted
            | Event::ThreadCreated
            | Event::ThreadAssignedToOsThread
            | Event::ThreadDestroyed
            | Event::DynamicMethodJitCompilationStarted
            | Event::DynamicMethodUnloaded
    );
    let is_about_compilations = matches!(
        event,
        Event::JitCompilationStarted
            | Event::JitCompilationFinished
            | Event::RejitCompilationStarted
            | Event::RejitCompilationFinished
            | Event::DynamicMethodJitCompilationFinished
    );
    let is_about_suspensions = matches!(
        event,
        Event::RuntimeSuspendStarted
            | Event::RuntimeSuspendFinished
            | Event::RuntimeSuspendAborted
            | Event::RuntimeResumeStarted
    );
    is_about_identifiers || is_about_compilations || is_about_suspensions || event.is_unwind_point()
}

/// Whether the first argument of an event is a function, which lives as long as the callback lasts.
#[inline]
pub(super) const fn is_about_function(event: Event) -> bool {
    matches!(
        event,
        Event::JitCompilationStarted
            | Event::JitCompilationFinished
            | Event::JitCachedFunctionSearchStarted
            | Event::JitCachedFunctionSearchFinished
            | Event::RejitCompilationStarted
            | Event::RejitCompilationFinished
    )
}

/// Whether the runtime makes the callback while threads are suspended, or in the collection that has suspended them.
#[inline]
pub(super) const fn is_in_suspension(event: Event) -> bool {
    matches!(
        event,
        Event::RuntimeSuspendStarted
            | Event::RuntimeSuspendFinished
            | Event::RuntimeSuspendAborted
            | Event::RuntimeResumeStarted
            | Event::RuntimeThreadSuspended
            | Event::RuntimeThreadResumed
            | Event::GarbageCollectionStarted
            | Event::GarbageCollectionFinished
            | Event::MovedReferences
            | Event::MovedReferences2
            | Event::SurvivingReferences
            | Event::SurvivingReferences2
            | Event::ObjectReferences
            | Event::ObjectsAllocatedByClass
            | Event::RootReferences
            | Event::RootReferences2
            | Event::ConditionalWeakTableElementReferences
            | Event::FinalizeableObjectQueued
    )
}

/// Runs before the user's method. `subject` is the identifier that the event is about.
#[inline]
pub(super) fn before(info: &Info, event: Event, subject: usize) {
    match event {
        Event::ModuleLoadFinished => {
            info.liveness().module_loaded(info.runtime(), subject);
            if let Some(instrumentation) = info.instrumentation() {
                instrumentation.module_loaded(subject);
            }
        }
        Event::ModuleAttachedToAssembly => {
            info.liveness().module_loaded(info.runtime(), subject);
            // SAFETY: the runtime has called `ModuleAttachedToAssembly`, and waits for its result (fact: contexts).
            unsafe { InNoGc::new(info, Heap::Moves) }.note_assembly(subject);
        }
        Event::ModuleUnloadFinished => {
            info.liveness().module_gone(subject);
            info.known_names().evict_all();
            info.for_each_extension(|extension| extension.module_gone(subject));
            if let Some(hooks) = info.compile_slot() {
                hooks.module_gone(subject);
            }
        }
        Event::ClassUnloadStarted => info.liveness().class_going(info.runtime(), subject),
        Event::ThreadCreated => {
            info.liveness().thread_created(subject);
            prepare_hooks(info);
        }
        Event::ThreadAssignedToOsThread => {
            prepare_hooks(info);
            sampler::thread_assigned(info);
        }
        Event::ThreadDestroyed => {
            sampler::thread_ending(subject);
            info.liveness().thread_ending(subject);
            info.thread_names().ended(subject);
            event_pipe_sessions::set_thread_ending(true);
        }
        Event::DynamicMethodJitCompilationStarted => {
            info.liveness().dynamic_method_compiled(subject);
            compilation(info, Inlinings::compilation_begins);
        }
        Event::JitCompilationStarted | Event::RejitCompilationStarted => {
            compilation(info, Inlinings::compilation_begins);
        }
        Event::RuntimeSuspendStarted => info.runtime().searches().suspension_begins(),
        Event::RuntimeSuspendFinished => info.runtime().searches().suspended(),
        event if event.is_unwind_point() => {
            if let Some(hooks) = info.hook_slot() {
                hooks.unwound(event);
            }
        }
        _ => {}
    }
}

/// Runs after the user's method, which is the last that may make calls about something that is being unloaded.
#[inline]
pub(super) fn after(info: &Info, event: Event, subject: usize) {
    match event {
        Event::ModuleLoadFinished => {
            // After the user's method, whose own requests are waited for as well.
            if let Some(instrumentation) = info.instrumentation() {
                let _waits = info.inlinings().waits();
                instrumentation.wait_at_module_load();
            }
        }
        Event::ModuleUnloadStarted => {
            info.liveness().module_going(info.runtime(), subject);
            if let Some(instrumentation) = info.instrumentation() {
                instrumentation.module_gone(subject);
            }
            // Names stay known until the module is gone. Its metadata are released while they are still in memory.
            info.known_names().let_go();
        }
        Event::ClassUnloadStarted => info.liveness().class_gone(subject),
        Event::ThreadCreated => searcher::serve(info),
        Event::ThreadDestroyed => {
            event_pipe_sessions::set_thread_ending(false);
            info.liveness().thread_ended(subject);
        }
        Event::DynamicMethodUnloaded => info.liveness().dynamic_method_unloaded(subject),
        Event::JitCompilationFinished
        | Event::RejitCompilationFinished
        | Event::DynamicMethodJitCompilationFinished => compilation(info, Inlinings::compilation_ends),
        Event::RuntimeSuspendAborted | Event::RuntimeResumeStarted => info.runtime().searches().suspension_ends(),
        _ => {}
    }
}

/// A compilation begins or ends. Other profilers than the main one make no requests, and are told of the same
/// compilations.
#[inline]
fn compilation(info: &Info, tell: fn(&Inlinings)) {
    if !info.profiler().is_notification_only {
        tell(info.inlinings());
    }
}

/// The profiler has answered a question of the runtime's, or has left the answer as it was. `allows`: what corprof
/// itself answers, and the runtime may do what both allow.
///
/// # Safety
/// The runtime calls the thunk on `this`, an [`Adapter`] of this `P`; `answer` is null or room for a truth value.
#[inline]
pub(crate) unsafe fn answered<P: Profiler>(this: *mut c_void, event: Event, allows: bool, answer: *mut BOOL) {
    // SAFETY: the same promise.
    let is_yes = unsafe { answer.as_ref().is_some_and(|it| it.as_bool()) };
    if !is_yes {
        return;
    }
    if !allows {
        // SAFETY: the caller's promise.
        unsafe { wire::answer(answer, false) };
        return;
    }
    if event != Event::JitInlining || P::NOTIFICATION_ONLY {
        return;
    }
    // SAFETY: the caller's promise.
    let adapter: &Adapter<P> = unsafe { Adapter::of(this) };
    let Some(info) = adapter.info.get() else { return };
    if !info.inlinings().may_inline() {
        // SAFETY: the caller's promise.
        unsafe { wire::answer(answer, false) };
    }
}

/// Gives the calling thread its state for hooks. It certainly runs managed code, and it is nearly always the new
/// thread.
fn prepare_hooks(info: &Info) {
    if let Some(hooks) = info.hook_slot() {
        hooks.prepare_thread();
    }
}

/// Records the name of a thread, which may come before the thread. A separate thunk, because it has more arguments than
/// one id.
///
/// # Safety
/// The runtime calls the thunk on `this`, an [`Adapter`] of this `P`; `name` points at `count` units of text, or is
/// null.
pub(crate) unsafe fn thread_name_changed<P: Profiler>(this: *mut c_void, thread: usize, count: u32, name: *const u16) {
    // SAFETY: the same promises; the runtime holds a reference while it calls (fact: profiler-object).
    let (adapter, name): (&Adapter<P>, _) = unsafe { (Adapter::of(this), wire::utf16(count, name)) };
    if let (Some(info), Some(thread)) = (adapter.info.get(), ThreadId::from_raw(thread)) {
        info.thread_names().named(thread, &name);
    }
}

/// The compiler begins to compile a function: the last moment to give it another body.
///
/// # Safety
/// As [`thread_name_changed`].
pub(crate) unsafe fn jit_compilation_started<P: Profiler>(this: *mut c_void, function: usize, _is_safe_to_block: BOOL) {
    // SAFETY: the same promise.
    let adapter: &Adapter<P> = unsafe { Adapter::of(this) };
    with_hooks(adapter, function, |hooks, function| {
        // SAFETY: this is that callback.
        unsafe { hooks.compiling(function) }
    });
}

/// The runtime has found precompiled code of a function, and asks whether it may use it: answers what the hooks say.
///
/// # Safety
/// As [`thread_name_changed`].
pub(crate) unsafe fn jit_cached_function_search_started<P: Profiler>(this: *mut c_void, function: usize) -> bool {
    // SAFETY: the same promise.
    let adapter: &Adapter<P> = unsafe { Adapter::of(this) };
    let answer = with_hooks(adapter, function, |hooks, function| {
        // SAFETY: this is that callback.
        unsafe { hooks.may_use_precompiled(function) }
    });
    answer.unwrap_or(true)
}

/// The runtime has ended its search for precompiled code of a function.
///
/// # Safety
/// As [`thread_name_changed`].
pub(crate) unsafe fn jit_cached_function_search_finished<P: Profiler>(
    this: *mut c_void,
    function: usize,
    result: sys::COR_PRF_JIT_CACHE,
) {
    // SAFETY: the same promise.
    let adapter: &Adapter<P> = unsafe { Adapter::of(this) };
    if result == sys::COR_PRF_CACHED_FUNCTION_FOUND {
        with_hooks(adapter, function, |hooks, function| hooks.uses_precompiled(function));
    }
}

/// The compiler asks whether it may inline a function: answers what the hooks say.
///
/// # Safety
/// As [`thread_name_changed`].
pub(crate) unsafe fn jit_inlining<P: Profiler>(this: *mut c_void, _caller: usize, callee: usize) -> bool {
    // SAFETY: the same promise.
    let adapter: &Adapter<P> = unsafe { Adapter::of(this) };
    let answer = with_hooks(adapter, callee, |hooks, function| {
        // SAFETY: this is that callback.
        unsafe { hooks.may_inline(function) }
    });
    answer.unwrap_or(true)
}

/// Asks or tells the hooks, if there are some, about a function that the current callback is about.
fn with_hooks<P: Profiler, R>(
    adapter: &Adapter<P>,
    function: usize,
    tell: impl FnOnce(&'static dyn CompileSlot, FunctionId) -> R,
) -> Option<R> {
    let info = adapter.info.get()?;
    let hooks = info.compile_slot()?;
    let _subject = Subject::begin(function);
    // The function is alive, as the callback is about it.
    let function = info.function(function)?;
    Some(tell(hooks, function))
}

/// The runtime asks for the new body of a method.
///
/// # Safety
/// As [`thread_name_changed`]; `control` lasts as long as the callback.
pub(crate) unsafe fn get_rejit_parameters<P: Profiler>(
    this: *mut c_void,
    module: usize,
    method: u32,
    control: &Ref<'_, sys::ICorProfilerFunctionControl>,
) {
    // SAFETY: the same promise.
    let adapter: &Adapter<P> = unsafe { Adapter::of(this) };
    // A disabled profiler has no effect any more: the old body is compiled.
    let instrumentation = adapter.info.get().and_then(Info::instrumentation).filter(|_| adapter.state.gate.is_open());
    if let (Some(instrumentation), Some(control)) = (instrumentation, control.as_ref()) {
        // Methods that nobody has asked for come along as callers, unless the profiler makes requests of its own.
        let is_sole = !P::EVENTS.contains(Event::GetRejitParameters);
        instrumentation.parameters(module, method, control, is_sole);
    }
}

/// The compiler begins to compile a function again.
///
/// # Safety
/// As [`thread_name_changed`].
pub(crate) unsafe fn rejit_compilation_started<P: Profiler>(
    this: *mut c_void,
    function: usize,
    rejit: usize,
    _is_safe_to_block: BOOL,
) {
    // SAFETY: the same promise.
    let adapter: &Adapter<P> = unsafe { Adapter::of(this) };
    with_function(adapter, function, |instrumentation, method, function| {
        instrumentation.compiling(method, function, ReJitId(rejit));
    });
}

/// A function has been compiled again, or could not be.
///
/// # Safety
/// As [`thread_name_changed`].
pub(crate) unsafe fn rejit_compilation_finished<P: Profiler>(
    this: *mut c_void,
    function: usize,
    rejit: usize,
    status: HRESULT,
    _is_safe_to_block: BOOL,
) {
    // SAFETY: the same promise.
    let adapter: &Adapter<P> = unsafe { Adapter::of(this) };
    with_function(adapter, function, |instrumentation, method, function| {
        instrumentation.compiled(method, function, ReJitId(rejit), status);
    });
}

/// Tells the instrumentation, if there is one, of the function that the current callback is about, and its method.
fn with_function<P: Profiler>(
    adapter: &Adapter<P>,
    function: usize,
    tell: impl FnOnce(&dyn RejitSlot, (usize, u32), FunctionId),
) {
    let Some(info) = adapter.info.get() else { return };
    let Some(instrumentation) = info.instrumentation() else { return };
    let _subject = Subject::begin(function);
    // The function is alive, as the callback is about it.
    if let Some(function) = info.function(function)
        && let Ok(known) = info.runtime().ask_function(function)
    {
        tell(instrumentation.as_ref(), (known.module.as_raw(), known.token.as_raw()), function);
    }
}

/// A ReJIT request has failed for a method.
///
/// # Safety
/// As [`thread_name_changed`].
pub(crate) unsafe fn rejit_error<P: Profiler>(
    this: *mut c_void,
    module: usize,
    method: u32,
    _function: usize,
    status: HRESULT,
) {
    // SAFETY: the same promise.
    let adapter: &Adapter<P> = unsafe { Adapter::of(this) };
    if let Some(instrumentation) = adapter.info.get().and_then(Info::instrumentation) {
        instrumentation.failed((module, method), status);
    }
}
