//! What became of the functions that a profiler has selected.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use corprof_il::verify::IlError;

use crate::id::FunctionId;
use crate::instrumentation::{Outcome, Rewrite};
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
struct Reasons(BTreeMap<String, (usize, FunctionId)>);

impl Reasons {
    fn add(&mut self, reason: String, function: FunctionId) {
        self.0.entry(reason).or_insert((0, function)).0 += 1;
    }

    fn list(&self) -> Vec<LeftOut> {
        let reasons = self.0.iter();
        reasons.map(|(reason, &(count, example))| LeftOut { reason: reason.clone(), count, example }).collect()
    }
}

/// What became of the functions that were selected: returned by [`HookSetup::install`](super::HookSetup::install). A
/// clone is another handle to the same.
#[derive(Clone, Debug, Default)]
pub struct HookedFunctions(Arc<Mutex<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    hooked: usize,
    precompiled: usize,
    left_out: Reasons,
    /// The methods that were compiled before the profiler attached.
    rewrites: Vec<(FunctionId, Rewrite)>,
}

impl HookedFunctions {
    /// No user code and no call of the runtime runs under this lock.
    fn counts(&self) -> MutexGuard<'_, Counts> {
        suspension::forbid("the counts of the hooks");
        unpoisoned(self.0.lock())
    }

    /// How many functions have hooks; with inserted code, how many methods.
    pub fn hooked(&self) -> usize {
        let counts = self.counts();
        let is_active = |rewrite: &&(FunctionId, Rewrite)| matches!(rewrite.1.outcome(), Outcome::Active(_));
        counts.hooked + counts.rewrites.iter().filter(is_active).count()
    }

    /// The functions that were selected and have no hooks, by reason.
    pub fn left_out(&self) -> Vec<LeftOut> {
        let counts = self.counts();
        let mut all = counts.left_out.clone();
        for (function, rewrite) in &counts.rewrites {
            let reason = match rewrite.outcome() {
                Outcome::Refused(why) => why.to_string(),
                Outcome::Rejected(errors) => broken(&errors),
                Outcome::Failed(error, _) => error.to_string(),
                _ => continue,
            };
            all.add(reason, *function);
        }
        all.list()
    }

    /// How many functions run precompiled code, and so have no hooks. None, if the runtime calls the hooks: it then
    /// compiles all.
    pub fn precompiled(&self) -> usize {
        self.counts().precompiled
    }

    /// How many methods are to have hooks when they are called next: nobody has called them since the profiler
    /// attached.
    pub fn waiting(&self) -> usize {
        let counts = self.counts();
        counts.rewrites.iter().filter(|(_, rewrite)| !rewrite.outcome().is_known()).count()
    }

    pub(super) fn note_hooked(&self) {
        self.counts().hooked += 1;
    }

    pub(super) fn note_precompiled(&self) {
        self.counts().precompiled += 1;
    }

    pub(super) fn note_rewrite(&self, function: FunctionId, rewrite: Rewrite) {
        self.counts().rewrites.push((function, rewrite));
    }

    pub(super) fn leave_out(&self, function: FunctionId, reason: String) {
        self.counts().left_out.add(reason, function);
    }
}

/// What a body with the calls breaks.
pub(super) fn broken(errors: &[IlError]) -> String {
    let rules: Vec<_> = errors.iter().map(|error| format!("{:?}", error.rule)).collect();
    format!("the body with the calls breaks rules: {}", rules.join(", "))
}
