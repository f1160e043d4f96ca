//! The sampler's report on itself: how much it saw, how long the application was suspended, and what failed.

use std::collections::BTreeMap;
use std::time::Duration;

use windows_core::HRESULT;

use crate::error::{E_FAIL, Error, S_OK};
use crate::walk::stack_writer::SampledFrame;

use super::options::Mode;
use super::sample_buffer::{SampleBuffer, Stack};
use super::strategy::{Outcome, Strategy};

/// The sampler's results so far. Sums are since its start, except in [`threads`](Self::threads).
#[derive(Clone, PartialEq, Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// The kind of time that is sampled.
    pub mode: Mode,
    /// The requested average time between rounds.
    pub interval: Duration,
    /// The time from the sampler's start to this round.
    pub elapsed: Duration,
    /// Rounds that were made: threads were checked, even if none had to be walked.
    pub rounds: u64,
    /// Stacks that the profiler received.
    pub samples: u64,
    /// The processor time of all managed threads from round to round, as the system counts it; zero if the system does
    /// not report it.
    pub cpu_time: Duration,
    /// The sum of the samples' weights ([`Sample::weight`](super::Sample::weight)). With [`Mode::Cpu`] it should be
    /// close to [`cpu_time`](Self::cpu_time): the difference was not seen.
    pub weight: Duration,
    /// With [`Mode::Cpu`], how many times a thread was working when it was checked, and waiting when it was stopped:
    /// the place of its work is unknown. Short pieces of work often end in between.
    pub waited: u64,
    /// Threads that started and ended without being seen in any round; with [`Strategy::Signals`], without being
    /// sampled. Their processor time is in [`cpu_time`](Self::cpu_time) with signals only.
    pub unseen: u64,
    /// Counts of the threads of this round.
    pub threads: ThreadCounts,
    /// How long threads were suspended.
    pub suspension: SuspensionTimes,
    /// Rounds that were not made.
    pub skipped: SkippedRounds,
    /// Stacks without their outer frames, for lack of room ([`Sampler::max_depth`](super::Sampler::max_depth)).
    pub truncated: u64,
    /// Stacks that the runtime could walk only in part.
    pub incomplete: u64,
    /// Threads that ended between being listed and being walked; they were not walked.
    pub ended: u64,
    /// Threads that reached their end during a round, and waited for the end of the round.
    pub delayed: u64,
    /// How many times the runtime was asked again: to suspend, because of another suspension, or for the stack of a
    /// thread that was stopped at an unsafe moment.
    pub retries: u64,
    /// Walks by [`Strategy::Seeded`] that were abandoned because the stopped thread had a lock that the walk needs.
    pub abandoned: u64,
    /// Stacks by [`Strategy::Seeded`] that the runtime refused to walk, and that were unwound by the unwind tables
    /// alone.
    pub unwound: u64,
    /// The current strategy: the requested one, or [`Strategy::SuspendedRuntime`] after too many abandoned walks.
    pub strategy: Strategy,
    /// Whether [`Strategy::Signals`] also samples threads that wait for a processor, at the place where they lost it:
    /// if the process may use one processor only, or the system's clocks do not show which threads are running, as
    /// under gVisor. Such a place is often a system call, which then seems to take more than it does.
    pub samples_ready_threads: bool,
    /// The results of `DoStackSnapshot`, with their counts.
    pub walks: CodeCounts,
    /// The results of `SuspendRuntime` in the rounds that were skipped because of it, with their counts.
    pub refusals: CodeCounts,
}

impl Report {
    /// The requested number of rounds per second.
    pub fn rate_asked(&self) -> f64 {
        rate(1, self.interval)
    }

    /// The achieved number of rounds per second.
    pub fn rate(&self) -> f64 {
        rate(self.rounds, self.elapsed)
    }
}

/// The number per second; none if no time has passed.
fn rate(count: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { count as f64 / time.as_secs_f64() }
}

