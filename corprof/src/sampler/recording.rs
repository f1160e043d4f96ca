//! What a sampler has found so far: the strategies write to it, and the loop (`sampling.rs`) passes it to the profiler.

use std::time::Duration;

use crate::id::{Inert, ThreadId};
use crate::profiler_thread::ProfilerThread;

use super::activity::{Activity, ThreadCheck};
use super::options::{Mode, Sampler};
use super::report::{Report, ThreadCounts};
use super::round::SampledThread;
use super::sample_buffer::SampleBuffer;
use super::strategy::Strategy;

/// The options of a sampler, and what its rounds have found.
pub(super) struct Recording {
    pub(super) options: Sampler,
    /// The stacks of the current round.
    pub(super) buffer: SampleBuffer,
    pub(super) report: Report,
    /// How much the threads have run, for the strategies that stop them.
    pub(super) activity: Activity,
}

/// All threads, as they were before any was stopped.
#[derive(Default)]
pub(super) struct Survey {
    /// The threads to walk.
    pub(super) wanted: Vec<(SampledThread, Option<ThreadCheck>)>,
    /// The threads whose last stack is still valid.
    pub(super) unmoved: Vec<SampledThread>,
    /// The results of checking them.
    pub(super) checks: Vec<(ThreadId, u32, ThreadCheck)>,
    pub(super) counts: ThreadCounts,
}

impl Recording {
    pub(super) fn new(options: Sampler, strategy: Strategy) -> Self {
        Self {
            buffer: SampleBuffer::new(strategy.frame_limit(options.depth)),
            report: Report::new(strategy.sampled_time(options.mode), options.interval, strategy),
            activity: Activity::default(),
            options,
        }
    }

    /// Checks the `listed` threads, while all of them run.
    pub(super) fn survey(&mut self, cx: &ProfilerThread<'_>, listed: Vec<ThreadId>) -> Survey {
        let mut survey = Survey::default();
        survey.counts.seen = listed.len();
        let is_cpu = self.options.mode == Mode::Cpu;
        for thread in listed {
            let os_id = cx.os_thread_id(thread).ok();
            let mut check = os_id.map(|os_id| self.activity.check(thread, os_id, is_cpu));
            survey.checks.extend(os_id.zip(check).map(|(os_id, check)| (thread, os_id, check)));
            let name = cx.thread_names().of(thread);
            let cpu_time = check.and_then(|check| check.cpu_time);
            let run_count = check.and_then(|check| check.run_count());
            let sampled = SampledThread { id: Inert(thread), os_id, name, cpu_time, run_count };
            if self.options.filter.as_mut().is_some_and(|wants| !wants(&sampled)) {
                survey.counts.filtered += 1;
            } else if is_cpu && check.is_some_and(|check| !check.is_working) {
                survey.counts.idle += 1;
            } else if check.is_some_and(|check| !check.has_run) && self.activity.has_stack(thread) {
                survey.counts.unmoved += 1;
                survey.unmoved.push(sampled);
            } else {
                if let (false, Some((os_id, check))) = (is_cpu, os_id.zip(check.as_mut())) {
                    check.ask_whether_it_waits(os_id);
                }
                survey.wanted.push((sampled, check));
            }
        }
        survey
    }

    /// Ends the round of a survey for the activity of its threads. `started` is how many threads had started before it.
    pub(super) fn end_survey(&mut self, checks: Vec<(ThreadId, u32, ThreadCheck)>, elapsed: Duration, started: u64) {
        self.report.cpu_time += self.activity.end_round(checks, elapsed);
        self.report.unseen = started.saturating_sub(self.activity.threads_seen());
    }

    /// Leaves out the stacks of threads that were waiting by the time that they were stopped.
    pub(super) fn remove_waiting(&mut self) {
        let waiting = self.buffer.remove_waiting();
        self.report.threads.idle += waiting;
        self.report.waited += waiting as u64;
    }
}
