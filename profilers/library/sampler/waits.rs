//! A second sampler, which sees where threads wait: for slow calls, and for recordings of both.

use std::sync::Arc;
use std::time::Duration;

use corprof::inlined_frames::InlinedFrames;
use corprof::prelude::*;
use corprof::sampler::{Mode, Round, Sample, Sampler, Strategy};
use corprof_export::{self as export, FrameId};

use super::recording::{FoundCode, ModulesWithLines, UnknownCode, find_code};
use super::slow_calls::SampleInCall;
use super::traced_calls::TracedCalls;
use super::{Options, SamplerProfiler, State};
use crate::async_callers::StackFrame;

/// Whose waits are sampled, beside the threads that run.
pub(super) enum WaitsOf {
    /// Those of all threads, for a recording.
    All,
    /// Those of threads inside of traced calls.
    Traced(Arc<TracedCalls>),
}

impl WaitsOf {
    /// None if nobody asks for waits, or if the one sampler sees them.
    pub(super) fn read(options: &Options) -> Option<Self> {
        if options.has_waits {
            return Some(Self::All);
        }
        options.traced.clone().filter(|_| options.mode == Mode::Cpu).map(Self::Traced)
    }

    fn wants(&self, os_id: u32) -> bool {
        match self {
            Self::All => is_waiting(os_id),
            Self::Traced(traced) => traced.may_be_slow(os_id) && is_waiting(os_id),
        }
    }
}

/// Whether a thread waits now. If the system does not say so, it may.
fn is_waiting(os_id: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{os_id}/stat"));
    stat.map_or(true, |stat| is_waiting_by(&stat))
}

/// The same by the text of the system, in which the state is behind the name: `4711 (a) name) R 1 …`.
fn is_waiting_by(stat: &str) -> bool {
    stat.rsplit_once(") ").is_none_or(|(_, state)| !state.starts_with('R'))
}

impl SamplerProfiler {
    /// The sampler that sees where threads wait: signals find running ones only.
    pub(super) fn sampler_of_waits(interval: Duration, options: &Options) -> Sampler {
        let sampler = Sampler::every(interval).mode(Mode::Wall).strategy(Strategy::SuspendedRuntime);
        sampler.budget(options.budget_percent / 100.0).delay(options.delay)
    }

    /// Samples where threads wait. Threads that run are left to the other sampler, as stopping them would use up the
    /// budget; those that have not run since are not stopped again.
    pub(super) fn start_waits(&self, cx: &InCallback<'_>, of: WaitsOf, sampler: Sampler, shows_inlined: bool) {
        let sampler = sampler.threads(move |thread| thread.os_id.is_some_and(|os_id| of.wants(os_id)));
        let state = Arc::clone(&self.state);
        let mut modules = ModulesWithLines::default();
        let mut inlined = InlinedFrames::new();
        let started = sampler.start(cx, move |round| {
            let unknown = state.lock(round.cx()).unknown_code_of_waits(round);
            // The runtime may collect before it answers, so nothing is locked.
            let code = find_code(round.cx_mut(), unknown, &mut modules);
            if shows_inlined {
                inlined.learn(round);
            }
            let is_over = state.lock(round.cx()).add_waits(round, code, &inlined);
            if is_over {
                round.end_sampling();
            }
        });
        if let Err(error) = started {
            let why = format!("Where threads wait is not sampled (--mode wall would): {error}");
            self.state.lock(cx).profile.warn(why);
        }
    }
}

impl State {
    /// Adds samples of threads that wait, which are in no profile of processor time.
    fn add_waits(&mut self, round: &Round<'_, '_>, code: Vec<FoundCode>, inlined: &InlinedFrames) -> bool {
        if self.is_finished || self.sampled.is_some() {
            return true;
        }
        if self.has_waits {
            self.record_waits(round, code, inlined);
            return false;
        }
        for sample in round.samples().filter(Sample::is_waiting) {
            let frames = self.methods.stack(&mut self.profile, None, round, &sample, inlined);
            self.add_to_slow_calls(round.cx(), &sample, &frames);
        }
        false
    }

    fn record_waits(&mut self, round: &Round<'_, '_>, code: Vec<FoundCode>, inlined: &InlinedFrames) {
        if let Some(recording) = &mut self.recording {
            recording.learn(code);
        }
        for sample in round.samples().filter(Sample::is_waiting) {
            self.waits += 1;
            self.add_sample(round, &sample, inlined);
        }
        // Where no thread runs, the other sampler has no rounds to show.
        self.settle_recording(false);
    }

    fn unknown_code_of_waits(&self, round: &Round<'_, '_>) -> Vec<UnknownCode> {
        if self.has_waits { self.unknown_code(round) } else { Vec::new() }
    }

    /// Adds a sample to the traced calls that its thread is inside of: as the thread has its stack, since the callers
    /// of a traced method need not be known.
    pub(super) fn add_to_slow_calls(&mut self, cx: &InNoGc<'_>, sample: &Sample<'_>, stack: &[StackFrame]) {
        let Some(slow_calls) = &mut self.slow_calls else { return };
        let Some(thread) = sample.thread().os_id else { return };
        let Some(begun) = slow_calls.wants(thread, sample.ticks()) else { return };
        slow_calls.name_thread(thread, sample.thread().name.as_ref());
        let mut frames = self.frames_of(cx, stack);
        if sample.is_waiting() {
            frames.push(self.profile.frame(export::Frame::native("[waits]")));
        }
        let stack = self.profile.stack_leaf_first(frames);
        let in_call = SampleInCall {
            ticks: sample.ticks(),
            stack,
            is_waiting: sample.is_waiting(),
            count: 1,
            weight: sample.weight().as_nanos() as u64,
        };
        if let Some(slow_calls) = &mut self.slow_calls {
            slow_calls.joiner.add_sample(thread, in_call, begun);
        }
    }

    /// The frames of a stack as the thread has it, the innermost first.
    pub(super) fn frames_of(&mut self, cx: &InNoGc<'_>, stack: &[StackFrame]) -> Vec<FrameId> {
        let profile = &mut self.profile;
        let mut frames: Vec<FrameId> = Vec::new();
        for frame in stack {
            match frame {
                StackFrame::Managed(function, ..) => frames.extend(self.methods.managed(profile, cx, *function).frame),
                StackFrame::Native(name, _) => {
                    let frame = profile.frame(export::Frame::native(name));
                    // Adjacent native functions without names make one frame.
                    if frames.last() != Some(&frame) {
                        frames.push(frame);
                    }
                }
                StackFrame::Inlined(method, _) => frames.push(self.methods.inlined(profile, cx, method)),
            }
        }
        frames
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_a_thread_is_behind_its_name() {
        assert!(!is_waiting_by("4711 (a) S (b) R 1 2"));
        assert!(is_waiting_by("4711 (R) S 1 2") && is_waiting_by("4711 (R) D 1 2"));
        assert!(is_waiting_by(""));
    }
}
