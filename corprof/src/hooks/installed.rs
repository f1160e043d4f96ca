//! From a stub to the user's method, and from the runtime's question which functions to hook to the user's answer.
//!
//! The runtime keeps a number for each hooked function: here the address of its [`Record`], with the stubs' tags in its lowest
//! bits. It is all that a hook gets, and enough: the record leads to the hooks. Neither is ever freed, as the runtime does not
//! forget the number even when the function is gone.

use std::any::TypeId;
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use corprof_sys as sys;
use windows_core::BOOL;

use super::stubs::{TAGS, Target, VECTOR_LOCALS};
use super::threads::{State, Threads};
use super::unwind::{Loan, ThreadOf};
use super::values::{Assemblies, Lookup, Plan};
use super::{FunctionHooks, Hook, InHook, signature};
use crate::adapter::gate::{First, Gate, Inside};
use crate::adapter::{apart, catch};
use crate::context::{InInitialize, InTriggers};
use crate::error::{E_NOTIMPL, Error, Result};
use crate::event_mask::Event;
use crate::id::FunctionId;
use crate::info::{Info, StringLayout};
use crate::{report, wire};

/// A profiler's hooks, as long as the process lives.
pub(crate) struct Installed<H: FunctionHooks> {
    /// The profiler's own: closed at Shutdown, or after a panic.
    pub(super) gate: Arc<Gate>,
    info: Info,
    profiler: &'static str,
    pub(super) threads: Threads,
    /// Where strings have their text, for hooks that are told values.
    string_layout: StringLayout,
    assemblies: Assemblies,
    /// Used inside the gate only, and dropped by Shutdown when the gate is closed and nobody is inside.
    user: UnsafeCell<ManuallyDrop<H>>,
    is_dropped: AtomicBool,
}

// SAFETY: `user` is shared as `&H` of a `Sync` type, and dropped once, on a thread that may have it since it is `Send`. All
// other fields are both by themselves.
unsafe impl<H: FunctionHooks> Sync for Installed<H> {}
// SAFETY: as above.
unsafe impl<H: FunctionHooks> Send for Installed<H> {}

