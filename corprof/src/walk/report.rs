//! What the sampler tells of itself: how much it saw, how long the application stood still, and what went wrong.

use std::collections::BTreeMap;
use std::time::Duration;

use windows_core::HRESULT;

use crate::error::{E_FAIL, Error, S_OK};

use super::strategy::{Outcome, Strategy};
use super::tape::{Stack, Tape};

/// What the sampler has done so far. Sums are since its start, but for [`threads`](Self::threads).
#[derive(Clone, PartialEq, Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// Rounds in which threads were walked.
    pub rounds: u64,
    /// Stacks that were handed out.
    pub samples: u64,
    /// What became of the threads of this round.
    pub threads: ThreadCounts,
    /// How long threads stood still.
    pub standstill: StandstillTimes,
    /// Rounds that were not made.
    pub skipped: SkippedRounds,
    /// Stacks of which the outer frames are missing, for want of room ([`Sampler::max_depth`](super::Sampler::max_depth)).
    pub truncated: u64,
    /// Stacks that the runtime could walk only in part.
    pub incomplete: u64,
    /// Threads that came to their end between being listed and being walked: those were left alone.
    pub ended: u64,
    /// Threads that came to their end in the middle of a round, and waited for it to be over.
    pub delayed: u64,
    /// How often the runtime was asked again: to suspend, because another suspension was in the way, or for the stack of a
    /// thread that was stopped at an unsafe moment.
    pub retries: u64,
    /// Walks by [`Strategy::Seeded`] that were given up, as the thread that was stopped had a lock that the walk needs.
    pub abandoned: u64,
    /// Stacks by [`Strategy::Seeded`] that the runtime would not walk, and that were followed by the unwind tables alone.
    pub unwound: u64,
    /// How threads are looked at now: as was asked for, or after too many walks that were given up by
    /// [`Strategy::SuspendedRuntime`].
    pub strategy: Strategy,
    /// What `DoStackSnapshot` has answered, and how often.
    pub walks: CodeCounts,
    /// What `SuspendRuntime` has answered in the rounds that were not made for it, and how often.
    pub refusals: CodeCounts,
}

/// `1500 samples in 500 rounds (20 skipped), threads stood still for 0.2 ms on average, 1.3 ms at most`.
impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { samples, rounds, skipped, standstill, .. } = self;
        let [mean, longest] = [standstill.mean(), standstill.longest].map(|time| time.as_secs_f64() * 1000.0);
        write!(f, "{samples} samples in {rounds} rounds ({} skipped), ", skipped.total())?;
        write!(f, "threads stood still for {mean:.1} ms on average, {longest:.1} ms at most")
    }
}

/// What became of the threads of one round. `seen` is the sum of the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ThreadCounts {
    /// Threads that the runtime listed.
    pub seen: usize,
    /// Threads with a stack to show.
    pub walked: usize,
    /// Threads that were walked, and have no managed frame: most of the runtime's own.
    pub without_frames: usize,
    /// Threads whose walk failed.
    pub failed: usize,
    /// Threads that the filter left out.
    pub filtered: usize,
    /// Threads that had not run since they were last looked at, when only those on a processor are sampled.
    pub idle: usize,
    /// Threads that had come to their end.
    pub ended: usize,
    /// Threads that there was no time for: the others took [too long](super::Sampler::longest_standstill).
    pub left_out: usize,
}

/// How long threads stood still: from asking them to stop until they ran again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct StandstillTimes {
    /// In this round.
    pub last: Duration,
    /// In the longest round.
    pub longest: Duration,
    /// In all rounds.
    pub total: Duration,
    rounds: u32,
}

impl StandstillTimes {
    /// In a round, on average.
    pub fn mean(&self) -> Duration {
        self.total.checked_div(self.rounds).unwrap_or_default()
    }
}

