//! The sampler's strategies for the stacks of other threads: one for every system, others for some.
//!
//! A strategy writes the stacks of a round to a buffer. One that stops threads stops them as necessary, walks, and
//! resumes: only its code and that of the walk (`walk/`) run while threads are suspended, so both allocate no memory,
//! take no lock and write no message (`suspension.rs`). To add one, write a file here, a variant of [`Strategy`] and an
//! arm in [`start`].

#[cfg(any(test, all(windows, target_arch = "x86_64")))]
mod drawn;
mod every_thread;
#[cfg(all(windows, target_arch = "x86_64"))]
mod seeded;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod signals;
mod suspended;

#[cfg(test)]
pub(super) use every_thread::{EveryThread, WalkTarget, Walker};

use std::time::{Duration, Instant};

use windows_core::HRESULT;

use crate::error::Result;
use crate::info::Info;
use crate::profiler_thread::ProfilerThread;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
use crate::report;

use super::options::{Mode, Sampler};
use super::recording::Recording;
use super::round::{NativeFunctions, SampledThread};

/// The most frames that a signal handler records: 16 KB of memory for each thread, most of it never touched.
const MAX_SIGNAL_FRAMES: usize = 2048;

/// How the sampler gets the stacks of other threads.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Strategy {
    /// The runtime suspends all managed threads at once, as for a collection, and they are walked one after another.
    /// Works on every system. Threads stop at safepoints: code between two of them is never on top of a stack.
    #[default]
    SuspendedRuntime,
    /// Single threads are stopped at whatever instruction they run, and walked from there. Only on Windows, on x86-64.
    /// It sees code between two safepoints, and native frames one by one. With [`Mode::Wall`](super::Mode::Wall) a
    /// round stops one thread after another. With [`Mode::Cpu`](super::Mode::Cpu) it stops one of the threads at work,
    /// drawn at random, and does not wait for it: its stack comes with a later round. A stopped thread may hold a lock
    /// of the system or the runtime: if walks get stuck for that reason too often, and once an assembly has been
    /// unloaded, the sampler changes to [`SuspendedRuntime`](Self::SuspendedRuntime), which
    /// [`Report::strategy`](super::Report::strategy) shows.
    Seeded,
    /// Each running thread is sent a signal (SIGURG) at random times around the interval, and its handler records the
    /// stack; no thread is stopped, and waiting threads are left alone. Only on Linux, on x86-64 and arm64. It samples
    /// processor time, whatever the [`Mode`](super::Mode): code between safepoints as well, and native frames one by
    /// one, by the unwind information of their libraries. Threads that are older than the sampler are prepared for it
    /// while they wait; the runtime is suspended for those that do not, at most ten times. If the application installs
    /// a handler for SIGURG, the sampler changes to [`SuspendedRuntime`](Self::SuspendedRuntime).
    Signals,
}

/// The moment of a round.
#[derive(Clone, Copy)]
pub(super) struct RoundTime {
    pub(super) now: Instant,
    /// The time since the round before.
    pub(super) elapsed: Duration,
}

/// The threads of a round, whose stacks are in the recording's buffer, and its result.
pub(super) struct SampledRound {
    pub(super) threads: Vec<SampledThread>,
    pub(super) outcome: Outcome,
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
    /// How much of that the application has lost: while a single thread is stopped, the others run on.
    pub(crate) lost: Duration,
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

/// A running strategy. Only the sampler's own thread has one: making it needs that thread's context.
///
/// The loop (`sampling.rs`) calls [`sample`](Self::sample) in each round, shows the stacks to the profiler, and then
/// calls [`request_next`](Self::request_next).
pub(super) trait RunningStrategy {
    /// Samples: writes stacks to the recording's buffer, with their weights, and the counts of threads to its report.
    ///
    /// # Errors
    /// The reason why the sampler must end.
    fn sample(
        &mut self,
        cx: &mut ProfilerThread<'_>,
        recording: &mut Recording,
        time: RoundTime,
    ) -> Result<SampledRound, String>;

