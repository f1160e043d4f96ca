//! Names that have been looked up, kept until the runtime may reuse their identifiers.
//!
//! This folder does not spell names and does not read metadata (`names/` does).

mod cache;
mod name;

use std::any::Any;
use std::fmt;
use std::sync::Arc;

pub(crate) use cache::{Cache, Ticket};
pub use name::Name;

use crate::id::{AssemblyId, ClassId, FunctionId, ModuleId};

/// The names that have been looked up, and the metadata that they are made from.
pub(crate) struct NameStore {
    /// Names of functions and classes in the spelling of IL assembly, and all names that are the same in both
    /// spellings.
    pub(crate) il: Cache<Named, Name>,
    pub(crate) csharp: Cache<Named, Name>,
    pub(crate) imports: Cache<ModuleId, CachedImport>,
}

/// A module's metadata, in a type that only `names/` knows. It reads the module's own memory, so an eviction must
/// release it.
pub(crate) type CachedImport = Arc<dyn Any + Send + Sync>;

/// What a name is of: the runtime may give things of two kinds the same number.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Named {
    Function(FunctionId),
    Class(ClassId),
    Module(ModuleId),
    Assembly(AssemblyId),
}

impl NameStore {
    pub(super) fn new() -> Self {
        Self { il: Cache::new(), csharp: Cache::new(), imports: Cache::new() }
    }

    /// Releases the metadata of all modules while it is still in memory, as one of them begins to unload. Names stay:
    /// nothing else gets the same identifiers before the module is gone.
    pub(crate) fn let_go(&self) {
        self.imports.clear();
    }

    /// Evicts everything: a module is gone and the runtime may reuse its identifiers; instantiations over its types may
    /// be in any module.
    pub(crate) fn evict_all(&self) {
        // Imports are evicted before names: a look-up that starts after the names were cleared finds no stale import,
        // and the results of earlier look-ups are not kept.
        self.imports.clear();
        self.il.clear();
        self.csharp.clear();
    }
}

impl fmt::Debug for NameStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NameStore").finish_non_exhaustive()
    }
}
