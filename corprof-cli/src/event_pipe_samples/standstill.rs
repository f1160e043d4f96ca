//! How long the sampler has the application stand still.

use std::time::Duration;

use corprof_nettrace::Event;
use corprof_nettrace::events::SuspendReason;
use corprof_nettrace::events::views::{GcRestartEnd, GcSuspendBegin, GcSuspendEnd};

/// The sum of the suspensions for samples, by the runtime's events. Collections and others also suspend the
/// application: those do not count.
#[derive(Debug, Default)]
pub(super) struct Standstill {
    /// The thread that suspends for samples: others' events may come in between.
    thread: Option<u64>,
    since: Option<Duration>,
    sum: Duration,
    count: u64,
}

impl Standstill {
    /// Takes an event that was written at this time.
    pub(super) fn event(&mut self, event: &Event<'_>, at: Duration) {
        let decoded = event.decoded();
        let thread = event.capture_thread();
        if let Ok(begin) = decoded.decode::<GcSuspendBegin>() {
            if begin.reason == SuspendReason::OTHER {
                self.thread = Some(thread);
            }
            return;
        }
        if self.thread != Some(thread) {
            return;
        }
        if decoded.decode::<GcSuspendEnd>().is_ok() {
            self.since = Some(at);
        } else if decoded.decode::<GcRestartEnd>().is_ok()
            && let Some(since) = self.since.take()
        {
            self.sum += at.saturating_sub(since);
            self.count += 1;
        }
    }

    /// The sum, if the runtime has said anything of suspensions.
    pub(super) fn sum(&self) -> Option<Duration> {
        (self.count > 0).then_some(self.sum)
    }
}
