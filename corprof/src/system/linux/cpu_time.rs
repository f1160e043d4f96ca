//! The processor time of threads, and whether they run.

use std::fs::File;
use std::io::Read;
use std::mem::MaybeUninit;
use std::time::Duration;

use crate::system::Scheduling;

/// The two lowest bits of a thread's clock id select its clock: the scheduler's, the most exact. The third bit says
/// that it belongs to a thread and not a process; the rest is the thread's id, inverted.
const SCHEDULER_CLOCK_OF_THREAD: i32 = 0b110;

/// The id of a thread, which is all that the system needs.
#[derive(Debug)]
pub(crate) struct ThreadClock(u32);

impl ThreadClock {
    #[allow(clippy::unnecessary_wraps, reason = "other systems open the thread")]
    pub(crate) fn open(os_thread_id: u32) -> Option<Self> {
        Some(Self(os_thread_id))
    }

    pub(crate) fn time(&self) -> Option<Duration> {
        cpu_time(self.0)
    }
}

fn cpu_time(os_thread_id: u32) -> Option<Duration> {
    let clock = !i32::try_from(os_thread_id).ok()? << 3 | SCHEDULER_CLOCK_OF_THREAD;
    let mut time = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: the call writes one time, if it returns 0; for a thread that does not exist, or belongs to another
    // process, it does not.
    let time = unsafe {
        if libc::clock_gettime(clock, time.as_mut_ptr()) != 0 {
            return None;
        }
        time.assume_init()
    };
    Some(Duration::new(u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?))
}

/// The scheduler counts in nanoseconds: the time of a thread that has run is greater.
pub(crate) fn run_count(os_thread_id: u32) -> Option<u64> {
    cpu_time(os_thread_id).map(|time| time.as_nanos() as u64)
}

/// Whether the clock of a running thread advances all the time. Under gVisor it advances every 10 ms.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) fn clocks_are_exact() -> bool {
    // SAFETY: takes no arguments and touches no memory of ours.
    let own = unsafe { libc::gettid() }.cast_unsigned();
    let first = cpu_time(own);
    first.is_some() && cpu_time(own) > first
}

pub(crate) fn is_runnable(os_thread_id: u32) -> Option<bool> {
    let mut text = [0; 1024];
    let length = File::open(format!("/proc/self/task/{os_thread_id}/stat")).ok()?.read(&mut text).ok()?;
    state_of(text.get(..length)?).map(|state| state == b'R')
}

/// The state in a line of /proc/PID/stat: it follows the name, which may contain parentheses.
fn state_of(stat: &[u8]) -> Option<u8> {
    let name_end = stat.iter().rposition(|&byte| byte == b')')?;
    stat.get(name_end + 2).copied()
}

pub(crate) fn scheduling(os_thread_id: u32) -> Option<Scheduling> {
    let mut text = [0; 4096];
    let length = File::open(format!("/proc/self/task/{os_thread_id}/status")).ok()?.read(&mut text).ok()?;
    let text = std::str::from_utf8(text.get(..length)?).ok()?;
    // The name comes earlier, on a line of its own, with its line ends escaped.
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim_start);
    let is_runnable = value("State:")?.starts_with('R');
    Some(Scheduling { is_runnable, waits: value("voluntary_ctxt_switches:")?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_comes_after_the_name_whatever_that_is() {
        assert_eq!(state_of(b"12 (a thread) S 1 2 3"), Some(b'S'));
        assert_eq!(state_of(b"12 (R) (x) D 1"), Some(b'D'));
        for damaged in [&b""[..], b"12", b"12 (name)", b"12 (name) "] {
            assert_eq!(state_of(damaged), None);
        }
    }

    #[test]
    fn whoever_asks_is_runnable_and_nobody_is_not() {
        // SAFETY: takes no arguments and touches no memory.
        let own = unsafe { libc::gettid() }.cast_unsigned();
        assert_eq!(is_runnable(own), Some(true));
        assert_eq!(is_runnable(u32::MAX), None);
    }

    #[test]
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    fn clocks_of_linux_are_exact() {
        assert!(clocks_are_exact());
    }
}
