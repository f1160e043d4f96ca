//! The sampler's strategies for the stacks of other threads: one for every system, others for some.
//!
//! A strategy receives candidate threads and a buffer; it stops threads as necessary, walks, and resumes. Only its code runs
//! while threads are suspended, so it allocates no memory, takes no lock and writes no message (`suspension.rs`). To add one,
//! write a file here, a variant of [`Strategy`] and an arm in [`begin`].

#[cfg(all(windows, target_arch = "x86_64"))]
mod seeded;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) mod signals;
mod suspended;

pub(crate) use suspended::{OnStacks, look_for};

use std::time::{Duration, Instant};

use windows_core::HRESULT;

use crate::error::Result;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
use crate::event_mask::Phase;
use crate::id::ThreadId;
use crate::info::Info;
use crate::profiler_thread::ProfilerThread;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
use crate::report;
use crate::session::liveness::WalkCandidate;

use super::round::SampledThread;
use super::sample_buffer::SampleBuffer;
use super::sampler::{Mode, Sampler};

/// How the sampler gets the stacks of other threads.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Strategy {
    /// The runtime suspends all managed threads at once, as for a collection, and they are walked one after another. Works on
    /// every system. Threads stop at safepoints: code between two of them is never on top of a stack.
    #[default]
    SuspendedRuntime,
    /// Single threads are stopped at whatever instruction they run, and walked from there. Only on Windows, on x86-64. It sees
    /// code between two safepoints, and native frames one by one. With [`Mode::Wall`](super::Mode::Wall) a round stops one thread
    /// after another. With [`Mode::Cpu`](super::Mode::Cpu) it stops one of the threads at work, drawn at random, and does not wait
    /// for it: its stack comes with a later round. A stopped thread may hold a lock of the system or the runtime: if walks get
    /// stuck for that reason too often, and once an assembly has been unloaded, the sampler changes to
    /// [`SuspendedRuntime`](Self::SuspendedRuntime), which [`Report::strategy`](super::Report::strategy) shows.
    Seeded,
    /// Each running thread is sent a signal (SIGURG) at random times around the interval, and its handler records the stack; no
    /// thread is stopped, and waiting threads are left alone. Only on Linux, on x86-64 and arm64. It samples processor time,
    /// whatever the [`Mode`](super::Mode): code between safepoints as well, and native frames one by one, by the unwind
    /// information of their libraries. It samples threads that start after the sampler. If the application installs a handler
    /// for SIGURG, the sampler changes to [`SuspendedRuntime`](Self::SuspendedRuntime).
    Signals,
}

/// A thread to walk.
pub(crate) struct Target<'i> {
    pub(crate) thread: ThreadId,
    /// The id of the operating-system thread that carries it.
    #[cfg_attr(not(all(windows, target_arch = "x86_64")), allow(dead_code))]
    pub(crate) os_id: Option<u32>,
    /// Checks at the time of the walk that it is still alive.
    pub(crate) claim: WalkCandidate<'i>,
}

/// The result of a round.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Outcome {
    /// The code of the call that suspends, if it was refused; no thread was walked then.
    pub(crate) refused: Option<HRESULT>,
    /// How many times it was refused and tried again.
    pub(crate) retries: u32,
    /// The time from the request to stop until threads ran again, summed over all stops.
    pub(crate) stood: Duration,
    /// Threads that had ended since they were chosen.
    pub(crate) ended: usize,
    /// Threads that were not walked for lack of time.
    pub(crate) left_out: usize,
    /// The code of the call that resumes, if it failed: the application may be stuck.
    pub(crate) stuck: Option<HRESULT>,
    /// Walks that were abandoned, as they got stuck or would have.
    pub(crate) abandoned: u32,
    /// Whether there were too many of those, so that another strategy must take over.
    pub(crate) gives_up: bool,
}

impl Outcome {
    /// Adds the result of another walk in the same round.
    pub(crate) fn add(&mut self, other: Self) {
        self.retries += other.retries;
        self.stood += other.stood;
        self.ended += other.ended;
        self.left_out += other.left_out;
        self.abandoned += other.abandoned;
        self.gives_up |= other.gives_up;
    }
}

