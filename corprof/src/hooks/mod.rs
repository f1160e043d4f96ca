//! Enter/leave hooks: hear of every call that the application makes.
//!
//! A profiler implements [`FunctionHooks`] and hands it to [`InInitialize::hook_functions`]. From then on the SDK asks it
//! about each function that is compiled ([`select`](FunctionHooks::select)), and calls it when one that it chose begins,
//! returns, or is left by a tail call:
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
//!     fn select(&self, _cx: &mut InTriggers<'_>, _function: FunctionId) -> Hook<()> {
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
//!     fn initialize(&self, cx: &mut InInitialize<'_>) -> Result<(), BoxError> {
//!         cx.hook_functions(self.calls.clone())?;
//!         Ok(())
//!     }
//!     fn shutdown(&self, _cx: &mut InTriggers<'_>) {
//!         eprintln!("{} calls", self.calls.0.load(Relaxed));
//!     }
//! }
//! ```
//!
//! # What a hook may do
//!
//! Compiled code calls a hook directly, in the middle of its work: the thread keeps collections waiting until the hook
//! returns. So a hook is short, does not wait, and takes no lock that somebody holds while he calls the runtime. What it
//! needs again and again belongs into its thread's state, which it has to itself, and into what `select` keeps for a function:
//! names above all, for they cannot be looked up in a hook.
//!
//! A panic in a hook is like one in a callback: it is reported once, and the profiler is quiet from then on. Hooks that the
//! application still runs into after Shutdown do nothing.
//!
//! # Arguments and results
//!
//! Hooks that are told what functions are called with and what they return implement another trait, [`ValueHooks`], and are set
//! by [`InInitialize::hook_functions_with_values`]. Values are read by the functions' signatures: see [`Value`](values::Value). The runtime then
//! takes another way to all hooks, which costs several times as much. In return such a hook gets an [`InSlowHook`], which offers
//! more than an [`InHook`].
//!
//! What records calls is in [`calls`](crate::calls).

mod calls;
pub(crate) mod clock;
mod either;
mod fitness;
mod in_hook;
mod in_slow_hook;
mod install;
mod installed;
mod signature;
mod slow;
mod stubs;
mod threads;
mod unwind;
mod value_hooks;
pub mod values;
mod wrapper;

use std::sync::Arc;

#[cfg(doc)]
use crate::context::InInitialize;
use crate::context::InTriggers;
use crate::id::FunctionId;

pub use in_hook::InHook;
pub use in_slow_hook::InSlowHook;
use installed::Installed;
pub use unwind::StackBoundary;
pub use value_hooks::{HookValues, ValueHooks};

bitflags::bitflags! {
    /// Kinds of hooks. The runtime leaves out what nobody wants, which is cheaper than a hook that does nothing.
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

/// Whether a function is hooked, for good.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hook<F> {
    /// It is compiled without calls of hooks, and costs nothing.
    No,
    /// Its hooks are called, with this.
    Yes(F),
}

