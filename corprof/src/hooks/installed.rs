//! The path from a stub to the user's method, and from the runtime's question about a function to the user's answer.
//!
//! The runtime keeps a number for each hooked function: here the address of its [`Record`], with the stubs' tags in the
//! lowest bits. A hook receives only that number, which is enough: the record leads to the hooks. Neither is ever
//! freed, as the runtime keeps the number even when the function is gone.

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

use super::answers::Answers;
use super::state_machines::Part;
use super::stubs::{OURS, TAGS, Target};
use super::suspensions::{Callers, Form, KNOWS_CALLERS, Role, Suspendables, is_called_at_suspensions};
use super::threads::{CallThreadState, State, Threads};
use super::vector_tail_calls::{TailHooks, passes_vectors};
use super::{FunctionHooks, Hook, HookedFunctions, InHook, clock, fitness, signature};
use crate::context::{InCallback, InInitialize};
use crate::error::{E_NOTIMPL, Error, Result};
use crate::event_mask::{Event, EventMask};
use crate::id::FunctionId;
use crate::info::{Info, StringLayout};
use crate::metadata::is_of_the_runtime;
use crate::session::event_pipe_sessions::Callback;
use crate::session::gate::Gate;
use crate::session::panics::{PanicPlace, ProfilerState, catch, discard};
use crate::session::thread_slot::{First, Tag};
use crate::session::wire;
use crate::session::{Interests, Observer};
use crate::values::{Lookup, Plan};

/// A profiler's hooks. They live as long as the process.
pub(crate) struct Installed<H: FunctionHooks> {
    /// The tag of the threads' states, in their slots.
    pub(super) tag: Tag,
    info: Info,
    /// Its gate closes at Shutdown, or after a panic.
    profiler: Arc<ProfilerState>,
    pub(super) threads: Threads,
    /// The layout of strings, for hooks that receive values.
    string_layout: StringLayout,
    slow_path: fitness::SlowPath,
    tail_hooks: TailHooks,
    /// The functions that may be suspended.
    suspendables: Suspendables<H>,
    /// What became of the functions that were selected.
    hooked: HookedFunctions,
    /// What the user has answered about functions, if the runtime calls the hooks.
    answers: Answers<FunctionId, H::Function>,
    /// Used inside the gate only. Shutdown drops it when the gate is closed and no thread is inside.
    user: UnsafeCell<ManuallyDrop<H>>,
    is_dropped: AtomicBool,
    /// Whether inserted code calls them, and says by itself what exceptions have unwound.
    is_inserted: bool,
}

// SAFETY: `user` is shared as `&H` of a `Sync` type, and dropped once, on any thread, which `Send` allows. All other
// fields are `Send` and `Sync`.
unsafe impl<H: FunctionHooks> Sync for Installed<H> {}
// SAFETY: as above.
unsafe impl<H: FunctionHooks> Send for Installed<H> {}

/// The data behind the runtime's number for a function. The alignment leaves room for the tags. The fields that every
/// hook needs come first.
#[repr(C, align(8))]
pub(super) struct Record<H: FunctionHooks> {
    /// The gate of the hooks, one load away.
    pub(super) gate: &'static Gate,
    /// The tag of the hooks.
    pub(super) tag: Tag,
    pub(super) hooks: &'static Installed<H>,
    pub(super) function: FunctionId,
    pub(super) role: Role<H::Function>,
    /// The places of its values; empty for hooks without values.
    pub(super) plan: Plan,
}

const _: () = assert!(TAGS < 8, "the tags must fit below the alignment of a record, and of the runtime's own numbers");

