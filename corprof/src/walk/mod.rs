//! Stack walks.
//!
//! A thread's stack is a sandwich: frames of managed functions, and between them blocks of native code. There are two ways to
//! look at it:
//!
//! - [`walk_own_stack`](crate::InCallback::walk_own_stack) walks the stack of the thread that a callback is made on: who
//!   allocated this, who threw that. Nothing has to be suspended (`own.rs`; `start.rs` for where it begins in a slow hook).
//! - [`Sampler`] looks at all threads, again and again, from a thread of its own, which stops them for it (`sampler.rs` for
//!   how it is asked for, `sampling.rs` for what it does, `schedule.rs` for when, `activity.rs` for which threads have run,
//!   `strategy/` for how threads are stopped and walked).
//!
//! # The three rules of suspension
//!
//! Whoever stops threads can hang the application. corprof keeps the rules that prevent it, and leaves none of them to the
//! profiler:
//!
//! 1. Only a thread that never runs managed code may stop others. The sampler's thread is one of corprof's own, it alone has
//!    what stops threads, there is one in the process, and it refuses to go on should it ever become a managed one.
//! 2. A thread must not end while it is walked. The adapter lets its `ThreadDestroyed` wait (`corprof/src/session/liveness/`).
//! 3. While threads stand still, no memory is asked for and no lock taken, for a stopped thread may have it
//!    (`corprof/src/suspension.rs`; the memory is set aside before, `sample_buffer.rs`). For the same reason a lock is not held over a call that
//!    may start a collection ([`sync`](crate::sync)).
//!
//! Threads run again whatever happens in between: resuming is what the drop of a guard does.

mod activity;
mod budget;
mod frame;
mod own;
mod registers;
mod report;
mod round;
mod sample_buffer;
mod sampler;
mod sampling;
mod schedule;
mod start;
mod strategy;

pub use crate::session::FrameInfo;
pub use frame::Frame;
pub use registers::Registers;
pub use report::{CodeCounts, Report, SkippedRounds, SuspensionTimes, ThreadCounts};
pub use round::{Round, Sample, SampledThread};
pub use sample_buffer::SampledFrame;
pub use sampler::{Mode, Sampler, SamplerError};
pub use strategy::Strategy;
pub(crate) use strategy::{thread_assigned, thread_ending};
