//! What has been found out once, by identifier, until the runtime may use the identifier for something else.
//!
//! The lock is held for the look-up or the insertion alone, never across a call into the runtime. Because the answer is
//! worked out in between, an eviction may come first: a look-up that misses gives a [`Ticket`], and what it was worked out
//! for is kept only if nothing was evicted since. To change how entries are stored, change this file only.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

pub(super) struct Cache<K, V> {
    shelf: RwLock<Shelf<K, V>>,
}

struct Shelf<K, V> {
    entries: HashMap<K, V>,
    /// How many evictions there have been.
    evictions: u64,
}

/// The right to add what a look-up did not find, good until the next eviction.
#[derive(Clone, Copy)]
pub(super) struct Ticket(u64);

impl<K: Eq + Hash, V: Clone> Cache<K, V> {
    pub(super) fn new() -> Self {
        Self { shelf: RwLock::new(Shelf { entries: HashMap::new(), evictions: 0 }) }
    }

    /// What is known about `key`, or the right to say it.
    ///
    /// A ticket must be taken before anything is asked that goes into the answer.
    pub(super) fn get(&self, key: &K) -> Result<V, Ticket> {
        let shelf = self.read();
        shelf.entries.get(key).cloned().ok_or(Ticket(shelf.evictions))
    }

    /// The right to add whatever is asked from now on.
    pub(super) fn ticket(&self) -> Ticket {
        Ticket(self.read().evictions)
    }

    /// Keeps `value`, unless there was an eviction after `ticket` was given.
    pub(super) fn insert(&self, ticket: Ticket, key: K, value: V) {
        let mut shelf = self.write();
        let replaced = if shelf.evictions == ticket.0 { shelf.entries.insert(key, value) } else { Some(value) };
        // Dropping a value may call into the runtime (a COM release), which must not happen under the lock.
        drop(shelf);
        drop(replaced);
    }

    /// Forgets everything.
    pub(super) fn clear(&self) {
        let mut shelf = self.write();
        shelf.evictions = shelf.evictions.wrapping_add(1);
        let gone = std::mem::take(&mut shelf.entries);
        drop(shelf);
        drop(gone);
    }

    // A panic cannot leave the map half-changed: no user code runs under the lock. So a poisoned lock is as good as any.
    fn read(&self) -> RwLockReadGuard<'_, Shelf<K, V>> {
        self.shelf.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Shelf<K, V>> {
        self.shelf.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(cache: &Cache<u32, u32>, key: u32) -> Ticket {
        cache.get(&key).expect_err("not there yet")
    }

    #[test]
    fn keeps_until_evicted() {
        let cache = Cache::new();
        cache.insert(ticket(&cache, 1), 1, 10);
        cache.insert(ticket(&cache, 2), 2, 20);
        assert_eq!(cache.get(&1).ok(), Some(10));
        cache.clear();
        assert_eq!(cache.get(&1).ok(), None);
        assert_eq!(cache.get(&2).ok(), None);
    }

    #[test]
    fn an_eviction_in_between_voids_the_ticket() {
        let cache = Cache::new();
        let early = ticket(&cache, 1);
        cache.clear();
        cache.insert(early, 1, 10);
        assert_eq!(cache.get(&1).ok(), None);
        cache.insert(ticket(&cache, 1), 1, 11);
        assert_eq!(cache.get(&1).ok(), Some(11));
    }

    #[test]
    fn survives_a_poisoned_lock() {
        let cache = Cache::new();
        cache.insert(ticket(&cache, 1), 1, 10);
        let poisoned = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let _guard = cache.shelf.write();
                panic!("on purpose");
            });
            thread.join().is_err()
        });
        assert!(poisoned && cache.shelf.is_poisoned());
        assert_eq!(cache.get(&1).ok(), Some(10));
        cache.clear();
        assert_eq!(cache.get(&1).ok(), None);
    }
}
