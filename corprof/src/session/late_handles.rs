//! Handles that wait for being freed.

use std::sync::Mutex;

use corprof_sys as sys;

use crate::lock::unpoisoned;

/// Handles that were given up too deep inside of `handle_destroyed`: whoever is freeing one around that frees them next.
#[derive(Default)]
pub(crate) struct LateHandles(Mutex<Vec<Raw>>);

/// A handle that its owner has given up.
struct Raw(sys::ObjectHandleID);

// SAFETY: the handle is a place in a table of the runtime's, which takes calls on it from any thread.
unsafe impl Send for Raw {}

impl LateHandles {
    pub(crate) fn push(&self, handle: sys::ObjectHandleID) {
        unpoisoned(self.0.lock()).push(Raw(handle));
    }

    pub(crate) fn next(&self) -> Option<sys::ObjectHandleID> {
        unpoisoned(self.0.lock()).pop().map(|Raw(handle)| handle)
    }
}
