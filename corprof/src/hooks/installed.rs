//! From a stub to the user's method, and from the runtime's question which functions to hook to the user's answer.
//!
//! The runtime keeps a number for each hooked function: here the address of its [`Record`], with the stubs' tags in its lowest
//! bits. It is all that a hook gets, and enough: the record leads to the hooks. Neither is ever freed, as the runtime does not
//! forget the number even when the function is gone.

use std::any::{Any, TypeId};
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use corprof_sys as sys;
use windows_core::BOOL;

use super::either::EitherHooks;
use super::stubs::{OURS, TAGS, Target};
use super::threads::{CallThreadState, State, Threads};
use super::values::{Assemblies, Lookup, Plan};
use super::{Hook, InHook, clock, fitness, signature};
use crate::context::{InInitialize, InTriggers};
use crate::error::{E_NOTIMPL, Error, Result};
use crate::event_mask::Event;
use crate::id::FunctionId;
use crate::info::{Info, StringLayout};
use crate::session::HookSlot;
use crate::session::gate::Gate;
use crate::session::panics::{PanicPlace, ProfilerState, catch, discard};
use crate::session::slot::{First, Tag};
use crate::session::wire;

/// A profiler's hooks, as long as the process lives.
pub(crate) struct Installed<H: EitherHooks> {
    /// What threads keep their states under, at the gate.
    pub(super) tag: Tag,
    info: Info,
    /// Its gate is closed at Shutdown, or after a panic.
    profiler: Arc<ProfilerState>,
    pub(super) threads: Threads,
    /// Where strings have their text, for hooks that are told values.
    string_layout: StringLayout,
    assemblies: Assemblies,
    slow_path: fitness::SlowPath,
    /// Used inside the gate only, and dropped by Shutdown when the gate is closed and nobody is inside.
    user: UnsafeCell<ManuallyDrop<H>>,
    is_dropped: AtomicBool,
}

// SAFETY: `user` is shared as `&H` of a `Sync` type, and dropped once, on a thread that may have it since it is `Send`. All
// other fields are both by themselves.
unsafe impl<H: EitherHooks> Sync for Installed<H> {}
// SAFETY: as above.
unsafe impl<H: EitherHooks> Send for Installed<H> {}

/// What the runtime's number for a function points to. The alignment leaves room for the tags. First comes what every hook
/// needs.
#[repr(C, align(8))]
pub(super) struct Record<H: EitherHooks> {
    /// That of the hooks, at hand.
    gate: &'static Gate,
    /// Theirs as well.
    tag: Tag,
    pub(super) hooks: &'static Installed<H>,
    pub(super) function: FunctionId,
    pub(super) data: H::Function,
    /// What its values are; nothing, unless they are told.
    pub(super) plan: Plan,
}

const _: () = assert!(TAGS < 8, "the tags must fit below the alignment of a record, and of the runtime's own numbers");

