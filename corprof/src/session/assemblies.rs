//! The loaded assemblies by name, for types that signatures name.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use crate::id::ModuleId;
use crate::lock::unpoisoned;

/// The loaded assemblies by name, until the set of loaded modules changes.
#[derive(Default)]
pub(crate) struct Assemblies(Mutex<ByName>);

#[derive(Default)]
pub(crate) struct ByName {
    /// The value of [`Liveness::changes`](crate::session::liveness::Liveness::changes) before listing.
    pub(crate) changes: u64,
    /// None for a name that several assemblies have.
    pub(crate) modules: HashMap<String, Option<ModuleId>>,
}

impl Assemblies {
    /// The runtime is never called under this lock.
    pub(crate) fn lock(&self) -> MutexGuard<'_, ByName> {
        unpoisoned(self.0.lock())
    }
}
