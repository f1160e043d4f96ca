//! Suspensions of runtime-async methods, told by the calls that compiled code makes then.
//!
//! The runtime calls no hook when such a method is suspended: it returns to its caller as if it had not been called.
//! And its enter hook is called again each time that it goes on. Both are seen all the same: a method that is suspended
//! calls one of the [functions](is_called_at_suspensions) that save its context; and what calls a method that goes on
//! is a piece of code that the runtime has made for that, without metadata.
//!
//! A runtime that calls leave hooks at suspensions disturbs nothing: the call has ended by then.
//!
//! State machines, which compilers make, are in `state_machines.rs`.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};

use super::installed::{Installed, Record};
use super::state_machines::{Machine, forget_continuing, goes_on, note_continuing, note_wait, waits};
use super::{FunctionHooks, InHook, fitness};
use crate::context::InCallback;
use crate::id::{CodeAddress, FunctionId};
use crate::info::Info;
use crate::lock::unpoisoned;
use crate::metadata::{MetadataImport, MethodProps, SUSPENDING, is_core_library};

/// What .NET 11 calls once at each suspension: the first two in a method that saves its contexts at its beginning, the
/// third in others.
const FINISH: [&str; 3] =
    ["FinishSuspensionNoContinuationContext", "FinishSuspensionWithContinuationContext", "CaptureExecutionContext"];

/// What a runtime without those calls once at each suspension (.NET 10): one of the three, by where the method is
/// loaded.
const ALLOCATE: [&str; 3] = ["AllocContinuation", "AllocContinuationMethod", "AllocContinuationClass"];

/// What a function with hooks is.
pub(super) enum Role<F> {
    /// A function with the user's value.
    Function(F),
    /// The same, of a function that the runtime may suspend and have go on.
    Suspendable(F, Callers),
    /// The same, of `MoveNext` of a state machine.
    Moves(F, Machine),
    /// Compiled code calls it when a method is suspended. The user may have selected it as well.
    AtSuspensions(Option<F>),
    /// A state machine is about to wait when it is called. The user may have selected it as well.
    TakesBox(Option<F>, Machine),
    /// It has a state machine go on. The user may have selected it as well.
    Continues(Option<F>, Machine),
}

impl<F> Role<F> {
    /// The user's value.
    #[inline]
    pub(super) fn data(&self) -> Option<&F> {
        match self {
            Self::Function(data) | Self::Suspendable(data, _) | Self::Moves(data, _) => Some(data),
            Self::AtSuspensions(data) | Self::TakesBox(data, _) | Self::Continues(data, _) => data.as_ref(),
        }
    }
}

/// Whether compiled code calls this function once at each suspension of a runtime-async method.
pub(super) fn is_called_at_suspensions(metadata: &MetadataImport<'_>, method: &MethodProps) -> bool {
    let name = method.name.as_str();
    if !FINISH.contains(&name) && !ALLOCATE.contains(&name) {
        return false;
    }
    let is_of_helpers = metadata.type_def(method.class).is_ok_and(|class| class.name == SUSPENDING);
    if !is_of_helpers || is_core_library(metadata) != Ok(true) {
        return false;
    }
    let has_finish = metadata.methods_named(method.class, FINISH[0]).is_ok_and(|methods| !methods.is_empty());
    if has_finish { FINISH.contains(&name) } else { ALLOCATE.contains(&name) }
}

/// Which of the two forms of a method a function is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// It cannot be suspended: the form that returns a task, or the only one.
    Ordinary,
    /// It may be suspended.
    Suspendable,
    /// It only calls the other form, which has the method's code.
    Wrapper,
}

impl Form {
    /// The form of a function; the ordinary one if in doubt.
    pub(super) fn of(cx: &mut InCallback<'_>, function: FunctionId, is_suspended: bool) -> Self {
        let Ok(info) = cx.function_info(function) else { return Self::Ordinary };
        match fitness::is_named_by_its_token(cx, function, &info) {
            Ok(true) if is_suspended => Self::Wrapper,
            Ok(false) => Self::Suspendable,
            _ => Self::Ordinary,
        }
    }
}

/// Where the callers of a function go on after a call: one of them is the code by which the runtime has it go on.
#[derive(Default)]
pub(super) struct Callers {
    resuming: AtomicUsize,
    /// Those that were last seen, each at a place of its own.
    others: [AtomicUsize; 4],
}

impl Callers {
    /// Whether the caller that goes on at this address has the function go on, rather than calls it: the runtime's code
    /// that does so has no metadata.
    #[inline]
    fn is_resuming(&self, info: &Info, return_address: usize) -> bool {
        if return_address == self.resuming.load(Relaxed) {
            return true;
        }
        // Code is aligned to 16 bytes or more, but calls are anywhere.
        let other = &self.others[(return_address >> 2) & 3];
        if return_address == other.load(Relaxed) {
            return false;
        }
        // SAFETY: the caller's code goes on there, so it has run (fact: addresses).
        let address = unsafe { CodeAddress::from_raw(return_address) };
        let Ok(caller) = info.function_from_ip(address) else { return false };
        let is_resuming = caller.is_none();
        let place = if is_resuming { &self.resuming } else { other };
        place.store(return_address, Relaxed);
        is_resuming
    }
}