/// `cpu: 1500 samples in 950 rounds, 95 a second of 100 asked for (50 skipped: 45 over budget, 5 late), 8.1 s of 8.4 s
/// on processors seen, threads stood still for 0.2 ms on average, 1.3 ms at most`.
impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { mode, samples, rounds, skipped, suspension, waited, unseen, weight, cpu_time, .. } = self;
        write!(f, "{mode}: {samples} samples in {rounds} rounds, ")?;
        write!(f, "{:.0} a second of {:.0} asked for ({skipped})", self.rate(), self.rate_asked())?;
        if *mode == Mode::Cpu {
            let [weight, cpu_time] = [weight, cpu_time].map(Duration::as_secs_f64);
            write!(f, ", {weight:.1} s of {cpu_time:.1} s on processors seen")?;
        }
        if *waited > 0 {
            write!(f, ", {waited} times a thread waited before it had stopped")?;
        }
        if *unseen > 0 {
            write!(f, ", {unseen} threads came and went unseen")?;
        }
        let [mean, longest] = [suspension.mean(), suspension.longest].map(|time| time.as_secs_f64() * 1000.0);
        write!(f, ", threads stood still for {mean:.1} ms on average, {longest:.1} ms at most")
    }
}

/// Counts of the threads of one round. `seen` is the sum of the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ThreadCounts {
    /// Threads that the runtime listed.
    pub seen: usize,
    /// Threads with a stack to show.
    pub walked: usize,
    /// Threads that were walked and have no managed frame: most of the runtime's own.
    pub without_frames: usize,
    /// Threads whose walk failed.
    pub failed: usize,
    /// Threads that the filter left out.
    pub filtered: usize,
    /// With [`Mode::Cpu`], threads that were not running, or were waiting by the time that they were stopped.
    pub idle: usize,
    /// With [`Mode::Wall`], threads that have not run since they were last walked: their stack is the same.
    pub unmoved: usize,
    /// Threads that had reached their end.
    pub ended: usize,
    /// With [`Mode::Cpu`] and [`Strategy::Seeded`], running threads that were not drawn: such a round walks one thread.
    pub not_drawn: usize,
    /// Threads that were not walked for lack of time: the others took [too long](super::Sampler::longest_suspension).
    pub left_out: usize,
}

/// How long threads were suspended: all of them, from the request to stop until they ran again; or with
/// [`Strategy::Seeded`] and [`Mode::Cpu`] a single one, from its stop until it ran again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct SuspensionTimes {
    /// In the last round with a suspension.
    pub last: Duration,
    /// In the longest round.
    pub longest: Duration,
    /// In all rounds.
    pub total: Duration,
    count: u32,
}

impl SuspensionTimes {
    /// Adds a suspension, unless there was none.
    pub(crate) fn add(&mut self, stood: Duration) {
        if stood.is_zero() {
            return;
        }
        self.last = stood;
        self.longest = self.longest.max(stood);
        self.total += stood;
        self.count = self.count.saturating_add(1);
    }

    /// The average over rounds with a suspension.
    pub fn mean(&self) -> Duration {
        self.total.checked_div(self.count).unwrap_or_default()
    }
}

/// Rounds that were skipped, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct SkippedRounds {
    /// The round before took longer than the interval, mostly in the profiler's own code, or the sampler waited for a
    /// processor. With [`Strategy::Signals`](super::Strategy::Signals) rounds are made up for; these were too many.
    pub late: u64,
    /// The application had been suspended for its share of the time ([`Sampler::budget`](super::Sampler::budget)).
    pub budget: u64,
    /// Another suspension, a collection, lasted too long.
    pub busy: u64,
    /// The runtime had not started yet.
    pub not_started: u64,
}

impl SkippedRounds {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.late + self.budget + self.busy + self.not_started
    }
}

/// `none skipped`, or `20 skipped: 15 over budget, 5 late`.
impl std::fmt::Display for SkippedRounds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { late, budget, busy, not_started } = *self;
        if self.total() == 0 {
            return f.write_str("none skipped");
        }
        write!(f, "{} skipped", self.total())?;
        let reasons =
            [(budget, "over budget"), (late, "late"), (busy, "during a collection"), (not_started, "before the start")];
        for (number, (count, reason)) in reasons.into_iter().filter(|(count, _)| *count > 0).enumerate() {
            write!(f, "{} {count} {reason}", if number == 0 { ":" } else { "," })?;
        }
        Ok(())
    }
}

