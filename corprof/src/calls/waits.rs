//! [`Waits`]: for how long of its time a thread was on no processor.

use std::time::Duration;

use crate::hooks::clock::HookClock;
use crate::system;

/// The shortest time between two hooks in which a thread may have waited. Less is not checked: a check is a system
/// call.
const LONG: Duration = Duration::from_micros(20);

/// Checks take at most this part of a thread's time, where system calls are slow (in a sandbox, under an emulator).
const SHARE: u32 = 20;

/// The longest time between two checks. The system does not count all that passes: an interrupt is not time of the
/// thread that it interrupts, and two clocks never quite agree. That adds up, and would be reported as a wait of the
/// next long time.
const INTERVAL: Duration = Duration::from_millis(1);

/// Whether the system tells exactly how long a thread has been on a processor. Windows counts in steps of 15 ms.
const TELLS_WAITS: bool = cfg!(target_os = "linux");

/// When a thread's time is checked, in ticks of the clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rule {
    long: u64,
    interval: u64,
}

impl Rule {
    pub(super) const NEVER: Self = Self { long: u64::MAX, interval: u64::MAX };

    /// For the calling system.
    pub(super) fn new(clock: &HookClock) -> Self {
        if !TELLS_WAITS {
            return Self::NEVER;
        }
        let thread = system::os_thread_id();
        let measure = || {
            let before = clock.now();
            system::cpu_time(thread)?;
            Some(clock.between(before, clock.now()))
        };
        // The least of some: the system may interrupt others.
        let Some(takes) = (0..20).filter_map(|_| measure()).min() else { return Self::NEVER };
        let long = LONG.max(takes * SHARE);
        Self { long: clock.ticks(long), interval: clock.ticks(INTERVAL.max(long)) }
    }
}

/// The times of one thread on processors.
#[derive(Debug)]
pub(super) struct Waits {
    rule: Rule,
    thread: u32,
    /// The thread's processor time at the last check, and the time of that check.
    last_check: (Duration, u64),
    /// The time of the next check, if nothing takes long before.
    due: u64,
}

impl Waits {
    /// Of the calling thread, from `now` on.
    pub(super) fn new(rule: Rule, now: u64) -> Self {
        let thread = system::os_thread_id();
        let cpu_time = system::cpu_time(thread).unwrap_or_default();
        Self { rule, thread, last_check: (cpu_time, now), due: now.saturating_add(rule.interval) }
    }

    /// Whether to check, when `elapsed` has passed since the last hook.
    #[inline]
    pub(super) fn is_check_due(&self, now: u64, elapsed: u64) -> bool {
        self.is_long(elapsed) || now >= self.due
    }

    #[inline]
    pub(super) fn is_long(&self, elapsed: u64) -> bool {
        elapsed >= self.rule.long
    }

    /// Checks: the time of the check, which is not before `last`, and for how long the thread was on no processor since
    /// the check before. None if the system does not say: the thread may have ended when its last calls end.
    pub(super) fn check(&mut self, clock: &HookClock, last: u64) -> Option<(u64, Duration)> {
        let Some(cpu_time) = system::cpu_time(self.thread) else {
            self.rule = Rule::NEVER;
            self.due = u64::MAX;
            return None;
        };
        let now = clock.now().max(last);
        let (cpu_time_before, before) = std::mem::replace(&mut self.last_check, (cpu_time, now));
        self.due = now.saturating_add(self.rule.interval);
        // It has run for less than before if another thread has its number by now.
        let ran = cpu_time.checked_sub(cpu_time_before)?;
        Some((now, clock.between(before, now).saturating_sub(ran)))
    }
}
