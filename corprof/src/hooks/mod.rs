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
//! Hooks that ask for values ([`FunctionHooks::VALUES`]) are told what functions are called with and what they return, read by
//! their signatures: see [`Value`]. The runtime then takes another way to all hooks, which costs several times as much; hooks
//! that do not ask pay nothing for it. In return such a hook gets an [`InSlowHook`], which offers more than an [`InHook`].
//!
//! # Where the files are
//!
//! `install.rs` sets hooks, `stubs` has the assembly and its tests, `signature.rs` proves which functions need no vector
//! registers kept, `installed.rs` leads from a stub to the user's method, and `threads.rs` keeps each thread's state.
//! `rarely.rs` calls what hooks seldom do at no price for the rest. `shadow.rs` is a stack of what is running, and `unwind.rs`
//! tells what exceptions have left of it. What hooks find goes through `events.rs` to a reader; `call_log.rs` does that for
//! calls, with the times of `clock.rs`. Where sums are enough, `call_times.rs` adds up each thread's calls in `call_paths.rs`,
//! and `call_tree.rs` is the result. `slow.rs` is the way to hooks that are told values, which `values` reads.

mod call_log;
mod call_paths;
mod call_times;
mod call_tree;
mod clock;
mod events;
mod in_hook;
mod in_slow_hook;
mod install;
mod installed;
mod rarely;
mod shadow;
mod signature;
mod slow;
mod stubs;
mod threads;
mod unwind;
mod values;
mod wrapper;

use std::sync::Arc;

#[cfg(doc)]
use crate::context::InInitialize;
use crate::context::InTriggers;
use crate::id::FunctionId;

pub use call_log::{Call, CallLog, CallReader, CallWriter};
pub use call_times::{CallTimer, CallTimes};
pub use call_tree::{CallPath, CallTotals, CallTree};
pub use clock::HookClock;
pub use events::{EventReader, EventWriter, Events};
pub use in_hook::InHook;
pub use in_slow_hook::InSlowHook;
pub(crate) use installed::{AnyHooks, Installed};
pub use shadow::ShadowStack;
pub(crate) use slow::ArgumentRoom;
pub(crate) use stubs::{SlowStub, SlowStubs, Stub, Stubs};
pub use unwind::StackBoundary;
pub(crate) use unwind::is_about_unwinding;
pub use values::{
    Arguments, ByRef, EnumValue, Field, HookValues, ReturnValue, StringRef, StructValue, Unreadable, Value,
};

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
/// All threads share the value, and call it at the same time. It is dropped at the end of Shutdown; `Arc<T>` implements the
/// trait for a `T` that does, so the profiler can keep a share.
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

    /// Whether each hook begins with a reading of the clock, which [`HookClock::at`] gives. It is the cheapest way to the time.
    const TIMED: bool = false;

    /// What hooks are told of values. If it is anything, [`enter_with_args`](Self::enter_with_args),
    /// [`leave_with_value`](Self::leave_with_value) and [`tailcall_with_frame`](Self::tailcall_with_frame) are called in place
    /// of the other three, by the runtime's slow path. Functions that native code calls (`UnmanagedCallersOnly`) are not
    /// hooked then, as the slow path is not made for them.
    ///
    /// From .NET 5 on; before, only with [`VALUES_BEFORE_NET_5`](Self::VALUES_BEFORE_NET_5).
    const VALUES: HookValues = HookValues::empty();

    /// Whether values are wanted of .NET Core 3.1 as well, at the risk of the application's exit code.
    ///
    /// .NET Core 3.1 has a fault there that no profiler can mend: if a thread is still in functions with such hooks when the
    /// application has ended and the profiler is gone, the runtime reads what it has deleted, and the process ends by a signal.
    /// An application whose threads have all left such functions by then is safe. Unless this says yes,
    /// [`hook_functions`](crate::InInitialize::hook_functions) is an error there.
    const VALUES_BEFORE_NET_5: bool = false;

    /// Whether `function`, which is about to be compiled for the first time, is to be hooked.
    ///
    /// It is asked once for each function, and one for each instantiation of a generic function that has code of its own.
    /// Functions without metadata are not asked about and not hooked.
    fn select(&self, cx: &mut InTriggers<'_>, function: FunctionId) -> Hook<Self::Function>;

    /// The state of a thread that begins: made on that thread.
    fn thread_started(&self) -> Self::Thread;

    /// A function begins: its arguments are there, nothing of it has run.
    fn enter(&self, cx: &InHook<'_>, thread: &mut Self::Thread, function: &Self::Function) {
        let _ = (cx, thread, function);
    }

    /// A function is about to return. This is not called for a function that an exception leaves.
    fn leave(&self, cx: &InHook<'_>, thread: &mut Self::Thread, function: &Self::Function) {
        let _ = (cx, thread, function);
    }

    /// A function is about to end in a call of another, which takes its place on the stack. It will not leave: unless this
    /// is implemented, [`leave`](Self::leave) is called instead.
    fn tailcall(&self, cx: &InHook<'_>, thread: &mut Self::Thread, function: &Self::Function) {
        self.leave(cx, thread, function);
    }

    /// As [`enter`](Self::enter), which it calls unless it is implemented, with the arguments if
    /// [`VALUES`](Self::VALUES) has [`ARGUMENTS`](HookValues::ARGUMENTS).
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

    /// As [`leave`](Self::leave), which it calls unless it is implemented, with what is returned if
    /// [`VALUES`](Self::VALUES) has [`RESULT`](HookValues::RESULT).
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

    /// As [`tailcall`](Self::tailcall), which it calls unless it is implemented. There is no value: what the next function
    /// returns is the result of both.
    fn tailcall_with_frame(&self, cx: &InSlowHook<'_>, thread: &mut Self::Thread, function: &Self::Function) {
        self.tailcall(cx.hook(), thread, function);
    }

    /// An exception may have left functions, whose [`leave`](Self::leave) does not come: those beyond `boundary` are gone.
    ///
    /// Called if [`UNWINDS`](Self::UNWINDS), before the profiler's own callback: when an exception is thrown, before and after
    /// a filter, and when a finally or catch block is about to run. The next hook on the thread would show most of them to be gone (its
    /// [stack pointer](InHook::stack_pointer) is above theirs), but not while the block runs, nor when the function that
    /// catches has no hooks. [`ShadowStack::unwound`] does what there is to do.
    fn unwound(&self, thread: &mut Self::Thread, boundary: StackBoundary) {
        let _ = (thread, boundary);
    }

    /// A thread ends, and here is its state: called on that thread, where what other thread-locals hold may be gone; or, for
    /// threads that are still there at Shutdown, on the thread of Shutdown, before the profiler's `shutdown`.
    ///
    /// On Windows the system holds its loader lock meanwhile: do not wait for another thread.
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
    const VALUES: HookValues = T::VALUES;
    const VALUES_BEFORE_NET_5: bool = T::VALUES_BEFORE_NET_5;

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