/// The functions that the runtime may suspend, by identifier, and those that must not be inlined. They are few.
pub(super) struct Suspendables<H: FunctionHooks>(Mutex<Functions<H>>);

struct Functions<H: FunctionHooks> {
    suspendable: HashMap<FunctionId, &'static Record<H>>,
    /// Those that must not be inlined, as far as the compiler has asked.
    apart: HashSet<FunctionId>,
}

impl<H: FunctionHooks> Default for Suspendables<H> {
    fn default() -> Self {
        Self(Mutex::new(Functions { suspendable: HashMap::new(), apart: HashSet::new() }))
    }
}

impl<H: FunctionHooks> Suspendables<H> {
    /// No user code and no call of the runtime runs under this lock, which hooks take.
    fn functions(&self) -> MutexGuard<'_, Functions<H>> {
        unpoisoned(self.0.lock())
    }

    pub(super) fn note(&self, record: &'static Record<H>) {
        self.functions().suspendable.insert(record.function, record);
    }

    pub(super) fn note_apart(&self, function: FunctionId) {
        self.functions().apart.insert(function);
    }

    pub(super) fn is_to_stay_apart(&self, function: FunctionId) -> bool {
        self.functions().apart.contains(&function)
    }

    /// A module has gone, and functions with it: others may get their identifiers.
    pub(super) fn forget_apart(&self) {
        self.functions().apart.clear();
    }

    fn of(&self, function: FunctionId) -> Option<&'static Record<H>> {
        self.functions().suspendable.get(&function).copied()
    }
}

/// Whether it is known where the function of a hook returns to.
pub(super) const KNOWS_CALLERS: bool = cfg!(target_arch = "x86_64");

/// Where the function of a hook returns to.
///
/// # Safety
/// The thread is in a fast hook of the function, whose caller has this stack pointer.
#[cfg(target_arch = "x86_64")]
unsafe fn return_address(stack_pointer: usize) -> usize {
    let place: *const usize = std::ptr::with_exposed_provenance(stack_pointer - size_of::<usize>());
    // SAFETY: what the runtime passes to a fast hook is the stack pointer before the call, below which the call
    // instruction has written the address; the function has not returned yet (test: live
    // timer::differs::calls_that_are_suspended_are_one_call_and_wait_apart).
    unsafe { place.read() }
}

/// It is not known here.
///
/// # Safety
/// None.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn return_address(_stack_pointer: usize) -> usize {
    0
}

impl<H: FunctionHooks> Record<H> {
    /// A function that may be suspended begins or goes on, or a function begins that is called at a suspension.
    #[inline(never)]
    pub(super) fn enter_rare(&'static self, stack_pointer: usize, thread: &mut H::Thread, begun: Option<u64>) {
        let cx = self.cx(stack_pointer, begun);
        // SAFETY: the callers are fast hooks, with the stack pointer of the caller.
        let from = unsafe { return_address(stack_pointer) };
        let user = self.hooks.user();
        match &self.role {
            Role::Suspendable(data, callers) => {
                if callers.is_resuming(&cx, from) {
                    user.resumed(&cx, thread, data);
                } else {
                    user.enter(&cx, thread, data);
                }
                return;
            }
            Role::Moves(data, machine) if goes_on(*machine) => {
                user.resumed(&cx, thread, data);
                return;
            }
            Role::Moves(..) => {}
            Role::Continues(_, machine) => note_continuing(*machine),
            Role::Function(_) => {}
            Role::AtSuspensions(_) => self.hooks.suspended(from, stack_pointer, thread, begun),
            Role::TakesBox(_, machine) => note_wait(*machine),
        }
        if let Some(data) = self.role.data() {
            user.enter(&cx, thread, data);
        }
    }

    /// A function that may be suspended returns, or one that is called at a suspension.
    #[inline(never)]
    pub(super) fn leave_rare(&'static self, stack_pointer: usize, thread: &mut H::Thread, begun: Option<u64>) {
        let user = self.hooks.user();
        match &self.role {
            Role::Moves(data, machine) if waits(*machine) => {
                // Below the stack pointer that the function had in `enter`.
                user.suspended(&self.cx(stack_pointer - 1, begun), thread, data);
            }
            role => {
                if matches!(role, Role::Continues(..)) {
                    forget_continuing();
                }
                if let Some(data) = role.data() {
                    user.leave(&self.cx(stack_pointer, begun), thread, data);
                }
            }
        }
    }
}

impl<H: FunctionHooks> Installed<H> {
    /// The function whose code goes on at `ip`, and calls from this stack pointer, is suspended.
    fn suspended(&'static self, ip: usize, stack_pointer: usize, thread: &mut H::Thread, begun: Option<u64>) {
        // SAFETY: the code has run up to there (fact: addresses).
        let address = unsafe { CodeAddress::from_raw(ip) };
        let Ok(Some(function)) = self.info().function_from_ip(address) else { return };
        let Some(record) = self.suspendables().of(function) else { return };
        let Some(data) = record.role.data() else { return };
        let cx: InHook<'_> = record.cx(stack_pointer, begun);
        self.user().suspended(&cx, thread, data);
    }
}