/// Result codes with their counts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CodeCounts(BTreeMap<i32, u64>);

impl CodeCounts {
    /// The codes and their counts.
    pub fn iter(&self) -> impl Iterator<Item = (HRESULT, u64)> {
        self.0.iter().map(|(&code, &count)| (HRESULT(code), count))
    }

    /// The count of this code.
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

/// The meaning of a walk's result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Whole,
    /// The outer frames had no room.
    Truncated,
    /// The runtime could not go on.
    Incomplete,
    /// There is no managed frame.
    WithoutFrames,
    Failed,
}

impl Verdict {
    pub(crate) fn of(buffer: &SampleBuffer, stack: &Stack) -> Self {
        Self::of_frames(stack, buffer.frames(stack))
    }

    /// The meaning of the result for a stack with these frames.
    pub(crate) fn of_frames(stack: &Stack, frames: &[SampledFrame]) -> Self {
        let has_managed = frames.iter().any(|frame| frame.function.is_some());
        match (has_managed || stack.marks.is_kept, stack.code) {
            (true, _) if stack.marks.is_cut => Self::Truncated,
            (true, code) if code.is_ok() || stack.marks.is_unwound => Self::Whole,
            (true, _) => Self::Incomplete,
            // The runtime's walker fails if there is no frame to walk.
            (false, E_FAIL) => Self::WithoutFrames,
            (false, code) if code.is_ok() => Self::WithoutFrames,
            (false, _) => Self::Failed,
        }
    }

    /// Whether the stack is a sample.
    pub(crate) fn is_sample(self) -> bool {
        matches!(self, Self::Whole | Self::Truncated | Self::Incomplete)
    }
}

impl Report {
    pub(crate) fn new(mode: Mode, interval: Duration, strategy: Strategy) -> Self {
        Self { mode, interval, strategy, ..Self::default() }
    }

    /// Adds a round.
    pub(crate) fn add_round(&mut self, outcome: &Outcome, buffer: &SampleBuffer) {
        self.rounds += 1;
        self.threads.ended += outcome.ended;
        self.ended += outcome.ended as u64;
        self.threads.left_out += outcome.left_out;
        self.threads.failed += outcome.abandoned as usize;
        for stack in buffer.stacks() {
            self.add_stack(stack, Verdict::of(buffer, stack));
        }
    }

    fn add_stack(&mut self, stack: &Stack, verdict: Verdict) {
        if verdict.is_sample() {
            self.samples += 1;
            self.weight += stack.weight;
        }
        if stack.is_repeated {
            return; // counted as unmoved
        }
        // A walk that ended for lack of room counts as a success.
        self.walks.add(if stack.marks.is_cut { S_OK } else { stack.code });
        self.unwound += u64::from(stack.marks.is_unwound);
        self.threads.walked += usize::from(verdict.is_sample());
        match verdict {
            Verdict::Whole => {}
            Verdict::Truncated => self.truncated += 1,
            Verdict::Incomplete => self.incomplete += 1,
            Verdict::WithoutFrames => self.threads.without_frames += 1,
            Verdict::Failed => self.threads.failed += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_what_to_think_of_the_samples() {
        let mut report = Report::new(Mode::Cpu, Duration::from_millis(10), Strategy::SuspendedRuntime);
        report.elapsed = Duration::from_secs(10);
        (report.rounds, report.samples, report.waited, report.unseen) = (950, 1500, 7, 3);
        (report.skipped.budget, report.skipped.late) = (45, 5);
        (report.weight, report.cpu_time) = (Duration::from_millis(8100), Duration::from_millis(8400));
        assert_eq!(
            report.to_string(),
            "cpu: 1500 samples in 950 rounds, 95 a second of 100 asked for (50 skipped: 45 over budget, 5 late), 8.1 s of 8.4 s \
             on processors seen, 7 times a thread waited before it had stopped, 3 threads came and went unseen, threads stood \
             still for 0.0 ms on average, 0.0 ms at most"
        );
        report.mode = Mode::Wall;
        report.skipped = SkippedRounds::default();
        assert!(report.to_string().contains("asked for (none skipped), 7 times"), "{report}");
    }
}
