//! [`SampleClock`]: times of hooks that are compared with those of samples.

use std::sync::{Mutex, PoisonError};

use crate::system;

use super::clock::counter;

/// After so many ticks of nanoseconds the distance to an older pair is taken anew: the system may slow its clock down,
/// or speed it up.
const SPAN: u64 = 10_000_000_000;

/// A pair of readings may be apart by so many ticks; otherwise the thread was interrupted in between.
const APART: u64 = 1_000;
const ATTEMPTS: usize = 4;

/// A clock for hooks, to whose readings the times of samples can be converted.
///
/// [`ticks`](crate::sampler::ticks) take some 25 ns. Where the system's clock counts by the processor's counter (Linux
/// on x86-64, clocksource `tsc`), a reading of this one is that counter, in 8 ns; elsewhere it is `ticks`.
///
/// ```
/// use corprof::hooks::SampleClock;
/// use corprof::sampler::ticks;
///
/// let clock = SampleClock::new();
/// let in_hook = clock.now();
/// let of_sample = ticks();
/// assert!(in_hook <= clock.at(of_sample) + 10_000);
/// ```
#[derive(Debug)]
pub struct SampleClock {
    is_counter: bool,
    /// The readings at an earlier time and at a later one.
    pairs: Mutex<(Pair, Pair)>,
}

/// Two readings of the same time.
#[derive(Clone, Copy, Debug)]
struct Pair {
    ticks: u64,
    counter: u64,
}

impl Pair {
    /// Of now. Between two readings of the system's clock, as near as they come.
    fn now() -> Self {
        let mut best = (u64::MAX, Self { ticks: 0, counter: 0 });
        for _ in 0..ATTEMPTS {
            let before = system::ticks();
            let counter = counter().unwrap_or_default();
            let apart = system::ticks().saturating_sub(before);
            if apart < best.0 {
                best = (apart, Self { ticks: before + apart / 2, counter });
            }
            if apart <= APART {
                break;
            }
        }
        best.1
    }
}

impl SampleClock {
    /// A clock. This reads a file of the system.
    #[must_use]
    pub fn new() -> Self {
        let now = Pair::now();
        Self { is_counter: counter().is_some() && system::has_ticks_of_counter(), pairs: Mutex::new((now, now)) }
    }

    /// The time now. It does not wait and does not allocate.
    #[inline]
    #[must_use]
    pub fn now(&self) -> u64 {
        match counter() {
            Some(counter) if self.is_counter => counter,
            _ => system::ticks(),
        }
    }

    /// What the clock showed when [`ticks`](crate::sampler::ticks) showed this, a moment ago. Not for hooks: this takes
    /// a lock.
    #[must_use]
    pub fn at(&self, ticks: u64) -> u64 {
        if !self.is_counter {
            return ticks;
        }
        let now = Pair::now();
        let mut pairs = self.pairs.lock().unwrap_or_else(PoisonError::into_inner);
        let (earlier, later) = *pairs;
        if now.ticks.saturating_sub(later.ticks) > SPAN {
            *pairs = (later, now);
        }
        drop(pairs);
        let passed = now.ticks.saturating_sub(earlier.ticks);
        let rate = now.counter.wrapping_sub(earlier.counter) as f64 / passed.max(1) as f64;
        let back = (now.ticks as f64 - ticks as f64) * rate;
        now.counter.saturating_add_signed(-(back as i64))
    }
}

impl Default for SampleClock {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_time_of_the_system_is_between_the_readings_around_it() {
        for clock in [SampleClock::new(), SampleClock { is_counter: false, ..SampleClock::new() }] {
            let mut times = Vec::new();
            for _ in 0..100 {
                std::thread::sleep(Duration::from_millis(1));
                times.push((clock.now(), system::ticks(), clock.now()));
            }
            // A pair is up to a microsecond apart, some thousand counts.
            for (before, ticks, after) in times {
                let at = clock.at(ticks);
                assert!((before.saturating_sub(20_000)..after + 20_000).contains(&at), "{before} {at} {after}");
            }
        }
    }
}
