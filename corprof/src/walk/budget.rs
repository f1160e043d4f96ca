//! How much of the time the application may be made to stand still.

use std::time::{Duration, Instant};

/// What a busy second may save up for the next: half of its allowance.
const MOST_SAVED: f64 = 0.5;

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

    /// Whether threads may be stopped now.
    pub(crate) fn allows(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.as_of).as_secs_f64();
        self.as_of = now;
        self.account = (self.account + passed * self.share).min(self.share * MOST_SAVED);
        self.account >= 0.0
    }

    /// Threads stood still this long.
    pub(crate) fn spend(&mut self, stood: Duration) {
        // All of the time is no limit.
        if self.share < 1.0 {
            self.account -= stood.as_secs_f64();
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
            if account.allows(start + Duration::from_millis(1) * tick) {
                account.spend(round);
                stood += round;
            }
        }
        stood.as_secs_f64() / f64::from(seconds)
    }

    #[test]
    fn the_share_is_kept_whatever_a_round_costs() {
        for (round, most) in [(Duration::from_micros(100), 0.0201), (Duration::from_millis(30), 0.0230)] {
            let share = share(0.02, round, 10);
            assert!((0.0185..most).contains(&share), "{round:?}: {share}");
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
        assert!(account.allows(start + Duration::from_secs(3600)));
        account.spend(Duration::from_millis(11));
        assert!(!account.allows(start + Duration::from_secs(3600)), "half a second's allowance is 10 ms");
    }
}
