//! [`FunctionHooks`]: the hooks of a profiler.

use std::sync::Arc;

use super::{InHook, InSlowHook, StackBoundary};
use crate::context::InCallback;
use crate::id::FunctionId;
use crate::values::{Arguments, ReturnValue};

bitflags::bitflags! {
    /// Kinds of hooks. A kind that is left out is not called, which is cheaper than a hook that does nothing.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub struct HookKinds: u8 {
        /// [`FunctionHooks::enter`] or [`FunctionHooks::enter_with_args`].
        const ENTER = 1;
        /// [`FunctionHooks::leave`] or [`FunctionHooks::leave_with_value`].
        const LEAVE = 2;
        /// [`FunctionHooks::tailcall`] or [`FunctionHooks::tailcall_with_frame`].
        const TAILCALL = 4;
    }
}

bitflags::bitflags! {
    /// The values that hooks receive. Any of them makes the runtime use its slow path for all hooks that it calls.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub struct HookValues: u8 {
        /// [`FunctionHooks::enter_with_args`] receives the arguments.
        const ARGUMENTS = 1;
        /// [`FunctionHooks::leave_with_value`] receives the result.
        const RESULT = 2;
        /// [`InSlowHook::frame_info`] returns the handle that gives the type arguments of shared code. Only the runtime
        /// has it: hooks by inserted code that ask for it do not compile.
        const FRAME = 4;
    }
}

/// The profiler's answer about a function: whether it has hooks, and whether the compiler may inline it. The answer is
/// final.
///
/// | | [`Inlinable`](Self::Inlinable) | [`Exact`](Self::Exact) |
/// |---|---|---|
/// | calls that the compiler would inline | have no hooks: they are a part of their caller | have hooks |
/// | optimised code | as without hooks, apart from the calls of hooks | slower where it would inline the function |
/// | take it for | all functions, or all of a namespace | the functions that a question is about |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hook<F> {
    /// The function has no hooks, and costs nothing.
    No,
    /// The function has hooks, with this value, and the compiler may inline it. A call that it inlines has no hooks: it
    /// is a part of its caller, as without a profiler.
    ///
    /// [Inserted code](super::HookSetup::inserted) would keep a function from being inlined, so functions that the
    /// compiler inlines (small ones, and those that ask for it) are left out there, and
    /// [reported](super::HookedFunctions::left_out). The others have hooks in all of their calls.
    Inlinable(F),
    /// The function has hooks, with this value, in each of its calls: the compiler does not inline it, even if the
    /// profiler's own `jit_inlining` allows it.
    ///
    /// What is left: code that the compiler generates in place of a call of a method that it knows (an *intrinsic*,
    /// such as `Math.Sqrt`); and, with inserted code, callers that were compiled earlier: precompiled ones, and those
    /// from before an attach until they are compiled again.
    Exact(F),
}

