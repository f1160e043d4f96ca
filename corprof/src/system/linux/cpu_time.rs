//! How long threads have run.

use std::mem::MaybeUninit;
use std::time::Duration;

/// The two lowest bits of a thread's clock id say which of its clocks: the scheduler's, the most exact. The third, that it is
/// a thread's and not a process's; the rest is the thread's number, inverted.
const SCHEDULER_CLOCK_OF_THREAD: i32 = 0b110;

pub(crate) fn cpu_time(os_thread_id: u32) -> Option<Duration> {
    let clock = !i32::try_from(os_thread_id).ok()? << 3 | SCHEDULER_CLOCK_OF_THREAD;
    let mut time = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: the call writes one time, if it answers 0; for a thread that is not there, or another process's, it does not.
    let time = unsafe {
        if libc::clock_gettime(clock, time.as_mut_ptr()) != 0 {
            return None;
        }
        time.assume_init()
    };
    Some(Duration::new(u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?))
}