/// Keeps a hook inside the gate, with the state of its thread: dropped in this order.
enum Passed<T: 'static> {
    First(#[expect(dead_code, reason = "dropped")] First),
    Rarely(#[expect(dead_code, reason = "dropped")] Loan<T>, #[expect(dead_code, reason = "dropped")] Inside),
}

/// What the runtime's number for a function points to. The alignment leaves room for the tags.
#[repr(align(8))]
pub(super) struct Record<H: FunctionHooks> {
    pub(super) hooks: &'static Installed<H>,
    /// That of the hooks, at hand.
    gate: &'static Gate,
    pub(super) function: FunctionId,
    pub(super) data: H::Function,
    /// What its values are; nothing, unless they are told.
    pub(super) plan: Plan,
}

const _: () = assert!(TAGS < 8, "the tags must fit below the alignment of a record, and of the runtime's own numbers");

/// Hooks of whatever type, for the rest of the SDK.
pub(crate) trait AnyHooks: Send + Sync {
    /// Tells these hooks from others.
    fn key(&self) -> NonZeroUsize;
    /// Makes the calling thread's state, so that its first hook need not.
    fn prepare_thread(&'static self);
    /// Runs `borrower` with the calling thread's state, if there is one and nobody has it; an error if states are not of this
    /// type.
    fn lend_thread(&'static self, of: TypeId, borrower: &mut dyn FnMut(NonNull<()>)) -> Result<()>;
    /// An exception's event, as which the runtime knows how far the stack has been left.
    fn unwound(&'static self, event: Event);
    /// Ends the calling thread's state.
    fn end_thread(&'static self, state: State);
    /// Ends the states of all threads, telling the user unless the profiler is quiet.
    ///
    /// # Safety
    /// The gate is closed and nobody is inside.
    unsafe fn end_all_threads(&self, is_quiet: bool);
    /// Drops the user's hooks, the first time.
    ///
    /// # Safety
    /// As [`end_all_threads`](Self::end_all_threads).
    unsafe fn drop_user(&self);
}

impl<H: FunctionHooks> Installed<H> {
    /// Hooks for the profiler that is being initialized.
    pub(super) fn leak(user: H, cx: &InInitialize<'_>) -> Result<&'static Self> {
        let string_layout = if H::VALUES.is_empty() { StringLayout::default() } else { cx.string_layout()? };
        let info = Info::clone(cx);
        let (gate, profiler) = (info.own_threads().gate().clone(), info.own_threads().profiler());
        Ok(Box::leak(Box::new(Self {
            gate,
            info,
            profiler,
            threads: Threads::default(),
            string_layout,
            assemblies: Assemblies::default(),
            user: UnsafeCell::new(ManuallyDrop::new(user)),
            is_dropped: AtomicBool::new(false),
        })))
    }

    /// The runtime.
    pub(super) fn info(&self) -> &Info {
        &self.info
    }

    /// Where strings have their text.
    pub(super) fn string_layout(&self) -> StringLayout {
        self.string_layout
    }

    /// The user's hooks. Private to code that is inside the gate, or knows that nobody is and nothing has been dropped.
    #[inline]
    pub(super) fn user(&self) -> &H {
        // SAFETY: only `drop_user` writes to the cell, and it runs after all of them.
        unsafe { &*self.user.get() }
    }

    /// After a panic: the first is reported, and no callback and no hook is let in any more.
    #[cold]
    pub(super) fn go_quiet(&self, method: &str) {
        self.info.own_threads().stop();
        if self.gate.quieten() {
            report::line(format_args!(
                "the profiler {} panicked in {method} and is quiet from now on; the application runs on",
                self.profiler
            ));
        }
    }

    /// A panic when there is nothing left to be quiet about.
    #[cold]
    pub(super) fn tell_last_panic(&self, method: &str) {
        report::line(format_args!("the profiler {} panicked in {method}; the application goes on", self.profiler));
    }

    /// Runs one hook: through the gate, to the thread's state, under the guard, into the user's method.
    #[inline(always)]
    pub(super) fn run(client: usize, name: &str, user: impl FnOnce(&'static Record<H>, &mut H::Thread)) {
        if client & VECTOR_LOCALS == 0 {
            // The runtime's own number: .NET Core 3.1 compiles with hooks after Shutdown, and does not ask `map` any more.
            return;
        }
        // SAFETY: the stub passes on the number that the runtime has from `map`, which is the address of a record of this `H`,
        // as stubs and mapper are set together, and its tags. Records are never freed.
        let record: &'static Record<H> = unsafe { &*std::ptr::with_exposed_provenance(client & !TAGS) };
        let hooks = record.hooks;
        let usual =
            record.gate.enter_first().and_then(|first| Some((first.local(hooks.key())?.cast(), Passed::First(first))));
        // What is rare is kept apart, so that the usual case saves no registers for it.
        let Some((thread, _passed)) = usual.or_else(|| apart(|| hooks.pass_rarely())) else { return };
        // SAFETY: the state belongs to this thread, and is not freed while it is inside the gate. Nobody else on this thread
        // uses it now: this is the only hook or callback, or else it was lent to this one; and a thread does not end in a
        // hook.
        let thread: &mut H::Thread = unsafe { &mut *NonNull::as_ptr(thread) };
        // One place for both cases, so that the user's method becomes part of it.
        catch(|| user(record, thread), || hooks.go_quiet(name));
    }

    /// As [`Gate::enter_first`] for a hook that is not the only thing on its thread, or the first on it.
    fn pass_rarely(&'static self) -> Option<(ThreadOf<H>, Passed<H::Thread>)> {
        let inside = self.gate.enter()?;
        let (thread, loan) = self.borrow(&inside)?;
        Some((thread, Passed::Rarely(loan, inside)))
    }

    /// What the runtime asks when it first compiles a function: `FunctionIDMapper2`.
    ///
    /// # Safety
    /// `data` is an `Installed<H>`, and `hook` is null or room for a truth value.
    pub(crate) unsafe extern "system" fn map(function: sys::FunctionID, data: *mut c_void, hook: *mut BOOL) -> usize {
        // SAFETY: the caller's promise; hooks live for ever.
        let hooks: &'static Self = unsafe { &*data.cast() };
        let record = hooks.gate.enter().and_then(|_inside| {
            let function = hooks.info.function(function)?;
            let mut cx = InTriggers::new(&hooks.info);
            let select = || match hooks.user().select(&mut cx, function) {
                Hook::Yes(data) if H::VALUES.is_empty() => {
                    Some((data, signature::tags(&cx, function), Plan::default()))
                }
                Hook::Yes(data) => {
                    let mut lookup = Lookup::new(&mut cx, &hooks.assemblies);
                    // In doubt it is not hooked.
                    let is_fit = lookup.is_called_by_native_code(function) == Ok(false);
                    is_fit.then(|| (data, TAGS, lookup.plan(function)))
                }
                Hook::No => None,
            };
            let (data, tags, plan) = catch(select, || hooks.go_quiet("select"))??;
            let record: *const Record<H> =
                Box::leak(Box::new(Record { hooks, gate: &hooks.gate, function, data, plan }));
            Some(record.expose_provenance() | tags)
        });
        // SAFETY: the caller's promise.
        unsafe { wire::answer(hook, record.is_some()) };
        record.unwrap_or(function)
    }
}

impl<H: FunctionHooks> Record<H> {
    #[inline(always)]
    fn cx(&'static self, stack_pointer: usize) -> InHook<'static> {
        InHook::new(&self.hooks.info, self.function, stack_pointer)
    }
}

impl<H: FunctionHooks> Target for Installed<H> {
    extern "C-unwind" fn enter(client: usize, stack_pointer: usize) {
        Self::run(client, "enter", |record, thread| {
            record.hooks.user().enter(&record.cx(stack_pointer), thread, &record.data);
        });
    }

    extern "C-unwind" fn leave(client: usize, stack_pointer: usize) {
        Self::run(client, "leave", |record, thread| {
            record.hooks.user().leave(&record.cx(stack_pointer), thread, &record.data);
        });
    }

    extern "C-unwind" fn tailcall(client: usize, stack_pointer: usize) {
        Self::run(client, "tailcall", |record, thread| {
            record.hooks.user().tailcall(&record.cx(stack_pointer), thread, &record.data);
        });
    }
}

impl<H: FunctionHooks> AnyHooks for Installed<H> {
    #[inline]
    fn key(&self) -> NonZeroUsize {
        NonNull::from(self).addr()
    }

    fn prepare_thread(&'static self) {
        if let Some(inside) = self.gate.enter() {
            self.thread(&inside);
        }
    }

    fn lend_thread(&'static self, of: TypeId, borrower: &mut dyn FnMut(NonNull<()>)) -> Result<()> {
        if of != TypeId::of::<H::Thread>() {
            let rule = "ask for the type that is `FunctionHooks::Thread` of the hooks that are set";
            return Err(Error::new(E_NOTIMPL, "with_hook_thread").about("a state of another type", rule));
        }
        if let Some(inside) = self.gate.enter() {
            self.lend(&inside, |state| borrower(state.cast()));
        }
        Ok(())
    }

    #[inline]
    fn unwound(&'static self, event: Event) {
        if H::UNWINDS {
            self.tell_unwound(event);
        }
    }

    fn end_thread(&'static self, state: State) {
        self.end_own_thread(state);
    }

    unsafe fn end_all_threads(&self, is_quiet: bool) {
        // SAFETY: the caller's promise.
        unsafe { self.end_threads(is_quiet) }
    }

    unsafe fn drop_user(&self) {
        if !self.is_dropped.swap(true, Ordering::Relaxed) {
            // SAFETY: nobody uses it, by the caller's promise, and the flag makes this the only time.
            let drop = || unsafe { ManuallyDrop::drop(&mut *self.user.get()) };
            catch(drop, || self.tell_last_panic("drop"));
        }
    }
}
