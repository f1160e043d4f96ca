//! Names that have been looked up, kept until the runtime may reuse their identifiers.
//!
//! This folder does not spell names and does not read metadata (`names/` does). `cache.rs` keeps names, and the metadata of
//! modules that stay; `imports.rs` keeps the metadata of collectible modules.

mod cache;
mod imports;
mod name;

use std::fmt;

use cache::Cache;
pub(crate) use cache::{Key, Table};
pub(crate) use imports::{CachedImport, UnloadableImports};
pub use name::Name;

/// The names that have been looked up, and the metadata that they are made from.
pub(crate) struct NameStore {
    pub(crate) known: Cache<Known>,
    pub(crate) passing: UnloadableImports,
}

/// The names themselves, and the metadata of modules that cannot be unloaded.
#[derive(Default)]
pub(crate) struct Known {
    /// Names of functions and classes in the spelling of IL assembly, and all names that are the same in both spellings.
    pub(crate) il: Table<CachedName>,
    pub(crate) csharp: Table<CachedName>,
    pub(crate) imports: Table<CachedImport>,
}

/// A spelt name. The text found by a class may be the name of one of its functions, which begins with the name of the class.
pub(crate) struct CachedName {
    pub(crate) name: Name,
    pub(crate) end_of_class: usize,
}

impl NameStore {
    pub(super) fn new() -> Self {
        Self { known: Cache::new(), passing: UnloadableImports::new() }
    }

    /// Releases the metadata of collectible modules while it is still in memory, as one of them begins to unload. Names stay:
    /// nothing else gets the same identifiers before the module is gone.
    pub(crate) fn let_go(&self) {
        self.passing.clear();
    }

    /// Evicts everything: a module is gone and the runtime may reuse its identifiers; instantiations over its types may be in
    /// any module.
    pub(crate) fn evict_all(&self) {
        // Imports are evicted before names: a look-up that starts after the names were cleared finds no stale import, and the
        // results of earlier look-ups are not kept.
        self.passing.clear();
        self.known.clear();
    }
}

impl CachedName {
    #[inline]
    /// The name of the class.
    pub(crate) fn class_name(&self) -> &str {
        self.name.get(..self.end_of_class).unwrap_or_default()
    }
}

impl fmt::Debug for NameStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NameStore").finish_non_exhaustive()
    }
}
