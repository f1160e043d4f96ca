//! [`ValueHooks`]: hooks that receive arguments and results.

use std::sync::Arc;

use super::{Hook, HookKinds, InSlowHook, StackBoundary};
use crate::context::InCallback;
use crate::id::FunctionId;
use crate::values::{Arguments, ReturnValue};

bitflags::bitflags! {
    /// The values that hooks receive. Any of them makes the runtime use its slow path for all hooks that it calls.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub struct HookValues: u8 {
        /// [`ValueHooks::enter_with_args`](ValueHooks::enter_with_args) receives the arguments.
        const ARGUMENTS = 1;
        /// [`ValueHooks::leave_with_value`](ValueHooks::leave_with_value) receives the result.
        const RESULT = 2;
        /// [`InSlowHook::frame_info`](InSlowHook::frame_info) returns the handle that gives the type arguments of shared code. Only
        /// the runtime has it: [by inserted code](crate::InInitialize::hook_functions_with_values_by_il) it does not compile.
        const FRAME = 4;
    }
}

/// Hooks that run when functions begin and end, with arguments and results.
///
/// It is like [`FunctionHooks`](super::FunctionHooks), but the runtime calls these hooks by its slow path. A profiler passes it
/// to [`hook_functions_with_values`](crate::InInitialize::hook_functions_with_values). There are two traits so that each has
/// only methods that are called.
///
/// [`hook_functions_with_values_by_il`](crate::InInitialize::hook_functions_with_values_by_il) takes the same hooks, and adds their
/// calls to the code of the methods, after attach as well. What cannot be had there is said there. The following is about the
/// runtime's slow path.
///
/// Some functions are not hooked, as the slow path is not made for them: runtime-async methods (opt-in on .NET 10, many of the
/// framework's on .NET 11), and before .NET 10.0.14 functions that native code calls (`UnmanagedCallersOnly`), since these runtimes
/// may die in them on a thread that they have not seen. On later ones such functions are hooked, unless they name a calling
/// convention other than `Cdecl` and `Stdcall`. A method that returns a `Task` or `ValueTask` and is awaited by a runtime-async
/// method has two forms, and so two identifiers: only the one that returns the task is hooked. On .NET 10 the other one calls it;
/// on .NET 11 the other one has the code itself, so such calls are not seen. [`HookedFunctions`](super::HookedFunctions) tells what
/// was left out.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not implement `ValueHooks`",
    note = "`hook_functions_with_values` takes a type that implements `ValueHooks`; pass one that implements `FunctionHooks` to \
            `hook_functions`"
)]
pub trait ValueHooks: Send + Sync + 'static {
    /// See [`FunctionHooks::Function`](super::FunctionHooks::Function).
    type Function: Send + Sync + 'static;

    /// See [`FunctionHooks::Thread`](super::FunctionHooks::Thread).
    type Thread: Send + 'static;

    /// The values that hooks receive: at least one of them.
    const VALUES: HookValues;

    /// The hooks that are implemented. The other kinds are not called.
    const KINDS: HookKinds = HookKinds::all();

    /// Whether [`unwound`](Self::unwound) is called.
    const UNWINDS: bool = false;

    /// See [`FunctionHooks::TIMED`](super::FunctionHooks::TIMED).
    const TIMED: bool = false;

    /// See [`FunctionHooks::select`](super::FunctionHooks::select).
    fn select(&self, cx: &mut InCallback<'_>, function: FunctionId) -> Hook<Self::Function>;

    /// See [`FunctionHooks::thread_started`](super::FunctionHooks::thread_started).
    fn thread_started(&self) -> Self::Thread;

    /// A function begins: none of its code has run. `args` has its arguments if [`VALUES`](Self::VALUES) contains
    /// [`ARGUMENTS`](HookValues::ARGUMENTS).
    fn enter_with_args(
        &self,
        cx: &InSlowHook<'_>,
        thread: &mut Self::Thread,
        function: &Self::Function,
        args: &Arguments<'_>,
    ) {
        let _ = (cx, thread, function, args);
    }

    /// A function is about to return `value`, which can be read if [`VALUES`](Self::VALUES) contains
    /// [`RESULT`](HookValues::RESULT). Not called when an exception unwinds the function.
    fn leave_with_value(
        &self,
        cx: &InSlowHook<'_>,
        thread: &mut Self::Thread,
        function: &Self::Function,
        value: &ReturnValue<'_>,
    ) {
        let _ = (cx, thread, function, value);
    }

    /// A function is about to end in a call of another, which replaces it on the stack. Its own leave does not come, and it has
    /// no value: the result of the next function is the result of both.
    fn tailcall_with_frame(&self, cx: &InSlowHook<'_>, thread: &mut Self::Thread, function: &Self::Function) {
        let _ = (cx, thread, function);
    }

    /// See [`FunctionHooks::unwound`](super::FunctionHooks::unwound).
    fn unwound(&self, thread: &mut Self::Thread, boundary: StackBoundary) {
        let _ = (thread, boundary);
    }

    /// See [`FunctionHooks::thread_ended`](super::FunctionHooks::thread_ended).
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

    fn select(&self, cx: &mut InCallback<'_>, function: FunctionId) -> Hook<Self::Function> {
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
