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
use crate::session::{Interests, MethodKey, Observer, ending_threads, searcher, wire};

/// Something to do with the identifier that the event is about.
type Step = fn(&Info, Event, usize);

/// What there is to do in a callback.
#[derive(Clone, Copy)]
struct Steps {
    before: Option<Step>,
    /// After the user's method, which is the last that may make calls about something that is being unloaded.
    after: Option<Step>,
}

impl Steps {
    #[inline]
    const fn of(event: Event) -> Self {
        match event {
            Event::AssemblyUnloadStarted => Self::after(|info, _, assembly| info.liveness().assembly_going(assembly)),
            Event::ModuleLoadFinished => Self::both(module_load_begins, module_load_ends),
            Event::ModuleAttachedToAssembly => Self::before(module_attached),
            Event::ModuleUnloadStarted => Self::after(module_going),
            Event::ModuleUnloadFinished => Self::before(module_gone),
            Event::ClassUnloadStarted => Self::both(
                |info, _, class| info.liveness().class_going(info.runtime(), class),
                |info, _, class| info.liveness().class_gone(class),
            ),
            Event::ThreadCreated => Self::both(thread_created, |info, _, _| searcher::serve(info)),
            Event::ThreadAssignedToOsThread => Self::before(thread_assigned),
            Event::ThreadDestroyed => Self::both(thread_ending, thread_ended),
            Event::DynamicMethodJitCompilationStarted => Self::before(dynamic_method_compiled),
            Event::DynamicMethodUnloaded => {
                Self::after(|info, _, function| info.liveness().dynamic_method_unloaded(function))
            }
            Event::JitCompilationStarted => Self::both(callback_of_compilation_begins, callback_of_compilation_ends),
            Event::JitCompilationFinished => Self::after(function_compiled),
            Event::RejitCompilationStarted => Self::before(compilation_begins),
            Event::RejitCompilationFinished | Event::DynamicMethodJitCompilationFinished => {
                Self::after(compilation_ends)
            }
            Event::RuntimeSuspendStarted => Self::before(|info, _, _| info.runtime().searches().suspension_begins()),
            Event::RuntimeSuspendFinished => Self::before(|info, _, _| info.runtime().searches().suspended()),
            Event::RuntimeSuspendAborted | Event::RuntimeResumeStarted => {
                Self::after(|info, _, _| info.runtime().searches().suspension_ends())
            }
            event if event.is_unwind_point() => Self::before(unwound),
            _ => Self { before: None, after: None },
        }
    }

    const fn before(step: Step) -> Self {
        Self { before: Some(step), after: None }
    }

    const fn after(step: Step) -> Self {
        Self { before: None, after: Some(step) }
    }

    const fn both(before: Step, after: Step) -> Self {
        Self { before: Some(before), after: Some(after) }
    }
}

/// Whether an event changes what is tracked.
#[inline]
pub(super) const fn needs_bookkeeping(event: Event) -> bool {
    let Steps { before, after } = Steps::of(event);
    before.is_some() || after.is_some()
}

/// Runs before the user's method. `subject` is the identifier that the event is about.
#[inline]
pub(super) fn before(info: &Info, event: Event, subject: usize) {
    if let Some(step) = Steps::of(event).before {
        step(info, event, subject);
    }
}

/// Runs after the user's method.
#[inline]
pub(super) fn after(info: &Info, event: Event, subject: usize) {
    if let Some(step) = Steps::of(event).after {
        step(info, event, subject);
    }
}

fn module_load_begins(info: &Info, _: Event, module: usize) {
    info.startup().module_loaded(module);
    info.compilations().module_load_begins(module);
    info.liveness().module_loaded(info.runtime(), module);
    info.observers(Interests::MODULES).for_each(|observer| observer.module_loaded(module));
}

fn module_load_ends(info: &Info, _: Event, module: usize) {
    // After the user's method, whose own requests are waited for as well.
    info.observers(Interests::MODULES).for_each(|observer| observer.module_load_ends(info));
    info.compilations().module_load_ends(module);
}

fn module_attached(info: &Info, _: Event, module: usize) {
    info.liveness().module_loaded(info.runtime(), module);
    // SAFETY: the runtime has called `ModuleAttachedToAssembly`, and waits for its result (fact: contexts).
    unsafe { InNoGc::new(info, Heap::Moves) }.note_assembly(module);
}

fn module_going(info: &Info, _: Event, module: usize) {
    info.liveness().module_going(info.runtime(), module);
    info.observers(Interests::MODULES).for_each(|observer| observer.module_unloading(module));
    // Names stay known until the module is gone. Its metadata are released while they are still in memory.
    info.known_names().let_go();
}

fn module_gone(info: &Info, _: Event, module: usize) {
    info.liveness().module_gone(module);
    info.compilations().module_gone(module);
    info.known_names().evict_all();
    info.observers(Interests::MODULES).for_each(|observer| observer.module_gone(module));
}

fn thread_created(info: &Info, _: Event, thread: usize) {
    info.liveness().thread_created(thread);
    info.observers(Interests::THREADS).for_each(Observer::thread_began);
}

fn thread_assigned(info: &Info, _: Event, _: usize) {
    info.observers(Interests::THREADS).for_each(Observer::thread_began);
    sampler::thread_assigned(info);
}

fn thread_ending(info: &Info, _: Event, thread: usize) {
    sampler::thread_ending(thread);
    info.liveness().thread_ending(thread);
    info.thread_names().ended(thread);
    ending_threads::set_in_thread_destroyed(true);
}

fn thread_ended(info: &Info, _: Event, thread: usize) {
    ending_threads::set_in_thread_destroyed(false);
    info.liveness().thread_ended(thread);
}

fn dynamic_method_compiled(info: &Info, event: Event, function: usize) {
    info.liveness().dynamic_method_compiled(function);
    compilation_begins(info, event, function);
}

fn callback_of_compilation_begins(info: &Info, event: Event, function: usize) {
    compilation_begins(info, event, function);
    if let Some(function) = compiled_function(info, function) {
        info.compilations().callback_begins(function, || method_of(info, function));
    }
}

fn callback_of_compilation_ends(info: &Info, _: Event, function: usize) {
    if let Some(function) = compiled_function(info, function) {
        info.compilations().callback_ends(function, || method_of(info, function));
    }
}

fn function_compiled(info: &Info, event: Event, function: usize) {
    if let Some(function) = compiled_function(info, function) {
        info.compilations().compilation_ends(function);
    }
    compilation_ends(info, event, function);
}

fn compilation_begins(info: &Info, _: Event, _: usize) {
    if makes_requests(info) {
        info.inlinings().compilation_begins();
    }
}

fn compilation_ends(info: &Info, _: Event, _: usize) {
    if makes_requests(info) {
        info.inlinings().compilation_ends();
    }
}

/// Other profilers than the main one make no requests, and are told of the same compilations.
fn makes_requests(info: &Info) -> bool {
    !info.profiler().is_notification_only
}

fn unwound(info: &Info, event: Event, _: usize) {
    info.observers(Interests::UNWINDING).for_each(|observer| observer.unwound(event));
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
    !makes_requests(info) || info.inlinings().may_inline()
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
    if makes_requests(info) { FunctionId::from_raw(function) } else { None }
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
