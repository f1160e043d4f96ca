//! [`Sampler`]: how sampling is asked for. What its thread then does is in `sampling.rs`.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::AcqRel, Ordering::Release};
use std::time::Duration;

use crate::context::InTriggers;
use crate::error::Error;
use crate::event_mask::EventMask;

use super::round::{Round, SampledThread};
use super::sampling;
use super::strategy::{self, Strategy};

/// What the sampler's thread is called.
const THREAD: &str = "sampler";

/// Whether there is a sampler in this process.
static IS_RUNNING: AtomicBool = AtomicBool::new(false);

/// Looks at the stacks of all threads again and again, from a thread of its own.
///
/// ```
/// # use corprof::{prelude::*, walk::Sampler};
/// # use std::time::Duration;
/// # #[derive(Profiler)]
/// # #[profiler(clsid = "5F0D6D0E-4C4B-4E0C-9B53-6C2B6E6D1C0A", no_export)]
/// # struct Peek;
/// #[callbacks]
/// impl Callbacks for Peek {
///     fn initialize(&self, cx: &mut InInitialize<'_>) -> Result<(), BoxError> {
///         Sampler::every(Duration::from_millis(10)).start(cx, |round| {
///             for sample in round.samples() {
///                 let leaf = sample.frames().iter().find_map(|frame| frame.function);
///                 let leaf = leaf.map(|function| round.cx().names().function(function));
///                 eprintln!("{:?} is in {leaf:?}", sample.thread().name);
///             }
///         })?;
///         Ok(())
///     }
/// }
/// ```
///
/// The threads stand still only while their stacks are written down in numbers. Then they run again, and the profiler's
/// closure is called on the sampler's thread: what it does costs the application no suspension, and rounds are skipped, never
/// piled up, while it is busy. What that may cost in all is limited, to 2 % of the time unless
/// [`budget`](Self::budget) says otherwise; above that, rounds are skipped. Each round brings a
/// [`Report`](super::Report) of what it cost and what could not be seen.
///
/// The sampler ends at Shutdown, before the profiler's `shutdown` is called, or when the closure asks for it by
/// [`Round::end_sampling`](super::Round::end_sampling). A panic of the closure is like one in a callback:
/// the profiler goes quiet, and the sampler ends.
///
/// Suspension rule 1 is kept by types: only this thread can stop others, and there is no way to ask for it from elsewhere.
pub struct Sampler {
    pub(crate) interval: Duration,
    pub(crate) delay: Duration,
    pub(crate) mode: Mode,
    pub(crate) filter: Option<Filter>,
    pub(crate) budget: f64,
    pub(crate) longest: Duration,
    pub(crate) depth: usize,
    pub(crate) strategy: Strategy,
}

/// What the sampler looks for: what the application computes, or what it does with its time.
///
/// In both, [`Sample::weight`](super::Sample::weight) is the time that a sample stands for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Mode {
    /// Processor time: only threads that are on a processor, or could go on at once, at the moment of the round. A thread that
    /// waits is left out, also if it has run since the round before.
    ///
    /// What tells is the thread's processor time, looked at half a millisecond before the round and in it, and the state that
    /// the system gives. Windows has no such state: there, a thread that stands in a system call when it is stopped
    /// ([`Strategy::Seeded`]) waits. Where the system tells neither, all threads are sampled.
    Cpu,
    /// Time by the clock on the wall: every thread in every round, whether it runs or waits
    /// ([`Sample::is_waiting`](super::Sample::is_waiting)).
    ///
    /// On Linux, which counts exactly, threads that have not run since they were last walked are not stopped again: they stand
    /// where they stood.
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

pub(crate) type Filter = Box<dyn FnMut(&SampledThread) -> bool + Send>;

