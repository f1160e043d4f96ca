//! Limits the share of time for which the application may be suspended.

use std::time::{Duration, Instant};

/// How much allowance a busy second may save up for the next: half of a second's.
const MAX_SAVED: f64 = 0.5;

/// The cost of a suspension to the application, as a multiple of its length: the rest is processor time that the
/// sampler takes on a full machine, and cache misses afterwards.
const COST: f64 = 1.25;

/// The weight of the newest round in the average cost of rounds.
const NEWEST: f64 = 0.05;

/// A round of so many times the average cost, and of at least [`SHORT`] seconds, is an exception: the machine has
/// stalled, most likely.
const EXCEPTION: f64 = 8.0;
const SHORT: f64 = 0.05;

/// How much slower the pace is than the share allows, so that the account is rarely overdrawn.
const SLACK: f64 = 1.1;

/// An account of time: it fills at the rate of the share, and suspensions empty it.
///
/// A round is allowed while the account is not overdrawn. So the cost of a round need not be known in advance, and in
/// the long run the share is kept, except for the last round. The pace pays for rounds that are far longer than others.
pub(crate) struct Budget {
    share: f64,
    /// The average cost of recent rounds in seconds, including those that suspended no thread.
    cost: f64,
    /// In seconds.
    account: f64,
    as_of: Instant,
}

impl Budget {
    pub(crate) fn new(share: f64, now: Instant) -> Self {
        Self { share, cost: 0.0, account: 0.0, as_of: now }
    }

    /// The time until threads may be suspended; zero if they may be now.
    pub(crate) fn wait(&mut self, now: Instant) -> Duration {
        let passed = now.saturating_duration_since(self.as_of).as_secs_f64();
        self.as_of = now;
        self.account = (self.account + passed * self.share).min(self.share * MAX_SAVED);
        // Negative if the account is not overdrawn, which is not a duration.
        Duration::try_from_secs_f64(-self.account / self.share).unwrap_or_default()
    }

    /// A round has cost the application this much of its time.
    pub(crate) fn spend(&mut self, lost: Duration) {
        // A share of 1 is no limit.
        if self.share < 1.0 {
            let cost = lost.as_secs_f64() * COST;
            // The pace pays for all of it in the next rounds, through the average. If the account paid too, one stall
            // of a second would stop a sampler of 2 % for a minute.
            self.account -= cost.min((self.cost * EXCEPTION).max(SHORT));
            self.cost += (cost - self.cost) * NEWEST;
        }
    }

    /// The average distance between rounds that keeps the share.
    ///
    /// It does not depend on what the last round saw. If the sampler polled until threads work, and then paused for
    /// long, samples would show how work begins, and rarely how it goes on.
    pub(crate) fn pace(&self) -> Duration {
        Duration::try_from_secs_f64(self.cost / self.share * SLACK).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asks every millisecond for so many seconds, with rounds of this length; returns the share for which threads were
    /// suspended.
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
    fn rounds_of_a_busy_and_of_an_idle_moment_are_equally_likely() {
        let start = Instant::now();
        let mut budget = Budget::new(0.02, start);
        let mut now = start;
        let mut rounds = 0;
        let mut overdrawn = 0;
        for turn in 0..2000 {
            if budget.wait(now).is_zero() {
                // In every second round a thread is working.
                budget.spend(Duration::from_millis(if turn % 2 == 0 { 2 } else { 0 }));
                rounds += 1;
            } else {
                overdrawn += 1;
            }
            now += Duration::from_millis(1).max(budget.pace());
        }
        assert!(
            overdrawn * 10 < rounds,
            "the pace keeps the share, and the account only at first: {overdrawn} of {rounds}"
        );
        let share = f64::from(rounds) * 0.001 / (now - start).as_secs_f64();
        assert!((0.012..0.0161).contains(&share), "four fifths of the share at most, and most of that: {share}");
    }

    #[test]
    fn a_stall_is_paid_for_by_slower_rounds_and_not_by_a_long_pause() {
        let start = Instant::now();
        let mut budget = Budget::new(0.02, start);
        let mut now = start;
        let mut last = start;
        let mut longest = Duration::ZERO;
        let mut stood = Duration::ZERO;
        for turn in 0..20_000 {
            now += Duration::from_millis(10).max(budget.pace());
            if budget.wait(now).is_zero() {
                longest = longest.max(now - last);
                last = now;
                let round = Duration::from_micros(if turn == 100 { 1_000_000 } else { 100 });
                budget.spend(round);
                stood += round;
            }
        }
        assert!(longest < Duration::from_secs(5), "{longest:?}");
        let share = stood.div_duration_f64(now - start);
        assert!((0.010..0.0161).contains(&share), "the share is kept with the stall: {share}");
    }

    #[test]
    fn rounds_that_get_long_for_good_keep_the_share() {
        let start = Instant::now();
        let mut budget = Budget::new(0.02, start);
        let mut now = start;
        let mut stood = Duration::ZERO;
        for turn in 0..500 {
            now += Duration::from_millis(10).max(budget.pace());
            if budget.wait(now).is_zero() {
                let round = Duration::from_millis(if turn < 100 { 0 } else { 200 });
                budget.spend(round);
                stood += round;
            }
        }
        let share = stood.div_duration_f64(now - start);
        assert!(share < 0.0161, "{share}");
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
