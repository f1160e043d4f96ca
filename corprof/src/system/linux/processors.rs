//! The processors that a thread may run on, and whether they are idle.

use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

const SIZE: usize = size_of::<libc::cpu_set_t>();

/// The processors on which the calling thread may run; none on a machine with more than the set has room for.
fn allowed() -> Option<libc::cpu_set_t> {
    let mut allowed = MaybeUninit::<libc::cpu_set_t>::zeroed();
    // SAFETY: the call writes no more than the size of the set, which is valid when it is all zeros.
    unsafe { (libc::sched_getaffinity(0, SIZE, allowed.as_mut_ptr()) == 0).then(|| allowed.assume_init()) }
}

/// Moves the calling thread to another processor. Returns whether there is one.
///
/// The system chooses which. Afterwards the thread may run where it could before.
pub(crate) fn change_processor() -> bool {
    let Some(allowed) = allowed() else { return false };
    // SAFETY: takes no arguments and touches no memory of ours.
    let Ok(own) = usize::try_from(unsafe { libc::sched_getcpu() }) else { return false };
    let mut others = allowed;
    // SAFETY: a processor's number is within a set that could hold all of them.
    unsafe { libc::CPU_CLR(own, &mut others) };
    // SAFETY: reads the set.
    if unsafe { libc::CPU_COUNT(&others) } == 0 {
        return false;
    }
    // SAFETY: both calls read a set of this size, and concern the calling thread only.
    unsafe {
        libc::sched_setaffinity(0, SIZE, &raw const others) == 0
            && libc::sched_setaffinity(0, SIZE, &raw const allowed) == 0
    }
}

/// How often the time that processors are idle is read.
const IDLE_WINDOW: Duration = Duration::from_millis(250);

/// How many processors must have been idle.
const ENOUGH: f64 = 0.5;

/// How long the machine's processors are idle.
#[derive(Default)]
pub(crate) struct IdleTime {
    /// When it was last read, and the seconds of all processors together.
    last: Option<(Instant, f64)>,
    is_enough: bool,
}

impl IdleTime {
    /// Whether half a processor was idle of late, on average, and the calling thread may use each processor.
    pub(crate) fn is_enough(&mut self, now: Instant) -> bool {
        let Some((time, before)) = self.last else {
            self.last = idle_seconds().map(|idle| (now, idle));
            return false;
        };
        let elapsed = now.saturating_duration_since(time);
        if elapsed < IDLE_WINDOW {
            return self.is_enough;
        }
        self.last = idle_seconds().map(|idle| (now, idle));
        let idle = self.last.map_or(0.0, |(_, idle)| idle - before);
        self.is_enough = idle >= ENOUGH * elapsed.as_secs_f64() && may_use_all();
        self.is_enough
    }
}

/// How long all processors together have been idle, in seconds.
fn idle_seconds() -> Option<f64> {
    std::fs::read_to_string("/proc/uptime").ok()?.split_whitespace().nth(1)?.parse().ok()
}

/// Whether the calling thread may run on each processor that is in use.
fn may_use_all() -> bool {
    // SAFETY: takes no pointers and touches no memory of ours.
    let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    // SAFETY: reads the set.
    allowed().is_some_and(|allowed| i64::from(unsafe { libc::CPU_COUNT(&allowed) }) >= online)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_changes_its_processor_and_may_run_where_it_could() {
        let before = allowed().unwrap();
        // SAFETY: reads the set.
        let has_others = unsafe { libc::CPU_COUNT(&before) } > 1;
        assert_eq!(change_processor(), has_others);
        // SAFETY: reads both sets.
        assert!(unsafe { libc::CPU_EQUAL(&allowed().unwrap(), &before) });
    }

    #[test]
    fn idle_processors_count_when_a_thread_may_use_all() {
        let start = Instant::now();
        let mut idle = IdleTime::default();
        assert!(!idle.is_enough(start), "nothing is known yet");
        idle.last = Some((start, -1000.0));
        assert!(!idle.is_enough(start + IDLE_WINDOW / 2), "as before, until the window is over");
        assert_eq!(idle.is_enough(start + IDLE_WINDOW), may_use_all());
        idle.last = Some((start, f64::MAX));
        assert!(!idle.is_enough(start + IDLE_WINDOW), "they have not been idle since");
    }

    #[test]
    fn a_thread_that_may_use_one_processor_stays() {
        std::thread::spawn(|| {
            let mut own = allowed().unwrap();
            // SAFETY: takes no arguments and touches no memory of ours.
            let number = usize::try_from(unsafe { libc::sched_getcpu() }).unwrap();
            // SAFETY: the number is within a set that holds it; the call reads a set of this size.
            let is_set = unsafe {
                libc::CPU_ZERO(&mut own);
                libc::CPU_SET(number, &mut own);
                libc::sched_setaffinity(0, SIZE, &raw const own)
            };
            assert_eq!(is_set, 0);
            assert!(!change_processor());
        })
        .join()
        .unwrap();
    }
}
