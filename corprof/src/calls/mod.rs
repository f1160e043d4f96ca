//! Records the calls that [hooks](crate::hooks) see.
//!
//! | type | what it does |
//! |---|---|
//! | [`CallProfiler`] | counts and times calls by the path that led to them; the result is a [`CallTree`] |
//! | [`CallLog`] | passes every call in order, with its times, to a [`CallReader`]; short ones are folded |
//! | [`EventQueue`] | passes events of any type from hooks to an [`EventReader`] |
//! | [`ShadowStack`] | tracks the hooked functions that run on a thread, exceptions included |
//! | [`HookClock`] | a clock that is fast enough for hooks |
//!
//! [`CallProfiler`] and [`CallLog`] (of names) are hooks themselves, of all functions. To choose functions, call one
//! from hooks of your own.
//!
//! Each has a part for every thread: keep it in [`FunctionHooks::Thread`](crate::hooks::FunctionHooks::Thread).

mod cold_call;
mod hooked;
mod log;
mod paths;
mod profiler;
mod queue;
mod reader;
mod shadow_stack;
mod tree;
mod waits;

pub use crate::hooks::clock::HookClock;
pub use log::{CallLog, CallWriter};
pub use profiler::{CallProfiler, CallTimer};
pub use queue::{EventQueue, EventReader, EventWriter};
pub use reader::{CallBegin, CallEnd, CallReader, CallThread, FoldedCalls};
pub use shadow_stack::ShadowStack;
pub use tree::{CallPath, CallTotals, CallTree};