/// Hooks that run when functions begin and end: see [the module](super).
///
/// Hooks that need arguments or results name them in [`VALUES`](Self::VALUES). corprof then calls
/// [`enter_with_args`](Self::enter_with_args), [`leave_with_value`](Self::leave_with_value) and
/// [`tailcall_with_frame`](Self::tailcall_with_frame), otherwise [`enter`](Self::enter), [`leave`](Self::leave) and
/// [`tailcall`](Self::tailcall). A method that would be called and is not implemented is an error of the compiler, when
/// it generates the code: implement it, or leave its kind out of [`KINDS`](Self::KINDS).
///
/// All threads share the value, and call it at the same time. It is dropped at the end of Shutdown. `Arc<T>` implements
/// the trait if `T` does, so that the profiler can keep a reference.
///
/// # Functions without hooks
///
/// [`select`](Self::select) is not called for functions without metadata; for the runtime's own handling of exceptions,
/// which is managed from .NET 9 on (`System.Runtime.EH` and the functions that it uses), so that a throwing function
/// looks as on .NET 8; for the functions that suspend a runtime-async method (`AsyncHelpers.AwaitAwaiter` and others),
/// which .NET 10 compiles wrongly with hooks; and for `Thread.PollGC`, which compiled code calls after an inserted
/// call.
///
/// If the hooks receive values, and the runtime calls them, some more functions have none, as the runtime's slow path
/// is not made for them: runtime-async methods (opt-in on .NET 10, many of the framework's on .NET 11), and before .NET
/// 10.0.14 functions that native code calls (`UnmanagedCallersOnly`), since these runtimes may die in them on a thread
/// that they have not seen. On later ones such functions have hooks, unless they name a calling convention other than
/// `Cdecl` and `Stdcall`. A method that returns a `Task` or `ValueTask` and is awaited by a runtime-async method has
/// two forms, and so two identifiers: only the one that returns the task has hooks. On .NET 10 the other one calls it;
/// on .NET 11 the other one has the code itself, so such calls are not seen.
/// [`HookedFunctions`](super::HookedFunctions) tells what was left out.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no hooks",
    note = "hooks are a type that implements `FunctionHooks`"
)]
pub trait FunctionHooks: Send + Sync + 'static {
    /// Data kept for each hooked function, its name for instance. It is never dropped: the runtime keeps a pointer to
    /// it as long as the process lives, even when the function is gone.
    type Function: Send + Sync + 'static;

    /// The state of one thread, used by that thread alone. It exists from the beginning of a managed thread, at the
    /// latest from its first hook, until the operating-system thread ends.
    type Thread: Send + 'static;

    /// The values that hooks receive: by default none.
    const VALUES: HookValues = HookValues::empty();

    /// The hooks that are implemented. The other kinds are not called.
    const KINDS: HookKinds = HookKinds::all();

    /// Whether [`unwound`](Self::unwound) is called.
    const UNWINDS: bool = false;

    /// Whether [`suspended`](Self::suspended) and [`resumed`](Self::resumed) are called. Hooks with values cannot have
    /// it.
    const SUSPENDS: bool = false;

    /// Whether the clock is read at the beginning of each hook, for [`HookClock::at`](crate::calls::HookClock::at).
    /// This is the cheapest way to get the time.
    const TIMED: bool = false;

    /// Decides whether `function` has hooks: before it is compiled for the first time, or before the compiler inlines
    /// it for the first time.
    ///
    /// Called once for each function, and once for each instantiation of a generic function that has its own code;
    /// twice if two threads compile the function at the same time, and perhaps again after a module was unloaded; then
    /// all answers are in use. With [inserted code](super::HookSetup::inserted) it is called once for a generic method,
    /// about the first instantiation.
    ///
    /// A function can be asked about under two identifiers: a method that a runtime-async method awaits has a second
    /// form.
    fn select(&self, cx: &mut InCallback<'_>, function: FunctionId) -> Hook<Self::Function>;

    /// Makes the state of a thread that begins, on that thread.
    fn thread_started(&self) -> Self::Thread;

    /// A function begins: its arguments are in place, none of its code has run.
    fn enter(&self, cx: &InHook<'_>, thread: &mut Self::Thread, function: &Self::Function) {
        const {
            assert!(
                !(Self::VALUES.is_empty() && Self::KINDS.contains(HookKinds::ENTER)),
                "`FunctionHooks::enter` is not implemented: leave `HookKinds::ENTER` out of `KINDS`; or, if `enter_with_args` is \
                 implemented, name the values that it needs in `VALUES`"
            );
        }
        let _ = (cx, thread, function);
    }

    /// A function is about to return. Not called when an exception unwinds the function, nor when the runtime itself
    /// suspends it (runtime async, opt-in on .NET 10): such a function is entered again each time it goes on, and
    /// leaves when it has finished. With [`SUSPENDS`](Self::SUSPENDS) all of this is told.
    fn leave(&self, cx: &InHook<'_>, thread: &mut Self::Thread, function: &Self::Function) {
        const {
            assert!(
                !(Self::VALUES.is_empty() && Self::KINDS.contains(HookKinds::LEAVE)),
                "`FunctionHooks::leave` is not implemented: leave `HookKinds::LEAVE` out of `KINDS`; or, if `leave_with_value` is \
                 implemented, name the values that it needs in `VALUES`"
            );
        }
        let _ = (cx, thread, function);
    }

    /// A function is about to end in a call of another, which replaces it on the stack. Its own leave does not come:
    /// unless this is implemented, [`leave`](Self::leave) is called instead.
    fn tailcall(&self, cx: &InHook<'_>, thread: &mut Self::Thread, function: &Self::Function) {
        self.leave(cx, thread, function);
    }

    /// In place of [`enter`](Self::enter), if the hooks receive [values](Self::VALUES). `args` has the function's
    /// arguments if these contain [`ARGUMENTS`](HookValues::ARGUMENTS).
    fn enter_with_args(
        &self,
        cx: &InSlowHook<'_>,
        thread: &mut Self::Thread,
        function: &Self::Function,
        args: &Arguments<'_>,
    ) {
        let _ = args;
        self.enter(cx.hook(), thread, function);
    }

    /// In place of [`leave`](Self::leave), if the hooks receive [values](Self::VALUES). `value` can be read if these
    /// contain [`RESULT`](HookValues::RESULT).
    fn leave_with_value(
        &self,
        cx: &InSlowHook<'_>,
        thread: &mut Self::Thread,
        function: &Self::Function,
        value: &ReturnValue<'_>,
    ) {
        let _ = value;
        self.leave(cx.hook(), thread, function);
    }

    /// In place of [`tailcall`](Self::tailcall), if the hooks receive [values](Self::VALUES). There is no value: the
    /// result of the next function is the result of both.
    fn tailcall_with_frame(&self, cx: &InSlowHook<'_>, thread: &mut Self::Thread, function: &Self::Function) {
        self.tailcall(cx.hook(), thread, function);
    }

    /// An exception may have unwound functions, whose [`leave`](Self::leave) does not come: the calls below `boundary`
    /// are gone.
    ///
    /// Called if [`UNWINDS`](Self::UNWINDS), before the profiler's own callback: when an exception is thrown, before
    /// and after a filter, and when a finally or catch block is about to run. Without it, the next hook on the thread
    /// would show that most of them are gone (its [stack pointer](InHook::stack_pointer) is above theirs), but not
    /// while the block runs, nor when the catching function has no hooks. Call
    /// [`ShadowStack::unwound`](crate::calls::ShadowStack::unwound) here.
    fn unwound(&self, thread: &mut Self::Thread, boundary: StackBoundary) {
        let _ = (thread, boundary);
    }

    /// A function is suspended, because it has to wait: the runtime suspends it (runtime async), or it is the
    /// `MoveNext` of an async method's state machine, which returns. Its frame ends now, and its call goes on later, on
    /// any thread. The [stack pointer](InHook::stack_pointer) is one of the function's own, below that of its `enter`:
    /// call [`ShadowStack::suspended`](crate::calls::ShadowStack::suspended).
    ///
    /// Called if [`SUSPENDS`](Self::SUSPENDS), by the runtime's own hooks and where
    /// [`TELLS_SUSPENSIONS`](super::TELLS_SUSPENSIONS). Of a method that has two forms only the one with its code then
    /// has hooks.
    fn suspended(&self, cx: &InHook<'_>, thread: &mut Self::Thread, function: &Self::Function) {
        let _ = (cx, thread, function);
    }

    /// A suspended function goes on: called in place of `enter`, which it calls by default.
    ///
    /// Called if [`SUSPENDS`](Self::SUSPENDS), as [`suspended`](Self::suspended).
    fn resumed(&self, cx: &InHook<'_>, thread: &mut Self::Thread, function: &Self::Function) {
        self.enter(cx, thread, function);
    }

    /// A thread ends and passes its state back. Called on that thread, where the values of other thread-locals may be
    /// gone; or, for threads that still exist at Shutdown, on the thread of Shutdown, before the profiler's `shutdown`.
    ///
    /// On Windows the system holds its loader lock during the call: do not wait for another thread.
    ///
    /// Hooks of managed code that runs on the thread after that are not called, as the thread has no state any more.
    /// Only native code makes such calls, for example in a destructor of a pthread key; on .NET 10 applications that do
    /// so crash without a profiler as well.
    fn thread_ended(&self, thread: Self::Thread) {
        drop(thread);
    }
}

