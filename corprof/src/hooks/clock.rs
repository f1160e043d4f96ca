//! [`HookClock`]: a clock that is fast enough for hooks.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use quanta::Clock;

use super::InHook;

/// A clock for hooks that never goes backward: a reading takes a few nanoseconds.
///
/// It reads the processor's counter if all processors count alike, and otherwise the system's monotonic clock. Readings
/// are in ticks, a unit of its own; [`between`](Self::between) converts them to a duration later.
#[derive(Debug, Clone)]
pub struct HookClock(Clock);

/// Whether all clocks read `rdtsc`, inline. One flag for all: if a hook had to load it from its thread's state first,
/// the read would be delayed. A reading by `quanta` is a call, with which a shadow stack with times took 25 ns a call
/// instead of 23.
static IS_COUNTER: AtomicBool = AtomicBool::new(false);

impl HookClock {
    /// The first clock of a process takes up to 200 ms to measure the frequency of the processor's counter.
    pub fn new() -> Self {
        let clock = Clock::new();
        static DECISION: Once = Once::new();
        DECISION.call_once(|| {
            // If `quanta` counted nanoseconds of the system's clock, its reading would not lie between two readings of
            // the counter.
            let is_counter = (0..3).all(|_| {
                let before = counter();
                let reading = clock.raw();
                let after = counter();
                before.is_some_and(|before| before <= reading) && after.is_some_and(|after| reading <= after)
            });
            IS_COUNTER.store(is_counter, Relaxed);
        });
        Self(clock)
    }

    /// The current time, in ticks.
    #[inline]
    pub fn now(&self) -> u64 {
        if IS_COUNTER.load(Relaxed)
            && let Some(now) = counter()
        {
            return now;
        }
        self.now_by_system()
    }

    /// The time at which the hook `cx` began, in ticks, if its hooks are [timed](super::FunctionHooks::TIMED);
    /// otherwise the current time.
    #[inline]
    pub fn at(&self, cx: &InHook<'_>) -> u64 {
        cx.begun().unwrap_or_else(|| self.now())
    }

    /// Outlined, so that readers of the counter save no registers for a call.
    #[cold]
    #[inline(never)]
    fn now_by_system(&self) -> u64 {
        self.0.raw()
    }

    /// The time from one reading to another; zero if the later reading is less, which can happen by a few ticks between
    /// two processors.
    pub fn between(&self, earlier: u64, later: u64) -> Duration {
        Duration::from_nanos(self.0.delta_as_nanos(earlier, later))
    }

    /// The number of ticks in `time`.
    pub(crate) fn ticks(&self, time: Duration) -> u64 {
        // Large enough to compute the length of one tick.
        const TICKS: u64 = 1_000_000_000;
        let second = self.between(0, TICKS).as_secs_f64().max(1e-9);
        (time.as_secs_f64() / second * TICKS as f64) as u64
    }

    /// A clock that counts nanoseconds, for tests that make up their times.
    #[cfg(test)]
    pub(crate) fn of_nanoseconds() -> Self {
        Self(Clock::mock().0)
    }
}

impl Default for HookClock {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether inline readings of the counter exist but differ from those of clocks. Finding out may take 200 ms.
pub(super) fn is_slow() -> bool {
    let _ = HookClock::new();
    counter().is_some() && !IS_COUNTER.load(Relaxed)
}

/// The processor's counter, where it can be read inline.
#[inline]
pub(super) fn counter() -> Option<u64> {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: every x86-64 processor has this instruction, and the operating systems that .NET runs on forbid it
        // only to an application that asks for that.
        Some(unsafe { std::arch::x86_64::_rdtsc() })
    }
    #[cfg(not(target_arch = "x86_64"))]
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_forward_as_fast_as_the_systems() {
        let clock = HookClock::new();
        let start = clock.now();
        let system = std::time::Instant::now();
        let mut last = start;
        while system.elapsed() < Duration::from_millis(50) {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
        let whole = clock.between(start, clock.now());
        let passed = system.elapsed();
        assert!(
            whole >= Duration::from_millis(49) && whole <= passed + Duration::from_millis(1),
            "{whole:?}, {passed:?}"
        );
        assert_eq!(clock.between(last, start), Duration::ZERO);
    }
}
