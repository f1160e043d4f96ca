//! Handles that are still to be freed.

use std::sync::Mutex;

use corprof_sys as sys;

use crate::lock::unpoisoned;

/// Handles that were dropped too deep inside `handle_destroyed`. The outer call that is freeing a handle frees these next.
#[derive(Default)]
pub(crate) struct LateHandles(Mutex<Vec<Raw>>);

/// A handle that its owner has dropped.
struct Raw(sys::ObjectHandleID);

// SAFETY: the handle is a place in one of the runtime's tables; the runtime accepts it from any thread (fact: handles).
unsafe impl Send for Raw {}

impl LateHandles {
    pub(crate) fn push(&self, handle: sys::ObjectHandleID) {
        unpoisoned(self.0.lock()).push(Raw(handle));
    }

    pub(crate) fn next(&self) -> Option<sys::ObjectHandleID> {
        unpoisoned(self.0.lock()).pop().map(|Raw(handle)| handle)
    }
}