impl<T: FunctionHooks> FunctionHooks for Arc<T> {
    type Function = T::Function;
    type Thread = T::Thread;

    const VALUES: HookValues = T::VALUES;
    const KINDS: HookKinds = T::KINDS;
    const UNWINDS: bool = T::UNWINDS;
    const SUSPENDS: bool = T::SUSPENDS;
    const TIMED: bool = T::TIMED;

    fn select(&self, cx: &mut InCallback<'_>, function: FunctionId) -> Hook<Self::Function> {
        T::select(self, cx, function)
    }

    fn thread_started(&self) -> Self::Thread {
        T::thread_started(self)
    }

    #[inline]
    fn enter(&self, cx: &InHook<'_>, thread: &mut Self::Thread, function: &Self::Function) {
        T::enter(self, cx, thread, function);
    }

    #[inline]
    fn leave(&self, cx: &InHook<'_>, thread: &mut Self::Thread, function: &Self::Function) {
        T::leave(self, cx, thread, function);
    }

    #[inline]
    fn tailcall(&self, cx: &InHook<'_>, thread: &mut Self::Thread, function: &Self::Function) {
        T::tailcall(self, cx, thread, function);
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

    fn suspended(&self, cx: &InHook<'_>, thread: &mut Self::Thread, function: &Self::Function) {
        T::suspended(self, cx, thread, function);
    }

    fn resumed(&self, cx: &InHook<'_>, thread: &mut Self::Thread, function: &Self::Function) {
        T::resumed(self, cx, thread, function);
    }

    fn thread_ended(&self, thread: Self::Thread) {
        T::thread_ended(self, thread);
    }
}