/// Hooks with their type erased, for the threads that have states.
pub(super) trait AnyHooks: Send + Sync {
    /// Identifies these hooks.
    fn key(&self) -> NonZeroUsize;
    /// Ends the calling thread's state.
    fn end_thread(&'static self, state: State);
    /// Calls `borrower` with the calling thread's state, if it exists and is not in use. An error if states are of
    /// another type.
    fn lend_thread(&'static self, of: TypeId, borrower: &mut dyn FnMut(NonNull<()>)) -> Result<()>;
}

impl<H: FunctionHooks> Installed<H> {
    /// Makes the hooks of the profiler that is being initialized.
    pub(super) fn leak(user: H, cx: &InInitialize<'_>) -> Result<&'static Self> {
        Self::make(user, cx, false)
    }

    /// Makes hooks that inserted code calls.
    pub(super) fn leak_inserted(user: H, cx: &InCallback<'_>) -> Result<&'static Self> {
        Self::make(user, cx, true)
    }

    fn make(user: H, cx: &InCallback<'_>, is_inserted: bool) -> Result<&'static Self> {
        let string_layout = if H::VALUES.is_empty() { StringLayout::default() } else { cx.string_layout()? };
        let info = Info::clone(cx);
        let profiler = Arc::clone(info.profiler());
        Ok(Box::leak(Box::new(Self {
            tag: if H::TIMED && clock::is_slow() { Tag::NONE } else { Tag::new() },
            info,
            profiler,
            threads: Threads::default(),
            string_layout,
            slow_path: fitness::SlowPath::default(),
            tail_hooks: TailHooks::default(),
            suspendables: Suspendables::default(),
            hooked: HookedFunctions::default(),
            answers: Answers::default(),
            user: UnsafeCell::new(ManuallyDrop::new(user)),
            is_dropped: AtomicBool::new(false),
            is_inserted,
        })))
    }

    /// The gate that hooks pass.
    #[inline]
    pub(super) fn gate(&self) -> &Gate {
        &self.profiler.gate
    }

    /// The runtime.
    pub(super) fn info(&self) -> &Info {
        &self.info
    }

    /// The functions that may be suspended.
    pub(super) fn suspendables(&self) -> &Suspendables<H> {
        &self.suspendables
    }

    /// What became of the functions that were selected.
    pub(super) fn hooked(&self) -> &HookedFunctions {
        &self.hooked
    }

    /// The layout of strings.
    pub(super) fn string_layout(&self) -> StringLayout {
        self.string_layout
    }

    /// The user's hooks. Only for code inside the gate, or code that knows that no thread is inside and
    /// `profiler_ended` has not run.
    #[inline]
    pub(super) fn user(&self) -> &H {
        // SAFETY: only `profiler_ended` writes to the cell, and it runs after all callers of this.
        unsafe { &*self.user.get() }
    }

    /// Disables the profiler after a panic.
    #[cold]
    pub(super) fn disable_after_panic(&self, method: &str) {
        self.profiler.disable_after_panic(PanicPlace::Method(method));
    }

    /// Reports a panic during teardown.
    #[cold]
    pub(super) fn report_last_panic(&self, method: &str) {
        self.profiler.report_last_panic(method);
    }

    /// Runs one hook: through the gate, to the thread's state, under the panic guard, into the user's method. `user`
    /// also receives the time of the beginning, if the hooks are timed.
    ///
    /// # Safety
    /// `client` is the runtime's number for a function, returned by [`map`](Self::map), and contains [`OURS`].
    #[inline(always)]
    pub(super) unsafe fn run(
        client: usize,
        name: &'static str,
        user: impl FnOnce(&'static Record<H>, &mut H::Thread, Option<u64>),
    ) {
        // SAFETY: the number is the address of a record of this `H` (stubs and mapper are set together) with its tags.
        // Records are never freed (fact: hook-calls).
        let record: &'static Record<H> = unsafe { &*std::ptr::with_exposed_provenance(client & !TAGS) };
        let Some(first) = record.gate.enter_first(record.tag) else {
            return Self::run_nested(record, name, user);
        };
        // SAFETY: the state belongs to this thread, and is not freed while the thread is inside the gate. Nothing else
        // on this thread uses it now: this is the only hook or callback, and a thread does not end in a hook (fact:
        // hook-calls).
        let thread: &mut H::Thread = unsafe { &mut *first.local().cast().as_ptr() };
        let begun = if H::TIMED { clock::counter() } else { None };
        // Like `catch`, but nothing local is used after a panic, so that no registers are saved for it.
        match catch_unwind(AssertUnwindSafe(|| user(record, thread, begun))) {
            Ok(()) => first.leave(),
            Err(payload) => Self::end_after_panic(payload, name),
        }
    }

    /// Ends a hook that came through [`Gate::enter_first`] and has panicked.
    #[cold]
    #[inline(never)]
    fn end_after_panic(payload: Box<dyn Any + Send>, name: &'static str) {
        // SAFETY: the local state of a thread in a hook that came through `enter_first` is the state of these hooks.
        let hooks = |state: NonNull<()>| unsafe { state.cast::<CallThreadState<H>>().as_ref() }.hooks;
        let Some(first) = First::under_way(|state| hooks(state).tag) else { unreachable!("the hook is under way") };
        // Dropping the payload may run any code, so disabling comes first.
        hooks(first.local()).disable_after_panic(name);
        discard(payload);
        first.leave();
    }

    /// Like [`run`](Self::run), for a hook inside another hook or callback, or for the first on its thread.
    #[cold]
    #[inline(never)]
    fn run_nested(
        record: &'static Record<H>,
        name: &'static str,
        user: impl FnOnce(&'static Record<H>, &mut H::Thread, Option<u64>),
    ) {
        let Some(inside) = record.gate.enter() else { return };
        let Some((thread, _loan)) = record.hooks.borrow(&inside) else { return };
        // SAFETY: as in `run`; the state was lent to this hook.
        let thread: &mut H::Thread = unsafe { &mut *thread.as_ptr() };
        catch(|| user(record, thread, None), || record.hooks.disable_after_panic(name));
    }

    /// The runtime's question when it first compiles a function: `FunctionIDMapper2`.
    ///
    /// # Safety
    /// `data` is an `Installed<H>`, and `hook` is null or room for a truth value.
    pub(crate) unsafe extern "system" fn map(function: sys::FunctionID, data: *mut c_void, hook: *mut BOOL) -> usize {
        // SAFETY: the caller's promise; hooks live for ever.
        let hooks: &'static Self = unsafe { &*data.cast() };
        let record = hooks.gate().enter().and_then(|_inside| {
            let function = hooks.info.function(function)?;
            let _selecting = Callback::begin_select();
            // SAFETY: the runtime asks on the compiling thread, in preemptive mode, holds no lock that a collection
            // waits for (contracts.toml: SetFunctionIDMapper2), and waits for the answer (fact: select).
            let mut cx = unsafe { InCallback::new(&hooks.info) };
            // The metadata is let go of again before `select`.
            let (method, is_marker, part) = match fitness::method(&cx, function) {
                Ok((metadata, method)) => {
                    let is_marker = tells_suspensions::<H>() && is_called_at_suspensions(&metadata, &method);
                    if !is_marker && is_of_the_runtime(&metadata, &method) {
                        return None;
                    }
                    let part = match tells_suspensions::<H>() {
                        true => Part::of(&cx, &metadata, &method, function),
                        false => Part::Nothing,
                    };
                    if part.is_to_stay_apart() {
                        hooks.suspendables.note_apart(function);
                    }
                    (Some(method), is_marker, part)
                }
                Err(_) => (None, false, Part::Nothing),
            };
            if !H::VALUES.is_empty() || H::SUSPENDS {
                hooks.slow_path.note(&cx, function);
            }
            let form = if H::SUSPENDS { hooks.slow_path.form(&mut cx, function) } else { Form::Ordinary };
            if form == Form::Wrapper {
                return None;
            }
            let select = || match hooks.answers.take(function, || hooks.user().select(&mut cx, function)) {
                Hook::Inlinable(_) | Hook::Exact(_) if !H::VALUES.is_empty() && passes_vectors(&mut cx, function) => {
                    let why = "it may pass a vector to a call that may be a tail call, around whose hook the runtime \
                               keeps only a part of it: hooks by inserted code keep it whole";
                    hooks.hooked.leave_out(function, why.to_owned());
                    None
                }
                Hook::Inlinable(data) | Hook::Exact(data) if H::VALUES.is_empty() => {
                    hooks.hooked.note_hooked();
                    let role = match (form, part) {
                        _ if is_marker => Role::AtSuspensions(Some(data)),
                        (_, Part::TakesBox(machine)) => Role::TakesBox(Some(data), machine),
                        (_, Part::Continues(machine)) => Role::Continues(Some(data), machine),
                        (_, Part::Moves(machine)) => Role::Moves(data, machine),
                        (Form::Suspendable, _) if KNOWS_CALLERS => Role::Suspendable(data, Callers::default()),
                        _ => Role::Function(data),
                    };
                    Some((role, signature::tags(method.as_ref()), Plan::default()))
                }
                Hook::Inlinable(data) | Hook::Exact(data) => match hooks.slow_path.check(&mut cx, function) {
                    Ok(()) => {
                        hooks.hooked.note_hooked();
                        hooks.tail_hooks.note(function);
                        Some((Role::Function(data), OURS, Lookup::new(&mut cx).plan(function)))
                    }
                    Err(why) => {
                        hooks.hooked.leave_out(function, why.to_string());
                        None
                    }
                },
                Hook::No => {
                    let role = match part {
                        _ if is_marker => Role::AtSuspensions(None),
                        Part::TakesBox(machine) => Role::TakesBox(None, machine),
                        Part::Continues(machine) => Role::Continues(None, machine),
                        _ => return None,
                    };
                    Some((role, signature::tags(method.as_ref()), Plan::default()))
                }
            };
            let (role, tags, plan) = catch(select, || hooks.disable_after_panic("select"))??;
            let record: &'static Record<H> =
                Box::leak(Box::new(Record { hooks, gate: hooks.gate(), tag: hooks.tag, function, role, plan }));
            if matches!(record.role, Role::Suspendable(..)) {
                hooks.suspendables.note(record);
            }
            let record = std::ptr::from_ref(record);
            Some(record.expose_provenance() | tags)
        });
        // SAFETY: the caller's promise.
        unsafe { wire::answer(hook, record.is_some()) };
        record.unwrap_or(function)
    }
}

/// Whether these hooks are told of suspensions.
const fn tells_suspensions<H: FunctionHooks>() -> bool {
    H::SUSPENDS && KNOWS_CALLERS
}

impl<H: FunctionHooks> Record<H> {
    #[inline(always)]
    pub(super) fn cx(&'static self, stack_pointer: usize, begun: Option<u64>) -> InHook<'static> {
        // SAFETY: the stubs lead here from the hook of this record's function.
        unsafe { InHook::new(&self.hooks.info, self.function, stack_pointer, begun) }
    }
}

impl<H: FunctionHooks> Target for Installed<H> {
    extern "C-unwind" fn enter(client: usize, stack_pointer: usize) {
        let user = move |record: &'static Record<H>, thread: &mut H::Thread, begun| match &record.role {
            Role::Function(data) => record.hooks.user().enter(&record.cx(stack_pointer, begun), thread, data),
            _ => record.enter_rare(stack_pointer, thread, begun),
        };
        // SAFETY: the stub's promise.
        unsafe { Self::run(client, "enter", user) };
    }

    extern "C-unwind" fn leave(client: usize, stack_pointer: usize) {
        let user = move |record: &'static Record<H>, thread: &mut H::Thread, begun| match &record.role {
            Role::Function(data) => record.hooks.user().leave(&record.cx(stack_pointer, begun), thread, data),
            _ => record.leave_rare(stack_pointer, thread, begun),
        };
        // SAFETY: the stub's promise.
        unsafe { Self::run(client, "leave", user) };
    }

    extern "C-unwind" fn tailcall(client: usize, stack_pointer: usize) {
        let user = move |record: &'static Record<H>, thread: &mut H::Thread, begun| {
            if let Some(data) = record.role.data() {
                record.hooks.user().tailcall(&record.cx(stack_pointer, begun), thread, data);
            }
        };
        // SAFETY: the stub's promise.
        unsafe { Self::run(client, "tailcall", user) };
    }
}

impl<H: FunctionHooks> AnyHooks for Installed<H> {
    #[inline]
    fn key(&self) -> NonZeroUsize {
        NonNull::from(self).addr()
    }

    fn end_thread(&'static self, state: State) {
        self.end_current_thread(state);
    }

    fn lend_thread(&'static self, of: TypeId, borrower: &mut dyn FnMut(NonNull<()>)) -> Result<()> {
        if of != TypeId::of::<H::Thread>() {
            let rule = "use the `FunctionHooks::Thread` type of the hooks that are set";
            return Err(Error::new(E_NOTIMPL, "with_hook_thread").about("a state of another type", rule));
        }
        if let Some(inside) = self.gate().enter() {
            self.lend(&inside, |state| borrower(state.cast()));
        }
        Ok(())
    }
}

/// Inserted code has an observer of compilations of its own (`inserted.rs`).
impl<H: FunctionHooks> Observer for &'static Installed<H> {
    fn interests(&self) -> Interests {
        if self.is_inserted {
            return Interests::THREADS;
        }
        let unwinding = if H::UNWINDS { Interests::UNWINDING } else { Interests::empty() };
        Interests::THREADS | Interests::COMPILATIONS | Interests::MODULES | unwinding
    }

    fn thread_began(&self) {
        let hooks = *self;
        if let Some(inside) = hooks.gate().enter() {
            hooks.thread(&inside);
        }
    }

    unsafe fn may_inline(&self, _: &Info, caller: usize, function: FunctionId) -> bool {
        let Some(_inside) = self.gate().enter() else { return !self.tail_hooks.has(caller) };
        if self.suspendables.is_to_stay_apart(function) {
            return false;
        }
        let mut is_to_stay_apart = false;
        let ask = || {
            // SAFETY: the caller's promise.
            let mut cx = unsafe { InCallback::new(&self.info) };
            let is_fit = match fitness::method(&cx, function) {
                Ok((metadata, method)) => {
                    is_to_stay_apart =
                        tells_suspensions::<H>() && Part::of(&cx, &metadata, &method, function).is_to_stay_apart();
                    !is_of_the_runtime(&metadata, &method)
                }
                Err(_) => false,
            };
            if is_to_stay_apart {
                self.suspendables.note_apart(function);
                return None;
            }
            // These are not asked about: see `map`.
            if !is_fit {
                return None;
            }
            let _selecting = Callback::begin_select();
            catch(|| self.user().select(&mut cx, function), || self.disable_after_panic("select"))
        };
        let is_exact = self.answers.is_exact(function, ask);
        if is_exact || is_to_stay_apart {
            return false;
        }
        // SAFETY: the caller's promise.
        let mut cx = unsafe { InCallback::new(&self.info) };
        self.tail_hooks.may_inline(caller, function, || passes_vectors(&mut cx, function))
    }

    fn module_gone(&self, _module: usize) {
        // Functions of other modules may have gone with it: instantiations over its types.
        self.answers.forget(|_| true);
        self.suspendables.forget_apart();
    }

    fn unwound(&self, event: Event) {
        self.tell_unwound(event);
    }

    fn event_mask_changes(&self, info: &Info, mask: EventMask) {
        /// The interface of .NET 9, the last without runtime async, has number 15, and that of .NET 10 as well.
        const NET_9: u8 = 15;
        // Without this flag the runtime may compile functions without asking these hooks.
        if !mask.contains(EventMask::MONITOR_ENTERLEAVE) && info.version() >= NET_9 {
            self.slow_path.note_unasked();
        }
    }

    fn detach_obstacle(&self) -> Option<(&'static str, &'static str)> {
        Some(("SetEnterLeaveFunctionHooks3", "the profiler has hooks in compiled code: it cannot be detached"))
    }

    unsafe fn profiler_ending(&self, is_disabled: bool) {
        // SAFETY: the caller's promise.
        unsafe { self.end_threads(is_disabled) }
    }

    unsafe fn profiler_ended(&self) {
        if !self.is_dropped.swap(true, Ordering::Relaxed) {
            // SAFETY: the caller promises that no thread uses it, and the flag makes this the only drop.
            let drop = || unsafe { ManuallyDrop::drop(&mut *self.user.get()) };
            catch(drop, || self.report_last_panic("drop"));
        }
    }
}
