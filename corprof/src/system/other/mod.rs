//! Systems on which nobody has looked yet.

use std::sync::atomic::{Ordering::SeqCst, fence};

/// POSIX has what this needs, but for one flag that all of them have.
#[cfg(unix)]
#[path = "../linux/pin.rs"]
mod pin;
#[cfg(unix)]
pub(super) use pin::pin_library;

/// Not known how: a library that is unloaded with threads of its own in it ends the process.
#[cfg(not(unix))]
pub(super) fn pin_library() {}

/// There is no such barrier here.
pub(super) fn prepare_barrier() -> bool {
    false
}

/// The fast side fences for itself; so does this side.
pub(super) fn process_wide_barrier() -> bool {
    fence(SeqCst);
    true
}

/// Not known how.
pub(super) fn read_memory(_address: usize, _bytes: &mut [u8]) -> bool {
    false
}

pub(super) use super::{THREAD_LOCAL_KEY_DISTANCE as THREAD_KEY_DISTANCE, thread_local_key as thread_key};

/// Not known how.
pub(super) fn cpu_time(_os_thread_id: u32) -> Option<std::time::Duration> {
    None
}

/// Not known how.
pub(super) fn run_count(_os_thread_id: u32) -> Option<u64> {
    None
}

/// Not known how.
pub(super) fn is_runnable(_os_thread_id: u32) -> Option<bool> {
    None
}

pub(super) fn scheduling(_os_thread_id: u32) -> Option<super::Scheduling> {
    None
}

/// A number for the calling thread, as the system's own may not be one of 32 bits.
pub(super) fn os_thread_id() -> u32 {
    use std::sync::atomic::AtomicU32;
    static NEXT: AtomicU32 = AtomicU32::new(1);
    thread_local! {
        static ID: u32 = NEXT.fetch_add(1, SeqCst);
    }
    ID.with(|id| *id)
}
