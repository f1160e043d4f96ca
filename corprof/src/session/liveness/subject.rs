//! [`Subject`]: the function that the current callback is about. It lives as long as the callback lasts.

use std::cell::Cell;

thread_local! {
    /// The function that the calling thread's innermost callback is about; 0 if there is none. It has no destructor, so
    /// it is usable until the end of the thread.
    static FUNCTION: Cell<usize> = const { Cell::new(0) };
}

/// Marks the calling thread as being in a callback about a function, until it is dropped.
///
/// The runtime compiles the function on this thread, or has just done so: nothing that the function depends on is
/// unloaded meanwhile. If other modules are unloaded at that moment, the function may still be in doubt (`unload.rs`);
/// the mark overrides that.
pub(crate) struct Subject {
    /// The subject of the enclosing callback.
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