    /// Requests the stacks that the next round collects; returns whether the strategy gives up. For strategies that do
    /// not wait for their stacks.
    fn request_next(&mut self, _cx: &ProfilerThread<'_>, _recording: &mut Recording, _time: RoundTime) -> bool {
        false
    }

    /// Whether it stops threads, which a managed thread must not do (suspension rule 1).
    fn stops_threads(&self) -> bool {
        true
    }

    /// Whether the activity of threads is marked shortly before a round.
    fn needs_marks(&self, _mode: Mode) -> bool {
        false
    }

    /// Whether requested stacks are collected once more when the sampler ends.
    fn collects_at_end(&self) -> bool {
        false
    }

    /// Whether the profiler receives rounds without a thread as well.
    fn shows_empty_rounds(&self) -> bool {
        true
    }

    /// The native functions, if the strategy knows them.
    fn native_functions(&self) -> Option<&dyn NativeFunctions> {
        None
    }
}

impl Strategy {
    /// How many frames of a stack it records, if so many are wanted.
    pub(super) fn frame_limit(self, wanted: usize) -> usize {
        match self {
            Self::Signals => wanted.min(MAX_SIGNAL_FRAMES),
            Self::SuspendedRuntime | Self::Seeded => wanted,
        }
    }

    /// The kind of time that it samples, if this one is wanted.
    pub(super) fn sampled_time(self, wanted: Mode) -> Mode {
        match self {
            Self::Signals => Mode::Cpu,
            Self::SuspendedRuntime | Self::Seeded => wanted,
        }
    }
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

/// The best strategy for a mode.
///
/// Signals see the work where it is done and suspend nothing. On Windows one thread a round is stopped; stopping all of
/// them took so long on a full machine that the budget allowed ten rounds a second at most (under Wine).
pub(crate) fn best(_mode: Mode, _info: &Info) -> Strategy {
    #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
    if _mode == Mode::Cpu {
        match signals::check() {
            Ok(()) => return Strategy::Signals,
            Err(error) => say_that_threads_are_stopped(error),
        }
    }
    #[cfg(all(windows, target_arch = "x86_64"))]
    if _mode == Mode::Cpu && seeded::check(_info).is_ok() {
        return Strategy::Seeded;
    }
    Strategy::SuspendedRuntime
}

/// Says why the sampler does not send signals, and what is wrong in the profile for that.
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
fn say_that_threads_are_stopped(why: crate::error::Error) {
    report::line(format_args!(
        "the sampler stops threads instead of sending signals, so code between two safepoints is charged to other code: {why}"
    ));
}

/// Called when the sampler is about to begin, on any thread: from then on threads can be prepared for it.
pub(crate) fn prepare(_sampler: &Sampler, _strategy: Strategy) {
    #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
    if _strategy == Strategy::Signals {
        signals::prepare(_sampler);
    }
}

/// Starts a strategy on the sampler's thread.
///
/// # Errors
/// If this system or the runtime cannot do what it needs.
pub(super) fn start<'i>(
    strategy: Strategy,
    _sampler: &Sampler,
    cx: &ProfilerThread<'i>,
) -> Result<Box<dyn RunningStrategy + 'i>> {
    match strategy {
        Strategy::SuspendedRuntime => suspended::start(cx),
        #[cfg(all(windows, target_arch = "x86_64"))]
        Strategy::Seeded => seeded::start(_sampler, cx),
        #[cfg(not(all(windows, target_arch = "x86_64")))]
        Strategy::Seeded => Err(not_here()),
        #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
        Strategy::Signals => Ok(signals::start(_sampler)),
        #[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
        Strategy::Signals => Err(no_signals()),
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

/// The profiler leaves the process, and its threads have ended.
pub(crate) fn leave() {
    #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
    signals::leave();
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

/// The part of a time that falls to one of so many threads.
fn share(time: Duration, threads: usize) -> Duration {
    time / u32::try_from(threads).unwrap_or(u32::MAX).max(1)
}
