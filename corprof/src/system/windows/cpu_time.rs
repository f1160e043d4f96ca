//! The processor time of threads.

use std::time::Duration;

use crate::system::Scheduling;

use windows_sys::Win32::Foundation::{CloseHandle, FILETIME, HANDLE};
use windows_sys::Win32::System::Threading::{GetThreadTimes, OpenThread, THREAD_QUERY_LIMITED_INFORMATION};

const ZERO: FILETIME = FILETIME { dwLowDateTime: 0, dwHighDateTime: 0 };

/// A thread, open for questions about its time.
#[derive(Debug)]
pub(crate) struct ThreadClock(HANDLE);

// SAFETY: a handle belongs to the process, and any of its threads may use it.
unsafe impl Send for ThreadClock {}

impl ThreadClock {
    pub(crate) fn open(os_thread_id: u32) -> Option<Self> {
        // SAFETY: takes no memory of ours.
        let thread = unsafe { OpenThread(THREAD_QUERY_LIMITED_INFORMATION, 0, os_thread_id) };
        (!thread.is_null()).then(|| Self(thread))
    }

    pub(crate) fn time(&self) -> Option<Duration> {
        // SAFETY: the handle is open, with the right to query.
        unsafe { time_of(self.0) }
    }
}

impl Drop for ThreadClock {
    fn drop(&mut self) {
        // SAFETY: opened by `open`, and closed only here.
        unsafe { CloseHandle(self.0) };
    }
}

/// The scheduler's count, which grows in steps of some 16 ms.
///
/// # Safety
/// The handle is an open thread's, with the right to query.
pub(super) unsafe fn time_of(thread: HANDLE) -> Option<Duration> {
    let mut created = ZERO;
    let mut ended = ZERO;
    let mut kernel = ZERO;
    let mut user = ZERO;
    // SAFETY: the caller's promise; the call writes the four times.
    let is_known = unsafe { GetThreadTimes(thread, &mut created, &mut ended, &mut kernel, &mut user) != 0 };
    is_known.then(|| Duration::from_nanos((ticks(kernel) + ticks(user)).saturating_mul(100)))
}

/// Windows has a count of cycles (QueryThreadCycleTime), but it is not documented to grow while a thread runs on
/// without an interruption, and Wine does not implement it.
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
