//! Places after the last callback, where a profiler may still hold an `Info`: a thread-local that is dropped as the
//! thread ends, a handler of `atexit`, a thread that goes on after Shutdown.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use corprof::prelude::*;

use super::super::places::INFO;
use super::{on_thread, report, visits};

static IS_OVER: AtomicBool = AtomicBool::new(false);
static BEFORE: AtomicU64 = AtomicU64::new(0);

/// Whether the profiler has said its last word.
pub(super) fn is_over() -> bool {
    IS_OVER.load(Relaxed)
}

/// Asks when it is dropped.
struct Last(Info);

impl Drop for Last {
    fn drop(&mut self) {
        let over = is_over();
        on_thread(&self.0, if over { "a thread-local's end after shutdown" } else { "a thread-local's end" });
    }
}

std::thread_local! {
    static LAST: Option<Last> = INFO.get().map(|info| Last(info.clone()));
}

/// On a thread of the application's that begins.
pub(in super::super) fn thread_begins() {
    // One that ends already has nothing to drop.
    let _ = LAST.try_with(|_| {});
}

/// At the end of `shutdown`.
pub(in super::super) fn shut_down() {
    report();
    BEFORE.store(visits(), Relaxed);
    IS_OVER.store(true, Relaxed);
    #[cfg(target_os = "linux")]
    {
        extern "C" fn at_exit() {
            if let Some(info) = INFO.get() {
                on_thread(info, "a handler of atexit");
                eprintln!("fire-after: visits={}", visits() - BEFORE.load(Relaxed));
            }
        }
        // SAFETY: the function is of this library, which stays mapped.
        unsafe { libc::atexit(at_exit) };
    }
}
