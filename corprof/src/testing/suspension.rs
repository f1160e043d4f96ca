//! Whether a profiler keeps suspension rule 3 in practice: while the sampler has stopped threads, its thread asks for no
//! memory and takes no lock.
//!
//! corprof's own locks and its report to standard error count by themselves. A profiler under test adds its allocator:
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

/// Whether the calling thread has stopped threads of the application and not yet resumed them.
pub fn is_here() -> bool {
    suspension::is_here()
}

/// To be called where something is touched that must not be in that time: counts if it is that time.
pub fn touched() {
    suspension::forbid("something of the profiler's");
}

/// How often something was touched in that time.
pub fn violations() -> usize {
    suspension::violations()
}
