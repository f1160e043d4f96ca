//! Samples of the stacks of all threads.
//!
//! A [`Sampler`] takes them at random times around an interval, from a thread of its own, and calls the profiler with
//! each [`Round`]. How it gets the stacks is its [`Strategy`]; what it saw, what it cost and what failed is in its
//! [`Report`].
//!
//! # The three rules of suspension
//!
//! Code that stops threads can hang the application. corprof itself keeps the rules that prevent this; the profiler
//! need not:
//!
//! 1. Only a thread that never runs managed code may stop others. The sampler's thread is one of corprof's own, there
//!    is one in the process, and it ends if it ever becomes a managed thread. The threads that stop single threads for
//!    it run corprof's code only (`strategy/seeded/pool.rs`). The thread that looks for unloads after an attach is
//!    another one (`adapter/settle.rs`); if both want to suspend the runtime, the second waits.
//! 2. A thread must not end while it is walked. The adapter lets its `ThreadDestroyed` wait
//!    (`corprof/src/session/liveness/`).
//! 3. While threads are suspended, no memory is allocated and no lock taken, as a stopped thread may hold the lock
//!    (`corprof/src/suspension.rs`; memory is allocated in advance, `sample_buffer.rs`). For the same reason no lock is
//!    held across a call that may start a collection ([`sync`](crate::sync)).
//!
//! Threads always run again: a guard resumes them when it is dropped.

// `sampling.rs` has the one loop: `schedule.rs` says when a round is due and `budget.rs` whether it may be made, a
// strategy (`strategy/`) samples, and `round.rs` is what the profiler receives. `recording.rs` holds what rounds have
// found: the stacks (`sample_buffer.rs`), which threads have run (`activity.rs`) and for how long without a sample
// (`unsampled.rs`), and the report. The walks of single stacks are in `corprof/src/walk/`.

mod activity;
mod budget;
mod options;
mod recording;
mod report;
mod round;
mod sample_buffer;
mod sampling;
mod schedule;
mod strategy;
mod unsampled;

/// Now, in ticks of the clock by which the runtime gives times to events, as `Stopwatch.GetTimestamp` does: so that the
/// time of a [`Sample`] can be compared with them. On Linux nanoseconds; 0 on systems other than Linux and Windows.
#[must_use]
pub fn ticks() -> u64 {
    crate::system::ticks()
}

/// How many [`ticks`] a second has. 0 on systems other than Linux and Windows.
#[must_use]
pub fn ticks_per_second() -> u64 {
    crate::system::ticks_per_second()
}

pub use crate::walk::native_function::NativeFunction;
pub use crate::walk::stack_writer::SampledFrame;
pub use options::{Mode, Sampler, SamplerError};
pub use report::{CodeCounts, Report, SkippedRounds, SuspensionTimes, ThreadCounts};
pub use round::{Round, Sample, SampledThread};
pub use strategy::Strategy;
pub(crate) use strategy::{leave, thread_assigned, thread_ending};
