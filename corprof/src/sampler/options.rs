//! [`Sampler`]: the options of sampling.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::AcqRel, Ordering::Release};
use std::time::Duration;

use crate::context::InCallback;
use crate::error::Error;
use crate::event_mask::EventMask;
use crate::profiler_thread::ProfilerThread;

use super::round::{Round, SampledThread};
use super::sampling;
use super::strategy::{self, Strategy};

/// The name of the sampler's thread.
const THREAD: &str = "sampler";

/// Whether this process has a sampler that sends signals.
static IS_SIGNALLING: AtomicBool = AtomicBool::new(false);
/// Whether it has one that stops threads.
static IS_STOPPING: AtomicBool = AtomicBool::new(false);

/// Samples the stacks of all threads at intervals, from a thread of its own.
///
/// ```
/// # use corprof::{prelude::*, sampler::Sampler};
/// # use std::time::Duration;
/// # #[derive(Profiler)]
/// # #[profiler(clsid = "5F0D6D0E-4C4B-4E0C-9B53-6C2B6E6D1C0A", no_export)]
/// # struct Peek;
/// #[callbacks]
/// impl Callbacks for Peek {
///     fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
///         Sampler::every(Duration::from_millis(10)).start(cx, |round| {
///             for sample in round.samples() {
///                 let leaf = sample.frames().iter().find_map(|frame| frame.function);
///                 let leaf = leaf.map(|function| round.cx().names().function(function));
///                 eprintln!("{:?} is in {leaf:?}", sample.thread().name);
///             }
///         })?;
///         Ok(Self)
///     }
/// }
/// ```
///
/// Threads are suspended only while their stacks are recorded as numbers. Then they run again, and the profiler's
/// closure is called on the sampler's thread: its work does not prolong the suspension, and rounds are skipped, never
/// queued, while it is busy. The total cost is limited to 2 % of the time unless [`budget`](Self::budget) says
/// otherwise; above that, rounds are skipped. Each round has a [`Report`](super::Report) of its cost and of what could
/// not be seen.
///
/// The sampler ends at Shutdown, before the profiler's `shutdown` is called, or when the closure calls
/// [`Round::end_sampling`](super::Round::end_sampling). A panic of the closure is handled like one in a callback: the
/// profiler is disabled, and the sampler ends.
///
/// A process has one sampler, or one that suspends the runtime ([`Strategy::SuspendedRuntime`]) and one that sends
/// signals ([`Strategy::Signals`]): the first can see the waits of chosen threads ([`threads`](Self::threads)) while
/// the second samples all that run.
///
/// Types enforce suspension rule 1: only this thread, and those that it makes for that, can stop others.
pub struct Sampler {
    pub(super) interval: Duration,
    pub(super) delay: Duration,
    pub(super) mode: Mode,
    pub(super) filter: Option<Filter>,
    pub(super) budget: f64,
    pub(super) longest_suspension: Duration,
    pub(super) depth: usize,
    /// None: the best one for the mode and the system.
    pub(super) strategy: Option<Strategy>,
}

/// The kind of time that is sampled.
///
/// In both modes, [`Sample::weight`](super::Sample::weight) is the time that a sample stands for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Mode {
    /// Processor time: only threads that are running or runnable at the moment of the round. A waiting thread is left
    /// out, even if it has run since the round before.
    ///
    /// The sampler decides by the thread's processor time, read half a millisecond before the round and in it, and by
    /// the system's thread state. If the system reports neither, all threads are sampled. Signals
    /// ([`Strategy::Signals`]) sample only threads that are running, unless there is one processor. On Windows, which
    /// has no such state, [`Strategy::Seeded`] draws one of the threads whose processor time has changed in the last 50
    /// ms, and counts it as waiting if it stops in a system call.
    Cpu,
    /// Wall-clock time: every thread in every round, whether it runs or waits
    /// ([`Sample::is_waiting`](super::Sample::is_waiting)).
    ///
    /// On Linux, which measures exactly, threads that have not run since they were last walked are not stopped again:
    /// their stack has not changed.
    #[default]
    Wall,
}

impl fmt::Display for Mode {
    /// `cpu` or `wall`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "cpu",
            Self::Wall => "wall",
        })
    }
}

pub(super) type Filter = Box<dyn FnMut(&SampledThread) -> bool + Send>;

