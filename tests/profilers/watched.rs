//! An allocator that reports allocations and frees while threads are suspended: suspension rule 3.

use std::alloc::{GlobalAlloc, Layout, System};

use corprof::testing::suspension;

struct Watched;

#[global_allocator]
static ALLOCATOR: Watched = Watched;

// SAFETY: everything is left to the system's allocator.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        suspension::touched();
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        suspension::touched();
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        suspension::touched();
        // SAFETY: the caller's promise.
        unsafe { System.realloc(memory, layout, size) }
    }
}
