//! What records the calls that [hooks](crate::hooks) hear of.
//!
//! | type | what it does |
//! |---|---|
//! | [`CallProfiler`] | counts and times calls by the path that led to them; the result is a [`CallTree`] |
//! | [`CallLog`] | tells a [`CallReader`] every call in order, with its times; short ones are folded |
//! | [`EventQueue`] | hands events of any type from hooks to an [`EventReader`] |
//! | [`ShadowStack`] | the hooked functions that run on a thread, right through exceptions |
//! | [`HookClock`] | a clock that a hook can afford |
//!
//! Each has a part for every thread, which belongs into [`FunctionHooks::Thread`](crate::hooks::FunctionHooks::Thread).

mod cold_call;
mod log;
mod paths;
mod profiler;
mod queue;
mod reader;
mod shadow_stack;
mod tree;

pub use crate::hooks::clock::HookClock;
pub use log::{CallLog, CallWriter};
pub use profiler::{CallProfiler, CallTimer};
pub use queue::{EventQueue, EventReader, EventWriter};
pub use reader::{CallBegin, CallEnd, CallReader, CallThread, FoldedCalls};
pub use shadow_stack::ShadowStack;
pub use tree::{CallPath, CallTotals, CallTree};
