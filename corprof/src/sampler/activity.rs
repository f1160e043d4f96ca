//! Tracks which threads have run, and the last stacks of the others.
//!
//! The system reports each thread's processor time. If it has not changed, the thread has not run: its last stack is
//! still its stack, and it need not be stopped. If it has changed a moment ago and the thread is runnable, the thread
//! is working now.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::id::ThreadId;
use crate::system::{self, Scheduling, ThreadClock};
use crate::walk::stack_writer::SampledFrame;

use super::sample_buffer::{SampleBuffer, Stack};
use super::unsampled::UnsampledTime;

/// How long a thread counts as running after its processor time has changed, on systems with no finer measure: two
/// ticks of Windows' scheduler.
const TICKS: Duration = Duration::from_millis(32);

/// The threads of the last round.
#[derive(Default)]
pub(crate) struct Activity {
    threads: HashMap<ThreadId, ThreadRecord>,
    /// How many threads have been in any round.
    threads_seen: u64,
    /// Whether there has been a round: an unknown thread has then started since.
    has_begun: bool,
}

/// The record of one thread.
#[derive(Debug)]
struct ThreadRecord {
    os_id: u32,
    /// None if the system reports no time.
    clock: Option<ThreadClock>,
    /// How much it had run in the last round.
    at_round: RunMeasure,
    /// Its run count at the last mark, or in the last round if that came later.
    count_at_mark: Option<u64>,
    /// How many times it had waited by then.
    waits_at_mark: Option<u64>,
    /// When its processor time was last seen to have changed.
    last_change: Instant,
    /// Its processor time, minus the weight of its samples.
    unsampled: UnsampledTime,
    /// When its last sample was weighed.
    last_weighed: Instant,
    /// Its stack in the last round, if it has not run since.
    stack: Option<LastStack>,
}

/// The stack of a thread that does not run.
#[derive(Debug)]
struct LastStack {
    frames: Vec<SampledFrame>,
    stack: Stack,
}

/// How much a thread has run since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct RunMeasure {
    cpu_time: Option<Duration>,
    /// A number that grows whenever the thread runs: exact, where the system has it.
    run_count: Option<u64>,
}

/// The result of checking a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadCheck {
    measure: RunMeasure,
    last_change: Instant,
    /// Its processor time since the last round; none if unknown.
    pub(crate) cpu_time: Option<Duration>,
    /// The scheduler's answer, if the thread has run since the last mark.
    scheduling: Option<Scheduling>,
    /// Whether it was neither running nor ready to run; none if that was not asked, or the system does not report it.
    was_waiting: Option<bool>,
    /// Whether it is working, or may be: it has run since the last mark, has not waited since, and is runnable.
    pub(crate) is_working: bool,
    /// Whether it has run since the last round, or may have.
    pub(crate) has_run: bool,
}

impl RunMeasure {
    fn read(os_id: u32, clock: Option<&ThreadClock>) -> Self {
        let cpu_time = clock.map_or_else(|| system::cpu_time(os_id), ThreadClock::time);
        Self { cpu_time, run_count: system::run_count(os_id) }
    }

    /// Whether the thread has run since its run count was this, or may have.
    fn has_run_since(self, run_count: Option<u64>) -> bool {
        self.run_count.zip(run_count).is_none_or(|(now, before)| now != before)
    }
}

impl ThreadCheck {
    /// A number that grows whenever the thread runs; none if the system has none.
    pub(crate) fn run_count(&self) -> Option<u64> {
        self.measure.run_count
    }

    /// Asks whether the thread waits, shortly before it is stopped. Afterwards one whose wait ended meanwhile would be
    /// ready to run, and one that has worked may still be in the stop.
    pub(crate) fn ask_whether_it_waits(&mut self, os_id: u32) {
        self.was_waiting = system::is_runnable(os_id).map(|is_runnable| !is_runnable);
    }