/// Why sampling could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SamplerError {
    /// There is a sampler in this process already.
    #[error(
        "there is a sampler in this process already, and two would stop each other's threads: let one closure serve both \
         purposes"
    )]
    AlreadyRunning,
    /// The runtime cannot do what the strategy needs.
    #[error("the threads cannot be stopped: {0}")]
    Strategy(#[source] Error),
    /// The event flags that the sampler needs could not be turned on.
    #[error("the sampler needs ENABLE_STACK_SNAPSHOT and MONITOR_THREADS: {0}")]
    Flags(#[source] Error),
    /// The sampler's thread could not be made.
    #[error("the sampler's thread could not be made: {0}")]
    Thread(#[source] io::Error),
}

impl Sampler {
    /// A sampler that makes a round every `interval` on average, which is at least 0.1 ms and at most a day. Rounds come at random
    /// times, half an interval to one and a half after each other, so that nothing regular in the application is always seen or
    /// never.
    pub fn every(interval: Duration) -> Self {
        Self {
            interval: interval.clamp(Duration::from_micros(100), Duration::from_secs(24 * 60 * 60)),
            delay: Duration::ZERO,
            mode: Mode::default(),
            filter: None,
            budget: 0.02,
            longest: Duration::from_millis(50),
            depth: 2048,
            strategy: Strategy::default(),
        }
    }

    /// How long after the start the first round is due, so that an application's own start is left out; not at all unless this
    /// says otherwise.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Which threads are seen, and so what samples say; [`Mode::Wall`] unless this says otherwise.
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Only threads that `wants` says yes to. It is asked on the sampler's thread before each round, while all threads run.
    #[must_use]
    pub fn threads(mut self, wants: impl FnMut(&SampledThread) -> bool + Send + 'static) -> Self {
        self.filter = Some(Box::new(wants));
        self
    }

    /// The share of its time that the application may lose: 0.02 is 2 %. From 1 on there is no limit.
    ///
    /// Four fifths of that are for threads that stand still, which is measured; the rest is for what goes with it. With
    /// [`Strategy::Signals`] nothing stands still, and there is no limit.
    #[must_use]
    pub fn budget(mut self, share: f64) -> Self {
        self.budget = if share.is_finite() { share.max(0.0001) } else { 1.0 };
        self
    }

    /// How long threads may stand still in one round, if that is in the sampler's hand: threads that have not been walked by
    /// then are left out of the round, and the next one begins with them. 50 ms unless this says otherwise.
    #[must_use]
    pub fn longest_suspension(mut self, limit: Duration) -> Self {
        self.longest = limit;
        self
    }

    /// How many frames of a stack are kept, from the leaf: 2048 unless this says otherwise.
    #[must_use]
    pub fn max_depth(mut self, frames: usize) -> Self {
        self.depth = frames.max(1);
        self
    }

    /// How stacks are looked at; by [`Strategy::SuspendedRuntime`] unless this says otherwise.
    #[must_use]
    pub fn strategy(mut self, strategy: Strategy) -> Self {
        self.strategy = strategy;
        self
    }

    /// Starts sampling: `see` gets each round.
    ///
    /// Turns on the event flags that it needs. Usually called in `initialize`; rounds are made as soon as the runtime has
    /// started.
    ///
    /// # Errors
    /// If there is a sampler in this process already, the runtime or the system cannot do what the strategy needs, a flag cannot be turned on, or
    /// the profiler is being shut down.
    pub fn start(
        self,
        cx: &InTriggers<'_>,
        mut see: impl FnMut(&mut Round<'_, '_>) + Send + 'static,
    ) -> Result<(), SamplerError> {
        strategy::check(self.strategy, cx).map_err(SamplerError::Strategy)?;
        let lock = SamplerLock::get().ok_or(SamplerError::AlreadyRunning)?;
        let flags = EventMask::ENABLE_STACK_SNAPSHOT | EventMask::MONITOR_THREADS;
        cx.add_events(flags).map_err(SamplerError::Flags)?;
        strategy::prepare(&self);
        let run = move |cx: &mut crate::profiler_thread::ProfilerThread<'_>| {
            let _lock = lock;
            sampling::run(self, cx, &mut see);
        };
        cx.spawn_profiler_thread(THREAD, run).map_err(SamplerError::Thread)
    }
}

/// The right to be the sampler of this process, given back when dropped.
struct SamplerLock(());

impl SamplerLock {
    fn get() -> Option<Self> {
        // Made only then, as it is given back when dropped.
        (!IS_RUNNING.swap(true, AcqRel)).then(|| Self(()))
    }
}

impl Drop for SamplerLock {
    fn drop(&mut self) {
        IS_RUNNING.store(false, Release);
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
