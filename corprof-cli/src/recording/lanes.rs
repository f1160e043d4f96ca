//! What the runtime did at each moment, beside the samples: lanes of the timeline.

use std::time::Duration;

use corprof_nettrace::events::views::{ContentionStop, GcSuspendBegin};
use corprof_nettrace::events::{Event, Provider, SuspendReason};

use super::cells::{Cells, CellsOf};

/// The length of parts in which a pause or a wait is counted: that of the shortest cells.
const PART: Duration = Duration::from_millis(20);
/// The most parts of one pause or wait. The rest of a longer one counts in the last.
const MOST_PARTS: u32 = 5_000;
/// The one stack and thread of a lane.
const ONE: u32 = 0;

/// What an event says for a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sign {
    /// Threads are stopped.
    PauseBegin,
    /// They run again.
    PauseEnd,
    Exception,
    /// A wait for a lock is over.
    LockWait,
}

impl Sign {
    /// That of an event, if it is one.
    pub(super) fn of(provider: Provider<'_>, name: &str) -> Option<Self> {
        if provider != Provider::RUNTIME {
            return None;
        }
        match name {
            "GCSuspendEEBegin" => Some(Self::PauseBegin),
            "GCRestartEEEnd" => Some(Self::PauseEnd),
            "ExceptionThrown" => Some(Self::Exception),
            "ContentionStop" => Some(Self::LockWait),
            _ => None,
        }
    }

    /// Whether it is about the thread that writes it, and not about all.
    pub(super) fn is_of_thread(self) -> bool {
        matches!(self, Self::Exception | Self::LockWait)
    }
}

/// The lanes.
#[derive(Debug, Clone)]
pub(crate) struct Lanes {
    /// The time in which threads stood still for collections.
    pub(crate) collections: Cells,
    pub(crate) exceptions: Cells,
    /// The time for which locks were waited for.
    pub(crate) locks: Cells,
    /// When the pause for a collection began that is not over.
    paused: Option<Duration>,
    from: Duration,
    to: Duration,
}

impl Lanes {
    /// Those between two moments.
    pub(super) fn new(from: Duration, to: Duration) -> Self {
        let cells = || Cells::new(CellsOf::Stacks, from, to);
        Self { collections: cells(), exceptions: cells(), locks: cells(), paused: None, from, to }
    }

    /// Takes an event.
    pub(super) fn take(&mut self, sign: Sign, event: &Event<'_>, at: Duration) {
        match sign {
            Sign::PauseBegin => {
                let reason = event.decode::<GcSuspendBegin>().map(|begin| begin.reason);
                let is_collection =
                    reason.is_ok_and(|reason| [SuspendReason::GC, SuspendReason::GC_PREPARATION].contains(&reason));
                self.paused = is_collection.then_some(at);
            }
            Sign::PauseEnd => {
                if let Some(begin) = self.paused.take() {
                    spread(&mut self.collections, begin.max(self.from), at.min(self.to));
                }
            }
            Sign::Exception => {
                if at >= self.from && at <= self.to {
                    self.exceptions.add(at, ONE, ONE, 1);
                }
            }
            Sign::LockWait => {
                let waited = event.decode::<ContentionStop>().ok().and_then(|stop| stop.duration_ns);
                let waited = Duration::from_nanos(waited.unwrap_or_default().max(0.0) as u64);
                spread(&mut self.locks, at.saturating_sub(waited).max(self.from), at.min(self.to));
            }
        }
    }

    /// Takes cells that are long enough for a recording of this duration.
    pub(super) fn finish(&mut self, duration: Duration) {
        self.each(|cells| cells.finish(duration));
    }

    /// Has cells of one length, also of the samples.
    pub(crate) fn align(&mut self, samples: &mut Cells) {
        self.each(|cells| samples.coarsen_to(cells));
        self.each(|cells| cells.coarsen_to(samples));
    }

    fn each(&mut self, mut act: impl FnMut(&mut Cells)) {
        [&mut self.collections, &mut self.exceptions, &mut self.locks].into_iter().for_each(&mut act);
    }
}

/// Adds a time to the cells in which it was.
fn spread(cells: &mut Cells, from: Duration, to: Duration) {
    let mut at = from;
    for _ in 1..MOST_PARTS {
        let next = PART * u32::try_from(at.as_nanos() / PART.as_nanos() + 1).unwrap_or(u32::MAX);
        if next >= to {
            break;
        }
        cells.add(at, ONE, ONE, nanoseconds(next - at));
        at = next;
    }
    cells.add(at, ONE, ONE, nanoseconds(to.saturating_sub(at)));
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_the_cells_in_which_it_was() {
        let mut cells = Cells::new(CellsOf::Stacks, Duration::ZERO, Duration::MAX);
        spread(&mut cells, Duration::from_millis(35), Duration::from_millis(65));
        spread(&mut cells, Duration::from_millis(41), Duration::from_millis(42));
        // Before the beginning of what is looked at.
        spread(&mut cells, Duration::from_millis(100), Duration::from_millis(90));
        cells.finish(Duration::from_secs(1));
        let found: Vec<_> = cells.entries().iter().map(|entry| (entry.cell, entry.weight / 1_000_000)).collect();
        assert_eq!(found, [(1, 5), (2, 21), (3, 5)]);
    }
}
