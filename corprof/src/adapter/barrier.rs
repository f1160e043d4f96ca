//! A memory barrier on every running thread of the process, paid for by the one that asks.
//!
//! With it, threads on the fast side need only a compiler fence (`gate.rs`). Where the system offers none, the fast side
//! uses full fences instead.

/// Whether [`process_wide`] does its work on this system.
pub(crate) const IS_ASYMMETRIC: bool = cfg!(any(target_os = "linux", windows));

/// Returns after every thread of this process has executed a full memory barrier, or is about to run one before it next
/// touches memory.
#[cfg(target_os = "linux")]
pub(crate) fn process_wide() {
    // Registering again is free, and .NET has done it already; the constants are the kernel's.
    let done = [libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED].iter().all(
        |&command| {
            // SAFETY: membarrier takes three integers and touches no memory of ours.
            unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
        },
    );
    if !done {
        // Forbidden by a sandbox, or a kernel before 4.14. A store buffer drains by itself in well under a microsecond, and
        // giving up the processor makes room for the others.
        std::thread::sleep(std::time::Duration::from_millis(10));
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    }
}

/// Returns after every thread of this process has executed a full memory barrier.
#[cfg(windows)]
pub(crate) fn process_wide() {
    // SAFETY: takes no arguments and touches no memory of ours.
    unsafe { windows_sys::Win32::System::Threading::FlushProcessWriteBuffers() }
}

/// The fast side fences for itself here.
#[cfg(not(any(target_os = "linux", windows)))]
pub(crate) fn process_wide() {
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}