    /// Whether the thread, which has been walked since, had begun to wait before it was stopped.
    pub(crate) fn has_waited(&self, os_id: u32) -> bool {
        let Some(before) = self.scheduling else {
            return self.was_waiting.unwrap_or_else(|| system::is_runnable(os_id) == Some(false));
        };
        // The runtime's stop is itself one wait. A thread that was already waiting went from that wait into the stop.
        system::scheduling(os_id).is_some_and(|now| !now.is_runnable || now.waits > before.waits + 1)
    }
}

impl ThreadRecord {
    fn new(os_id: u32, check: &ThreadCheck) -> Self {
        Self {
            os_id,
            clock: ThreadClock::open(os_id),
            at_round: check.measure,
            count_at_mark: None,
            waits_at_mark: None,
            last_change: check.last_change,
            unsampled: UnsampledTime::default(),
            last_weighed: check.last_change,
            stack: None,
        }
    }

    /// Checks the thread again.
    fn check(&self, measure: RunMeasure, now: Instant, asks_scheduler: bool) -> ThreadCheck {
        let last_change = if self.at_round.cpu_time == measure.cpu_time { self.last_change } else { now };
        let cpu_time = measure.cpu_time.zip(self.at_round.cpu_time);
        let has_run_since_mark = self.has_run_since_mark(measure, now.saturating_duration_since(last_change));
        let scheduling = if has_run_since_mark && asks_scheduler { system::scheduling(self.os_id) } else { None };
        ThreadCheck {
            measure,
            last_change,
            cpu_time: cpu_time.map(|(now, before)| now.saturating_sub(before)),
            scheduling,
            was_waiting: None,
            is_working: has_run_since_mark && scheduling.is_none_or(|now| self.has_not_waited(now)),
            has_run: measure.has_run_since(self.at_round.run_count),
        }
    }

    /// Whether the thread has run since the last mark, or may have. A clock that ticks rarely gives no finer answer
    /// than that it has ticked a short time ago.
    fn has_run_since_mark(&self, measure: RunMeasure, since_change: Duration) -> bool {
        if measure.run_count.is_none() && measure.cpu_time.is_some() && since_change >= TICKS {
            return false;
        }
        measure.has_run_since(self.count_at_mark)
    }

    /// Whether the thread is runnable and has not waited since the last mark. One that has may be about to wake up: it
    /// is runnable, but its stack shows the wait.
    fn has_not_waited(&self, now: Scheduling) -> bool {
        now.is_runnable && self.waits_at_mark.is_none_or(|waits| waits == now.waits)
    }

    /// Records how much the thread has run by now.
    fn mark(&mut self) {
        let run_count = system::run_count(self.os_id);
        // A thread that has not run has not begun a new wait.
        if run_count.is_some() && run_count != self.count_at_mark {
            self.waits_at_mark = system::scheduling(self.os_id).map(|scheduling| scheduling.waits);
        }
        self.count_at_mark = run_count;
    }

    /// Ends a round with this check; `cpu_time` has been used since the last one.
    fn end_round(&mut self, check: &ThreadCheck, cpu_time: Duration) {
        self.unsampled.add(cpu_time);
        if check.has_run {
            self.stack = None;
        }
        self.at_round = check.measure;
        self.count_at_mark = check.measure.run_count;
        self.last_change = check.last_change;
        if let Some(scheduling) = check.scheduling {
            self.waits_at_mark = Some(scheduling.waits);
        }
    }

    /// The part of its processor time that its next sample stands for; none if the system does not report it.
    fn weigh(&mut self, now: Instant) -> Option<Duration> {
        let since_last = now.saturating_duration_since(self.last_weighed);
        self.last_weighed = now;
        self.at_round.cpu_time?;
        let is_exact = self.at_round.run_count.is_some();
        Some(if is_exact { self.unsampled.take() } else { self.unsampled.take_part(since_last) })
    }
}

impl Activity {
    /// Records how much each known thread has run by now.
    pub(crate) fn mark(&mut self) {
        self.threads.values_mut().for_each(ThreadRecord::mark);
    }

