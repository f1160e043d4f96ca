//! Enter/leave hooks: the profiler is called at every call that the application makes.
//!
//! A profiler implements [`FunctionHooks`] and passes it to [`InInitialize::hooks`]. From then on the SDK asks it about
//! each function that is compiled ([`select`](FunctionHooks::select)), and calls it when a selected function begins,
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
//!         Hook::Inlinable(())
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
//!         cx.hooks(profiler.calls.clone()).install()?;
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
//! Compiled code calls a hook directly, and the thread delays collections until the hook returns. So a hook must be
//! short, must not wait, and must not take a lock that another thread holds while it calls the runtime. Keep data that
//! a hook needs often in the thread's state, which belongs to the hook alone, or in the value that `select` returns for
//! a function: above all names, which cannot be looked up in a hook.
//!
//! A panic in a hook is handled like one in a callback: it is reported once, and the profiler is disabled. Hooks that
//! the application calls after Shutdown do nothing.
//!
//! # Who calls the hooks
//!
//! | | |
//! |---|---|
//! | `cx.hooks(hooks).install()?` | the runtime |
//! | `cx.hooks(hooks).inserted(Precompiled::Keep).install()?` | [inserted code](HookSetup::inserted): the calls are added to the code of the methods. Precompiled code can then be kept, and the application starts faster |
//! | `cx.hooks(hooks).install()?` after an attach ([`InAttach::hooks`]) | inserted code |
//!
//! # Calls that the compiler inlines
//!
//! The answer of `select` decides: [`Hook::Inlinable`] leaves optimised code as it is, and an inlined call is a part of
//! its caller; [`Hook::Exact`] has hooks in each call.
//!
//! # Arguments and results
//!
//! Hooks that need arguments or results name them in [`VALUES`](FunctionHooks::VALUES). Values are read by the
//! functions' signatures: see [`Value`](crate::values::Value). All hooks that the runtime calls then use its slow path,
//! which costs several times as much. In return such a hook gets an [`InSlowHook`], which offers more calls than an
//! [`InHook`]. Inserted code calls hooks with values as directly as others, but offers no more calls.
//!
//! Types that record calls are in [`calls`](crate::calls).
//!
//! # Other ways to watch or change methods
//!
//! The first four rows are hooks, the next four bring an [edit](crate::edit) to a method, and the last three are edits.
//! [`Instrumentation`](crate::instrumentation::Instrumentation) has a module of its own.
//!
#![doc = include_str!("ways.md")]
//!
//! The book's pages "Tracing calls" and "Rewriting code" have the figures, and the commands that measure them.

mod answers;
mod calls;
pub(crate) mod clock;
mod fitness;
mod function_hooks;
mod in_hook;
mod in_slow_hook;
mod inlined;
mod inserted;
mod inserted_calls;
mod install;
mod installed;
mod left_out;
mod sample_clock;
mod setup;
mod signature;
mod slow;
mod state_machines;
mod stubs;
mod suspensions;
mod threads;
mod unwind;
mod vector_tail_calls;
mod wrapper;

#[cfg(doc)]
use crate::context::{InAttach, InInitialize};

pub use function_hooks::{FunctionHooks, Hook, HookKinds, HookValues};
pub use in_hook::InHook;
pub use in_slow_hook::InSlowHook;
pub use inserted::Precompiled;
use installed::Installed;
pub use left_out::{HookedFunctions, LeftOut};
pub use sample_clock::SampleClock;
pub use setup::HookSetup;
pub use unwind::StackBoundary;

/// Whether the runtime's own hooks tell of [suspensions](FunctionHooks::suspended): on x86-64. On other processors it
/// is not known where a function returns to.
pub const TELLS_SUSPENSIONS: bool = suspensions::KNOWS_CALLERS;
