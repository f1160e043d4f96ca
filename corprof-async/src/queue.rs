//! The queue of the thread pool.

use std::collections::HashMap;

/// The most work that is known to be queued, and the most threads that have taken some.
const MOST: usize = 1 << 17;

/// Work was in the queue of the thread pool, for this long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queued {
    /// When it was queued, in ticks of the trace.
    pub from: u64,
    /// When a thread took it.
    pub to: u64,
}

impl Queued {
    /// The part of it within a span of time, if there is one.
    #[must_use]
    pub fn within(self, from: u64, to: u64) -> Option<Self> {
        let part = Self { from: self.from.max(from), to: self.to.min(to) };
        (part.from < part.to).then_some(part)
    }

    /// How long it was queued, in ticks.
    #[must_use]
    pub fn length(self) -> u64 {
        self.to.saturating_sub(self.from)
    }
}

/// Something that happened to the queue.
#[derive(Debug, Clone, Copy)]
pub(crate) enum QueueStep {
    Queued { ticks: u64, work: u64 },
    Taken { ticks: u64, thread: u64, work: u64 },
}

/// What is queued, and what each thread has taken last.
#[derive(Debug, Default)]
pub(crate) struct WorkQueue {
    queued: HashMap<u64, u64>,
    taken: HashMap<u64, Option<Queued>>,
}

impl WorkQueue {
    pub(crate) fn take(&mut self, step: QueueStep) {
        match step {
            QueueStep::Queued { ticks, work } => {
                // Work that nobody takes from the queue, as it is run otherwise, must not stay for ever.
                if self.queued.len() >= MOST {
                    self.queued.clear();
                }
                self.queued.insert(work, ticks);
            }
            QueueStep::Taken { ticks, thread, work } => {
                if self.taken.len() >= MOST {
                    self.taken.clear();
                }
                let from = self.queued.remove(&work);
                self.taken.insert(thread, from.map(|from| Queued { from, to: ticks }));
            }
        }
    }

    /// The queueing of what a thread runs now.
    pub(crate) fn of(&self, thread: u64) -> Option<Queued> {
        *self.taken.get(&thread)?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_runs_what_it_has_taken_last() {
        let mut queue = WorkQueue::default();
        queue.take(QueueStep::Queued { ticks: 10, work: 1 });
        queue.take(QueueStep::Queued { ticks: 12, work: 2 });
        queue.take(QueueStep::Taken { ticks: 15, thread: 7, work: 1 });
        assert_eq!((queue.of(7), queue.of(8)), (Some(Queued { from: 10, to: 15 }), None));
        queue.take(QueueStep::Taken { ticks: 19, thread: 7, work: 2 });
        assert_eq!(queue.of(7), Some(Queued { from: 12, to: 19 }));
        // It was queued before the source began to tell.
        queue.take(QueueStep::Taken { ticks: 30, thread: 7, work: 3 });
        assert_eq!(queue.of(7), None);
    }

    #[test]
    fn only_what_lies_within_a_wait_counts() {
        let queued = Queued { from: 10, to: 20 };
        assert_eq!(queued.within(5, 30), Some(queued));
        assert_eq!(queued.within(15, 18).map(Queued::length), Some(3));
        assert_eq!((queued.within(20, 30), queued.within(0, 10)), (None, None));
    }
}
