//! Tracks which threads have run, and the last stacks of the others.
//!
//! The system reports each thread's processor time. If it has not changed, the thread has not run: its last stack is still its
//! stack, and it need not be stopped. If it has changed a moment ago and the thread is runnable, the thread is working now.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::id::ThreadId;
use crate::system::{self, Scheduling, ThreadClock};

use super::sample_buffer::{SampleBuffer, SampledFrame, Stack};

/// How long a thread counts as running after its processor time has changed, on systems with no finer measure: two ticks of
/// Windows' scheduler.
const TICKS: Duration = Duration::from_millis(32);

/// The time over which a thread's processor time is spread, where it is known every 50 ms only (`drawing.rs`).
const SPREAD: Duration = Duration::from_millis(50);

/// The greatest weight of a sample, as a multiple of the average.
const MOST: u32 = 3;

/// The threads of the last round.
#[derive(Default)]
pub(crate) struct Activity {
    threads: HashMap<ThreadId, Known>,
    /// How many threads have been in any round.
    seen: u64,
    /// Whether there has been a round: an unknown thread has then started since.
    has_begun: bool,
}

/// The record of one thread.
#[derive(Debug)]
struct Known {
    os_id: u32,
    /// None if the system reports no time.
    clock: Option<ThreadClock>,
    /// The measure of its running in the last round.
    then: Ran,
    /// The same at the last mark, if that came later.
    mark: Option<u64>,
    /// How many times it had waited by then.
    waits: Option<u64>,
    /// When its processor time was last seen to have changed.
    changed: Instant,
    /// Its processor time, minus the weight of its samples.
    owed: Owed,
    /// When its last sample was weighed.
    weighed: Instant,
    /// Its stack in the last round.
    stack: Option<Standing>,
}

/// A thread's processor time, minus the weight of its samples.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Owed {
    /// The time that no sample stands for yet.
    rest: Duration,
    ran: Duration,
    samples: u32,
}

impl Owed {
    pub(crate) fn add(self, time: Duration) -> Self {
        Self { rest: self.rest + time, ran: self.ran + time, ..self }
    }

    /// The weight of the next sample: all that is left, but not many times the average weight of this thread's samples. On a
    /// full machine, one very late round would otherwise outweigh a hundred others.
    pub(crate) fn take(&mut self) -> Duration {
        self.samples = self.samples.saturating_add(1);
        let weight = self.rest.min(MOST * self.ran / self.samples);
        self.rest -= weight;
        weight
    }

    /// The same where the clock ticks rarely: most samples would find nothing, and the first after a tick all of it. So each takes
    /// a part of what is left, according to the time since the last one.
    fn take_part(&mut self, since: Duration) -> Duration {
        let later = self.rest.mul_f64((1.0 - since.div_duration_f64(SPREAD)).max(0.0));
        self.rest -= later;
        let weight = self.take();
        self.rest += later;
        weight
    }
}

/// The stack of a thread that does not run.
#[derive(Debug)]
struct Standing {
    frames: Vec<SampledFrame>,
    stack: Stack,
}

/// Measures of how much a thread has run since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Ran {
    time: Option<Duration>,
    /// A number that grows whenever the thread runs.
    exactly: Option<u64>,
}

/// The result of checking a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    ran: Ran,
    changed: Instant,
    /// How long it has run since the last round; none if unknown.
    pub(crate) since: Option<Duration>,
    /// The scheduler's answer, if the thread has run since the last mark.
    scheduling: Option<Scheduling>,
    /// Whether it is working, or may be: it has run since the last mark, has not waited since, and is runnable.
    pub(crate) is_at_work: bool,
    /// Whether it has run since the last round, or may have.
    pub(crate) has_run: bool,
}

impl Known {
    fn new(os_id: u32, look: &Look) -> Self {
        Self {
            os_id,
            clock: ThreadClock::open(os_id),
            then: look.ran,
            mark: None,
            waits: None,
            changed: look.changed,
            owed: Owed::default(),
            weighed: look.changed,
            stack: None,
        }
    }
}

