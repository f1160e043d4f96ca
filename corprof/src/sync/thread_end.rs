//! Values that belong to a thread, and end with it.

use std::cell::RefCell;

/// A value that ends with its thread.
pub(crate) trait EndsWithThread {
    /// Called on the thread, at its end; from then on the thread's list is inaccessible. It must not panic: that would
    /// end the process.
    fn end(self);
}

/// A thread's own values, for a `thread_local!`. There are few: one for each profiler's hooks and each
/// [`ThreadState`](super::ThreadState).
#[derive(Debug)]
pub(crate) struct OwnThings<E: EndsWithThread>(RefCell<Vec<E>>);

impl<E: EndsWithThread> OwnThings<E> {
    pub(crate) const fn new() -> Self {
        Self(RefCell::new(Vec::new()))
    }

    /// The first result of `look`, which is called with each value.
    #[inline]
    pub(crate) fn find<R>(&self, look: impl FnMut(&E) -> Option<R>) -> Option<R> {
        self.0.borrow().iter().find_map(look)
    }

    pub(crate) fn push(&self, thing: E) {
        self.0.borrow_mut().push(thing);
    }
}

impl<E: EndsWithThread> Drop for OwnThings<E> {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(E::end);
    }
}
