//! The times of rounds: random around the interval.
//!
//! If rounds were regular, an application that does something every 10 ms would always be seen at the same point of its
//! work. So the time to the next round is drawn each time, uniformly from half the interval to one and a half.

use std::time::{Duration, Instant};

/// The usual time between two ticks of a system's scheduler.
const TICK: Duration = Duration::from_millis(4);

/// At most so many missed rounds are made up for.
const MOST_BEHIND: u32 = 16;

/// The times of rounds.
///
/// A sampler of a busy process misses some, as it waits for a processor. The rounds that follow make up for them: they
/// come closer together, as if twice as many were asked for.
#[derive(Debug)]
pub(crate) struct Schedule {
    interval: Duration,
    random: fastrand::Rng,
    due: Instant,
    /// The time of missed rounds that are still to be made up for.
    behind: Duration,
}

impl Schedule {
    pub(crate) fn new(interval: Duration, now: Instant) -> Self {
        let mut schedule = Self { interval, random: fastrand::Rng::new(), due: now, behind: Duration::ZERO };
        let first = schedule.randomized(interval);
        schedule.due += first;
        schedule
    }

    /// When the next round is due.
    pub(crate) fn due(&self) -> Instant {
        self.due
    }

    /// Draws the time of the next round anew if it is over by `now`; returns how many rounds are lost by that.
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
        self.fall_behind(late + wait, MOST_BEHIND)
    }

    /// Plans the round after one that begins `now`; returns how many rounds are lost: all that were missed, unless those
    /// to come shall `make_up` for them.
    pub(crate) fn begin(&mut self, now: Instant, make_up: bool) -> u64 {
        let missed = now.saturating_duration_since(self.due).div_duration_f64(self.interval) as u32;
        let missed = self.interval * missed;
        let lost = self.fall_behind(missed, if make_up { MOST_BEHIND } else { 0 });
        let next = self.randomized(self.interval);
        let sooner = self.behind.min(next / 2);
        self.behind -= sooner;
        self.due += missed + next - sooner;
        lost
    }

    /// Adds a time in which rounds were missed; returns how many rounds are lost, as more than `most` are missed.
    fn fall_behind(&mut self, time: Duration, most: u32) -> u64 {
        self.behind += time;
        let lost = self.behind.saturating_sub(self.interval * most);
        self.behind -= lost;
        lost.div_duration_f64(self.interval) as u64
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
            assert_eq!(schedule.begin(now, true), 0, "on time");
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
            schedule.redraw_if_over(over);
            waits.push(schedule.due() - over);
        }
        assert!(waits.iter().all(|wait| *wait <= MILLISECOND));
        let short = waits.iter().filter(|wait| **wait < MILLISECOND / 4).count();
        assert!((180..320).contains(&short), "evenly: {short} in the first quarter");
    }

    #[test]
    fn rounds_make_up_for_those_that_are_missed() {
        let start = Instant::now();
        let mut schedule = Schedule::new(MILLISECOND, start);
        let mut rounds = 0;
        let mut gaps = Vec::new();
        // Each tenth round comes 2 ms too late.
        while schedule.due() < start + 10_000 * MILLISECOND {
            rounds += 1;
            let late = if rounds % 10 == 0 { 2 * MILLISECOND } else { Duration::ZERO };
            let woken = schedule.due() + late;
            assert_eq!(schedule.redraw_if_over(woken), 0, "it is behind by a few");
            let now = schedule.due();
            assert_eq!(schedule.begin(now, true), 0, "on time");
            gaps.push(schedule.due() - now);
        }
        assert!((9800..10_200).contains(&rounds), "as often as asked for: {rounds}");
        let shortest = gaps.iter().min().unwrap();
        assert!((MILLISECOND / 4..MILLISECOND / 2).contains(shortest), "closer together: {shortest:?}");
    }

    #[test]
    fn what_is_long_over_is_lost() {
        const TIMES: u64 = 100;
        let mut rounds = 0;
        for _ in 0..TIMES {
            let mut schedule = Schedule::new(MILLISECOND, Instant::now());
            let late = schedule.due() + 100 * MILLISECOND;
            let lost = schedule.redraw_if_over(late);
            assert!((84..=85).contains(&lost), "{lost}");
            while schedule.due() < late + 100 * MILLISECOND {
                let now = schedule.due();
                rounds += 1 + schedule.begin(now, true);
            }
        }
        // By chance some more or fewer each time.
        let mean = rounds as f64 / TIMES as f64;
        assert!((114.0..118.0).contains(&mean), "100, and 16 of those before: {mean}");
    }

    #[test]
    fn what_is_put_off_or_shall_not_be_made_up_for_is_counted() {
        let mut schedule = Schedule::new(MILLISECOND, Instant::now());
        let late = schedule.due() + 10 * MILLISECOND;
        assert_eq!(schedule.begin(late, false), 10);
        assert!(schedule.due() > late && schedule.due() < late + 2 * MILLISECOND);
        let before = schedule.due();
        let skipped = schedule.put_off(100 * MILLISECOND);
        assert!((50..=150).contains(&skipped), "{skipped}");
        assert!((skipped - 1..=skipped).contains(&((schedule.due() - before).as_millis() as u64)));
    }
}
