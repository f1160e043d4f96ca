//! What became of the functions that a profiler has selected.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::id::FunctionId;
use crate::lock::unpoisoned;
use crate::suspension;

/// Methods that were selected, and have no hooks for one reason.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LeftOut {
    /// The reason.
    pub reason: String,
    /// How many there are.
    pub count: usize,
    /// One of them. It may be gone.
    pub example: FunctionId,
}

/// The reasons, each with the number of functions and one of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Reasons(BTreeMap<String, (usize, FunctionId)>);

impl Reasons {
    pub(super) fn add(&mut self, reason: String, function: FunctionId) {
        self.0.entry(reason).or_insert((0, function)).0 += 1;
    }

    pub(super) fn list(&self) -> Vec<LeftOut> {
        let told = self.0.iter();
        told.map(|(reason, &(count, example))| LeftOut { reason: reason.clone(), count, example }).collect()
    }
}

/// What became of the functions that were selected: returned by
/// [`hook_functions_with_values`](crate::InInitialize::hook_functions_with_values). A clone is another handle to the same.
#[derive(Clone, Debug, Default)]
pub struct HookedFunctions(Arc<Mutex<Books>>);

#[derive(Debug, Default)]
struct Books {
    hooked: usize,
    left_out: Reasons,
}

impl HookedFunctions {
    /// No user code and no call of the runtime runs under this lock.
    fn books(&self) -> MutexGuard<'_, Books> {
        suspension::forbid("the books of the hooks");
        unpoisoned(self.0.lock())
    }

    /// How many functions have hooks.
    pub fn hooked(&self) -> usize {
        self.books().hooked
    }

    /// The functions that were selected and have no hooks, by reason.
    pub fn left_out(&self) -> Vec<LeftOut> {
        self.books().left_out.list()
    }

    pub(super) fn note_hooked(&self) {
        self.books().hooked += 1;
    }

    pub(super) fn leave_out(&self, function: FunctionId, reason: String) {
        self.books().left_out.add(reason, function);
    }
}