/// What is done when functions begin and end: see [the module](self).
///
/// It is told neither arguments nor results: for these there is [`ValueHooks`].
///
/// All threads share the value, and call it at the same time. It is dropped at the end of Shutdown; `Arc<T>` implements the
/// trait for a `T` that does, so the profiler can keep a share.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no hooks",
    note = "`hook_functions` takes a type that implements `FunctionHooks`; one that implements `ValueHooks` is handed to \
            `hook_functions_with_values`"
)]
pub trait FunctionHooks: Send + Sync + 'static {
    /// What is kept for each function that is hooked, its name for instance. It is never dropped, for the runtime keeps a
    /// pointer to it for as long as the process lives, even when the function is gone.
    type Function: Send + Sync + 'static;

    /// What each thread has to itself. It is there from the beginning of a managed thread, at the latest from its first
    /// hook, until the operating-system thread ends.
    type Thread: Send + 'static;

    /// The hooks that are implemented. Those that are not mentioned are not called.
    const KINDS: HookKinds = HookKinds::all();

    /// Whether [`unwound`](Self::unwound) is called.
    const UNWINDS: bool = false;

    /// Whether each hook begins with a reading of the clock, which [`HookClock::at`](crate::calls::HookClock::at) gives. It is the cheapest way to the time.
    const TIMED: bool = false;

    /// Whether `function`, which is about to be compiled for the first time, is to be hooked.
    ///
    /// It is asked once for each function, and once for each instantiation of a generic function that has code of its own; twice if
    /// two threads compile it at the same time, and then both answers are in use.
    /// Not asked about and not hooked are functions without metadata; the runtime's own handling of exceptions, which is managed
    /// from .NET 9 on (`System.Runtime.EH` and what it uses), so that a function that throws is seen as in older runtimes; and what
    /// suspends a method for runtime async (`AsyncHelpers.AwaitAwaiter` and the like), which .NET 10 compiles wrongly with hooks.
    ///
    /// A function can be asked about twice under two identifiers: a method that is awaited by one that the runtime itself suspends
    /// has a second form.
    fn select(&self, cx: &mut InTriggers<'_>, function: FunctionId) -> Hook<Self::Function>;

    /// The state of a thread that begins: made on that thread.
    fn thread_started(&self) -> Self::Thread;

    /// A function begins: its arguments are there, nothing of it has run.
    fn enter(&self, cx: &InHook<'_>, thread: &mut Self::Thread, function: &Self::Function) {
        let _ = (cx, thread, function);
    }

    /// A function is about to return. This is not called for a function that an exception leaves, nor when the runtime itself
    /// suspends it (runtime async, which is opt-in on .NET 10): it is entered anew each time that it goes on, and leaves when it
    /// has finished.
    fn leave(&self, cx: &InHook<'_>, thread: &mut Self::Thread, function: &Self::Function) {
        let _ = (cx, thread, function);
    }

    /// A function is about to end in a call of another, which takes its place on the stack. It will not leave: unless this
    /// is implemented, [`leave`](Self::leave) is called instead.
    fn tailcall(&self, cx: &InHook<'_>, thread: &mut Self::Thread, function: &Self::Function) {
        self.leave(cx, thread, function);
    }

    /// An exception may have left functions, whose [`leave`](Self::leave) does not come: those beyond `boundary` are gone.
    ///
    /// Called if [`UNWINDS`](Self::UNWINDS), before the profiler's own callback: when an exception is thrown, before and after
    /// a filter, and when a finally or catch block is about to run. The next hook on the thread would show most of them to be gone (its
    /// [stack pointer](InHook::stack_pointer) is above theirs), but not while the block runs, nor when the function that
    /// catches has no hooks. [`ShadowStack::unwound`](crate::calls::ShadowStack::unwound) does what there is to do.
    fn unwound(&self, thread: &mut Self::Thread, boundary: StackBoundary) {
        let _ = (thread, boundary);
    }

    /// A thread ends, and here is its state: called on that thread, where what other thread-locals hold may be gone; or, for
    /// threads that are still there at Shutdown, on the thread of Shutdown, before the profiler's `shutdown`.
    ///
    /// On Windows the system holds its loader lock meanwhile: do not wait for another thread.
    ///
    /// Managed code that runs on the thread after that has hooks which are not called: there is no state for them any more. Only
    /// native code makes such calls, in a destructor of a pthread key, say; on .NET 10 applications that do it crash without a
    /// profiler as well.
    fn thread_ended(&self, thread: Self::Thread) {
        drop(thread);
    }
}

impl<T: FunctionHooks> FunctionHooks for Arc<T> {
    type Function = T::Function;
    type Thread = T::Thread;

    const KINDS: HookKinds = T::KINDS;
    const UNWINDS: bool = T::UNWINDS;
    const TIMED: bool = T::TIMED;

    fn select(&self, cx: &mut InTriggers<'_>, function: FunctionId) -> Hook<Self::Function> {
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

    fn thread_ended(&self, thread: Self::Thread) {
        T::thread_ended(self, thread);
    }
}
