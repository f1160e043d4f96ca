//! Checks that a profiler keeps suspension rule 3: while the sampler has stopped threads, its thread allocates no
//! memory and takes no lock.
//!
//! corprof's own locks and its messages on standard error are counted automatically. A profiler under test adds its
//! allocator:
//!
//! ```
//! use std::alloc::{GlobalAlloc, Layout, System};
//!
//! struct Watched;
//!
//! // SAFETY: everything is left to the system's allocator.
//! unsafe impl GlobalAlloc for Watched {
//!     unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
//!         corprof::testing::suspension::touched();
//!         // SAFETY: the caller's promise.
//!         unsafe { System.alloc(layout) }
//!     }
//!
//!     unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
//!         corprof::testing::suspension::touched();
//!         // SAFETY: the caller's promise.
//!         unsafe { System.dealloc(memory, layout) }
//!     }
//! }
//!
//! #[global_allocator]
//! static ALLOCATOR: Watched = Watched;
//! # assert!(!corprof::testing::suspension::is_here());
//! # assert_eq!(corprof::testing::suspension::violations(), 0);
//! ```

use crate::suspension;

/// Whether the calling thread has stopped threads of the application and not resumed them yet.
pub fn is_here() -> bool {
    suspension::is_here()
}

/// Call this where something is touched that is forbidden in that time: counts it if it is that time.
pub fn touched() {
    suspension::forbid("something of the profiler's");
}

/// How many times something forbidden was touched in that time.
pub fn violations() -> usize {
    suspension::violations()
}
