//! What the thread that writes the file does for async callers: starts the session, has threads tell what they hold as
//! long as samples wait for it, and ends the session.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use corprof::profiler_thread::ProfilerThread;
use corprof::sync::Mutex;

use super::async_callers::{ANSWER, AsyncCallers};
use super::async_probe::{AsyncProbe, ProbeCallers};
use super::async_session::{AsyncSession, Inbox, Started};
use super::{LOOK, State};

/// The pause between two looks whether the runtime has started.
const START: Duration = Duration::from_millis(10);
/// How often it is looked for classes that the probe has met.
const LEARN: Duration = Duration::from_millis(50);
/// How often threads are asked for what they hold, and how often at the beginning: at the end of a process they do not
/// tell, and many a process is short.
const FLUSH: Duration = Duration::from_secs(1);
const FIRST_FLUSHES: Duration = Duration::from_millis(250);
const BEGINNING: Duration = Duration::from_secs(10);
/// How often it is forgotten what no sample needs any more.
const FORGET: Duration = Duration::from_secs(1);
/// How long samples wait at the end.
const LAST: Duration = ANSWER.saturating_add(Duration::from_millis(100));

/// The work of that thread.
pub(super) struct AsyncWork {
    state: Arc<Mutex<State>>,
    inbox: Arc<Inbox>,
    /// None if it could not be installed.
    probe: Option<Arc<AsyncProbe>>,
    source: Source,
    begun: Instant,
    flushed: Instant,
    forgotten: Instant,
    /// Whether samples wait for their callers.
    joins: bool,
    /// Whether what threads tell is wanted for the recording, too.
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

impl AsyncWork {
    pub(super) fn new(
        state: Arc<Mutex<State>>,
        inbox: Arc<Inbox>,
        probe: Option<Arc<AsyncProbe>>,
        joins: bool,
        records: bool,
    ) -> Self {
        let now = Instant::now();
        Self { state, inbox, probe, source: Source::Unknown, begun: now, flushed: now, forgotten: now, joins, records }
    }

    /// Does what is due. Returns the time until the next call.
    pub(super) fn step(&mut self, cx: &mut ProfilerThread<'_>) -> Duration {
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
                self.state.lock(cx).settle(cx, false);
                if self.forgotten.elapsed() >= FORGET {
                    self.forgotten = Instant::now();
                    self.state.lock(cx).callers.as_mut().into_iter().for_each(AsyncCallers::forget);
                }
                let pause = if self.begun.elapsed() < BEGINNING { FIRST_FLUSHES } else { FLUSH };
                if self.flushed.elapsed() >= pause && (self.records || self.is_waiting(cx)) {
                    self.flush(cx);
                }
                LOOK
            }
        }
    }

    fn start(&mut self, cx: &mut ProfilerThread<'_>) -> Duration {
        if self.state.lock(cx).begins_in() > START {
            // What is met now may be found out for as long as methods are compiled.
            if let Some(probe) = &self.probe {
                probe.learn(cx);
            }
            return START;
        }
        self.source = match AsyncSession::start(cx) {
            Started::NotYet => return START,
            Started::NoSource => match self.probe.take() {
                Some(probe) => {
                    self.state.lock(cx).probe = Some(ProbeCallers::new(Arc::clone(&probe)));
                    Source::Probe(probe)
                }
                None => Source::Absent,
            },
            Started::Refused(error) => {
                self.state.lock(cx).say_without_callers(&error);
                Source::Absent
            }
            Started::Yes(session) => {
                self.probe.take().into_iter().for_each(|probe| probe.give_up(cx));
                self.begun = Instant::now();
                if self.joins {
                    self.state.lock(cx).callers = Some(AsyncCallers::new(Arc::clone(&self.inbox)));
                }
                Source::On(session)
            }
        };
        LOOK
    }

    fn flush(&mut self, cx: &mut ProfilerThread<'_>) {
        let Source::On(session) = &mut self.source else { return };
        self.flushed = Instant::now();
        if session.flush(cx).is_ok()
            && let Some(callers) = &mut self.state.lock(cx).callers
        {
            callers.ask();
        }
    }

    /// Ends sampling, has the waiting samples joined, and ends the session.
    pub(super) fn end(mut self, cx: &mut ProfilerThread<'_>) {
        self.state.lock(cx).end_sampling();
        let is_told = matches!(self.source, Source::On(_)) && self.records;
        if is_told || self.is_waiting(cx) {
            self.flush(cx);
            let start = Instant::now();
            // Not the wait of this thread, which ends at once when the profiler is to detach.
            while (is_told || self.is_waiting(cx)) && start.elapsed() < LAST {
                thread::sleep(START);
                self.state.lock(cx).settle(cx, false);
            }
        }
        match self.source {
            Source::On(session) => session.stop(cx),
            Source::Probe(probe) => probe.stop(),
            Source::Unknown | Source::Absent => {}
        }
    }

    fn is_waiting(&self, cx: &ProfilerThread<'_>) -> bool {
        self.state.lock(cx).callers.as_ref().is_some_and(AsyncCallers::is_waiting)
    }
}
