//! [`Waits`]: for how long of its time a thread was on no processor.

use std::time::Duration;

use crate::hooks::clock::HookClock;
use crate::system;

/// The shortest time between two hooks in which a thread may have waited. Less is not asked about: asking is a system call.
const LONG: Duration = Duration::from_micros(20);

/// Asking takes at most this part of a thread's time, where system calls are slow (in a sandbox, under an emulator).
const SHARE: u32 = 20;

/// How often it is asked at least. The system does not count all that passes: an interrupt is no time of the thread that it
/// interrupts, and two clocks never quite agree. That adds up, and would be told as a wait of the next long time.
const AGAIN: Duration = Duration::from_millis(1);

/// Whether the system tells exactly how long a thread has been on a processor. Windows counts in steps of 15 ms.
const TELLS_WAITS: bool = cfg!(target_os = "linux");

/// When it is asked, in ticks of the clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rule {
    long: u64,
    again: u64,
}

impl Rule {
    pub(super) const NEVER: Self = Self { long: u64::MAX, again: u64::MAX };

    /// For the calling system.
    pub(super) fn new(clock: &HookClock) -> Self {
        if !TELLS_WAITS {
            return Self::NEVER;
        }
        let thread = system::os_thread_id();
        let ask = || {
            let before = clock.now();
            system::cpu_time(thread)?;
            Some(clock.between(before, clock.now()))
        };
        // The least of some: the system may interrupt others.
        let Some(takes) = (0..20).filter_map(|_| ask()).min() else { return Self::NEVER };
        let long = LONG.max(takes * SHARE);
        Self { long: clock.ticks(long), again: clock.ticks(AGAIN.max(long)) }
    }
}

/// The times of one thread on processors.
#[derive(Debug)]
pub(super) struct Waits {
    rule: Rule,
    thread: u32,
    /// How long the thread had run when that was last asked, and when that was.
    asked: (Duration, u64),
    /// When it is asked again, however short the time is.
    due: u64,
}

impl Waits {
    /// Of the calling thread, from `now` on.
    pub(super) fn new(rule: Rule, now: u64) -> Self {
        let thread = system::os_thread_id();
        let asked = (system::cpu_time(thread).unwrap_or_default(), now);
        Self { rule, thread, asked, due: now.saturating_add(rule.again) }
    }

    /// Whether to ask, when `spent` has passed since the last hook.
    #[inline]
    pub(super) fn is_due(&self, now: u64, spent: u64) -> bool {
        self.is_long(spent) || now >= self.due
    }

    #[inline]
    pub(super) fn is_long(&self, spent: u64) -> bool {
        spent >= self.rule.long
    }

    /// The moment after asking, which is not before `last`, and for how long the thread was on no processor since it was last asked.
    /// None if the system does not say: the thread may have ended when its last calls end.
    pub(super) fn ask(&mut self, clock: &HookClock, last: u64) -> Option<(u64, Duration)> {
        let Some(ran) = system::cpu_time(self.thread) else {
            (self.rule, self.due) = (Rule::NEVER, u64::MAX);
            return None;
        };
        let after = clock.now().max(last);
        let (ran_before, then) = std::mem::replace(&mut self.asked, (ran, after));
        self.due = after.saturating_add(self.rule.again);
        // It has run for less than before if another thread has its number by now.
        let ran = ran.checked_sub(ran_before)?;
        Some((after, clock.between(then, after).saturating_sub(ran)))
    }
}