/// Hooks of whatever type, for the threads that have states of theirs.
pub(super) trait AnyHooks: Send + Sync {
    /// Tells these hooks from others.
    fn key(&self) -> NonZeroUsize;
    /// Ends the calling thread's state.
    fn end_thread(&'static self, state: State);
}

impl<H: EitherHooks> Installed<H> {
    /// Hooks for the profiler that is being initialized.
    pub(super) fn leak(user: H, cx: &InInitialize<'_>) -> Result<&'static Self> {
        let string_layout = if H::VALUES.is_empty() { StringLayout::default() } else { cx.string_layout()? };
        let info = Info::clone(cx);
        let profiler = Arc::clone(info.profiler());
        Ok(Box::leak(Box::new(Self {
            tag: if H::TIMED && clock::is_slow() { Tag::NONE } else { Tag::new() },
            info,
            profiler,
            threads: Threads::default(),
            string_layout,
            assemblies: Assemblies::default(),
            slow_path: fitness::SlowPath::default(),
            user: UnsafeCell::new(ManuallyDrop::new(user)),
            is_dropped: AtomicBool::new(false),
        })))
    }

    /// What hooks pass.
    #[inline]
    pub(super) fn gate(&self) -> &Gate {
        &self.profiler.gate
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

    /// After a panic.
    #[cold]
    pub(super) fn disable_after_panic(&self, method: &str) {
        self.profiler.disable_after_panic(PanicPlace::Method(method));
    }

    /// A panic when there is nothing left to disable.
    #[cold]
    pub(super) fn report_last_panic(&self, method: &str) {
        self.profiler.report_last_panic(method);
    }

    /// Runs one hook: through the gate, to the thread's state, under the guard, into the user's method. That gets the moment of
    /// the beginning as well, if it is wanted.
    ///
    /// # Safety
    /// `client` is the runtime's number for a function from [`map`](Self::map), with [`OURS`] in it.
    #[inline(always)]
    pub(super) unsafe fn run(
        client: usize,
        name: &'static str,
        user: impl FnOnce(&'static Record<H>, &mut H::Thread, Option<u64>),
    ) {
        // SAFETY: the number is the address of a record of this `H`, as stubs and mapper are set together, and its tags. Records
        // are never freed.
        let record: &'static Record<H> = unsafe { &*std::ptr::with_exposed_provenance(client & !TAGS) };
        let Some(first) = record.gate.enter_first(record.tag) else {
            return Self::run_nested(record, name, user);
        };
        // SAFETY: the state belongs to this thread, and is not freed while it is inside the gate. Nobody else on this thread
        // uses it now: this is the only hook or callback; and a thread does not end in a hook.
        let thread: &mut H::Thread = unsafe { &mut *first.local().cast().as_ptr() };
        let begun = if H::TIMED { clock::counter() } else { None };
        // As `catch` does, but for what is at hand: nothing of it is used after a panic, so that no registers are saved for it.
        match catch_unwind(AssertUnwindSafe(|| user(record, thread, begun))) {
            Ok(()) => first.leave(),
            Err(payload) => Self::end_after_panic(payload, name),
        }
    }

    /// The end of a hook that came by [`Gate::enter_first`] and has panicked.
    #[cold]
    #[inline(never)]
    fn end_after_panic(payload: Box<dyn Any + Send>, name: &'static str) {
        // SAFETY: what a thread keeps while it is in a hook that came by `enter_first`, is the state of these hooks on it.
        let hooks = |state: NonNull<()>| unsafe { state.cast::<CallThreadState<H>>().as_ref() }.hooks;
        let Some(first) = First::again(|state| hooks(state).tag) else { unreachable!("the hook is under way") };
        // What the panic carried may do anything when it is dropped: first things first.
        hooks(first.local()).disable_after_panic(name);
        discard(payload);
        first.leave();
    }

    /// As [`run`](Self::run) for a hook that is not the only thing on its thread, or the first on it.
    #[cold]
    #[inline(never)]
    fn run_nested(
        record: &'static Record<H>,
        name: &'static str,
        user: impl FnOnce(&'static Record<H>, &mut H::Thread, Option<u64>),
    ) {
        let Some(inside) = record.gate.enter() else { return };
        let Some((thread, _loan)) = record.hooks.borrow(&inside) else { return };
        // SAFETY: as in `run`; it was lent to this hook.
        let thread: &mut H::Thread = unsafe { &mut *thread.as_ptr() };
        catch(|| user(record, thread, None), || record.hooks.disable_after_panic(name));
    }

    /// What the runtime asks when it first compiles a function: `FunctionIDMapper2`.
    ///
    /// # Safety
    /// `data` is an `Installed<H>`, and `hook` is null or room for a truth value.
    pub(crate) unsafe extern "system" fn map(function: sys::FunctionID, data: *mut c_void, hook: *mut BOOL) -> usize {
        // SAFETY: the caller's promise; hooks live for ever.
        let hooks: &'static Self = unsafe { &*data.cast() };
        let record = hooks.gate().enter().and_then(|_inside| {
            let function = hooks.info.function(function)?;
            // SAFETY: the runtime asks on the thread that compiles, in preemptive mode, and holds no lock that a collection waits
            // for (contracts.toml: SetFunctionIDMapper2); it waits for the answer.
            let mut cx = unsafe { InTriggers::new(&hooks.info) };
            if fitness::is_of_the_runtime(&cx, function) {
                return None;
            }
            if !H::VALUES.is_empty() {
                hooks.slow_path.note(&cx, function);
            }
            let select = || match hooks.user().select(&mut cx, function) {
                Hook::Yes(data) if H::VALUES.is_empty() => {
                    Some((data, signature::tags(&cx, function), Plan::default()))
                }
                Hook::Yes(data) => {
                    let is_fit = hooks.slow_path.is_fit(&cx, function);
                    is_fit.then(|| (data, OURS, Lookup::new(&mut cx, &hooks.assemblies).plan(function)))
                }
                Hook::No => None,
            };
            let (data, tags, plan) = catch(select, || hooks.disable_after_panic("select"))??;
            let record: *const Record<H> =
                Box::leak(Box::new(Record { hooks, gate: hooks.gate(), tag: hooks.tag, function, data, plan }));
            Some(record.expose_provenance() | tags)
        });
        // SAFETY: the caller's promise.
        unsafe { wire::answer(hook, record.is_some()) };
        record.unwrap_or(function)
    }
}

impl<H: EitherHooks> Record<H> {
    #[inline(always)]
    fn cx(&'static self, stack_pointer: usize, begun: Option<u64>) -> InHook<'static> {
        // SAFETY: the stubs come here from the hook of this function's record.
        unsafe { InHook::new(&self.hooks.info, self.function, stack_pointer, begun) }
    }
}

impl<H: EitherHooks> Target for Installed<H> {
    extern "C-unwind" fn enter(client: usize, stack_pointer: usize) {
        let user = move |record: &'static Record<H>, thread: &mut H::Thread, begun| {
            record.hooks.user().enter(&record.cx(stack_pointer, begun), thread, &record.data);
        };
        // SAFETY: the stub's promise.
        unsafe { Self::run(client, "enter", user) };
    }

    extern "C-unwind" fn leave(client: usize, stack_pointer: usize) {
        let user = move |record: &'static Record<H>, thread: &mut H::Thread, begun| {
            record.hooks.user().leave(&record.cx(stack_pointer, begun), thread, &record.data);
        };
        // SAFETY: the stub's promise.
        unsafe { Self::run(client, "leave", user) };
    }

    extern "C-unwind" fn tailcall(client: usize, stack_pointer: usize) {
        let user = move |record: &'static Record<H>, thread: &mut H::Thread, begun| {
            record.hooks.user().tailcall(&record.cx(stack_pointer, begun), thread, &record.data);
        };
        // SAFETY: the stub's promise.
        unsafe { Self::run(client, "tailcall", user) };
    }
}

impl<H: EitherHooks> AnyHooks for Installed<H> {
    #[inline]
    fn key(&self) -> NonZeroUsize {
        NonNull::from(self).addr()
    }

    fn end_thread(&'static self, state: State) {
        self.end_current_thread(state);
    }
}

impl<H: EitherHooks> HookSlot for Installed<H> {
    fn prepare_thread(&'static self) {
        if let Some(inside) = self.gate().enter() {
            self.thread(&inside);
        }
    }

    fn lend_thread(&'static self, of: TypeId, borrower: &mut dyn FnMut(NonNull<()>)) -> Result<()> {
        if of != TypeId::of::<H::Thread>() {
            let rule = "ask for the type that is `FunctionHooks::Thread` of the hooks that are set";
            return Err(Error::new(E_NOTIMPL, "with_hook_thread").about("a state of another type", rule));
        }
        if let Some(inside) = self.gate().enter() {
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

    fn note_unasked(&'static self) {
        /// The interface of .NET 9: the last without methods that the runtime itself suspends, and that of .NET 10.
        const NET_9: u8 = 15;
        if self.info.version() >= NET_9 {
            self.slow_path.note_unasked();
        }
    }

    unsafe fn end_all_threads(&self, is_disabled: bool) {
        // SAFETY: the caller's promise.
        unsafe { self.end_threads(is_disabled) }
    }

    unsafe fn drop_user(&self) {
        if !self.is_dropped.swap(true, Ordering::Relaxed) {
            // SAFETY: nobody uses it, by the caller's promise, and the flag makes this the only time.
            let drop = || unsafe { ManuallyDrop::drop(&mut *self.user.get()) };
            catch(drop, || self.report_last_panic("drop"));
        }
    }
}
