//! Bookkeeping around every callback: tracks live identifiers and evicts cached names.
//!
//! It runs before and after the user's method, even if the profiler has no method for the event or is disabled.

use corprof_sys as sys;
use windows_core::{BOOL, HRESULT, Ref};

use crate::context::{Heap, InNoGc};
use crate::event_mask::Event;
use crate::id::{FunctionId, ReJitId, ThreadId};
use crate::info::Info;
use crate::sampler;
use crate::session::liveness::Subject;
use crate::session::{Inlinings, Interests, MethodKey, Observer, ending_threads, searcher, wire};

/// Whether an event changes what is tracked.
#[inline]
pub(super) const fn needs_bookkeeping(event: Event) -> bool {
    let is_about_identifiers = matches!(
        event,
        Event::AssemblyUnloadStarted
            | Event::ModuleLoadFinished
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
            info.startup().module_loaded(subject);
            info.compilations().module_load_begins(subject);
            info.liveness().module_loaded(info.runtime(), subject);
            info.observers(Interests::MODULES).for_each(|observer| observer.module_loaded(subject));
        }
        Event::ModuleAttachedToAssembly => {
            info.liveness().module_loaded(info.runtime(), subject);
            // SAFETY: the runtime has called `ModuleAttachedToAssembly`, and waits for its result (fact: contexts).
            unsafe { InNoGc::new(info, Heap::Moves) }.note_assembly(subject);
        }
        Event::ModuleUnloadFinished => {
            info.liveness().module_gone(subject);
            info.compilations().module_gone(subject);
            info.known_names().evict_all();
            info.observers(Interests::MODULES).for_each(|observer| observer.module_gone(subject));
        }
        Event::ClassUnloadStarted => info.liveness().class_going(info.runtime(), subject),
        Event::ThreadCreated => {
            info.liveness().thread_created(subject);
            info.observers(Interests::THREADS).for_each(Observer::thread_began);
        }
        Event::ThreadAssignedToOsThread => {
            info.observers(Interests::THREADS).for_each(Observer::thread_began);
            sampler::thread_assigned(info);
        }
        Event::ThreadDestroyed => {
            sampler::thread_ending(subject);
            info.liveness().thread_ending(subject);
            info.thread_names().ended(subject);
            ending_threads::set_in_thread_destroyed(true);
        }
        Event::DynamicMethodJitCompilationStarted => {
            info.liveness().dynamic_method_compiled(subject);
            compilation(info, Inlinings::compilation_begins);
        }
        Event::JitCompilationStarted => {
            compilation(info, Inlinings::compilation_begins);
            if let Some(function) = compiled_function(info, subject) {
                info.compilations().callback_begins(function, || method_of(info, function));
            }
        }
        Event::RejitCompilationStarted => compilation(info, Inlinings::compilation_begins),
        Event::RuntimeSuspendStarted => info.runtime().searches().suspension_begins(),
        Event::RuntimeSuspendFinished => info.runtime().searches().suspended(),
        event if event.is_unwind_point() => {
            info.observers(Interests::UNWINDING).for_each(|observer| observer.unwound(event));
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
            info.observers(Interests::MODULES).for_each(|observer| observer.module_load_ends(info));
            info.compilations().module_load_ends(subject);
        }
        Event::AssemblyUnloadStarted => info.liveness().assembly_going(subject),
        Event::ModuleUnloadStarted => {
            info.liveness().module_going(info.runtime(), subject);
            info.observers(Interests::MODULES).for_each(|observer| observer.module_unloading(subject));
            // Names stay known until the module is gone. Its metadata are released while they are still in memory.
            info.known_names().let_go();
        }
        Event::ClassUnloadStarted => info.liveness().class_gone(subject),
        Event::ThreadCreated => searcher::serve(info),
        Event::ThreadDestroyed => {
            ending_threads::set_in_thread_destroyed(false);
            info.liveness().thread_ended(subject);
        }
        Event::DynamicMethodUnloaded => info.liveness().dynamic_method_unloaded(subject),
        Event::JitCompilationStarted => {
            if let Some(function) = compiled_function(info, subject) {
                info.compilations().callback_ends(function, || method_of(info, function));
            }
        }
        Event::JitCompilationFinished => {
            if let Some(function) = compiled_function(info, subject) {
                info.compilations().compilation_ends(function);
            }
            compilation(info, Inlinings::compilation_ends);
        }
        Event::RejitCompilationFinished | Event::DynamicMethodJitCompilationFinished => {
            compilation(info, Inlinings::compilation_ends);
        }
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
/// `answer` is null or room for a truth value.
#[inline]
pub(crate) unsafe fn answered(info: Option<&Info>, event: Event, allows: bool, answer: *mut BOOL) {
    // SAFETY: the same promise.
    let is_yes = unsafe { answer.as_ref().is_some_and(|it| it.as_bool()) };
    if !is_yes {
        return;
    }
    let is_refused = !allows || event == Event::JitInlining && !info.is_none_or(may_inline_anything);
    if is_refused {
        // SAFETY: the caller's promise.
        unsafe { wire::answer(answer, false) };
    }
}

/// Whether the current compilation may inline a function, as far as requests to recompile are concerned.
fn may_inline_anything(info: &Info) -> bool {
    info.profiler().is_notification_only || info.inlinings().may_inline()
}

/// Records the name of a thread, which may come before the thread. A separate thunk, because it has more arguments than
/// one id.
///
/// # Safety
/// `name` points at `count` units of text, or is null.
pub(crate) unsafe fn thread_name_changed(info: &Info, thread: usize, count: u32, name: *const u16) {
    // SAFETY: the same promise.
    let name = unsafe { wire::utf16(count, name) };
    if let Some(thread) = ThreadId::from_raw(thread) {
        info.thread_names().named(thread, &name);
    }
}

/// The compiler begins to compile a function.
///
/// # Safety
/// The calling thread is inside this callback of the runtime.
#[inline]
pub(crate) unsafe fn jit_compilation_started(info: &Info, function: usize, _is_safe_to_block: BOOL) {
    let group = Interests::COMPILATIONS;
    let Some((function, _subject)) = observed_function(info, group, function) else { return };
    for observer in info.observers(group) {
        // SAFETY: the same promise.
        unsafe { observer.compilation_started(function) };
    }
}

/// The runtime has found precompiled code of a function, and asks whether it may use it.
///
/// # Safety
/// The calling thread is inside this callback of the runtime.
#[inline]
pub(crate) unsafe fn jit_cached_function_search_started(info: &Info, function: usize) -> bool {
    let group = Interests::COMPILATIONS;
    let Some((function, _subject)) = observed_function(info, group, function) else { return true };
    // SAFETY: the same promise.
    info.observers(group).all(|observer| unsafe { observer.may_use_precompiled(function) })
}

/// The runtime has ended its search for precompiled code of a function.
///
/// # Safety
/// The calling thread is inside this callback of the runtime.
#[inline]
pub(crate) unsafe fn jit_cached_function_search_finished(info: &Info, function: usize, result: sys::COR_PRF_JIT_CACHE) {
    if result != sys::COR_PRF_CACHED_FUNCTION_FOUND {
        return;
    }
    let group = Interests::COMPILATIONS;
    let Some((function, _subject)) = observed_function(info, group, function) else { return };
    info.observers(group).for_each(|observer| observer.precompiled_code_found(function));
}

/// The compiler asks whether it may inline a function.
///
/// # Safety
/// The calling thread is inside this callback of the runtime.
#[inline]
pub(crate) unsafe fn jit_inlining(info: &Info, caller: usize, callee: usize) -> bool {
    let group = Interests::COMPILATIONS;
    let Some((function, _subject)) = observed_function(info, group, callee) else { return true };
    // SAFETY: the same promise.
    info.observers(group).all(|observer| unsafe { observer.may_inline(info, caller, function) })
}

/// The function that the current callback is about, which keeps it alive, if anybody observes the group.
#[inline]
fn observed_function(info: &Info, group: Interests, function: usize) -> Option<(FunctionId, Subject)> {
    if !info.is_observed(group) {
        return None;
    }
    let subject = Subject::begin(function);
    Some((info.function(function)?, subject))
}

/// The runtime asks for the new body of a method.
///
/// # Safety
/// The calling thread is inside this callback of the runtime.
pub(crate) unsafe fn get_rejit_parameters(
    info: &Info,
    module: usize,
    method: u32,
    control: &Ref<'_, sys::ICorProfilerFunctionControl>,
) {
    let profiler = info.profiler();
    // A disabled profiler has no effect any more: the old body is compiled.
    if !profiler.gate.is_open() {
        return;
    }
    let Some(control) = control.as_ref() else { return };
    // Methods that nobody has asked for come along as callers, unless the profiler makes requests of its own.
    let is_sole = !profiler.events.contains(Event::GetRejitParameters);
    for observer in info.observers(Interests::REJITS) {
        observer.rejit_parameters((module, method), control, is_sole);
    }
}

/// The compiler begins to compile a function again.
///
/// # Safety
/// The calling thread is inside this callback of the runtime.
pub(crate) unsafe fn rejit_compilation_started(info: &Info, function: usize, rejit: usize, _is_safe_to_block: BOOL) {
    let group = Interests::REJITS;
    let Some((function, _subject)) = observed_function(info, group, function) else { return };
    let Some(method) = method_of(info, function) else { return };
    info.observers(group).for_each(|observer| observer.rejit_started(method, function, ReJitId(rejit)));
}

/// A function has been compiled again, or could not be.
///
/// # Safety
/// The calling thread is inside this callback of the runtime.
pub(crate) unsafe fn rejit_compilation_finished(
    info: &Info,
    function: usize,
    rejit: usize,
    status: HRESULT,
    _is_safe_to_block: BOOL,
) {
    let group = Interests::REJITS;
    let Some((function, _subject)) = observed_function(info, group, function) else { return };
    let Some(method) = method_of(info, function) else { return };
    info.observers(group).for_each(|observer| observer.rejit_finished(method, function, ReJitId(rejit), status));
}

/// The function that is compiled, for a profiler that may replace its body.
#[inline]
fn compiled_function(info: &Info, function: usize) -> Option<FunctionId> {
    if info.profiler().is_notification_only { None } else { FunctionId::from_raw(function) }
}

/// The method of a function that is alive.
fn method_of(info: &Info, function: FunctionId) -> Option<MethodKey> {
    let known = info.runtime().ask_function(function).ok()?;
    Some((known.module.as_raw(), known.token.as_raw()))
}

/// A ReJIT request has failed for a method.
///
/// # Safety
/// The calling thread is inside this callback of the runtime.
pub(crate) unsafe fn rejit_error(info: &Info, module: usize, method: u32, _function: usize, status: HRESULT) {
    for observer in info.observers(Interests::REJITS) {
        observer.rejit_failed((module, method), status);
    }
}
