//! The times of rounds: random around the interval.
//!
//! If rounds were regular, an application that does something every 10 ms would always be seen at the same point of its
//! work. So the time to the next round is drawn each time, uniformly from half the interval to one and a half.

use std::time::{Duration, Instant};

/// The usual time between two ticks of a system's scheduler.
const TICK: Duration = Duration::from_millis(4);

/// The times of rounds.
#[derive(Debug)]
pub(crate) struct Schedule {
    interval: Duration,
    random: fastrand::Rng,
    due: Instant,
}

impl Schedule {
    pub(crate) fn new(interval: Duration, now: Instant) -> Self {
        let mut schedule = Self { interval, random: fastrand::Rng::new(), due: now };
        let first = schedule.randomized(interval);
        schedule.due += first;
        schedule
    }

    /// When the next round is due.
    pub(crate) fn due(&self) -> Instant {
        self.due
    }

    /// Draws the time of the next round anew if it is over by `now`; returns how many rounds are missed by that.
    ///
    /// A thread that is late has waited for a processor, and it gets one in a tick of the system's scheduler. Rounds at
    /// once would all be made in ticks: those of periodic work at the same point of it. With intervals of a tick or
    /// more few are, and a wait would cost more rounds.
    pub(crate) fn redraw_if_over(&mut self, now: Instant) -> u64 {
        let late = now.saturating_duration_since(self.due);
        if late.is_zero() || self.interval >= TICK {
            return 0;
        }
        let wait = self.interval.mul_f64(self.random.f64());
        self.due = now + wait;
        (late + wait).div_duration_f64(self.interval) as u64
    }

    /// Plans the round after one that begins `now`; returns how many rounds were missed.
    pub(crate) fn begin(&mut self, now: Instant) -> u64 {
        let missed = now.saturating_duration_since(self.due).div_duration_f64(self.interval) as u32;
        let next = self.randomized(self.interval);
        self.due += self.interval * missed + next;
        u64::from(missed)
    }

    /// Delays rounds by about `wait`; returns how many are missed.
    pub(crate) fn put_off(&mut self, wait: Duration) -> u64 {
        let wait = self.randomized(wait);
        self.due += wait;
        wait.div_duration_f64(self.interval).round() as u64
    }

    /// Half of `time` to one and a half of it.
    fn randomized(&mut self, time: Duration) -> Duration {
        time.mul_f64(0.5 + self.random.f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    #[test]
    fn rounds_come_at_random_and_as_often_as_asked_for() {
        let start = Instant::now();
        let mut schedule = Schedule::new(MILLISECOND, start);
        let mut gaps = Vec::new();
        for _ in 0..10_000 {
            let now = schedule.due();
            assert_eq!(schedule.begin(now), 0, "on time");
            gaps.push(schedule.due() - now);
        }
        let mean = (schedule.due() - start).div_duration_f64(MILLISECOND) / 10_001.0;
        assert!((0.98..1.02).contains(&mean), "one a millisecond: {mean}");
        assert!(gaps.iter().all(|gap| (MILLISECOND / 2..=MILLISECOND * 3 / 2).contains(gap)));
        let early = gaps.iter().filter(|&&gap| gap < MILLISECOND * 3 / 4).count();
        assert!((2000..3000).contains(&early), "evenly: {early} in the first quarter");
    }

    #[test]
    fn a_time_that_is_over_is_drawn_anew_within_an_interval() {
        let mut schedule = Schedule::new(MILLISECOND, Instant::now());
        let early = schedule.due() - MILLISECOND / 4;
        assert_eq!(schedule.redraw_if_over(early), 0);
        assert_eq!(schedule.due(), early + MILLISECOND / 4, "not over");
        let mut waits = Vec::new();
        for _ in 0..1000 {
            let over = schedule.due() + 5 * MILLISECOND;
            let missed = schedule.redraw_if_over(over);
            assert!((5..=6).contains(&missed), "{missed}");
            waits.push(schedule.due() - over);
        }
        assert!(waits.iter().all(|wait| *wait <= MILLISECOND));
        let short = waits.iter().filter(|wait| **wait < MILLISECOND / 4).count();
        assert!((180..320).contains(&short), "evenly: {short} in the first quarter");
    }

    #[test]
    fn what_is_late_or_put_off_is_counted_and_not_made_up_for() {
        let mut schedule = Schedule::new(MILLISECOND, Instant::now());
        let late = schedule.due() + 10 * MILLISECOND;
        assert_eq!(schedule.begin(late), 10);
        assert!(schedule.due() > late && schedule.due() < late + 2 * MILLISECOND);
        let before = schedule.due();
        let skipped = schedule.put_off(100 * MILLISECOND);
        assert!((50..=150).contains(&skipped), "{skipped}");
        assert!((skipped - 1..=skipped).contains(&((schedule.due() - before).as_millis() as u64)));
    }
}
