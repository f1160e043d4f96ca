//! Bookkeeping around every callback: tracks live identifiers and evicts cached names.
//!
//! It runs before and after the user's method, even if the profiler has no method for the event or is disabled.

use std::ffi::c_void;

use crate::event_mask::Event;
use crate::id::ThreadId;
use crate::info::Info;
use crate::profiler::Profiler;
use crate::session::wire;
use crate::walk;

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
    is_about_identifiers || event.is_unwind_point()
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

/// Runs before the user's method. `subject` is the identifier that the event is about.
#[inline]
pub(super) fn before(info: &Info, event: Event, subject: usize) {
    match event {
        Event::ModuleLoadFinished | Event::ModuleAttachedToAssembly => {
            info.liveness().module_loaded(info.runtime(), subject)
        }
        Event::ModuleUnloadFinished => {
            info.liveness().module_gone(subject);
            info.known_names().evict_all();
            info.original_bodies().module_gone(subject);
            info.defined_rows().module_gone(subject);
        }
        Event::ClassUnloadStarted => info.liveness().class_going(info.runtime(), subject),
        Event::ThreadCreated => {
            info.liveness().thread_created(subject);
            prepare_hooks(info);
        }
        Event::ThreadAssignedToOsThread => {
            prepare_hooks(info);
            walk::thread_assigned(info);
        }
        Event::ThreadDestroyed => {
            walk::thread_ending(subject);
            info.liveness().thread_ending(subject);
            info.thread_names().ended(subject);
        }
        Event::DynamicMethodJitCompilationStarted => info.liveness().dynamic_method_compiled(subject),
        event if event.is_unwind_point() => {
            if let Some(hooks) = info.hooks() {
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
        Event::ModuleUnloadStarted => {
            info.liveness().module_going(info.runtime(), subject);
            // Names stay known until the module is gone. Its metadata are released while they are still in memory.
            info.known_names().let_go();
        }
        Event::ClassUnloadStarted => info.liveness().class_gone(subject),
        Event::ThreadDestroyed => info.liveness().thread_ended(subject),
        Event::DynamicMethodUnloaded => info.liveness().dynamic_method_unloaded(subject),
        _ => {}
    }
}

/// Gives the calling thread its state for hooks. It certainly runs managed code, and it is nearly always the new thread.
fn prepare_hooks(info: &Info) {
    if let Some(hooks) = info.hooks() {
        hooks.prepare_thread();
    }
}

/// Records the name of a thread, which may come before the thread. A separate thunk, because it has more arguments than one id.
///
/// # Safety
/// The runtime calls the thunk on `this`, an [`Adapter`] of this `P`; `name` points at `count` units of text, or is null.
pub(crate) unsafe fn thread_name_changed<P: Profiler>(this: *mut c_void, thread: usize, count: u32, name: *const u16) {
    // SAFETY: the same promises; the runtime holds a reference while it calls.
    let (adapter, name): (&Adapter<P>, _) = unsafe { (Adapter::of(this), wire::utf16(count, name)) };
    if let (Some(info), Some(thread)) = (adapter.info.get(), ThreadId::from_raw(thread)) {
        info.thread_names().named(thread, &name);
    }
}