/// Rounds that were not made, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct SkippedRounds {
    /// The round before took longer than the interval, most of it in the profiler's own code.
    pub late: u64,
    /// The application had stood still for its share of the time ([`Sampler::budget`](super::Sampler::budget)).
    pub budget: u64,
    /// The runtime was suspended by another all the while: a collection.
    pub busy: u64,
    /// The runtime had not started yet.
    pub not_started: u64,
    /// There was no thread to walk.
    pub empty: u64,
}

impl SkippedRounds {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.late + self.budget + self.busy + self.not_started + self.empty
    }
}

/// How often which code was answered.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CodeCounts(BTreeMap<i32, u64>);

impl CodeCounts {
    /// The codes and their counts.
    pub fn iter(&self) -> impl Iterator<Item = (HRESULT, u64)> {
        self.0.iter().map(|(&code, &count)| (HRESULT(code), count))
    }

    /// How often this code was answered.
    pub fn count(&self, code: HRESULT) -> u64 {
        self.0.get(&code.0).copied().unwrap_or_default()
    }

    pub(crate) fn add(&mut self, code: HRESULT) {
        *self.0.entry(code.0).or_default() += 1;
    }
}

/// `S_OK 120, E_FAIL 3`.
impl std::fmt::Display for CodeCounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (number, (code, count)) in self.iter().enumerate() {
            let separator = if number == 0 { "" } else { ", " };
            match Error::new(code, "").name() {
                _ if code == S_OK => write!(f, "{separator}S_OK {count}")?,
                Some(name) => write!(f, "{separator}{name} {count}")?,
                None => write!(f, "{separator}{:#010X} {count}", code.0)?,
            }
        }
        Ok(())
    }
}

/// What the answer to one walk means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Whole,
    /// There was no room for the outer frames.
    Truncated,
    /// The runtime could not go on.
    Incomplete,
    /// There is no managed frame.
    WithoutFrames,
    Failed,
}

impl Verdict {
    pub(crate) fn of(tape: &Tape, stack: &Stack) -> Self {
        let has_managed = tape.frames(stack).iter().any(|frame| frame.function.is_some());
        match (has_managed || stack.is_kept, stack.code) {
            (true, _) if stack.is_cut => Self::Truncated,
            (true, code) if code.is_ok() || stack.is_unwound => Self::Whole,
            (true, _) => Self::Incomplete,
            // The runtime's walker fails where there is nothing to walk.
            (false, E_FAIL) => Self::WithoutFrames,
            (false, code) if code.is_ok() => Self::WithoutFrames,
            (false, _) => Self::Failed,
        }
    }

    /// Whether there is a stack to show.
    pub(crate) fn is_sample(self) -> bool {
        matches!(self, Self::Whole | Self::Truncated | Self::Incomplete)
    }
}

impl Report {
    /// Notes a round in which threads were walked.
    pub(crate) fn note(&mut self, outcome: &Outcome, tape: &Tape) {
        self.rounds += 1;
        self.threads.ended += outcome.ended;
        self.ended += outcome.ended as u64;
        self.threads.left_out += outcome.left_out;
        self.threads.failed += outcome.abandoned as usize;
        for stack in tape.stacks() {
            // A walk that was broken off for want of room has done what it was to do.
            self.walks.add(if stack.is_cut { S_OK } else { stack.code });
            self.unwound += u64::from(stack.is_unwound);
            match Verdict::of(tape, stack) {
                Verdict::Whole => {}
                Verdict::Truncated => self.truncated += 1,
                Verdict::Incomplete => self.incomplete += 1,
                Verdict::WithoutFrames => self.threads.without_frames += 1,
                Verdict::Failed => self.threads.failed += 1,
            }
            if Verdict::of(tape, stack).is_sample() {
                self.threads.walked += 1;
                self.samples += 1;
            }
        }
        let times = &mut self.standstill;
        times.last = outcome.stood;
        times.longest = times.longest.max(outcome.stood);
        times.total += outcome.stood;
        times.rounds = times.rounds.saturating_add(1);
    }
}