impl Look {
    /// Whether the thread, which has been walked since, had begun to wait before it was stopped.
    pub(crate) fn has_waited(&self, os_id: u32) -> bool {
        let Some(before) = self.scheduling else {
            return system::is_runnable(os_id) == Some(false);
        };
        // The runtime's stop is itself one wait. A thread that was already waiting went from that wait into the stop.
        system::scheduling(os_id).is_some_and(|now| !now.is_runnable || now.waits > before.waits + 1)
    }
}

impl Ran {
    fn ask(os_id: u32, clock: Option<&ThreadClock>) -> Self {
        let time = clock.map_or_else(|| system::cpu_time(os_id), ThreadClock::time);
        Self { time, exactly: system::run_count(os_id) }
    }
}

impl Activity {
    /// Records how much each known thread has run by now.
    pub(crate) fn mark(&mut self) {
        for known in self.threads.values_mut() {
            let ran = system::run_count(known.os_id);
            // A thread that has not run has not begun a new wait.
            if ran.is_some() && ran != known.mark {
                known.waits = system::scheduling(known.os_id).map(|scheduling| scheduling.waits);
            }
            known.mark = ran;
        }
    }

    /// Checks a thread. `asks` says whether to ask the scheduler as well, which costs a hundred times as much.
    pub(crate) fn look(&self, thread: ThreadId, os_id: u32, asks: bool) -> Look {
        let ask = || asks.then(|| system::scheduling(os_id)).flatten();
        let known = self.threads.get(&thread).filter(|known| known.os_id == os_id);
        let (ran, now) = (Ran::ask(os_id, known.and_then(|known| known.clock.as_ref())), Instant::now());
        // A thread that has reused the ids of an ended one has run for less time than that one had.
        let known = known.filter(|known| known.then.time <= ran.time);
        let Some(known) = known else {
            let (since, scheduling) = (ran.time.filter(|_| self.has_begun), ask());
            let is_at_work = scheduling.is_none_or(|scheduling| scheduling.is_runnable);
            return Look { ran, changed: now, since, scheduling, is_at_work, has_run: true };
        };
        let differs = |from: Option<u64>| from.zip(ran.exactly).is_none_or(|(from, to)| from != to);
        let changed = if known.then.time == ran.time { known.changed } else { now };
        let since = ran.time.zip(known.then.time).map(|(now, then)| now.saturating_sub(then));
        // A clock that ticks rarely gives no finer answer.
        let has_ticked = ran.time.is_none() || now.saturating_duration_since(changed) < TICKS;
        let has_moved = differs(known.mark) && (ran.exactly.is_some() || has_ticked);
        let scheduling = if has_moved { ask() } else { None };
        // A thread that has waited since may be about to wake up: it is runnable, but its stack shows the wait.
        let goes_on =
            scheduling.is_none_or(|now| now.is_runnable && known.waits.is_none_or(|waits| waits == now.waits));
        let is_at_work = has_moved && goes_on;
        Look { ran, changed, since, scheduling, is_at_work, has_run: differs(known.then.exactly) }
    }

    /// Copies the stack that a thread had in the last round to the buffer, under the thread's number in this round; returns
    /// whether there was one.
    pub(crate) fn replay(&self, thread: ThreadId, number: usize, buffer: &mut SampleBuffer) -> bool {
        let Some(Standing { frames, stack }) = self.threads.get(&thread).and_then(|known| known.stack.as_ref()) else {
            return false;
        };
        buffer.write_again(Stack { thread: number, ..*stack }, frames);
        true
    }

    /// How many threads have been in any round.
    pub(crate) fn seen(&self) -> u64 {
        self.seen
    }

