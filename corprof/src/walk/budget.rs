//! How much of the time the application may be made to stand still.

use std::time::{Duration, Instant};

/// What a busy second may save up for the next: half of its allowance.
const MOST_SAVED: f64 = 0.5;

/// What a stop costs the application, in times of how long it stands still: the rest is what a full machine computes for the
/// sampler, and what threads do not find in their caches any more.
const COST: f64 = 1.25;

/// An account of time: it fills at the rate of the share, and is emptied by what threads stood still.
///
/// A round is allowed while the account is not overdrawn. So the cost of a round need not be known before, and in the long
/// run the share is kept, but for the last round.
pub(crate) struct Budget {
    share: f64,
    /// In seconds.
    account: f64,
    as_of: Instant,
}

impl Budget {
    pub(crate) fn new(share: f64, now: Instant) -> Self {
        Self { share, account: 0.0, as_of: now }
    }

    /// How long it is until threads may be stopped; nothing if they may be now.
    pub(crate) fn wait(&mut self, now: Instant) -> Duration {
        let passed = now.saturating_duration_since(self.as_of).as_secs_f64();
        self.as_of = now;
        self.account = (self.account + passed * self.share).min(self.share * MOST_SAVED);
        // Of an account that is not overdrawn this is negative, which is no duration.
        Duration::try_from_secs_f64(-self.account / self.share).unwrap_or_default()
    }

    /// Threads stood still this long.
    pub(crate) fn spend(&mut self, stood: Duration) {
        // All of the time is no limit.
        if self.share < 1.0 {
            self.account -= stood.as_secs_f64() * COST;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asks every millisecond for so many seconds, with rounds of this length; the share that threads stood still.
    fn share(budget: f64, round: Duration, seconds: u32) -> f64 {
        let start = Instant::now();
        let mut account = Budget::new(budget, start);
        let mut stood = Duration::ZERO;
        for tick in 0..1000 * seconds {
            if account.wait(start + Duration::from_millis(1) * tick).is_zero() {
                account.spend(round);
                stood += round;
            }
        }
        stood.as_secs_f64() / f64::from(seconds)
    }

    #[test]
    fn the_share_is_kept_whatever_a_round_costs() {
        for (round, most) in [(Duration::from_micros(100), 0.0161), (Duration::from_millis(30), 0.0190)] {
            let share = share(0.02, round, 10);
            assert!((0.0148..most).contains(&share), "{round:?}: {share}");
        }
    }

    #[test]
    fn cheap_rounds_are_not_skipped() {
        let share = share(0.02, Duration::from_micros(10), 10);
        assert!((0.0099..0.0101).contains(&share), "every tick: {share}");
    }

    #[test]
    fn all_of_the_time_is_no_limit() {
        assert!(share(1.0, Duration::from_millis(5), 1) > 4.9);
    }

    #[test]
    fn what_is_saved_up_is_limited() {
        let start = Instant::now();
        let mut account = Budget::new(0.02, start);
        assert!(account.wait(start + Duration::from_secs(3600)).is_zero());
        account.spend(Duration::from_millis(9));
        let now = start + Duration::from_secs(3600);
        let wait = account.wait(now);
        assert!(!wait.is_zero() && wait < Duration::from_millis(100), "half a second's allowance is 8 ms: {wait:?}");
        assert!(account.wait(now + wait + Duration::from_micros(1)).is_zero());
    }
}
