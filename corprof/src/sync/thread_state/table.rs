//! A table in which threads find their own values.

use std::ptr::{self, NonNull};
use std::sync::atomic::{
    AtomicPtr, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::system;

/// How many threads have an entry at most. The others find their value by a thread-local.
const ENTRIES: usize = 512;

/// A pointer for each thread, in the entry that the thread's key leads to.
///
/// Counting an allocation by class takes 46.6 ns, and 51.3 by the thread-local: a library that is loaded at run time
/// reaches those by a call (`cargo xtask bench --only storm`).
pub(super) struct ThreadTable<V>(Box<[Entry<V>]>);

struct Entry<V> {
    /// The [`system::thread_key`] of the thread whose entry it is, or 0 while it is free.
    owner: AtomicUsize,
    /// Written and read by the owner only.
    value: AtomicPtr<V>,
}

impl<V> ThreadTable<V> {
    pub(super) fn new() -> Self {
        let free = || Entry { owner: AtomicUsize::new(0), value: AtomicPtr::new(ptr::null_mut()) };
        Self((0..ENTRIES).map(|_| free()).collect())
    }

    #[inline]
    fn entry(&self, thread: usize) -> &Entry<V> {
        &self.0[thread / system::THREAD_KEY_DISTANCE % ENTRIES]
    }

    /// The pointer of the calling thread; none if it has no entry.
    #[inline]
    pub(super) fn get(&self) -> Option<NonNull<V>> {
        let thread = system::thread_key();
        let entry = self.entry(thread);
        // Threads that live at the same time have different keys, so the owner is the calling thread and has stored the
        // value.
        if entry.owner.load(Relaxed) == thread { NonNull::new(entry.value.load(Relaxed)) } else { None }
    }

    /// Stores a pointer for the calling thread, unless its entry belongs to another one. The thread must
    /// [clear](Self::clear) the entry before the value ends.
    pub(super) fn set(&self, value: NonNull<V>) {
        let thread = system::thread_key();
        let entry = self.entry(thread);
        if entry.owner.compare_exchange(0, thread, Acquire, Relaxed).is_ok() {
            entry.value.store(value.as_ptr(), Relaxed);
        }
    }

    /// Frees the entry of the calling thread.
    pub(super) fn clear(&self) {
        let thread = system::thread_key();
        let entry = self.entry(thread);
        if entry.owner.load(Relaxed) == thread {
            entry.value.store(ptr::null_mut(), Relaxed);
            // The next owner stores its value after this null.
            entry.owner.store(0, Release);
        }
    }
}
