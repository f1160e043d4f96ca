//! One thread at a time: it is stopped at any instruction, walked from there, and resumed.

mod pool;

use std::time::{Duration, Instant};

use crate::error::Result;
use crate::info::Info;
use crate::profiler_thread::ProfilerThread;
use crate::sampler::options::{Mode, Sampler};
use crate::sampler::sample_buffer::SampleBuffer;
use crate::walk::seeded::{SeededWalk, Seeder, WaitingThreads, WalkResult};

use super::drawn::Drawn;
use super::every_thread::{EveryThread, WalkTarget, Walker};
use super::{Outcome, RunningStrategy};
use pool::SeederPool;

pub(super) use crate::walk::seeded::check;

/// Starts the strategy: by the wall clock every thread is walked in every round, and else one.
pub(super) fn start<'i>(sampler: &Sampler, cx: &ProfilerThread<'i>) -> Result<Box<dyn RunningStrategy + 'i>> {
    match sampler.mode {
        Mode::Wall => {
            // SAFETY: the borrow of the thread's context keeps it from outliving the thread's closure.
            let walker = unsafe { OneByOne::new(WaitingThreads::AreWalked, cx.info())? };
            Ok(Box::new(EveryThread::new(walker)))
        }
        Mode::Cpu => Ok(Box::new(Drawn::new(SeederPool::new(sampler.depth, cx)))),
    }
}

/// Stops one thread after another.
struct OneByOne<'i> {
    seeder: Seeder<'i>,
    abandoned_walks: AbandonedWalks,
}

impl<'i> OneByOne<'i> {
    /// A walker for the calling thread.
    ///
    /// # Errors
    /// As [`Seeder::new`].
    ///
    /// # Safety
    /// As [`Seeder::new`].
    unsafe fn new(waiting: WaitingThreads, info: &'i Info) -> Result<Self> {
        // SAFETY: the caller's promise.
        let seeder = unsafe { Seeder::new(waiting, info)? };
        Ok(Self { seeder, abandoned_walks: AbandonedWalks::default() })
    }

    /// Walks one thread onto the buffer, as that with this number.
    fn walk_target(
        &mut self,
        number: usize,
        target: &WalkTarget<'_>,
        buffer: &mut SampleBuffer,
        outcome: &mut Outcome,
    ) {
        let pinned = target.candidate.pin();
        let Some((pinned, os_id)) = pinned.zip(target.os_id) else {
            outcome.ended += 1;
            return;
        };
        let mut result = WalkResult::Ended;
        buffer.record(number, |writer| {
            let walk: SeededWalk = self.seeder.walk(&pinned, os_id, writer);
            outcome.stood += walk.stood;
            outcome.retries += walk.retries;
            result = walk.result;
            match result {
                WalkResult::Done(code) => Some(code),
                WalkResult::Ended | WalkResult::NotNow | WalkResult::Stuck => None,
            }
        });
        match result {
            WalkResult::Done(_) => {}
            WalkResult::Ended => outcome.ended += 1,
            WalkResult::NotNow => outcome.left_out += 1,
            WalkResult::Stuck => {
                outcome.abandoned += 1;
                outcome.gives_up = self.abandoned_walks.add(pinned.as_raw(), Instant::now());
            }
        }
    }
}

impl Walker for OneByOne<'_> {
    const STOPS_ALL: bool = false;

    fn walk(&mut self, targets: &[WalkTarget<'_>], buffer: &mut SampleBuffer, limit: Duration) -> Outcome {
        let mut outcome = Outcome { gives_up: !self.seeder.can_search(), ..Outcome::default() };
        for (number, target) in targets.iter().enumerate() {
            if outcome.stood >= limit || outcome.gives_up {
                outcome.left_out = targets.len() - number;
                break;
            }
            self.walk_target(number, target, buffer, &mut outcome);
        }
        outcome
    }
}

/// The walks that were abandoned recently: when, and of which thread.
#[derive(Default)]
struct AbandonedWalks(Vec<(Instant, usize)>);

impl AbandonedWalks {
    const SPAN: Duration = Duration::from_secs(30);
    const LIMIT_OF_ONE_THREAD: usize = 5;
    const LIMIT: usize = 12;

    /// Counts an abandoned walk of `thread`, and returns whether there are too many.
    fn add(&mut self, thread: usize, now: Instant) -> bool {
        self.0.retain(|(then, _)| now.saturating_duration_since(*then) < Self::SPAN);
        self.0.push((now, thread));
        let of_this_thread = self.0.iter().filter(|(_, other)| *other == thread).count();
        of_this_thread >= Self::LIMIT_OF_ONE_THREAD || self.0.len() >= Self::LIMIT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_are_five_of_a_thread_or_twelve_in_all_in_half_a_minute() {
        let now = Instant::now();
        let mut walks = AbandonedWalks::default();
        assert_eq!((0..5).map(|_| walks.add(1, now)).collect::<Vec<_>>(), [false, false, false, false, true]);
        let mut walks = AbandonedWalks::default();
        assert!((1..12).all(|thread| !walks.add(thread, now)));
        assert!(walks.add(12, now));
        let mut walks = AbandonedWalks::default();
        assert!((0..100).all(|turn| !walks.add(1, now + Duration::from_secs(8) * turn)), "they are forgotten");
    }
}
