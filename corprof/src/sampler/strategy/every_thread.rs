//! Rounds that walk every thread whose stack may have changed.

use std::time::{Duration, Instant};

use crate::id::{FunctionId, ThreadId};
use crate::profiler_thread::ProfilerThread;
use crate::session::liveness::WalkCandidate;
use crate::walk::stack_writer::SampledFrame;

use super::{Outcome, RoundTime, RunningStrategy, SampledRound, share};
use crate::sampler::activity::ThreadCheck;
use crate::sampler::options::Mode;
use crate::sampler::recording::{Recording, Survey};
use crate::sampler::report::Verdict;
use crate::sampler::round::SampledThread;
use crate::sampler::sample_buffer::{SampleBuffer, Stack};

/// Stops threads and walks them.
pub(in crate::sampler) trait Walker {
    /// Whether all threads of the application stand still at once, and not one after another.
    const STOPS_ALL: bool;

    /// Walks the targets onto the buffer, which was prepared for them, for `limit` at most.
    fn walk(&mut self, targets: &[WalkTarget<'_>], buffer: &mut SampleBuffer, limit: Duration) -> Outcome;
}

/// A thread to walk.
pub(in crate::sampler) struct WalkTarget<'i> {
    pub(super) thread: ThreadId,
    /// The id of the operating-system thread that carries it.
    pub(super) os_id: Option<u32>,
    /// Checks at the time of the walk that it is still alive.
    pub(super) candidate: WalkCandidate<'i>,
}

/// Walks every thread in every round.
pub(in crate::sampler) struct EveryThread<W> {
    walker: W,
    /// The thread that the next round begins with, as the last one had no time for it.
    next_first: Option<ThreadId>,
}

/// The threads of a round.
struct Candidates<'i> {
    targets: Vec<WalkTarget<'i>>,
    /// The same threads, as the profiler sees them.
    threads: Vec<SampledThread>,
    /// The results of checking them.
    checks: Vec<Option<(u32, ThreadCheck)>>,
}

impl<W: Walker> EveryThread<W> {
    pub(in crate::sampler) fn new(walker: W) -> Self {
        Self { walker, next_first: None }
    }

    /// Lists the threads, those first for which the last round had no time.
    fn list_threads(&mut self, cx: &mut ProfilerThread<'_>) -> Result<Vec<ThreadId>, String> {
        let mut listed = cx.enum_threads().map_err(|error| error.to_string())?;
        let first = self.next_first.take();
        if let Some(place) = first.and_then(|first| listed.iter().position(|&thread| thread == first)) {
            listed.rotate_left(place);
        }
        Ok(listed)
    }

    /// Has the candidates walked onto the recording's buffer.
    fn walk(&mut self, cx: &ProfilerThread<'_>, recording: &mut Recording, candidates: &Candidates<'_>) -> Outcome {
        let Candidates { targets, checks, .. } = candidates;
        recording.buffer.prepare(targets.len());
        if targets.is_empty() {
            return Outcome::default();
        }
        let look_up = cx.liveness().look_up();
        let mut outcome = self.walker.walk(targets, &mut recording.buffer, recording.options.longest_suspension);
        recording.buffer.record_functions(cx);
        // Ends of threads wait for the look-up, and checking many threads takes a while.
        drop(look_up);
        recording.buffer.mark_waiting(|number| {
            let check = checks.get(number).copied().flatten();
            check.is_some_and(|(os_id, check)| check.has_waited(os_id))
        });
        outcome.lost = if W::STOPS_ALL { outcome.stood } else { share(outcome.stood, targets.len()) };
        let walked = targets.len() - outcome.left_out.min(targets.len());
        self.next_first = targets.get(walked).map(|target| target.thread);
        outcome
    }
}

