//! How the sampler looks at the stacks of other threads: one way on every system, others on some.
//!
//! A strategy gets threads that have been claimed, and memory; it stops what it must, walks, and resumes. It is all that runs
//! while threads stand still, so it asks for no memory, takes no lock and tells nothing (`suspension.rs`). A further one is a
//! file here, a variant of [`Strategy`] and an arm in [`begin`].

#[cfg(all(windows, target_arch = "x86_64"))]
mod seeded;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) mod signals;
mod suspended;

use std::time::{Duration, Instant};

use windows_core::HRESULT;

use crate::error::Result;
use crate::id::ThreadId;
use crate::info::Info;
use crate::profiler_thread::ProfilerThread;
use crate::session::liveness::WalkCandidate;

use super::sample_buffer::SampleBuffer;
use super::sampler::Sampler;

/// How the sampler looks at the stacks of other threads.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Strategy {
    /// The runtime stops all managed threads at once, as for a collection, and they are walked one after another. Works on
    /// every system, from .NET Core 3.0 on. Threads stop at safepoints: code between two of them is never on top of a stack.
    #[default]
    SuspendedRuntime,
    /// One thread after another is stopped where it happens to be, and walked from there. Only on Windows, on x86-64. Code
    /// between two safepoints is seen, and native frames one by one. A thread that is stopped may have a lock of the
    /// system's or the runtime's: should walks get stuck for it too often, the sampler goes over to
    /// [`SuspendedRuntime`](Self::SuspendedRuntime), which [`Report::strategy`](super::Report::strategy) tells.
    Seeded,
    /// Threads that run are asked where they are by a signal (SIGURG), at random times around the interval; nothing is stopped, and
    /// threads that wait are left alone. Only on Linux, on x86-64 and arm64. What is seen is processor time, where the processor
    /// was, whatever the [`Mode`](super::Mode): between safepoints as well, and native frames one by one, by the unwind
    /// information of their libraries. Threads are sampled that start after the sampler. Should the application set up a handler
    /// for SIGURG, the sampler goes over to [`SuspendedRuntime`](Self::SuspendedRuntime).
    Signals,
}

/// A thread that is to be walked.
pub(crate) struct Target<'i> {
    pub(crate) thread: ThreadId,
    /// The number of the system's thread that carries it.
    #[cfg_attr(not(all(windows, target_arch = "x86_64")), allow(dead_code))]
    pub(crate) os_id: Option<u32>,
    /// Whether it still lives is asked when it is walked.
    pub(crate) claim: WalkCandidate<'i>,
}

/// What a round came to.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Outcome {
    /// The code of what stops threads, if that was refused; no thread was walked then.
    pub(crate) refused: Option<HRESULT>,
    /// How often it was refused and tried again.
    pub(crate) retries: u32,
    /// From asking threads to stop until they ran again; of several stops the sum.
    pub(crate) stood: Duration,
    /// How much of its time the application has lost by that: the budget pays for it.
    pub(crate) lost: Duration,
    /// Threads that had come to their end since they were claimed.
    pub(crate) ended: usize,
    /// Threads that there was no time left for.
    pub(crate) left_out: usize,
    /// The code of what resumes threads, if it failed: the application may be stuck.
    pub(crate) stuck: Option<HRESULT>,
    /// Walks that were given up, as they got stuck or would have.
    pub(crate) abandoned: u32,
    /// There were too many of those: the rest is for another strategy.
    pub(crate) gives_up: bool,
}

/// One strategy at work. Only the sampler's own thread has one: it cannot be made without its context.
pub(crate) trait Walker {
    /// Walks the targets onto the buffer, which has been prepared for them, for `limit` at most.
    fn walk(&mut self, targets: &[Target<'_>], buffer: &mut SampleBuffer, limit: Duration) -> Outcome;
}

/// Whether this runtime and system can do it.
pub(crate) fn check(strategy: Strategy, info: &Info) -> Result<()> {
    match strategy {
        Strategy::SuspendedRuntime => suspended::check(info),
        #[cfg(all(windows, target_arch = "x86_64"))]
        Strategy::Seeded => seeded::check(info),
        #[cfg(not(all(windows, target_arch = "x86_64")))]
        Strategy::Seeded => Err(not_here()),
        #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
        Strategy::Signals => signals::check(),
        #[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
        Strategy::Signals => Err(no_signals()),
    }
}

/// Called when the sampler is about to begin, on any thread: from then on threads can be made ready for it.
pub(crate) fn prepare(_sampler: &Sampler) {
    #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
    if _sampler.strategy == Strategy::Signals {
        signals::prepare(_sampler);
    }
}

/// Sets a strategy to work on the sampler's thread.
pub(crate) fn begin<'i>(strategy: Strategy, cx: &ProfilerThread<'i>) -> Result<Box<dyn Walker + 'i>> {
    match strategy {
        // Signals have a loop of their own, and are followed by this.
        Strategy::SuspendedRuntime | Strategy::Signals => Ok(Box::new(suspended::Suspender::new(cx)?)),
        #[cfg(all(windows, target_arch = "x86_64"))]
        Strategy::Seeded => Ok(Box::new(seeded::Seeder::new(cx)?)),
        #[cfg(not(all(windows, target_arch = "x86_64")))]
        Strategy::Seeded => Err(not_here()),
    }
}

/// A managed thread has begun to run, nearly always the calling one.
pub(crate) fn thread_assigned(_info: &Info) {
    #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
    signals::thread_assigned(_info);
}

/// A managed thread ends.
pub(crate) fn thread_ending(_thread: usize) {
    #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
    signals::thread_ending(_thread);
}

/// What is said where there are no such signals.
#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
fn no_signals() -> crate::error::Error {
    crate::error::Error::new(crate::error::E_NOTIMPL, "sigaction").about(
        "Strategy::Signals",
        "threads are sampled by signals on Linux only, on x86-64 and arm64: leave the sampler its default, \
         Strategy::SuspendedRuntime",
    )
}

/// What is said where single threads cannot be walked.
#[cfg(not(all(windows, target_arch = "x86_64")))]
fn not_here() -> crate::error::Error {
    crate::error::Error::new(crate::error::E_NOTIMPL, "DoStackSnapshot").about(
        "Strategy::Seeded",
        "the runtime walks a single thread that was stopped on Windows only, and corprof on x86-64 only: leave the sampler \
         its default, Strategy::SuspendedRuntime",
    )
}

/// How long a stop has lasted, and how long it may.
#[derive(Clone, Copy)]
struct Stopwatch {
    start: Instant,
    limit: Duration,
}

impl Stopwatch {
    fn start(limit: Duration) -> Self {
        Self { start: Instant::now(), limit }
    }

    fn elapsed(self) -> Duration {
        self.start.elapsed()
    }

    fn is_over(self) -> bool {
        self.elapsed() >= self.limit
    }
}
