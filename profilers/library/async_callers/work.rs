//! What a thread of the profiler does for async callers: starts the session, has threads tell what they hold as long as
//! stacks wait for it, and ends the session.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use corprof::prelude::*;
use corprof::sampler::ticks;
use corprof::sync::Mutex;
use corprof_async::{ANSWER_TIME, QUESTION_INTERVAL, time_when_late};

use super::held_stacks::HeldStacks;
use super::lateness::Lateness;
use super::probe::{AsyncProbe, ProbeCallers};
use super::session::{AsyncSession, Started};
use super::{AsyncSource, Callers, Knower, LONGEST};

/// The pause between two looks while nothing is due.
const LOOK: Duration = Duration::from_millis(100);
/// The pause between two looks whether the runtime has started.
const START: Duration = Duration::from_millis(10);
/// How often it is looked for classes that the probe has met.
const LEARN: Duration = Duration::from_millis(50);
/// How often threads are asked for what they hold at the beginning, as long as no thread owes an answer: at the end of a
/// process they do not tell, and many a process is short.
const FIRST_FLUSHES: Duration = Duration::from_millis(250);
const BEGINNING: Duration = Duration::from_secs(10);
/// How often it is forgotten what no stack needs any more.
const FORGET: Duration = Duration::from_secs(1);
/// How long stacks wait at the end, in time.
const LAST: Duration = ANSWER_TIME.saturating_add(Duration::from_millis(100));

/// What has stacks with async callers.
pub(crate) trait Joins: Send + 'static {
    /// What the stacks are of.
    type Of: Send;

    /// The callers of its stacks.
    fn callers(&mut self) -> &mut Callers<Self::Of>;

    /// Takes the waiting stacks whose time has come ([`Callers::settle`]); all of them with `is_last`.
    fn settle(&mut self, cx: &InNoGc<'_>, is_last: bool);

    /// The time until the first stack.
    fn begins_in(&self) -> Duration {
        Duration::ZERO
    }

    /// From now on no stacks come.
    fn end(&mut self) {}
}

/// The work of that thread.
pub(crate) struct AsyncWork<S> {
    state: Arc<Mutex<S>>,
    hears: AsyncSource,
    source: Source,
    begun: Instant,
    flushed: Instant,
    forgotten: Instant,
    lateness: Lateness,
    /// How late the thread had been when it asked last.
    late_at_flush: Duration,
    /// Whether what threads tell is wanted for a recording, too.
    records: bool,
}

enum Source {
    /// The runtime has not answered yet.
    Unknown,
    /// The runtime has none, or refuses the session.
    Absent,
    On(AsyncSession),
    /// It has none, and the profiler has its own.
    Probe(Arc<AsyncProbe>),
}

impl<S: Joins> AsyncWork<S> {
    pub(crate) fn new(state: Arc<Mutex<S>>, hears: AsyncSource, records: bool) -> Self {
        let now = Instant::now();
        Self {
            state,
            hears,
            source: Source::Unknown,
            begun: now,
            flushed: now,
            forgotten: now,
            lateness: Lateness::default(),
            late_at_flush: Duration::ZERO,
            records,
        }
    }

    /// Whether callers are wanted.
    pub(crate) fn is_wanted(&self) -> bool {
        self.hears.is_wanted
    }

    /// Does what is due. Returns the time until the next call.
    pub(crate) fn step(&mut self, cx: &mut ProfilerThread<'_>) -> Duration {
        self.lateness.take();
        self.settle(cx);
        let pause = self.step_in_time(cx);
        self.lateness.expect(pause);
        pause
    }

    fn step_in_time(&mut self, cx: &mut ProfilerThread<'_>) -> Duration {
        match self.source {
            Source::Unknown => self.start(cx),
            Source::Absent => LOOK,
            // More classes come soon after the first.
            Source::Probe(ref probe) => {
                if probe.learn(cx) {
                    START
                } else {
                    LEARN
                }
            }
            Source::On(_) => {
                if self.forgotten.elapsed() >= FORGET {
                    self.forgotten = Instant::now();
                    if let Knower::Runtime(held) = &mut self.state.lock(cx).callers().knower {
                        held.forget();
                    }
                }
                if self.is_time_to_flush(cx) {
                    self.flush(cx);
                }
                LOOK
            }
        }
    }

