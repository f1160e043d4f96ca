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
//! # Where the files are
//!
//! `stubs` has the assembly and its tests, `signature.rs` proves which functions need no vector registers kept, `installed.rs`
//! leads from a stub to the user's method, `threads.rs` keeps each thread's state, `shadow.rs` is a stack of what is running,
//! and `unwind.rs` tells what exceptions have left of it. What hooks find goes through `events.rs` to a reader; `call_log.rs`
//! does that for calls.

mod call_log;
mod events;
mod in_hook;
mod installed;
mod shadow;
mod signature;
mod stubs;
mod threads;
mod unwind;

use std::sync::Arc;

use crate::context::{InInitialize, InTriggers};
use crate::error::{E_FAIL, E_NOTIMPL, Error, Result};
use crate::event_mask::EventMask;
use crate::id::FunctionId;

pub use call_log::{Call, CallLog, CallReader, CallWriter};
pub use events::{EventReader, EventWriter, Events};
pub use in_hook::InHook;
pub(crate) use installed::{AnyHooks, Installed};
pub use shadow::ShadowStack;
pub(crate) use stubs::{Stub, Stubs};
pub use unwind::StackBoundary;
pub(crate) use unwind::is_about_unwinding;

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

impl InInitialize<'_> {
    /// Has `hooks` called from now on, for every function that it [selects](FunctionHooks::select).
    ///
    /// Turns on what is needed of the event mask: `MONITOR_ENTERLEAVE`, which makes the runtime compile all code anew instead
    /// of taking what was compiled ahead of time, and `MONITOR_THREADS`. `MONITOR_ENTERLEAVE` may be turned off later: what is
    /// compiled then has no hooks. With [`FunctionHooks::UNWINDS`] also `MONITOR_EXCEPTIONS` and `ENABLE_STACK_SNAPSHOT`,
    /// which make each exception dearer.
    ///
    /// The fast path is used, which tells neither arguments nor results.
    ///
    /// Call class: **init-only**, not allowed after attach, never starts a GC. A profiler that has called it cannot be
    /// detached any more.
    ///
    /// # Errors
    /// `CORPROF_E_INCONSISTENT_WITH_FLAGS`: `ENABLE_FUNCTION_ARGS`, `ENABLE_FUNCTION_RETVAL` or `ENABLE_FRAME_INFO` is on, so
    /// that the runtime would take the slow path. `E_NOTIMPL`: there are no stubs for this processor and system, or the
    /// runtime has none (.NET Core 3.1 on arm64). `E_FAIL`: hooks are set already; [`Hook::Yes`] can hold what several need.
    pub fn hook_functions<H: FunctionHooks>(&self, hooks: H) -> Result<()> {
        const CALL: &str = "SetEnterLeaveFunctionHooks3";
        /// The first version of the interface with hooks on arm64: that of .NET 5.
        const ARM64_SINCE: u8 = 12;
        let slow = EventMask::ENABLE_FUNCTION_ARGS | EventMask::ENABLE_FUNCTION_RETVAL | EventMask::ENABLE_FRAME_INFO;

        let Some(stubs) = stubs::of::<Installed<H>>() else {
            let rule = "corprof has no hook stubs for this processor: use x86-64, or arm64 outside of Windows";
            return Err(Error::new(E_NOTIMPL, CALL).about(std::env::consts::ARCH, rule));
        };
        if cfg!(target_arch = "aarch64") && self.version() < ARM64_SINCE {
            let rule = "this runtime's own hook stubs are empty there: it takes .NET 5 or later";
            return Err(Error::new(E_NOTIMPL, CALL).about("arm64", rule));
        }
        if self.hooks().is_some() {
            let rule = "a profiler has one `FunctionHooks`: let it do what both should";
            return Err(Error::new(E_FAIL, CALL).about("hooks that are set already", rule));
        }
        let before = self.event_mask()?;
        if before.intersects(slow) {
            let rule = "the fast hooks that these are tell neither arguments nor results: turn this flag off";
            return Err(Error::new(corprof_sys::CORPROF_E_INCONSISTENT_WITH_FLAGS, CALL)
                .about("ENABLE_FUNCTION_ARGS, ENABLE_FUNCTION_RETVAL or ENABLE_FRAME_INFO", rule));
        }
        // The runtime looks at the mask when the hooks are set.
        let unwinds = EventMask::MONITOR_EXCEPTIONS | EventMask::ENABLE_STACK_SNAPSHOT;
        let unwinds = if H::UNWINDS { unwinds } else { EventMask::empty() };
        self.add_events(EventMask::MONITOR_ENTERLEAVE | EventMask::MONITOR_THREADS | unwinds)?;
        let installed = Installed::leak(hooks, self);
        let set = self.set_function_mapper(installed).and_then(|()| self.set_fast_hooks(H::KINDS, stubs));
        match set {
            Ok(()) => self.set_hooks(installed),
            Err(_) => self.set_event_mask(before)?,
        }
        set
    }
}
