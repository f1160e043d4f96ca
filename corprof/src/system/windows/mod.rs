//! Windows.
//!
//! The parts of a walk of one stopped thread from its registers on: `thread.rs` stops it, `lock_check.rs` checks that
//! the walk is safe, `unwind.rs` unwinds its native frames, under `guard.rs`.

#[cfg(target_arch = "x86_64")]
mod guard;
#[cfg(target_arch = "x86_64")]
pub(crate) mod lock_check;
#[cfg(target_arch = "x86_64")]
pub(crate) mod thread;
#[cfg(target_arch = "x86_64")]
pub(crate) mod unwind;

mod code_heaps;
mod cpu_time;
mod listener;

pub(super) use code_heaps::code_heaps;
pub(crate) use cpu_time::ThreadClock;
pub(super) use cpu_time::{is_runnable, run_count, scheduling};
pub(crate) use listener::Listener;

use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use windows_sys::Win32::Foundation::{FreeLibrary, HMODULE};
use windows_sys::Win32::System::Diagnostics::Debug::ReadProcessMemory;
use windows_sys::Win32::System::LibraryLoader::{
    GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS, GET_MODULE_HANDLE_EX_FLAG_PIN, GetModuleHandleExW, GetProcAddress,
};
use windows_sys::Win32::System::Performance::{QueryPerformanceCounter, QueryPerformanceFrequency};
use windows_sys::Win32::System::ProcessStatus::K32EnumProcessModules;
use windows_sys::Win32::System::Threading::{FlushProcessWriteBuffers, GetCurrentProcess};

/// The performance counter.
pub(super) fn ticks() -> u64 {
    let mut ticks = 0_i64;
    // SAFETY: the call writes one number, and does not fail on a system that runs .NET.
    unsafe { QueryPerformanceCounter(&raw mut ticks) };
    ticks.cast_unsigned()
}

pub(super) fn ticks_per_second() -> u64 {
    let mut frequency = 0_i64;
    // SAFETY: the call writes one number, and does not fail on a system that runs .NET.
    unsafe { QueryPerformanceFrequency(&raw mut frequency) };
    frequency.cast_unsigned()
}

/// Waits end at a tick of the clock, which comes every 15.6 ms unless a program has asked for more.
/// `std::thread::sleep` uses a timer of high resolution. Wine's waits have no such ticks, and its timers are late, so
/// the first call measures.
pub(super) fn latest_wake_up() -> Duration {
    const TICK: Duration = Duration::from_millis(16);
    const MILLISECOND: Duration = Duration::from_millis(1);
    static LATEST: OnceLock<Duration> = OnceLock::new();
    let measure = || {
        let lock = Mutex::new(());
        let never = Condvar::new();
        let wait = |_| {
            let start = Instant::now();
            drop(never.wait_timeout(lock.lock().unwrap_or_else(PoisonError::into_inner), MILLISECOND));
            start.elapsed()
        };
        // The first one may end at a tick by chance. On a full machine some of the others end late in any case.
        let shortest = (0..4).map(wait).skip(1).min();
        if shortest.is_some_and(|time| time < 4 * MILLISECOND) { Duration::ZERO } else { TICK }
    };
    *LATEST.get_or_init(measure)
}

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
    // SAFETY: the system writes at most as many bytes as there is room for, and returns an error for a bad address; the
    // handle of the own process needs no closing.
    let code =
        unsafe { ReadProcessMemory(GetCurrentProcess(), from, bytes.as_mut_ptr().cast(), bytes.len(), &mut read) };
    code != 0 && read == bytes.len()
}

pub(super) fn first_symbol(name: &std::ffi::CStr) -> Option<usize> {
    const MOST: usize = 4096;
    let mut modules: Vec<HMODULE> = vec![std::ptr::null_mut(); MOST];
    let room = u32::try_from(MOST * size_of::<HMODULE>()).ok()?;
    let mut bytes = 0;
    // SAFETY: the call writes at most as many handles as there is room for, and their size.
    let code = unsafe { K32EnumProcessModules(GetCurrentProcess(), modules.as_mut_ptr(), room, &mut bytes) };
    if code == 0 {
        return None;
    }
    modules.truncate(bytes as usize / size_of::<HMODULE>());
    // In the order in which they were loaded.
    modules.into_iter().find_map(|module| symbol_of(module, name))
}

/// The address of a symbol of a library that is loaded, if it still is, and stays loaded then.
fn symbol_of(module: HMODULE, name: &std::ffi::CStr) -> Option<usize> {
    let mut held = std::ptr::null_mut();
    // SAFETY: with this flag the second argument is an address in a library, or in none any more; the call writes one
    // handle, which counts until `FreeLibrary`. The name ends with a NUL.
    unsafe {
        if GetModuleHandleExW(GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS, module.cast_const().cast(), &mut held) == 0 {
            return None;
        }
        let symbol = GetProcAddress(held, name.as_ptr().cast()).map(|symbol| symbol as usize);
        if symbol.is_some() {
            let flags = GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_PIN;
            let mut pinned = std::ptr::null_mut();
            GetModuleHandleExW(flags, module.cast_const().cast(), &mut pinned);
        }
        FreeLibrary(held);
        symbol
    }
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
