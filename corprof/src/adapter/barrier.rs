//! A memory barrier on every running thread of the process, paid for by the one that asks.
//!
//! With it, threads on the fast side need only a compiler fence (`gate.rs`). Where the system offers none, the fast side
//! uses full fences instead.

#[cfg(not(windows))]
use std::sync::atomic::{Ordering::SeqCst, fence};

/// Gets ready for [`process_wide`], and answers whether it will do its work on this system. The fast side fences for itself
/// where it will not: on other systems, in a sandbox that forbids the call, with a kernel before 4.14.
#[cfg(target_os = "linux")]
pub(crate) fn prepare() -> bool {
    membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
}

/// Returns after every thread of this process has executed a full memory barrier, or is about to run one before it next
/// touches memory; only after [`prepare`] has answered `true`.
#[cfg(target_os = "linux")]
pub(crate) fn process_wide() {
    membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED);
    fence(SeqCst);
}

#[cfg(target_os = "linux")]
fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: membarrier takes three integers and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Windows is always ready.
#[cfg(windows)]
pub(crate) fn prepare() -> bool {
    true
}

/// Returns after every thread of this process has executed a full memory barrier.
#[cfg(windows)]
pub(crate) fn process_wide() {
    // SAFETY: takes no arguments and touches no memory of ours.
    unsafe { windows_sys::Win32::System::Threading::FlushProcessWriteBuffers() }
}

/// There is no such barrier here.
#[cfg(not(any(target_os = "linux", windows)))]
pub(crate) fn prepare() -> bool {
    false
}

/// The fast side fences for itself; so does this side.
#[cfg(not(any(target_os = "linux", windows)))]
pub(crate) fn process_wide() {
    fence(SeqCst);
}