impl<W: Walker> RunningStrategy for EveryThread<W> {
    fn sample(
        &mut self,
        cx: &mut ProfilerThread<'_>,
        recording: &mut Recording,
        time: RoundTime,
    ) -> Result<SampledRound, String> {
        let started = cx.liveness().threads_started();
        let listed = self.list_threads(cx)?;
        let Survey { wanted, unmoved, checks, counts } = recording.survey(cx, listed);
        recording.report.threads = counts;
        let candidates = choose(cx, recording, wanted);
        let outcome = self.walk(cx, recording, &candidates);
        recording.report.delayed = cx.liveness().delayed();
        let mut threads = candidates.threads;
        let mut are_named = true;
        recording.buffer.show_dynamic_methods(|address| {
            let found = dynamic_method_at(cx, address);
            are_named &= found.is_none_or(|function| cx.liveness().is_watched(function));
            found
        });
        if outcome.refused.is_some() {
            return Ok(SampledRound { threads, outcome });
        }
        for thread in unmoved {
            recording.activity.repeat_stack(thread.id.0, threads.len(), &mut recording.buffer);
            threads.push(thread);
        }
        recording.end_survey(checks, time.elapsed, started);
        if recording.options.mode == Mode::Cpu {
            recording.remove_waiting();
        }
        // Right after an attach a dynamic method has no name yet, and gets one when its code is found again.
        weigh(recording, &threads, time.elapsed, are_named);
        recording.report.suspension.add(outcome.stood);
        Ok(SampledRound { threads, outcome })
    }

    fn needs_marks(&self, mode: Mode) -> bool {
        mode == Mode::Cpu
    }
}

/// The dynamic method whose code is at an address, if one is. Stubs of the runtime have no metadata either, and are not
/// meant.
fn dynamic_method_at(cx: &mut ProfilerThread<'_>, address: usize) -> Option<FunctionId> {
    let address = cx.older_code_address(address)?;
    let function = cx.function_version_from_ip(address).ok()??.function;
    let is_dynamic = cx.is_function_dynamic(function) == Ok(true);
    (is_dynamic && !cx.names().function(function).starts_with("<stub ")).then_some(function)
}

/// Chooses the threads that are still alive.
fn choose<'i>(
    cx: &'i ProfilerThread<'_>,
    recording: &mut Recording,
    wanted: Vec<(SampledThread, Option<ThreadCheck>)>,
) -> Candidates<'i> {
    let mut candidates = Candidates { targets: Vec::new(), threads: Vec::new(), checks: Vec::new() };
    for (thread, check) in wanted {
        let Some(candidate) = cx.liveness().walk_candidate(thread.id.0) else {
            recording.report.threads.ended += 1;
            continue;
        };
        candidates.targets.push(WalkTarget { thread: thread.id.0, os_id: thread.os_id, candidate });
        candidates.checks.push(thread.os_id.zip(check));
        candidates.threads.push(thread);
    }
    candidates
}

/// Sets the weight of each sample, and if `are_kept`, keeps the stacks that may be valid in the next round.
fn weigh(recording: &mut Recording, threads: &[SampledThread], elapsed: Duration, are_kept: bool) {
    let Recording { options, buffer, activity, .. } = recording;
    let now = Instant::now();
    buffer.weigh(|stack, frames| {
        let Some(thread) = threads.get(stack.thread) else { return elapsed };
        let thread = thread.id.0;
        match options.mode {
            Mode::Cpu if Verdict::of_frames(stack, frames).is_sample() => {
                activity.weigh(thread, now).unwrap_or(elapsed)
            }
            Mode::Cpu => elapsed,
            Mode::Wall => {
                if are_kept && is_worth_keeping(stack, frames) {
                    activity.keep_stack(thread, stack, frames);
                }
                elapsed
            }
        }
    });
}

/// Whether a stack may be shown again in the next round, if its thread has not run until then.
fn is_worth_keeping(stack: &Stack, frames: &[SampledFrame]) -> bool {
    // If it lacks room, the next round has more.
    !stack.is_repeated && !stack.marks.lacks_room && Verdict::of_frames(stack, frames) != Verdict::Failed
}
