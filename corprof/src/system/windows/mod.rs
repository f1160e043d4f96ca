//! Windows.
//!
//! The parts of a walk of one stopped thread from its registers on: `thread.rs` stops it, `probe.rs` checks that the walk is
//! safe, `unwind.rs` unwinds its native frames, under `guard.rs`.

#[cfg(target_arch = "x86_64")]
mod guard;
#[cfg(target_arch = "x86_64")]
pub(crate) mod probe;
#[cfg(target_arch = "x86_64")]
pub(crate) mod thread;
#[cfg(target_arch = "x86_64")]
pub(crate) mod unwind;

mod cpu_time;
mod listener;

pub(super) use cpu_time::{cpu_time, is_runnable, run_count, scheduling};
pub(crate) use listener::Listener;

use windows_sys::Win32::System::Diagnostics::Debug::ReadProcessMemory;
use windows_sys::Win32::System::LibraryLoader::{
    GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS, GET_MODULE_HANDLE_EX_FLAG_PIN, GetModuleHandleExW,
};
use windows_sys::Win32::System::Threading::{FlushProcessWriteBuffers, GetCurrentProcess};

pub(super) fn pin_library() {
    let mut module = std::ptr::null_mut();
    let flags = GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_PIN;
    // SAFETY: with these flags the second argument is an address in the library; the call writes one handle.
    unsafe { GetModuleHandleExW(flags, pin_library as *const u16, &mut module) };
}

/// Windows needs no preparation.
pub(super) fn prepare_barrier() -> bool {
    true
}

pub(super) fn process_wide_barrier() -> bool {
    // SAFETY: takes no arguments and touches no memory of ours.
    unsafe { FlushProcessWriteBuffers() }
    true
}

pub(super) fn read_memory(address: usize, bytes: &mut [u8]) -> bool {
    let from = std::ptr::without_provenance(address);
    let mut read = 0;
    // SAFETY: the system writes at most as many bytes as there is room for, and returns an error for a bad address; the handle
    // of the own process needs no closing.
    let code =
        unsafe { ReadProcessMemory(GetCurrentProcess(), from, bytes.as_mut_ptr().cast(), bytes.len(), &mut read) };
    code != 0 && read == bytes.len()
}

/// Environment blocks lie side by side, on two pages each.
#[cfg(target_arch = "x86_64")]
pub(super) const THREAD_KEY_DISTANCE: usize = 0x2000;

#[cfg(target_arch = "x86_64")]
#[inline]
pub(super) fn thread_key() -> usize {
    let key: usize;
    // SAFETY: Windows keeps the thread environment block's own address at gs:0x30; reading it has no effect.
    unsafe {
        std::arch::asm!("mov {}, gs:0x30", out(reg) key, options(nostack, preserves_flags, readonly, pure));
    }
    key
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) use super::{THREAD_LOCAL_KEY_DISTANCE as THREAD_KEY_DISTANCE, thread_local_key as thread_key};

pub(super) fn os_thread_id() -> u32 {
    // SAFETY: takes no arguments and touches no memory.
    unsafe { windows_sys::Win32::System::Threading::GetCurrentThreadId() }
}
