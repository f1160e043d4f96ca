//! Stack walks.
//!
//! A thread's stack is a sandwich: frames of managed functions, and between them blocks of native code. There are two ways to
//! walk it:
//!
//! - [`walk_own_stack`](crate::InNoGc::walk_own_stack) walks the stack of the thread of a callback: the code that allocated
//!   this object or threw that exception. No thread is suspended (`own.rs`; `start.rs` for the start of a walk in a slow hook).
//! - [`Sampler`] takes samples of all threads, from a thread of its own, which stops them (`sampler.rs` for its options,
//!   `sampling.rs` for its loop, `drawing.rs` for rounds that walk one thread, `schedule.rs` for its times, `activity.rs` for which
//!   threads have run, `strategy/` for how threads are stopped and walked).
//!
//! # The three rules of suspension
//!
//! Code that stops threads can hang the application. corprof itself keeps the rules that prevent this; the profiler need not:
//!
//! 1. Only a thread that never runs managed code may stop others. The sampler's thread is one of corprof's own, there is one in
//!    the process, and it ends if it ever becomes a managed thread. The threads that stop single threads for it run corprof's code
//!    only (`strategy/seeded/crew.rs`). The thread that looks for unloads after an attach is another
//!    one (`adapter/settle.rs`); if both want to suspend the runtime, the second waits.
//! 2. A thread must not end while it is walked. The adapter lets its `ThreadDestroyed` wait (`corprof/src/session/liveness/`).
//! 3. While threads are suspended, no memory is allocated and no lock taken, as a stopped thread may hold the lock
//!    (`corprof/src/suspension.rs`; memory is allocated in advance, `sample_buffer.rs`). For the same reason no lock is held
//!    across a call that may start a collection ([`sync`](crate::sync)).
//!
//! Threads always run again: a guard resumes them when it is dropped.

mod activity;
mod budget;
mod drawing;
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
pub(crate) mod strategy;

pub use crate::session::FrameInfo;
pub use frame::Frame;
pub use registers::Registers;
pub use report::{CodeCounts, Report, SkippedRounds, SuspensionTimes, ThreadCounts};
pub use round::{Round, Sample, SampledThread};
pub use sample_buffer::SampledFrame;
pub use sampler::{Mode, Sampler, SamplerError};
pub use strategy::Strategy;
pub(crate) use strategy::{OnStacks, look_for, thread_assigned, thread_ending};
