//! Where the calls of inserted code arrive: from there, the way to the user is that of the runtime's hooks.

use super::installed::{Installed, Record};
use super::slow::not_asked;
use super::stubs::Target;
use super::{FunctionHooks, HookKinds, HookValues, InHook, InSlowHook, StackBoundary};
use crate::context::{Heap, InNoGc};
use crate::edit::{Entered, HookCalls, address_of_entry, range};
use crate::values::{Arguments, ReturnValue};

/// What the methods call.
pub(super) fn calls<H: FunctionHooks>(number: usize) -> HookCalls {
    type Marked = unsafe extern "C" fn(i64, usize);
    type Returning = unsafe extern "C" fn(i64, usize, usize);
    let marked = |function: Marked| (function as *const ()).expose_provenance() as i64;
    let returning: Returning = leave_with_value::<H>;
    let is_slow = !H::VALUES.is_empty();
    let leave = if is_slow { (returning as *const ()).expose_provenance() as i64 } else { marked(leave::<H>) };
    let tailcall = if is_slow { marked(tailcall_with_frame::<H>) } else { marked(tailcall::<H>) };
    HookCalls {
        number: number as i64,
        enter: H::KINDS.contains(HookKinds::ENTER).then_some(address_of_entry::<Calls<H>>),
        leave: H::KINDS.contains(HookKinds::LEAVE).then_some(leave),
        tailcall: H::KINDS.contains(HookKinds::TAILCALL).then_some(tailcall),
        unwound: H::UNWINDS.then(|| marked(unwound::<H>)),
        has_arguments: H::VALUES.contains(HookValues::ARGUMENTS),
        has_result: is_slow,
    }
}

/// The stack pointer that stands for a method's frame. The marker, a variable in the frame, may be its lowest word, so
/// that its address is the method's own stack pointer: what a boundary at this frame takes for gone. Its end is not,
/// and is still below the stack pointer of the caller.
const fn stack_pointer(marker: usize) -> usize {
    marker + size_of::<usize>()
}

/// The calls of inserted code to these hooks.
struct Calls<H>(H);

impl<H: FunctionHooks> Calls<H> {
    /// The context of a hook that receives values.
    fn cx(record: &'static Record<H>, marker: usize, begun: Option<u64>) -> InSlowHook<'static> {
        let info = record.hooks.info();
        // SAFETY: the thread is in a hook of the record's function, which compiled code has called without a
        // transition: it stays in cooperative mode, so that no object moves. It is not marked as inside a callback: the
        // runtime refuses the calls that need this (`PROFILER_TO_CLR_ENTRYPOINT_SYNC` in vm/proftoeeinterfaceimpl.cpp),
        // and no others of this context but walks, which fail for lack of a start, need more than cooperative mode
        // (fact: inserted-calls).
        unsafe {
            let callback = InNoGc::new(info, Heap::Still).in_slow_hook(None);
            let hook = InHook::new(info, record.function, stack_pointer(marker), begun);
            InSlowHook::new(hook, callback, Err(InSlowHook::no_frame()))
        }
    }
}

impl<H: FunctionHooks> Entered for Calls<H> {
    #[inline(always)]
    unsafe fn entered<const N: usize>(number: i64, places: [usize; N]) {
        let Some((&marker, _)) = places.split_first() else { return };
        if H::VALUES.is_empty() {
            return <Installed<H> as Target>::enter(number as usize, stack_pointer(marker));
        }
        // SAFETY: the number is that of a record of these hooks, with the tag, by the caller's promise.
        unsafe {
            Installed::<H>::run(number as usize, "enter_with_args", |record, thread, begun| {
                let ranges = places.map(range);
                let is_asked = const { H::VALUES.contains(HookValues::ARGUMENTS) };
                let not_asked = || not_asked("enter_with_args");
                let ranges = ranges.get(1..).filter(|_| is_asked).ok_or_else(not_asked);
                // SAFETY: the plan is of the method that is called. Its code passes, after the marker and in the order
                // of the plan, the addresses of local variables that have the types of the arguments, or 0. No
                // collection runs: the call makes no transition (fact: inserted-calls).
                let args = Arguments::new_in_probe(record.plan(), ranges, record.hooks.string_layout());
                let Some(data) = record.role.data() else { return };
                record.hooks.user().enter_with_args(&Self::cx(record, marker, begun), thread, data, &args);
            });
        }
    }
}

/// A method is about to return.
///
/// # Safety
/// Compiled code of the method calls it without a transition, with the number of a record of `H` and the address of its
/// marker.
unsafe extern "C" fn leave<H: FunctionHooks>(number: i64, marker: usize) {
    <Installed<H> as Target>::leave(number as usize, stack_pointer(marker));
}

/// A method is about to return a value.
///
/// # Safety
/// As [`leave`]; `place` is 0, or the address of a local variable of the type that the method returns.
unsafe extern "C" fn leave_with_value<H: FunctionHooks>(number: i64, marker: usize, place: usize) {
    // SAFETY: the number is that of a record of these hooks, with the tag, by the caller's promise.
    unsafe {
        Installed::<H>::run(number as usize, "leave_with_value", |record, thread, begun| {
            let is_asked = const { H::VALUES.contains(HookValues::RESULT) };
            let range = if is_asked { Ok(range(place)) } else { Err(not_asked("leave_with_value")) };
            // SAFETY: as in `entered`, for the result.
            let value = ReturnValue::new(record.plan(), range, record.hooks.string_layout());
            let Some(data) = record.role.data() else { return };
            record.hooks.user().leave_with_value(&Calls::<H>::cx(record, marker, begun), thread, data, &value);
        });
    }
}

/// A method is about to end in a tail call.
///
/// # Safety
/// As [`leave`].
unsafe extern "C" fn tailcall<H: FunctionHooks>(number: i64, marker: usize) {
    <Installed<H> as Target>::tailcall(number as usize, stack_pointer(marker));
}

/// A method with hooks that receive values is about to end in a tail call.
///
/// # Safety
/// As [`leave`].
unsafe extern "C" fn tailcall_with_frame<H: FunctionHooks>(number: i64, marker: usize) {
    // SAFETY: the number is that of a record of these hooks, with the tag, by the caller's promise.
    unsafe {
        Installed::<H>::run(number as usize, "tailcall_with_frame", |record, thread, begun| {
            let cx = Calls::<H>::cx(record, marker, begun);
            let Some(data) = record.role.data() else { return };
            record.hooks.user().tailcall_with_frame(&cx, thread, data);
        });
    }
}

/// An exception leaves a method.
///
/// # Safety
/// As [`leave`].
unsafe extern "C" fn unwound<H: FunctionHooks>(number: i64, marker: usize) {
    let gone = StackBoundary::of_caller(stack_pointer(marker));
    // SAFETY: the number is one of these hooks, with the tag, by the caller's promise.
    unsafe {
        Installed::<H>::run(number as usize, "unwound", move |record, thread, _| {
            record.hooks.user().unwound(thread, gone);
        });
    }
}
