//! Which threads have run, and where the others still stand.
//!
//! The system says how long each thread has run on a processor. A thread for which that has not changed has not run, and
//! stands where it stood: its last stack is its stack, and nobody has to be stopped to see it. A thread for which it has
//! changed since a moment ago, and that could go on, is at work now.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::id::ThreadId;
use crate::system::{self, Scheduling};

use super::sample_buffer::{SampleBuffer, SampledFrame, Stack};

/// How long a thread counts as running after its processor time has changed, where that is all that the system tells: two
/// steps of Windows' scheduler.
const TICKS: Duration = Duration::from_millis(32);

/// What a sample stands for at most, in times of the average.
const MOST: u32 = 3;

/// What is known of the threads of the last round.
#[derive(Default)]
pub(crate) struct Activity {
    threads: HashMap<ThreadId, Known>,
    /// How many threads there were in any round.
    seen: u64,
    /// There has been a round: a thread that is not known has started since.
    has_begun: bool,
}

/// What is known of one thread.
#[derive(Debug)]
struct Known {
    os_id: u32,
    /// As of the last round.
    then: Ran,
    /// How much it had run by the last mark, if that came later.
    mark: Option<u64>,
    /// How often it had waited by then.
    waits: Option<u64>,
    /// When its processor time was last seen to have changed.
    changed: Instant,
    /// How long it has run, and what its samples stand for.
    owed: Owed,
    /// Where it stood in the last round.
    stack: Option<Standing>,
}

/// How long a thread has run, and how much of that its samples stand for.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Owed {
    /// What no sample stands for yet.
    rest: Duration,
    ran: Duration,
    samples: u32,
}

impl Owed {
    pub(crate) fn add(self, time: Duration) -> Self {
        Self { rest: self.rest + time, ran: self.ran + time, ..self }
    }

    /// What the next sample stands for: all that is left, but not many times what samples of this thread stand for on average.
    /// On a full machine, one round that comes very late would else outweigh a hundred others.
    pub(crate) fn take(&mut self) -> Duration {
        self.samples = self.samples.saturating_add(1);
        let weight = self.rest.min(MOST * self.ran / self.samples);
        self.rest -= weight;
        weight
    }
}

/// Where a thread stood.
#[derive(Debug)]
struct Standing {
    frames: Vec<SampledFrame>,
    stack: Stack,
}

/// How much a thread has run since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Ran {
    time: Option<Duration>,
    /// A number that goes up whenever it runs.
    exactly: Option<u64>,
}

/// What a look at a thread says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    ran: Ran,
    changed: Instant,
    /// How long it has run since the last round; none if that is not known.
    pub(crate) since: Option<Duration>,
    /// What the scheduler says, if it has run since the last mark.
    scheduling: Option<Scheduling>,
    /// It is at work, or may be: it has run since the last mark, has not waited since, and could go on.
    pub(crate) is_at_work: bool,
    /// It has run since the last round, or may have.
    pub(crate) has_run: bool,
}

impl Look {
    /// Whether the thread, which has been walked since, had begun to wait by then.
    pub(crate) fn has_waited(&self, os_id: u32) -> bool {
        let Some(before) = self.scheduling else {
            return system::is_runnable(os_id) == Some(false);
        };
        // Being stopped by the runtime is one wait. Whoever was in another by then came out of it into that.
        system::scheduling(os_id).is_some_and(|now| !now.is_runnable || now.waits > before.waits + 1)
    }
}

impl Ran {
    fn ask(os_id: u32) -> Self {
        Self { time: system::cpu_time(os_id), exactly: system::run_count(os_id) }
    }
}

impl Activity {
    /// Notes how much each known thread has run by now.
    pub(crate) fn mark(&mut self) {
        for known in self.threads.values_mut() {
            let ran = system::run_count(known.os_id);
            // Who has not run has not waited anew.
            if ran.is_some() && ran != known.mark {
                known.waits = system::scheduling(known.os_id).map(|scheduling| scheduling.waits);
            }
            known.mark = ran;
        }
    }

