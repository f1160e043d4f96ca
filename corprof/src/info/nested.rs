//! Limits the recursion of calls that make the same callback in which they may be made.
//!
//! A callback that loads a class whenever a class is loaded calls itself, until the thread's stack is exhausted and the
//! process ends. No code can catch that, so these calls are counted, and refused beyond a depth that no profiler needs.

use std::cell::Cell;
use std::marker::PhantomData;

use corprof_sys as sys;

use crate::error::{Error, Result};

/// The limit on the depth. Loading a class takes some ten kilobytes of stack, and the smallest stacks have 256.
const DEEPEST: u32 = 12;

thread_local! {
    /// How many of these calls are under way on the calling thread. It has no destructor, so it is usable until the end
    /// of the thread.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// A call that may make callbacks on the calling thread, until this is dropped.
pub(crate) struct Nested(PhantomData<*mut ()>);

impl Nested {
    /// # Errors
    /// `CORPROF_E_UNSUPPORTED_CALL_SEQUENCE`: too many of these calls are nested.
    pub(crate) fn begin(call: &'static str) -> Result<Self> {
        let depth = DEPTH.get();
        if depth >= DEEPEST {
            return Err(Error::new(sys::CORPROF_E_UNSUPPORTED_CALL_SEQUENCE, call).about(
                "nested callbacks",
                "the call makes a callback that makes the call again, without end: make the callback ignore its own calls",
            ));
        }
        DEPTH.set(depth + 1);
        Ok(Self(PhantomData))
    }
}

impl Drop for Nested {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_over_counts_no_more() {
        for _ in 0..3 {
            let nested: Vec<_> = (0..DEEPEST).map(|_| Nested::begin("X").unwrap()).collect();
            let error = Nested::begin("X").err().unwrap();
            assert_eq!(error.code(), sys::CORPROF_E_UNSUPPORTED_CALL_SEQUENCE);
            assert!(error.to_string().contains("nested callbacks"), "{error}");
            std::thread::spawn(|| assert!(Nested::begin("X").is_ok(), "another thread")).join().unwrap();
            drop(nested);
        }
    }
}
