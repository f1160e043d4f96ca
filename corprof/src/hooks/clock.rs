//! [`HookClock`]: a clock that a hook can afford.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use quanta::Clock;

use super::InHook;

/// A clock that only goes forward, for hooks: a reading takes some nanoseconds.
///
/// It is the processor's counter where all processors count alike, else the system's monotonic clock. A reading is in units
/// of its own, ticks, and is made a time of when there is time for that.
#[derive(Debug, Clone)]
pub struct HookClock(Clock);

/// Whether the readings of clocks are those of `rdtsc`, which is then read without a call. It is one for all: a hook that has
/// to look for it in its thread's state first would keep the counter waiting.
static IS_COUNTER: AtomicBool = AtomicBool::new(false);

impl HookClock {
    /// It takes up to 200 ms, the first time in a process, to learn how fast the processor counts.
    pub fn new() -> Self {
        let clock = Clock::new();
        static DECISION: Once = Once::new();
        DECISION.call_once(|| {
            // The system's clock counts nanoseconds since some other moment, and would not be between two readings.
            let is_counter = (0..3).all(|_| {
                let (before, reading, after) = (counter(), clock.raw(), counter());
                before.is_some_and(|before| before <= reading) && after.is_some_and(|after| reading <= after)
            });
            IS_COUNTER.store(is_counter, Relaxed);
        });
        Self(clock)
    }

    /// The present moment, in ticks.
    #[inline]
    pub fn now(&self) -> u64 {
        if IS_COUNTER.load(Relaxed)
            && let Some(now) = counter()
        {
            return now;
        }
        self.now_by_system()
    }

    /// The moment when the hook `cx` began, in ticks, if its hooks are [timed](super::FunctionHooks::TIMED); else the present
    /// one.
    #[inline]
    pub fn at(&self, cx: &InHook<'_>) -> u64 {
        cx.begun().unwrap_or_else(|| self.now())
    }

    /// Kept apart, so that who reads the counter saves no registers for a call.
    #[cold]
    #[inline(never)]
    fn now_by_system(&self) -> u64 {
        self.0.raw()
    }

    /// How long it took from one reading to another; nothing, should the later one be less, as it may be by a few ticks on
    /// another processor.
    pub fn between(&self, earlier: u64, later: u64) -> Duration {
        Duration::from_nanos(self.0.delta_as_nanos(earlier, later))
    }

    /// A clock that counts nanoseconds, for times that are made by hand.
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

/// Whether there is a counter that can be read in line, and its readings are not those of clocks. It may take 200 ms to say.
pub(super) fn is_slow() -> bool {
    let _ = HookClock::new();
    counter().is_some() && !IS_COUNTER.load(Relaxed)
}

/// The processor's counter, where it can be read in line.
#[inline]
pub(super) fn counter() -> Option<u64> {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: every x86-64 processor has this instruction, and no operating system that .NET runs on forbids it to an
        // application that does not ask for that.
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
        let (start, system) = (clock.now(), std::time::Instant::now());
        let mut last = start;
        while system.elapsed() < Duration::from_millis(50) {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
        let (whole, passed) = (clock.between(start, clock.now()), system.elapsed());
        assert!(
            whole >= Duration::from_millis(49) && whole <= passed + Duration::from_millis(1),
            "{whole:?}, {passed:?}"
        );
        assert_eq!(clock.between(last, start), Duration::ZERO);
    }
}
