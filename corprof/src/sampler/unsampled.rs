//! The processor time of a thread that no sample stands for yet.

use std::time::Duration;

/// The time over which a thread's processor time is spread, where it is known every 50 ms only (`strategy/drawn.rs`).
const SPREAD: Duration = Duration::from_millis(50);

/// The greatest weight of a sample, as a multiple of the average.
const MAX_MULTIPLE: u32 = 3;

/// A thread's processor time, minus the weight of its samples.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct UnsampledTime {
    /// The time that no sample stands for yet.
    remaining: Duration,
    /// All of the thread's processor time.
    total: Duration,
    samples: u32,
}

impl UnsampledTime {
    pub(crate) fn add(&mut self, time: Duration) {
        self.remaining += time;
        self.total += time;
    }

    /// The weight of the next sample: all that remains, but not many times the average weight of this thread's samples.
    /// On a full machine, one very late round would otherwise outweigh a hundred others.
    pub(crate) fn take(&mut self) -> Duration {
        self.samples = self.samples.saturating_add(1);
        let weight = self.remaining.min(MAX_MULTIPLE * self.total / self.samples);
        self.remaining -= weight;
        weight
    }

    /// The same where the clock ticks rarely: most samples would find nothing, and the first after a tick all of it. So
    /// each takes a part of what remains, according to the time since the last one.
    pub(crate) fn take_part(&mut self, since_last: Duration) -> Duration {
        let later_part = (1.0 - since_last.div_duration_f64(SPREAD)).max(0.0);
        let later = self.remaining.mul_f64(later_part);
        self.remaining -= later;
        let weight = self.take();
        self.remaining += later;
        weight
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    #[test]
    fn samples_stand_for_all_that_was_used_and_none_for_most_of_it() {
        let mut unsampled = UnsampledTime::default();
        let mut sampled = Duration::ZERO;
        for _ in 0..100 {
            unsampled.add(MILLISECOND);
            sampled += unsampled.take();
        }
        assert_eq!(sampled, 100 * MILLISECOND, "regular rounds give each millisecond to its own sample");
        unsampled.add(100 * MILLISECOND); // one that came late
        let weight = unsampled.take();
        assert!(weight < 7 * MILLISECOND, "{weight:?}");
        sampled += weight;
        for _ in 0..100 {
            unsampled.add(MILLISECOND);
            sampled += unsampled.take();
        }
        assert_eq!(sampled, 300 * MILLISECOND, "the samples after it make up for it");
    }

    #[test]
    fn a_tick_of_a_coarse_clock_is_spread_over_the_samples_until_the_next() {
        let mut unsampled = UnsampledTime::default();
        let mut weights = Vec::new();
        for round in 0..1600 {
            if round % 16 == 0 {
                unsampled.add(16 * MILLISECOND);
            }
            weights.push(unsampled.take_part(MILLISECOND));
        }
        let sum: Duration = weights.iter().sum();
        let late = &weights[800..];
        assert!(sum > Duration::from_millis(1540), "what is left is of the last moment: {sum:?}");
        assert!(late.iter().all(|weight| (MILLISECOND / 2..MILLISECOND * 2).contains(weight)), "{late:?}");
        // Rare samples stand for all of their time.
        let mut unsampled = UnsampledTime::default();
        unsampled.add(96 * MILLISECOND);
        assert_eq!(unsampled.take_part(100 * MILLISECOND), 96 * MILLISECOND);
    }
}
