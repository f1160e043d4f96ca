//! Enter/leave hooks: the profiler is called at every call that the application makes.
//!
//! A profiler implements [`FunctionHooks`] and passes it to [`InInitialize::hook_functions`]. From then on the SDK asks it
//! about each function that is compiled ([`select`](FunctionHooks::select)), and calls it when a selected function begins,
//! returns, or ends in a tail call:
//!
//! ```
//! use std::sync::{Arc, atomic::{AtomicU64, Ordering::Relaxed}};
//! use corprof::prelude::*;
//!
//! /// Counts calls: each thread by itself, and all together when a thread ends.
//! #[derive(Default)]
//! struct Calls(AtomicU64);
//!
//! impl FunctionHooks for Calls {
//!     type Function = ();
//!     type Thread = u64;
//!     const KINDS: HookKinds = HookKinds::ENTER;
//!
//!     fn select(&self, _cx: &mut InCallback<'_>, _function: FunctionId) -> Hook<()> {
//!         Hook::Yes(())
//!     }
//!     fn thread_started(&self) -> u64 {
//!         0
//!     }
//!     fn enter(&self, _cx: &InHook<'_>, calls: &mut u64, _function: &()) {
//!         *calls += 1;
//!     }
//!     fn thread_ended(&self, calls: u64) {
//!         self.0.fetch_add(calls, Relaxed);
//!     }
//! }
//!
//! #[derive(Default, Profiler)]
//! #[profiler(clsid = "5F0D6D0E-4C4B-4E0C-9B53-6C2B6E6D1C03", no_export)]
//! struct Counter {
//!     calls: Arc<Calls>,
//! }
//!
//! #[callbacks]
//! impl Callbacks for Counter {
//!     fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
//!         let profiler = Self::default();
//!         cx.hook_functions(profiler.calls.clone())?;
//!         Ok(profiler)
//!     }
//!     fn shutdown(&self, _cx: &mut InCallback<'_>) {
//!         eprintln!("{} calls", self.calls.0.load(Relaxed));
//!     }
//! }
//! ```
//!
//! # What a hook may do
//!
//! Compiled code calls a hook directly, and the thread delays collections until the hook returns. So a hook must be short, must
//! not wait, and must not take a lock that another thread holds while it calls the runtime. Keep data that a hook needs often
//! in the thread's state, which belongs to the hook alone, or in the value that `select` returns for a function: above all
//! names, which cannot be looked up in a hook.
//!
//! A panic in a hook is handled like one in a callback: it is reported once, and the profiler is disabled. Hooks that the
//! application calls after Shutdown do nothing.
//!
//! # Who calls the hooks
//!
//! [`InInitialize::hook_functions`] has the runtime call them. [`InInitialize::hook_functions_by_il`] takes the same hooks, and adds
//! the calls to the code of the methods: precompiled code can then be kept, and the application starts faster.
//!
//! # Arguments and results
//!
//! Hooks that receive arguments and results implement another trait, [`ValueHooks`], and are set by
//! [`InInitialize::hook_functions_with_values`]. Values are read by the functions' signatures: see [`Value`](values::Value).
//! All hooks then use the runtime's slow path, which costs several times as much. In return such a hook gets an [`InSlowHook`],
//! which offers more calls than an [`InHook`]. [`InInitialize::hook_functions_with_values_by_il`] has inserted code call the same
//! hooks, which is faster, but offers no more calls.
//!
//! Types that record calls are in [`calls`](crate::calls).

mod calls;
pub(crate) mod clock;
mod either;
mod fitness;
mod in_hook;
mod in_slow_hook;
mod inlined;
mod inserted;
mod inserted_calls;
mod install;
mod installed;
mod left_out;
mod signature;
mod slow;
mod state_machines;
mod stubs;
mod suspensions;
mod threads;
mod unwind;
mod value_hooks;

mod wrapper;

use std::sync::Arc;

use crate::context::InCallback;
#[cfg(doc)]
use crate::context::InInitialize;
use crate::id::FunctionId;

pub use in_hook::InHook;
pub use in_slow_hook::InSlowHook;
pub use inserted::{InsertedHooks, Precompiled};
use installed::Installed;
pub use left_out::{HookedFunctions, LeftOut};
pub use unwind::StackBoundary;
pub use value_hooks::{HookValues, ValueHooks};

pub use crate::values;

/// Whether the runtime's own hooks tell of [suspensions](FunctionHooks::suspended): on x86-64. On other processors it is not known
/// where a function returns to.
pub const TELLS_SUSPENSIONS: bool = suspensions::KNOWS_CALLERS;

bitflags::bitflags! {
    /// Kinds of hooks. The runtime does not call a kind that is left out, which is cheaper than a hook that does nothing.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub struct HookKinds: u8 {
        /// [`FunctionHooks::enter`].
        const ENTER = 1;
        /// [`FunctionHooks::leave`].
        const LEAVE = 2;
        /// [`FunctionHooks::tailcall`].
        const TAILCALL = 4;
    }
}

/// Whether a function is hooked. The answer is final.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hook<F> {
    /// The function is compiled without calls of hooks, and costs nothing.
    No,
    /// Its hooks are called, with this value. [Inserted code](InInitialize::hook_functions_by_il) leaves out functions that the
    /// compiler inlines, unless they receive values.
    Yes(F),
    /// Its hooks are called, with this value, also those by inserted code, whatever they cost.
    Always(F),
}

