//! All threads at once: the runtime is suspended, every thread is walked from its safepoint, and all are resumed.

use std::time::Duration;

use crate::error::Result;
use crate::profiler_thread::ProfilerThread;
use crate::sampler::sample_buffer::SampleBuffer;
use crate::walk::suspended::Suspender;

use super::every_thread::{EveryThread, WalkTarget, Walker};
use super::{Outcome, RunningStrategy};

/// Starts the strategy.
pub(super) fn start<'i>(cx: &ProfilerThread<'i>) -> Result<Box<dyn RunningStrategy + 'i>> {
    Ok(Box::new(EveryThread::new(Suspender::new(cx)?)))
}

impl Walker for Suspender<'_> {
    const STOPS_ALL: bool = true;

    fn walk(&mut self, targets: &[WalkTarget<'_>], buffer: &mut SampleBuffer, limit: Duration) -> Outcome {
        let mut outcome = Outcome::default();
        let mut suspension = match self.suspend(&mut outcome.retries) {
            Ok(suspension) => suspension,
            Err(code) => return Outcome { refused: Some(code), ..outcome },
        };
        let requested = suspension.requested();
        for (number, target) in targets.iter().enumerate() {
            if requested.elapsed() >= limit {
                outcome.left_out = targets.len() - number;
                break;
            }
            match target.candidate.pin() {
                Some(thread) => buffer.record(number, |writer| {
                    writer.set_suspended_thread(target.os_id);
                    Some(suspension.walk(&thread, writer))
                }),
                None => outcome.ended += 1,
            }
        }
        outcome.stuck = suspension.end();
        outcome.stood = requested.elapsed();
        outcome
    }
}
