//! Linux.

mod activation;
mod code_heaps;
mod cpu_time;
mod file_size;
mod library;
mod listener;
pub(crate) mod mappings;
mod pin;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod processors;
#[cfg(test)]
mod sandbox;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) mod signals;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod slice;

pub(super) use activation::is_interrupted_by_runtime;
pub(super) use code_heaps::code_heaps;
pub(crate) use cpu_time::ThreadClock;
pub(super) use cpu_time::{is_runnable, run_count, scheduling};
pub(crate) use file_size::FileSizeErrors;
pub(super) use library::{first_symbol, stack_pointer, symbol_beside};
pub(crate) use listener::Listener;
pub(super) use pin::pin_library;
#[cfg(test)]
pub(crate) use sandbox::forbid;

use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::sync::atomic::{Ordering::SeqCst, fence};
use std::time::Duration;

/// The kernel's timers are exact.
pub(super) fn latest_wake_up() -> Duration {
    Duration::ZERO
}

/// Nanoseconds of `CLOCK_MONOTONIC`.
pub(super) fn ticks() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes the time; it cannot fail for this clock. POSIX allows it in signal handlers.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

pub(super) fn ticks_per_second() -> u64 {
    1_000_000_000
}

pub(super) fn prepare_barrier() -> bool {
    membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
}

pub(super) fn process_wide_barrier() -> bool {
    let is_done = membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED);
    fence(SeqCst);
    is_done
}

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: membarrier takes three integers and touches no memory of ours. If it is forbidden it returns an error, or
    // the application's sandbox ends the process, as it would for any other call.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

pub(super) fn read_memory(address: usize, bytes: &mut [u8]) -> bool {
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let remote = libc::iovec { iov_base: std::ptr::without_provenance_mut(address), iov_len: bytes.len() };
    // SAFETY: the system writes at most as many bytes as there is room for, and returns an error for a bad address.
    let read = unsafe { libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0) };
    if read == -1 && io::Error::last_os_error().raw_os_error() != Some(libc::EFAULT) {
        // It is forbidden, as in many containers, or missing, as in QEMU's user mode.
        return read_by_pipe(address, bytes);
    }
    usize::try_from(read) == Ok(bytes.len())
}

/// What a new pipe has room for on every system.
const PIPE: usize = 4096;

/// As [`read_memory`]: the system reads the memory to write it into a pipe, from which it comes back.
fn read_by_pipe(address: usize, bytes: &mut [u8]) -> bool {
    let Ok((mut from, to)) = io::pipe() else { return false };
    let mut place = address;
    for part in bytes.chunks_mut(PIPE) {
        // SAFETY: the system returns an error for a bad address. What has been written fits into the empty pipe.
        let written = unsafe { libc::write(to.as_raw_fd(), std::ptr::without_provenance(place), part.len()) };
        if usize::try_from(written) != Ok(part.len()) || from.read_exact(part).is_err() {
            return false;
        }
        place = place.wrapping_add(part.len());
    }
    true
}

/// A control block lies at the end of its thread's stack, and stacks are rarely smaller than this.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) const THREAD_KEY_DISTANCE: usize = 0x8_0000;

#[cfg(target_arch = "x86_64")]
#[inline]
pub(super) fn thread_key() -> usize {
    let key: usize;
    // SAFETY: the System V ABI for x86-64 keeps the thread control block's own address at fs:0; reading it has no
    // effect.
    unsafe {
        std::arch::asm!("mov {}, fs:0", out(reg) key, options(nostack, preserves_flags, readonly, pure));
    }
    key
}

#[cfg(target_arch = "aarch64")]
#[inline]
pub(super) fn thread_key() -> usize {
    let key: usize;
    // SAFETY: TPIDR_EL0 holds the thread pointer and may be read from user mode; reading it has no effect.
    unsafe {
        std::arch::asm!("mrs {}, tpidr_el0", out(reg) key, options(nostack, preserves_flags, nomem, pure));
    }
    key
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(super) use super::{THREAD_LOCAL_KEY_DISTANCE as THREAD_KEY_DISTANCE, thread_local_key as thread_key};

pub(super) fn os_thread_id() -> u32 {
    // SAFETY: takes no arguments and touches no memory.
    unsafe { libc::gettid() as u32 }
}