    /// Checks a thread. `asks_scheduler` says whether to ask the scheduler as well, which costs a hundred times as
    /// much.
    pub(crate) fn check(&self, thread: ThreadId, os_id: u32, asks_scheduler: bool) -> ThreadCheck {
        let record = self.threads.get(&thread).filter(|record| record.os_id == os_id);
        let measure = RunMeasure::read(os_id, record.and_then(|record| record.clock.as_ref()));
        let now = Instant::now();
        // A thread that has reused the ids of an ended one has run for less time than that one had.
        match record.filter(|record| record.at_round.cpu_time <= measure.cpu_time) {
            Some(record) => record.check(measure, now, asks_scheduler),
            None => self.check_new(os_id, measure, now, asks_scheduler),
        }
    }

    /// Checks a thread that was in no round yet.
    fn check_new(&self, os_id: u32, measure: RunMeasure, now: Instant, asks_scheduler: bool) -> ThreadCheck {
        let scheduling = if asks_scheduler { system::scheduling(os_id) } else { None };
        ThreadCheck {
            measure,
            last_change: now,
            cpu_time: measure.cpu_time.filter(|_| self.has_begun),
            scheduling,
            was_waiting: None,
            is_working: scheduling.is_none_or(|scheduling| scheduling.is_runnable),
            has_run: true,
        }
    }

    /// Copies the stack that a thread had in the last round to the buffer, under the thread's number in this round;
    /// returns whether there was one.
    pub(crate) fn repeat_stack(&self, thread: ThreadId, number: usize, buffer: &mut SampleBuffer) -> bool {
        let last = self.threads.get(&thread).and_then(|record| record.stack.as_ref());
        let Some(LastStack { frames, stack }) = last else { return false };
        buffer.repeat(number, stack, frames);
        true
    }

    /// How many threads have been in any round.
    pub(crate) fn threads_seen(&self) -> u64 {
        self.threads_seen
    }

    /// Whether the stack that a thread had in the last round is known.
    pub(crate) fn has_stack(&self, thread: ThreadId) -> bool {
        self.threads.get(&thread).is_some_and(|record| record.stack.is_some())
    }

    /// Ends a round with these threads and results; returns how long all of them have run since the last one.
    pub(crate) fn end_round(
        &mut self,
        checks: impl IntoIterator<Item = (ThreadId, u32, ThreadCheck)>,
        elapsed: Duration,
    ) -> Duration {
        let mut cpu_time_of_all = Duration::ZERO;
        let mut earlier = std::mem::take(&mut self.threads);
        for (thread, os_id, check) in checks {
            let known = earlier.remove(&thread).filter(|record| record.os_id == os_id);
            self.threads_seen += u64::from(known.is_none());
            let mut record = known.unwrap_or_else(|| ThreadRecord::new(os_id, &check));
            // The application's own thread may have run before it first ran managed code.
            let cpu_time = check.cpu_time.unwrap_or_default().min(elapsed);
            record.end_round(&check, cpu_time);
            cpu_time_of_all += cpu_time;
            self.threads.insert(thread, record);
        }
        self.has_begun = true;
        cpu_time_of_all
    }

    /// Keeps a stack for as long as its thread does not run. Call it after [`end_round`](Self::end_round).
    pub(crate) fn keep_stack(&mut self, thread: ThreadId, stack: &Stack, frames: &[SampledFrame]) {
        if let Some(record) = self.threads.get_mut(&thread) {
            record.stack = Some(LastStack { frames: frames.to_vec(), stack: *stack });
        }
    }

    /// The part of a thread's processor time that its next sample stands for; none if the system does not report it.
    /// Call it after [`end_round`](Self::end_round).
    pub(crate) fn weigh(&mut self, thread: ThreadId, now: Instant) -> Option<Duration> {
        self.threads.get_mut(&thread)?.weigh(now)
    }
}