/// A running strategy. Only the sampler's own thread has one: making it needs that thread's context.
pub(crate) trait Walker {
    /// Walks the targets onto the buffer, which was prepared for them, for `limit` at most.
    fn walk(&mut self, targets: &[Target<'_>], buffer: &mut SampleBuffer, limit: Duration) -> Outcome;
}

/// Threads of a strategy that each walk one thread at a time, while the sampler goes on. Nothing is walked after their drop.
pub(crate) trait Hands {
    /// Whether one of them walks this thread.
    fn is_walking(&self, thread: ThreadId) -> bool;

    /// Has a thread walked that none of them walks, unless all are busy.
    fn walk(&mut self, thread: SampledThread);

    /// Passes on the walks that have ended since the last call: the thread, the result, and a buffer with its stack.
    fn collect(&mut self, take: &mut dyn FnMut(SampledThread, Outcome, &SampleBuffer));
}

/// A running strategy.
pub(crate) enum Running<'i> {
    /// Walks all threads of a round.
    All(Box<dyn Walker + 'i>),
    /// Walks one thread, drawn by the sampler, in each round.
    #[cfg_attr(not(all(windows, target_arch = "x86_64")), allow(dead_code))]
    One(Box<dyn Hands>),
}

/// Checks that this system supports the strategy.
pub(crate) fn check(strategy: Strategy, _info: &Info) -> Result<()> {
    match strategy {
        Strategy::SuspendedRuntime => Ok(()),
        #[cfg(all(windows, target_arch = "x86_64"))]
        Strategy::Seeded => seeded::check(_info),
        #[cfg(not(all(windows, target_arch = "x86_64")))]
        Strategy::Seeded => Err(not_here()),
        #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
        Strategy::Signals => signals::check(),
        #[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
        Strategy::Signals => Err(no_signals()),
    }
}

/// Why signals have to be asked for where the C library is musl.
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
const NOT_ON_MUSL: &str = "with musl some applications have died while they were sampled by signals";

/// The best strategy for a mode.
///
/// Signals see the work where it is done and suspend nothing, but only in threads that start after the sampler: after
/// `initialize` the application has threads already. On Windows one thread a round is stopped; stopping all of them took so long
/// on a full machine that the budget allowed ten rounds a second at most (under Wine).
pub(crate) fn best(_mode: Mode, _info: &Info) -> Strategy {
    #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
    if _mode == Mode::Cpu && _info.phase() == Phase::Initialize && signals::check().is_ok() {
        if !cfg!(target_env = "musl") {
            return Strategy::Signals;
        }
        report::line(format_args!("the sampler stops threads instead of sending signals: {NOT_ON_MUSL}"));
    }
    #[cfg(all(windows, target_arch = "x86_64"))]
    if _mode == Mode::Cpu && seeded::check(_info).is_ok() {
        return Strategy::Seeded;
    }
    Strategy::SuspendedRuntime
}

/// Called when the sampler is about to begin, on any thread: from then on threads can be prepared for it.
pub(crate) fn prepare(_sampler: &Sampler, _strategy: Strategy) {
    #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
    if _strategy == Strategy::Signals {
        signals::prepare(_sampler);
    }
}

/// Starts a strategy on the sampler's thread.
pub(crate) fn begin<'i>(strategy: Strategy, _sampler: &Sampler, cx: &ProfilerThread<'i>) -> Result<Running<'i>> {
    match strategy {
        // Signals have a loop of their own, which falls back to this.
        Strategy::SuspendedRuntime | Strategy::Signals => Ok(Running::All(Box::new(suspended::Suspender::new(cx)?))),
        #[cfg(all(windows, target_arch = "x86_64"))]
        Strategy::Seeded => seeded::begin(_sampler, cx),
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

/// The error on systems without such signals.
#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
fn no_signals() -> crate::error::Error {
    crate::error::Error::new(crate::error::E_NOTIMPL, "sigaction").about(
        "Strategy::Signals",
        "threads are sampled by signals on Linux only, on x86-64 and arm64: leave the sampler its default, \
         Strategy::SuspendedRuntime",
    )
}

/// The error on systems that cannot walk single threads.
#[cfg(not(all(windows, target_arch = "x86_64")))]
fn not_here() -> crate::error::Error {
    crate::error::Error::new(crate::error::E_NOTIMPL, "DoStackSnapshot").about(
        "Strategy::Seeded",
        "the runtime walks a single stopped thread on Windows only, and corprof on x86-64 only: leave the sampler \
         its default, Strategy::SuspendedRuntime",
    )
}

/// Measures how long a stop has lasted, against its limit.
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
