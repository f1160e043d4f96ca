//! The metadata of collectible modules, kept until they are unloaded; names are read from it.
//!
//! Only a look-up that misses comes here, and calls the runtime next. An import reads the module's own memory, so it must be
//! released in the eviction itself; `cache` releases names, and the metadata of modules that stay, some time later. Hence a
//! lock, held for the look-up or the insertion alone and never across a call to the runtime. The answer is worked out between
//! the two, so a miss returns a [`Ticket`] that an eviction voids.

use std::any::Any;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::id::ModuleId;
use crate::lock::unpoisoned;

/// A module's metadata, in a type that only `names/` knows.
pub(crate) type CachedImport = Arc<dyn Any + Send + Sync>;
pub(crate) type UnloadableImports = Imports<ModuleId, CachedImport>;

pub(crate) struct Imports<K, V> {
    map: RwLock<ImportMap<K, V>>,
}

struct ImportMap<K, V> {
    entries: HashMap<K, V>,
    /// How many evictions there have been.
    evictions: u64,
}

/// The right to insert after a miss, valid until the next eviction.
#[derive(Clone, Copy)]
pub(crate) struct Ticket(u64);

impl<K: Eq + Hash, V: Clone> Imports<K, V> {
    pub(super) fn new() -> Self {
        Self { map: RwLock::new(ImportMap { entries: HashMap::default(), evictions: 0 }) }
    }

    /// The value of `key`, or the right to insert it.
    pub(crate) fn get(&self, key: &K) -> Result<V, Ticket> {
        let map = self.read();
        map.entries.get(key).cloned().ok_or(Ticket(map.evictions))
    }

    /// Inserts `value`, unless an eviction came after `ticket` was issued.
    pub(crate) fn insert(&self, ticket: Ticket, key: K, value: V) {
        let mut map = self.write();
        let replaced = if map.evictions == ticket.0 { map.entries.insert(key, value) } else { Some(value) };
        // Dropping a value may call into the runtime (a COM release), which must not happen under the lock.
        drop(map);
        drop(replaced);
    }

    /// Evicts everything.
    pub(super) fn clear(&self) {
        let mut map = self.write();
        map.evictions = map.evictions.wrapping_add(1);
        let gone = std::mem::take(&mut map.entries);
        drop(map);
        drop(gone);
    }

    // No user code runs under the lock, so a panic cannot leave the map half-changed, and a poisoned lock is usable.
    fn read(&self) -> RwLockReadGuard<'_, ImportMap<K, V>> {
        unpoisoned(self.map.read())
    }

    fn write(&self) -> RwLockWriteGuard<'_, ImportMap<K, V>> {
        unpoisoned(self.map.write())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(imports: &Imports<u32, u32>, key: u32) -> Ticket {
        imports.get(&key).expect_err("not there yet")
    }

    #[test]
    fn keeps_until_evicted() {
        let imports = Imports::new();
        imports.insert(ticket(&imports, 1), 1, 10);
        imports.insert(ticket(&imports, 2), 2, 20);
        assert_eq!(imports.get(&1).ok(), Some(10));
        imports.clear();
        assert_eq!(imports.get(&1).ok(), None);
        assert_eq!(imports.get(&2).ok(), None);
    }

    #[test]
    fn an_eviction_in_between_voids_the_ticket() {
        let imports = Imports::new();
        let early = ticket(&imports, 1);
        imports.clear();
        imports.insert(early, 1, 10);
        assert_eq!(imports.get(&1).ok(), None);
        imports.insert(ticket(&imports, 1), 1, 11);
        assert_eq!(imports.get(&1).ok(), Some(11));
    }

    #[test]
    fn survives_a_poisoned_lock() {
        let imports = Imports::new();
        imports.insert(ticket(&imports, 1), 1, 10);
        let poisoned = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let _guard = imports.map.write();
                panic!("on purpose");
            });
            thread.join().is_err()
        });
        assert!(poisoned && imports.map.is_poisoned());
        assert_eq!(imports.get(&1).ok(), Some(10));
        imports.clear();
        assert_eq!(imports.get(&1).ok(), None);
    }
}