/// Hooks that run when functions begin and end: see [the module](self).
///
/// They receive neither arguments nor results: [`ValueHooks`] does.
///
/// All threads share the value, and call it at the same time. It is dropped at the end of Shutdown. `Arc<T>` implements the
/// trait if `T` does, so that the profiler can keep a reference.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no hooks",
    note = "`hook_functions` takes a type that implements `FunctionHooks`; pass one that implements `ValueHooks` to \
            `hook_functions_with_values`"
)]
pub trait FunctionHooks: Send + Sync + 'static {
    /// Data kept for each hooked function, its name for instance. It is never dropped: the runtime keeps a pointer to it as
    /// long as the process lives, even when the function is gone.
    type Function: Send + Sync + 'static;

    /// The state of one thread, used by that thread alone. It exists from the beginning of a managed thread, at the latest from
    /// its first hook, until the operating-system thread ends.
    type Thread: Send + 'static;

    /// The hooks that are implemented. The other kinds are not called.
    const KINDS: HookKinds = HookKinds::all();

    /// Whether [`unwound`](Self::unwound) is called.
    const UNWINDS: bool = false;

    /// Whether [`suspended`](Self::suspended) and [`resumed`](Self::resumed) are called.
    const SUSPENDS: bool = false;

    /// Whether the clock is read at the beginning of each hook, for [`HookClock::at`](crate::calls::HookClock::at). This is the
    /// cheapest way to get the time.
    const TIMED: bool = false;

    /// Decides whether to hook `function`, which is about to be compiled for the first time.
    ///
    /// Called once for each function, and once for each instantiation of a generic function that has its own code; twice if two
    /// threads compile the function at the same time, and then both answers are in use.
    ///
    /// Some functions are never hooked, and `select` is not called for them: functions without metadata; the runtime's own
    /// handling of exceptions, which is managed from .NET 9 on (`System.Runtime.EH` and the functions that it uses), so that a
    /// throwing function looks as on .NET 8; the functions that suspend a runtime-async method
    /// (`AsyncHelpers.AwaitAwaiter` and others), which .NET 10 compiles wrongly with hooks; and `Thread.PollGC`, which compiled code
    /// calls after an inserted call.
    ///
    /// A function can be asked about under two identifiers: a method that a runtime-async method awaits has a second form.
    fn select(&self, cx: &mut InCallback<'_>, function: FunctionId) -> Hook<Self::Function>;

    /// Makes the state of a thread that begins, on that thread.
    fn thread_started(&self) -> Self::Thread;

    /// A function begins: its arguments are in place, none of its code has run.
    fn enter(&self, cx: &InHook<'_>, thread: &mut Self::Thread, function: &Self::Function) {
        let _ = (cx, thread, function);
    }

    /// A function is about to return. Not called when an exception unwinds the function, nor when the runtime itself suspends
    /// it (runtime async, opt-in on .NET 10): such a function is entered again each time it goes on, and leaves when it has
    /// finished. With [`SUSPENDS`](Self::SUSPENDS) all of this is told.
    fn leave(&self, cx: &InHook<'_>, thread: &mut Self::Thread, function: &Self::Function) {
        let _ = (cx, thread, function);
    }

    /// A function is about to end in a call of another, which replaces it on the stack. Its own leave does not come: unless
    /// this is implemented, [`leave`](Self::leave) is called instead.
    fn tailcall(&self, cx: &InHook<'_>, thread: &mut Self::Thread, function: &Self::Function) {
        self.leave(cx, thread, function);
    }

    /// An exception may have unwound functions, whose [`leave`](Self::leave) does not come: the calls below `boundary` are
    /// gone.
    ///
    /// Called if [`UNWINDS`](Self::UNWINDS), before the profiler's own callback: when an exception is thrown, before and after
    /// a filter, and when a finally or catch block is about to run. Without it, the next hook on the thread would show that
    /// most of them are gone (its [stack pointer](InHook::stack_pointer) is above theirs), but not while the block runs, nor
    /// when the catching function has no hooks. Call [`ShadowStack::unwound`](crate::calls::ShadowStack::unwound) here.
    fn unwound(&self, thread: &mut Self::Thread, boundary: StackBoundary) {
        let _ = (thread, boundary);
    }

    /// A function is suspended, because it has to wait: the runtime suspends it (runtime async), or it is the `MoveNext` of an async
    /// method's state machine, which returns. Its frame ends now, and its call goes on later, on any thread. The [stack
    /// pointer](InHook::stack_pointer) is one of the function's own, below that of its `enter`: call
    /// [`ShadowStack::suspended`](crate::calls::ShadowStack::suspended).
    ///
    /// Called if [`SUSPENDS`](Self::SUSPENDS), by the runtime's own hooks and where [`TELLS_SUSPENSIONS`]. Of a method that has two
    /// forms only the one with its code then has hooks.
    fn suspended(&self, cx: &InHook<'_>, thread: &mut Self::Thread, function: &Self::Function) {
        let _ = (cx, thread, function);
    }

    /// A suspended function goes on: called in place of `enter`, which it calls by default.
    ///
    /// Called if [`SUSPENDS`](Self::SUSPENDS), as [`suspended`](Self::suspended).
    fn resumed(&self, cx: &InHook<'_>, thread: &mut Self::Thread, function: &Self::Function) {
        self.enter(cx, thread, function);
    }

    /// A thread ends and passes its state back. Called on that thread, where the values of other thread-locals may be gone; or,
    /// for threads that still exist at Shutdown, on the thread of Shutdown, before the profiler's `shutdown`.
    ///
    /// On Windows the system holds its loader lock during the call: do not wait for another thread.
    ///
    /// Hooks of managed code that runs on the thread after that are not called, as the thread has no state any more. Only
    /// native code makes such calls, for example in a destructor of a pthread key; on .NET 10 applications that do so crash
    /// without a profiler as well.
    fn thread_ended(&self, thread: Self::Thread) {
        drop(thread);
    }
}

impl<T: FunctionHooks> FunctionHooks for Arc<T> {
    type Function = T::Function;
    type Thread = T::Thread;

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
