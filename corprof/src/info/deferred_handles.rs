//! Handles that are still to be freed.

use std::sync::Mutex;

use corprof_sys as sys;

use crate::lock::unpoisoned;
use crate::session::{Info, Observer};

/// Handles that were dropped too deep inside `handle_destroyed`. The outer call that is freeing a handle frees these
/// next.
#[derive(Default)]
pub(super) struct DeferredHandles(Mutex<Vec<Raw>>);

/// A handle that its owner has dropped.
struct Raw(sys::ObjectHandleID);

// SAFETY: the handle is a place in one of the runtime's tables; the runtime accepts it from any thread (fact: handles).
unsafe impl Send for Raw {}

impl Observer for DeferredHandles {}

impl Info {
    /// The handles that are still to be freed.
    pub(super) fn deferred_handles(&self) -> &DeferredHandles {
        self.extension()
    }
}

impl DeferredHandles {
    pub(super) fn push(&self, handle: sys::ObjectHandleID) {
        unpoisoned(self.0.lock()).push(Raw(handle));
    }

    pub(super) fn next(&self) -> Option<sys::ObjectHandleID> {
        unpoisoned(self.0.lock()).pop().map(|Raw(handle)| handle)
    }
}