    /// Looks at a thread. `asks` says whether the scheduler is asked as well, which costs a hundred times as much.
    pub(crate) fn look(&self, thread: ThreadId, os_id: u32, asks: bool) -> Look {
        let ask = || asks.then(|| system::scheduling(os_id)).flatten();
        let (ran, now) = (Ran::ask(os_id), Instant::now());
        // A thread with the numbers of one that has ended has run for less than that.
        let known = self.threads.get(&thread).filter(|known| known.os_id == os_id && known.then.time <= ran.time);
        let Some(known) = known else {
            let (since, scheduling) = (ran.time.filter(|_| self.has_begun), ask());
            let is_at_work = scheduling.is_none_or(|scheduling| scheduling.is_runnable);
            return Look { ran, changed: now, since, scheduling, is_at_work, has_run: true };
        };
        let differs = |from: Option<u64>| from.zip(ran.exactly).is_none_or(|(from, to)| from != to);
        let changed = if known.then.time == ran.time { known.changed } else { now };
        let since = ran.time.zip(known.then.time).map(|(now, then)| now.saturating_sub(then));
        // A clock that ticks seldom says only that much.
        let has_ticked = ran.time.is_none() || now.saturating_duration_since(changed) < TICKS;
        let has_moved = differs(known.mark) && (ran.exactly.is_some() || has_ticked);
        let scheduling = if has_moved { ask() } else { None };
        // One that has waited since may be about to wake up: it could go on, and stands in its wait.
        let goes_on =
            scheduling.is_none_or(|now| now.is_runnable && known.waits.is_none_or(|waits| waits == now.waits));
        let is_at_work = has_moved && goes_on;
        Look { ran, changed, since, scheduling, is_at_work, has_run: differs(known.then.exactly) }
    }

    /// Writes the stack that a thread had in the last round onto the buffer, as that of the thread with this number in this
    /// one; whether there is one.
    pub(crate) fn replay(&self, thread: ThreadId, number: usize, buffer: &mut SampleBuffer) -> bool {
        let Some(Standing { frames, stack }) = self.threads.get(&thread).and_then(|known| known.stack.as_ref()) else {
            return false;
        };
        buffer.write_again(Stack { thread: number, ..*stack }, frames);
        true
    }

    /// How many threads there were in any round.
    pub(crate) fn seen(&self) -> u64 {
        self.seen
    }

    /// Whether the stack that a thread had in the last round is known.
    pub(crate) fn is_placed(&self, thread: ThreadId) -> bool {
        self.threads.get(&thread).is_some_and(|known| known.stack.is_some())
    }

    /// Ends a round in which these were the threads, by what the looks said; how long they have run in all since the last one.
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
            let (owed, waits, stack) =
                known.map_or((Owed::default(), None, None), |known| (known.owed, known.waits, known.stack));
            // A thread of the application's own may have run before it first ran managed code.
            let since = look.since.unwrap_or_default().min(elapsed);
            all += since;
            let owed = owed.add(since);
            let stack = stack.filter(|_| !look.has_run);
            let (then, mark, changed) = (look.ran, look.ran.exactly, look.changed);
            let waits = look.scheduling.map(|scheduling| scheduling.waits).or(waits);
            (thread, Known { os_id, then, mark, waits, changed, owed, stack })
        });
        self.threads = known.collect();
        self.has_begun = true;
        all
    }

    /// Keeps a stack for as long as its thread does not run. After [`end_round`](Self::end_round).
    pub(crate) fn keep(&mut self, thread: ThreadId, stack: &Stack, frames: &[SampledFrame]) {
        if let Some(known) = self.threads.get_mut(&thread) {
            known.stack = Some(Standing { frames: frames.to_vec(), stack: *stack });
        }
    }

    /// How much of the time that a thread has run its next sample stands for; none if the system does not say. After
    /// [`end_round`](Self::end_round).
    pub(crate) fn weigh(&mut self, thread: ThreadId) -> Option<Duration> {
        let known = self.threads.get_mut(&thread)?;
        known.then.time.map(|_| known.owed.take())
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
}