/// The reason why sampling could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SamplerError {
    /// This process already has a sampler, other than one that suspends the runtime beside one that sends signals.
    #[error(
        "this process already has a sampler, and two would stop each other's threads: let one closure serve both \
         purposes"
    )]
    AlreadyRunning,
    /// This system cannot do what the strategy needs.
    #[error("the threads cannot be stopped: {0}")]
    Strategy(#[source] Error),
    /// The event flags that the sampler needs could not be set.
    #[error(
        "the sampler needs ENABLE_STACK_SNAPSHOT and MONITOR_THREADS, for signals also MONITOR_JIT_COMPILATION: {0}"
    )]
    Flags(#[source] Error),
    /// The sampler's thread could not be made.
    #[error("the sampler's thread could not be made: {0}")]
    Thread(#[source] io::Error),
}

impl Sampler {
    /// A sampler that makes a round every `interval` on average, at least 0.1 ms and at most a day. The time between
    /// rounds is random, from half an interval to one and a half, so that periodic work in the application is seen in
    /// all its phases.
    pub fn every(interval: Duration) -> Self {
        Self {
            interval: interval.clamp(Duration::from_micros(100), Duration::from_secs(24 * 60 * 60)),
            delay: Duration::ZERO,
            mode: Mode::default(),
            filter: None,
            budget: 0.02,
            longest_suspension: Duration::from_millis(50),
            depth: 2048,
            strategy: None,
        }
    }

    /// The delay before the first round, to leave out the application's start; the default is none.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Which time is sampled; the default is [`Mode::Wall`].
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Samples only threads for which `wants` returns `true`. It is called on the sampler's thread before each round,
    /// while all threads run; where a round stops one thread, every 50 ms.
    #[must_use]
    pub fn threads(mut self, wants: impl FnMut(&SampledThread) -> bool + Send + 'static) -> Self {
        self.filter = Some(Box::new(wants));
        self
    }

    /// The share of its time that the application may lose: 0.02 is 2 %. From 1 on there is no limit.
    ///
    /// Four fifths of that are for the suspensions, which are measured; the rest is for their side effects. A thread
    /// that [`Strategy::Seeded`] stops alone counts as its part of the threads at work. With [`Strategy::Signals`] no
    /// thread is suspended, and there is no limit.
    #[must_use]
    pub fn budget(mut self, share: f64) -> Self {
        self.budget = if share.is_finite() { share.max(0.0001) } else { 1.0 };
        self
    }

    /// How long threads may be suspended in one round, as far as the sampler can control it: threads that have not been
    /// walked by then are left out of the round, and the next round begins with them. The default is 50 ms.
    #[must_use]
    pub fn longest_suspension(mut self, limit: Duration) -> Self {
        self.longest_suspension = limit;
        self
    }

    /// How many frames of a stack are kept, from the leaf; the default is 2048.
    #[must_use]
    pub fn max_depth(mut self, frames: usize) -> Self {
        self.depth = frames.max(1);
        self
    }

    /// How stacks are sampled.
    ///
    /// The default for [`Mode::Cpu`] is [`Strategy::Seeded`] on Windows on x86-64, and [`Strategy::Signals`] on Linux.
    /// Else, and where the application keeps signals for itself, it is [`Strategy::SuspendedRuntime`].
    /// [`Report::strategy`](super::Report::strategy) says which one it is.
    #[must_use]
    pub fn strategy(mut self, strategy: Strategy) -> Self {
        self.strategy = Some(strategy);
        self
    }

    /// Starts sampling: `on_round` receives each round.
    ///
    /// Sets the event flags that it needs. Usually called in `initialize`; rounds begin once the runtime has started.
    ///
    /// # Errors
    /// If this process already has a sampler, the runtime or the system cannot do what the strategy needs, a flag
    /// cannot be set, or the profiler is being shut down.
    pub fn start(
        self,
        cx: &InCallback<'_>,
        mut on_round: impl FnMut(&mut Round<'_, '_>) + Send + 'static,
    ) -> Result<(), SamplerError> {
        let strategy = match self.strategy {
            Some(strategy) => strategy::check(strategy, cx).map(|()| strategy).map_err(SamplerError::Strategy)?,
            None => strategy::best(self.mode, cx),
        };
        let lock = SamplerLock::get(strategy).ok_or(SamplerError::AlreadyRunning)?;
        cx.add_events(flags(strategy)).map_err(SamplerError::Flags)?;
        strategy::prepare(&self, strategy);
        let run = move |cx: &mut ProfilerThread<'_>| {
            let _lock = lock;
            sampling::run(self, strategy, cx, &mut on_round);
        };
        cx.spawn_profiler_thread(THREAD, run).map_err(SamplerError::Thread)
    }
}

/// What a strategy needs. Where dynamic methods are on stacks, corprof knows them by the events of their compilation
/// only.
fn flags(strategy: Strategy) -> EventMask {
    let flags = EventMask::ENABLE_STACK_SNAPSHOT | EventMask::MONITOR_THREADS;
    match strategy {
        Strategy::Signals | Strategy::SuspendedRuntime => flags | EventMask::MONITOR_JIT_COMPILATION,
        Strategy::Seeded => flags,
    }
}

/// The right to be this process's sampler of its kind, returned on drop.
///
/// One that sends signals begins to suspend the runtime if it must not send them any more. The runtime refuses a second
/// suspension while there is one, so that two samplers that suspend it cannot stop a thread twice.
struct SamplerLock {
    _kinds: Vec<Taken>,
}

impl SamplerLock {
    fn get(strategy: Strategy) -> Option<Self> {
        let kinds: &[&'static AtomicBool] = match strategy {
            Strategy::Signals => &[&IS_SIGNALLING],
            Strategy::SuspendedRuntime => &[&IS_STOPPING],
            // It stops threads one by one, also in the middle of the handler of signals.
            Strategy::Seeded => &[&IS_SIGNALLING, &IS_STOPPING],
        };
        Some(Self { _kinds: kinds.iter().map(|kind| Taken::take(kind)).collect::<Option<_>>()? })
    }
}

/// A flag that is set, and cleared on drop.
struct Taken(&'static AtomicBool);

impl Taken {
    fn take(flag: &'static AtomicBool) -> Option<Self> {
        // Made only if the flag was free: dropping it clears the flag.
        (!flag.swap(true, AcqRel)).then(|| Self(flag))
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.store(false, Release);
    }
}

impl fmt::Debug for Sampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sampler")
            .field("interval", &self.interval)
            .field("mode", &self.mode)
            .field("budget", &self.budget)
            .field("strategy", &self.strategy)
            .finish_non_exhaustive()
    }
}
