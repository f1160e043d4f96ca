//! [`ValueHooks`]: hooks that are told arguments and results.

use std::sync::Arc;

use super::values::{Arguments, ReturnValue};
use super::{Hook, HookKinds, InSlowHook, StackBoundary};
use crate::context::InTriggers;
use crate::id::FunctionId;

bitflags::bitflags! {
    /// What hooks are told of a call beside its function. Any of it makes the runtime take its slow path for all hooks.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub struct HookValues: u8 {
        /// [`ValueHooks::enter_with_args`](ValueHooks::enter_with_args) gets the arguments.
        const ARGUMENTS = 1;
        /// [`ValueHooks::leave_with_value`](ValueHooks::leave_with_value) gets what is returned.
        const RESULT = 2;
        /// [`InSlowHook::frame_info`](InSlowHook::frame_info) has what tells the type arguments of shared code.
        const FRAME = 4;
    }
}

/// What is done when functions begin and end, with what they are called with and what they return.
///
/// It is a [`FunctionHooks`](super::FunctionHooks) with other hooks, which the runtime calls by its slow path. A profiler hands it to
/// [`hook_functions_with_values`](crate::InInitialize::hook_functions_with_values). The two traits are apart so that nobody writes
/// hooks that are never called.
///
/// Some functions are not hooked, as the slow path is not made for them: those that native code calls (`UnmanagedCallersOnly`);
/// and methods that the runtime itself suspends (runtime async, opt-in on .NET 10), together with all methods that return a `Task`
/// or `ValueTask` and are compiled after the first of these, or, from .NET 9 on, after
/// `MONITOR_ENTERLEAVE` was off.
///
/// From .NET 5 on; before, only with [`VALUES_BEFORE_NET_5`](Self::VALUES_BEFORE_NET_5).
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no hooks that are told values",
    note = "`hook_functions_with_values` takes a type that implements `ValueHooks`; one that implements `FunctionHooks` is handed to \
            `hook_functions`"
)]
pub trait ValueHooks: Send + Sync + 'static {
    /// As [`FunctionHooks::Function`](super::FunctionHooks::Function).
    type Function: Send + Sync + 'static;

    /// As [`FunctionHooks::Thread`](super::FunctionHooks::Thread).
    type Thread: Send + 'static;

    /// What hooks are told: at least one of them.
    const VALUES: HookValues;

    /// The hooks that are implemented. Those that are not mentioned are not called.
    const KINDS: HookKinds = HookKinds::all();

    /// Whether [`unwound`](Self::unwound) is called.
    const UNWINDS: bool = false;

    /// As [`FunctionHooks::TIMED`](super::FunctionHooks::TIMED).
    const TIMED: bool = false;

    /// Whether values are wanted of .NET Core 3.1 as well, at the risk of the application's exit code.
    ///
    /// .NET Core 3.1 has a fault there that no profiler can mend: if a thread is still in functions with such hooks when the
    /// application has ended and the profiler is gone, the runtime reads what it has deleted, and the process ends by a signal.
    /// An application whose threads have all left such functions by then is safe. Unless this says yes,
    /// [`hook_functions_with_values`](crate::InInitialize::hook_functions_with_values) is an error there.
    const VALUES_BEFORE_NET_5: bool = false;

    /// As [`FunctionHooks::select`](super::FunctionHooks::select).
    fn select(&self, cx: &mut InTriggers<'_>, function: FunctionId) -> Hook<Self::Function>;

    /// As [`FunctionHooks::thread_started`](super::FunctionHooks::thread_started).
    fn thread_started(&self) -> Self::Thread;

    /// A function begins, with these arguments if [`VALUES`](Self::VALUES) has [`ARGUMENTS`](HookValues::ARGUMENTS): nothing of it
    /// has run.
    fn enter_with_args(
        &self,
        cx: &InSlowHook<'_>,
        thread: &mut Self::Thread,
        function: &Self::Function,
        args: &Arguments<'_>,
    ) {
        let _ = (cx, thread, function, args);
    }

    /// A function is about to return this, if [`VALUES`](Self::VALUES) has [`RESULT`](HookValues::RESULT). This is not called for a
    /// function that an exception leaves.
    fn leave_with_value(
        &self,
        cx: &InSlowHook<'_>,
        thread: &mut Self::Thread,
        function: &Self::Function,
        value: &ReturnValue<'_>,
    ) {
        let _ = (cx, thread, function, value);
    }

    /// A function is about to end in a call of another, which takes its place on the stack. It will not leave, and there is no
    /// value: what the next function returns is the result of both.
    fn tailcall_with_frame(&self, cx: &InSlowHook<'_>, thread: &mut Self::Thread, function: &Self::Function) {
        let _ = (cx, thread, function);
    }

    /// As [`FunctionHooks::unwound`](super::FunctionHooks::unwound).
    fn unwound(&self, thread: &mut Self::Thread, boundary: StackBoundary) {
        let _ = (thread, boundary);
    }

    /// As [`FunctionHooks::thread_ended`](super::FunctionHooks::thread_ended).
    fn thread_ended(&self, thread: Self::Thread) {
        drop(thread);
    }
}

impl<T: ValueHooks> ValueHooks for Arc<T> {
    type Function = T::Function;
    type Thread = T::Thread;

    const VALUES: HookValues = T::VALUES;
    const KINDS: HookKinds = T::KINDS;
    const UNWINDS: bool = T::UNWINDS;
    const TIMED: bool = T::TIMED;
    const VALUES_BEFORE_NET_5: bool = T::VALUES_BEFORE_NET_5;

    fn select(&self, cx: &mut InTriggers<'_>, function: FunctionId) -> Hook<Self::Function> {
        T::select(self, cx, function)
    }

    fn thread_started(&self) -> Self::Thread {
        T::thread_started(self)
    }

    fn enter_with_args(
        &self,
        cx: &InSlowHook<'_>,
        thread: &mut Self::Thread,
        function: &Self::Function,
        args: &Arguments<'_>,
    ) {
        T::enter_with_args(self, cx, thread, function, args);
    }

    fn leave_with_value(
        &self,
        cx: &InSlowHook<'_>,
        thread: &mut Self::Thread,
        function: &Self::Function,
        value: &ReturnValue<'_>,
    ) {
        T::leave_with_value(self, cx, thread, function, value);
    }

    fn tailcall_with_frame(&self, cx: &InSlowHook<'_>, thread: &mut Self::Thread, function: &Self::Function) {
        T::tailcall_with_frame(self, cx, thread, function);
    }

    fn unwound(&self, thread: &mut Self::Thread, boundary: StackBoundary) {
        T::unwound(self, thread, boundary);
    }

    fn thread_ended(&self, thread: Self::Thread) {
        T::thread_ended(self, thread);
    }
}
