//! The processor time of threads.

use std::time::Duration;

use crate::system::Scheduling;

use windows_sys::Win32::Foundation::{CloseHandle, FILETIME};
use windows_sys::Win32::System::Threading::{GetThreadTimes, OpenThread, THREAD_QUERY_LIMITED_INFORMATION};

const ZERO: FILETIME = FILETIME { dwLowDateTime: 0, dwHighDateTime: 0 };

/// The scheduler's count, which grows in steps of some 16 ms.
pub(crate) fn cpu_time(os_thread_id: u32) -> Option<Duration> {
    let (mut created, mut ended, mut kernel, mut user) = (ZERO, ZERO, ZERO, ZERO);
    // SAFETY: the handle is closed once, and only if it was opened; the call writes the four times.
    let is_known = unsafe {
        let thread = OpenThread(THREAD_QUERY_LIMITED_INFORMATION, 0, os_thread_id);
        if thread.is_null() {
            return None;
        }
        let is_known = GetThreadTimes(thread, &mut created, &mut ended, &mut kernel, &mut user) != 0;
        CloseHandle(thread);
        is_known
    };
    is_known.then(|| Duration::from_nanos((ticks(kernel) + ticks(user)).saturating_mul(100)))
}

/// Windows has a count of cycles (QueryThreadCycleTime), but it is not documented to grow while a thread runs on without an
/// interruption, and Wine does not implement it.
pub(crate) fn run_count(_os_thread_id: u32) -> Option<u64> {
    None
}

/// Only a list of all threads of all processes would tell.
pub(crate) fn is_runnable(_os_thread_id: u32) -> Option<bool> {
    None
}

pub(crate) fn scheduling(_os_thread_id: u32) -> Option<Scheduling> {
    None
}

/// The time in steps of 100 ns.
fn ticks(time: FILETIME) -> u64 {
    u64::from(time.dwHighDateTime) << 32 | u64::from(time.dwLowDateTime)
}
