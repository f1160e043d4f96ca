//! Checks whether the locks that a native walk needs are free while a thread is stopped.
//!
//! The stopped thread may hold the lock of a heap, of the loader or of the function tables. A thread that waits for
//! such a lock waits until the stopped thread is resumed, and only the walker resumes it. So the lock check's own
//! thread tries the locks first, and the walker waits for it up to a limit. After that the walker resumes its target
//! and counts a failure; this also releases the lock check's thread.

use std::alloc::Layout;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use windows_sys::Win32::Foundation::{CloseHandle, HANDLE, WAIT_OBJECT_0};
use windows_sys::Win32::System::Diagnostics::Debug::RtlLookupFunctionEntry;
use windows_sys::Win32::System::LibraryLoader::{
    GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS, GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT, GetModuleHandleExW,
};
use windows_sys::Win32::System::Memory::{GetProcessHeap, HeapAlloc, HeapFree};
use windows_sys::Win32::System::Threading::{CreateEventW, INFINITE, SetEvent, WaitForSingleObject};

/// How long getting the locks may take while a thread is stopped. A running thread that holds one releases it within
/// microseconds, so this is for the lock check's own thread, which needs a processor; it has shown before the stop that
/// it gets one.
pub(crate) const LIMIT: Duration = Duration::from_millis(50);

/// How long getting them may take while no thread is stopped: a new thread has to start, on a full machine.
pub(crate) const PATIENCE: Duration = Duration::from_millis(250);

/// A Windows event: waiting for it and setting it allocate no memory.
struct Event(HANDLE);

/// The state that both threads share.
struct Shared {
    begin: Event,
    done: Event,
    is_over: AtomicBool,
    /// Tried in addition to the system's locks: the runtime's, by GetFunctionFromIP.
    also: Box<dyn Fn() + Send + Sync>,
}

/// A thread that tries the locks on demand.
pub(crate) struct LockCheck {
    shared: Arc<Shared>,
}

impl Event {
    fn new() -> io::Result<Self> {
        // SAFETY: all arguments may be null. The event resets itself when it releases a waiting thread.
        let handle = unsafe { CreateEventW(std::ptr::null(), 0, 0, std::ptr::null()) };
        if handle.is_null() { Err(io::Error::last_os_error()) } else { Ok(Self(handle)) }
    }

    fn set(&self) {
        // SAFETY: the handle is open while `self` lives.
        unsafe { SetEvent(self.0) };
    }

    fn wait(&self, milliseconds: u32) -> bool {
        // SAFETY: the handle is open while `self` lives.
        unsafe { WaitForSingleObject(self.0, milliseconds) == WAIT_OBJECT_0 }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: opened by `new`, and closed only here.
        unsafe { CloseHandle(self.0) };
    }
}

// SAFETY: a handle belongs to the process, and any of its threads may use it.
unsafe impl Send for Event {}
// SAFETY: as above; the kernel orders the calls on it.
unsafe impl Sync for Event {}

impl LockCheck {
    /// A probe with its thread, which also tries `also`.
    ///
    /// # Errors
    /// If the system cannot make a thread or an event.
    pub(crate) fn new(also: impl Fn() + Send + Sync + 'static) -> io::Result<Self> {
        let begin = Event::new()?;
        let done = Event::new()?;
        let shared = Arc::new(Shared { begin, done, is_over: AtomicBool::new(false), also: Box::new(also) });
        let theirs = shared.clone();
        std::thread::Builder::new().name("corprof lock_check".to_owned()).spawn(move || {
            while theirs.begin.wait(INFINITE) && !theirs.is_over.load(SeqCst) {
                try_locks();
                (theirs.also)();
                theirs.done.set();
            }
        })?;
        Ok(Self { shared })
    }

    /// Whether the locks are free, found out within `limit` while a thread is stopped. Allocates no memory, and takes
    /// none of these locks on the calling thread.
    ///
    /// After `false` the lock check's thread is stuck as long as the target is stopped: resume the target, drop this
    /// probe, and make another one later.
    pub(crate) fn can_walk(&self, limit: Duration) -> bool {
        self.shared.begin.set();
        self.shared.done.wait(u32::try_from(limit.as_millis()).unwrap_or(u32::MAX - 1))
    }
}

impl Drop for LockCheck {
    /// The thread ends by itself once it is no longer stuck. No thread waits for it.
    fn drop(&mut self) {
        self.shared.is_over.store(true, SeqCst);
        self.shared.begin.set();
    }
}

/// Takes and releases each lock once: both heaps (the same for Rust and the process unless the user sets an allocator),
/// the function tables, the loader.
fn try_locks() {
    // SAFETY: the allocation is freed; the size is not 0.
    unsafe {
        let layout = Layout::new::<[usize; 8]>();
        let memory = std::hint::black_box(std::alloc::alloc(layout));
        if !memory.is_null() {
            std::alloc::dealloc(memory, layout);
        }
        let memory = std::hint::black_box(HeapAlloc(GetProcessHeap(), 0, 64));
        if !memory.is_null() {
            HeapFree(GetProcessHeap(), 0, memory);
        }
    }
    let mut base = 0;
    // SAFETY: the call looks an address up and writes one number.
    let entry = unsafe { RtlLookupFunctionEntry(try_locks as *const () as u64, &mut base, std::ptr::null_mut()) };
    std::hint::black_box(entry);
    let mut module = std::ptr::null_mut();
    let flags = GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT;
    // SAFETY: with these flags the second argument is an address in the library; the call writes one handle.
    unsafe { GetModuleHandleExW(flags, try_locks as *const u16, &mut module) };
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Instant;

    use windows_sys::Win32::System::Memory::{HeapLock, HeapUnlock};

    use super::*;

    #[test]
    fn free_locks_can_be_had_again_and_again() {
        let lock_check = LockCheck::new(|| {}).unwrap();
        assert!((0..100).all(|_| lock_check.can_walk(Duration::from_secs(10))));
    }

    #[test]
    fn a_lock_that_somebody_has_is_found_out_in_time() {
        let lock = Arc::new(Mutex::new(()));
        let lock_check = LockCheck::new({
            let lock = lock.clone();
            move || drop(lock.lock())
        })
        .unwrap();
        let held = lock.lock().unwrap();
        let start = Instant::now();
        assert!(!lock_check.can_walk(LIMIT));
        assert!((LIMIT..Duration::from_secs(10)).contains(&(start.elapsed() + Duration::from_millis(20))));
        drop(held);
        assert!(lock_check.shared.done.wait(10_000), "it is released");
    }

    #[test]
    fn the_heap_s_own_lock_counts() {
        let lock_check = LockCheck::new(|| {}).unwrap();
        assert!(lock_check.can_walk(Duration::from_secs(10)));
        // SAFETY: locked and unlocked on this thread, which allocates in between only as the owner of the lock.
        let could = unsafe {
            HeapLock(GetProcessHeap());
            let could = lock_check.can_walk(LIMIT);
            HeapUnlock(GetProcessHeap());
            could
        };
        assert!(!could);
        assert!(lock_check.shared.done.wait(10_000), "it is released");
    }
}