    /// Whether the stack that a thread had in the last round is known.
    pub(crate) fn is_placed(&self, thread: ThreadId) -> bool {
        self.threads.get(&thread).is_some_and(|known| known.stack.is_some())
    }

    /// Ends a round with these threads and results; returns how long all of them have run since the last one.
    pub(crate) fn end_round(
        &mut self,
        looks: impl IntoIterator<Item = (ThreadId, u32, Look)>,
        elapsed: Duration,
    ) -> Duration {
        let mut all = Duration::ZERO;
        let mut before = std::mem::take(&mut self.threads);
        let known = looks.into_iter().map(|(thread, os_id, look)| {
            let known = before.remove(&thread).filter(|known| known.os_id == os_id);
            self.seen += u64::from(known.is_none());
            let mut known = known.unwrap_or_else(|| Known::new(os_id, &look));
            // The application's own thread may have run before it first ran managed code.
            let since = look.since.unwrap_or_default().min(elapsed);
            all += since;
            known.owed = known.owed.add(since);
            known.stack = known.stack.filter(|_| !look.has_run);
            (known.then, known.mark, known.changed) = (look.ran, look.ran.exactly, look.changed);
            known.waits = look.scheduling.map(|scheduling| scheduling.waits).or(known.waits);
            (thread, known)
        });
        self.threads = known.collect();
        self.has_begun = true;
        all
    }

    /// Keeps a stack for as long as its thread does not run. Call it after [`end_round`](Self::end_round).
    pub(crate) fn keep(&mut self, thread: ThreadId, stack: &Stack, frames: &[SampledFrame]) {
        if let Some(known) = self.threads.get_mut(&thread) {
            known.stack = Some(Standing { frames: frames.to_vec(), stack: *stack });
        }
    }

    /// The part of a thread's processor time that its next sample stands for; none if the system does not report it. Call it
    /// after [`end_round`](Self::end_round).
    pub(crate) fn weigh(&mut self, thread: ThreadId, now: Instant) -> Option<Duration> {
        let known = self.threads.get_mut(&thread)?;
        let since = now.saturating_duration_since(known.weighed);
        known.weighed = now;
        let is_exact = known.then.exactly.is_some();
        known.then.time.map(|_| if is_exact { known.owed.take() } else { known.owed.take_part(since) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    #[test]
    fn samples_stand_for_all_that_was_used_and_none_for_most_of_it() {
        let mut owed = Owed::default();
        let mut seen = Duration::ZERO;
        for _ in 0..100 {
            owed = owed.add(MILLISECOND);
            seen += owed.take();
        }
        assert_eq!(seen, 100 * MILLISECOND, "regular rounds give each millisecond to its own sample");
        owed = owed.add(100 * MILLISECOND); // one that came late
        let weight = owed.take();
        assert!(weight < 7 * MILLISECOND, "{weight:?}");
        seen += weight;
        for _ in 0..100 {
            owed = owed.add(MILLISECOND);
            seen += owed.take();
        }
        assert_eq!(seen, 300 * MILLISECOND, "the samples after it make up for it");
    }

    #[test]
    fn a_tick_of_a_coarse_clock_is_spread_over_the_samples_until_the_next() {
        let mut owed = Owed::default();
        let mut weights = Vec::new();
        for turn in 0..1600 {
            if turn % 16 == 0 {
                owed = owed.add(16 * MILLISECOND);
            }
            weights.push(owed.take_part(MILLISECOND));
        }
        let (sum, late): (Duration, _) = (weights.iter().sum(), &weights[800..]);
        assert!(sum > Duration::from_millis(1540), "what is left is of the last moment: {sum:?}");
        assert!(late.iter().all(|weight| (MILLISECOND / 2..MILLISECOND * 2).contains(weight)), "{late:?}");
        // Rare samples stand for all of their time.
        let mut owed = Owed::default().add(96 * MILLISECOND);
        assert_eq!(owed.take_part(100 * MILLISECOND), 96 * MILLISECOND);
    }
}