    /// Takes the waiting stacks whose time has come, and has it noted how far callers are known. Nobody else does: with
    /// two threads, the C library would hold the memory of what is known of operations twice.
    fn settle(&self, cx: &ProfilerThread<'_>) {
        let mut state = self.state.lock(cx);
        if let Knower::Runtime(held) = &mut state.callers().knower {
            held.set_late(self.lateness.total());
        }
        state.settle(cx, false);
    }

    fn is_time_to_flush(&self, cx: &ProfilerThread<'_>) -> bool {
        if !self.records && !self.is_waiting(cx) {
            return false;
        }
        let passed = self.flushed.elapsed();
        if passed >= time_when_late(QUESTION_INTERVAL, self.late_since_flush()) {
            return true;
        }
        if passed < FIRST_FLUSHES || self.begun.elapsed() >= BEGINNING {
            return false;
        }
        match &self.state.lock(cx).callers().knower {
            Knower::Runtime(held) => !held.awaits_an_answer(),
            Knower::Nobody | Knower::Probe(_) => true,
        }
    }

    fn start(&mut self, cx: &mut ProfilerThread<'_>) -> Duration {
        if self.state.lock(cx).begins_in() > START {
            // What is met now may be found out for as long as methods are compiled.
            if let Some(probe) = &self.hears.probe {
                probe.learn(cx);
            }
            return START;
        }
        self.source = match AsyncSession::start(cx) {
            Started::NotYet => return START,
            Started::NoSource => self.start_probe(cx),
            Started::Refused(error) => {
                self.state.lock(cx).callers().refused = Some(error.to_string().into());
                Source::Absent
            }
            Started::Yes(session) => {
                self.hears.probe.take().into_iter().for_each(|probe| probe.give_up(cx));
                self.begun = Instant::now();
                if self.hears.is_wanted {
                    let held = HeldStacks::new(Arc::clone(&self.hears.inbox));
                    self.state.lock(cx).callers().knower = Knower::Runtime(Box::new(held));
                }
                Source::On(session)
            }
        };
        LOOK
    }

    fn start_probe(&mut self, cx: &ProfilerThread<'_>) -> Source {
        let mut state = self.state.lock(cx);
        let Some(probe) = self.hears.probe.take() else {
            state.callers().refused.clone_from(&self.hears.refused);
            return Source::Absent;
        };
        state.callers().knower = Knower::Probe(ProbeCallers::new(Arc::clone(&probe)));
        Source::Probe(probe)
    }

    fn flush(&mut self, cx: &mut ProfilerThread<'_>) {
        let Source::On(session) = &mut self.source else { return };
        self.flushed = Instant::now();
        self.late_at_flush = self.lateness.total();
        let from = ticks();
        if session.flush(cx).is_ok()
            && let Knower::Runtime(held) = &mut self.state.lock(cx).callers().knower
        {
            held.ask(from);
        }
    }

    /// Takes no more stacks, has the waiting ones settled, and ends the session.
    pub(crate) fn end(mut self, cx: &mut ProfilerThread<'_>) {
        self.state.lock(cx).end();
        let is_told = matches!(self.source, Source::On(_)) && self.records;
        if is_told || self.is_waiting(cx) {
            self.flush(cx);
            let start = Instant::now();
            // Not the wait of this thread, which ends at once when the profiler is to detach.
            while (is_told || self.is_waiting(cx)) && start.elapsed() < self.last_wait() {
                self.lateness.expect(START);
                thread::sleep(START);
                self.lateness.take();
                self.settle(cx);
            }
        }
        match self.source {
            Source::On(session) => session.stop(cx),
            Source::Probe(probe) => probe.stop(),
            Source::Unknown | Source::Absent => {}
        }
    }

    /// How long stacks wait at the end.
    fn last_wait(&self) -> Duration {
        LONGEST.min(time_when_late(LAST, self.late_since_flush()))
    }

    fn late_since_flush(&self) -> Duration {
        self.lateness.total().saturating_sub(self.late_at_flush)
    }

    fn is_waiting(&self, cx: &ProfilerThread<'_>) -> bool {
        self.state.lock(cx).callers().is_waiting()
    }
}
