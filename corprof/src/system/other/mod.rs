//! Systems without an implementation of their own.

use std::sync::atomic::{Ordering::SeqCst, fence};
use std::time::Duration;

/// As on Linux.
pub(super) fn latest_wake_up() -> Duration {
    Duration::ZERO
}

/// POSIX has all of this, except one flag that all systems have.
#[cfg(unix)]
#[path = "../linux/pin.rs"]
mod pin;
#[cfg(unix)]
pub(super) use pin::pin_library;
#[cfg(unix)]
#[path = "../linux/listener.rs"]
mod listener;
#[cfg(unix)]
pub(crate) use listener::Listener;

/// Not implemented: a library that is unloaded while its threads run ends the process.
#[cfg(not(unix))]
pub(super) fn pin_library() {}

/// Not implemented.
pub(super) fn ticks() -> u64 {
    0
}

pub(super) fn ticks_per_second() -> u64 {
    0
}

/// Not implemented.
pub(super) fn code_heaps() -> Vec<std::ops::Range<usize>> {
    Vec::new()
}

/// This system has no such barrier.
pub(super) fn prepare_barrier() -> bool {
    false
}

/// The fast side executes its own fences; so does this side.
pub(super) fn process_wide_barrier() -> bool {
    fence(SeqCst);
    true
}

/// Not implemented.
pub(super) fn read_memory(_address: usize, _bytes: &mut [u8]) -> bool {
    false
}

/// Not implemented.
pub(super) fn first_symbol(_name: &std::ffi::CStr) -> Option<usize> {
    None
}

/// Not implemented.
pub(super) fn symbol_beside(_code: usize, _name: &std::ffi::CStr) -> Option<usize> {
    None
}

/// Not implemented.
pub(super) fn stack_pointer(_os_thread_id: u32) -> Option<usize> {
    None
}

/// Not implemented.
pub(super) fn is_interrupted_by_runtime(_os_thread_id: u32) -> bool {
    false
}

pub(super) use super::{THREAD_LOCAL_KEY_DISTANCE as THREAD_KEY_DISTANCE, thread_local_key as thread_key};

/// Not implemented.
#[derive(Debug)]
pub(crate) struct ThreadClock;

impl ThreadClock {
    pub(crate) fn open(_os_thread_id: u32) -> Option<Self> {
        None
    }

    pub(crate) fn time(&self) -> Option<Duration> {
        None
    }
}

/// Not implemented.
pub(super) fn run_count(_os_thread_id: u32) -> Option<u64> {
    None
}

/// Not implemented.
pub(super) fn is_runnable(_os_thread_id: u32) -> Option<bool> {
    None
}

pub(super) fn scheduling(_os_thread_id: u32) -> Option<super::Scheduling> {
    None
}

/// A number for the calling thread, as the system's own id may not have 32 bits.
pub(super) fn os_thread_id() -> u32 {
    use std::sync::atomic::AtomicU32;
    static NEXT: AtomicU32 = AtomicU32::new(1);
    thread_local! {
        static ID: u32 = NEXT.fetch_add(1, SeqCst);
    }
    ID.with(|id| *id)
}

/// Not implemented.
#[cfg(not(unix))]
#[derive(Debug)]
pub(crate) struct Listener;

#[cfg(not(unix))]
impl Listener {
    pub(crate) fn new(_name: &str) -> std::io::Result<Self> {
        Err(std::io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn accept(&mut self, _request: &[u8]) -> Option<std::io::Sink> {
        None
    }
}
