//! [`Subject`]: the function that a callback is about, which lives as long as the callback lasts.

use std::cell::Cell;

thread_local! {
    /// The function that the calling thread's innermost callback is about; 0 if it is about none. Without a destructor, so it
    /// is there to the thread's end.
    static FUNCTION: Cell<usize> = const { Cell::new(0) };
}

/// The calling thread is in a callback about a function, until this is dropped.
///
/// The runtime compiles the function, or has just done so, on this thread, so nothing that the function is made of goes meanwhile.
/// Where other modules go at that moment the function may be in doubt all the same (`unload.rs`): its own callback knows better.
pub(crate) struct Subject {
    /// That of the callback around this one.
    before: usize,
}

impl Subject {
    #[inline]
    pub(crate) fn begin(function: usize) -> Self {
        Self { before: FUNCTION.replace(function) }
    }

    /// Whether the calling thread is in a callback about this function.
    pub(super) fn is(function: usize) -> bool {
        function != 0 && FUNCTION.get() == function
    }
}

impl Drop for Subject {
    #[inline]
    fn drop(&mut self) {
        FUNCTION.set(self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_callback_on_a_thread_counts() {
        assert!(!Subject::is(0) && !Subject::is(8));
        let outer = Subject::begin(8);
        {
            let _inner = Subject::begin(16);
            assert!(Subject::is(16) && !Subject::is(8));
        }
        assert!(Subject::is(8) && std::thread::spawn(|| !Subject::is(8)).join().unwrap());
        drop(outer);
        assert!(!Subject::is(8));
    }
}
