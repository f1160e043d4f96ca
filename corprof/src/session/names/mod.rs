//! The names that have been looked up, until the runtime may use their identifiers for something else.
//!
//! How names are spelt is not known here (`names/`), nor what they are read from. `cache.rs` keeps names, and the metadata of
//! modules that stay; `imports.rs` that of modules which can be unloaded.

mod cache;
mod imports;
mod name;

use std::fmt;

use cache::Cache;
pub(crate) use cache::{Key, Table};
pub(crate) use imports::{CachedImport, UnloadableImports};
pub use name::Name;

/// The names that have been looked up, and the metadata they are made from.
pub(crate) struct NameStore {
    pub(crate) known: Cache<Known>,
    pub(crate) passing: UnloadableImports,
}

/// The names themselves, and the metadata of modules that cannot be unloaded.
#[derive(Default)]
pub(crate) struct Known {
    /// Those of functions and classes, as IL assembly has them, and all that are the same in both spellings.
    pub(crate) il: Table<CachedName>,
    pub(crate) csharp: Table<CachedName>,
    pub(crate) imports: Table<CachedImport>,
}

/// A name that was found out. What is found by a class may be the name of one of its functions, which begins with that of the
/// class.
pub(crate) struct CachedName {
    pub(crate) name: Name,
    pub(crate) end_of_class: usize,
}

impl NameStore {
    pub(super) fn new() -> Self {
        Self { known: Cache::new(), passing: UnloadableImports::new() }
    }

    /// Lets go of the metadata of modules that can be unloaded, while it is there: one of them begins to go. Names stay: nothing else
    /// is called the same before the module is gone.
    pub(crate) fn let_go(&self) {
        self.passing.clear();
    }

    /// Forgets everything: a module is gone, the runtime may use its identifiers again, and instantiations over its types live
    /// anywhere.
    pub(crate) fn evict_all(&self) {
        // What names are made from goes before the names: whoever asks what is known after that was cleared finds no stale part,
        // and what is found out for those who have asked before is not kept.
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
