//! What has been found out once, by identifier, until the runtime may use the identifier for something else.
//!
//! A look-up that finds takes no lock and waits for nobody, so a thread that was stopped inside one holds up nobody. That is
//! so for a thread's first look-up and for one made while the thread is torn down, too, where a map whose readers register
//! themselves under a mutex (papaya, for one) would take it, or panic. Entries are only ever added to a table, and all go at
//! once with it; `arc-swap` keeps a table that is being read from going away.
//!
//! Because an answer is worked out between look-up and insertion, an eviction may come first: a look-up that misses gives a
//! [`Ticket`], and what it was worked out for is kept only if nothing was evicted since.

use std::cell::UnsafeCell;
use std::hash::{Hash, Hasher};
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU8, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use arc_swap::{ArcSwap, Guard};

pub(super) struct Cache<K, V> {
    table: ArcSwap<Table<K, V>>,
}

/// The right to add what a look-up did not find, good until the next eviction: the table that it was not found in.
pub(super) struct Ticket<K, V>(Guard<Arc<Table<K, V>>>);

impl<K: Copy + Eq + Hash, V: Clone> Cache<K, V> {
    pub(super) fn new() -> Self {
        Self { table: ArcSwap::from_pointee(Table::new(FEWEST_BITS, 0)) }
    }

    /// What is known about `key`, or the right to say it.
    ///
    /// A ticket must be taken before anything is asked that goes into the answer.
    #[inline]
    pub(super) fn get(&self, key: &K) -> Result<V, Ticket<K, V>> {
        let table = self.table.load();
        match table.find(key) {
            Some(value) => Ok(value.clone()),
            None => Err(Ticket(table)),
        }
    }

    /// Keeps `value`, unless there was an eviction after `ticket` was given.
    pub(super) fn insert(&self, ticket: Ticket<K, V>, key: K, value: V) {
        // After an eviction the table is nobody's any more, and the entry goes with it.
        if let Err(value) = ticket.0.add(key, value) {
            self.insert_into_bigger(&ticket.0, key, value);
        }
    }

    #[cold]
    fn insert_into_bigger(&self, full: &Arc<Table<K, V>>, key: K, value: V) {
        let evictions = full.evictions;
        let mut now = self.table.load();
        // Another thread may have put a bigger one there already; what is added to this one meanwhile will be found out again.
        if Arc::ptr_eq(&now, full) {
            self.table.compare_and_swap(&now, Arc::new(full.grown()));
            now = self.table.load();
        }
        if now.evictions == evictions {
            // Should an eviction come between, the entry goes with the table that it is in. One that is full already is made
            // bigger by the next who has something to add.
            let _ = now.add(key, value);
        }
    }

    /// Forgets everything.
    pub(super) fn clear(&self) {
        self.table.rcu(|table| Table::new(FEWEST_BITS, table.evictions.wrapping_add(1)));
    }
}

/// The size of a new table, as a power of two.
const FEWEST_BITS: u32 = 6;
/// By how much a full table grows, as a power of two.
const GROWTH_BITS: u32 = 1;
/// How far from its place an entry may be; none is as far in a table that is at most half full, unless by ill will.
const FARTHEST: usize = 64;

/// A hash table that only grows fuller, up to one half.
struct Table<K, V> {
    bits: u32,
    slots: Box<[Slot<K, V>]>,
    count: AtomicUsize,
    /// How many evictions came before this table.
    evictions: u64,
}

/// A place for an entry, filled once, if ever. Nobody waits for it: one that another thread is filling just now is passed by.
struct Slot<K, V> {
    state: AtomicU8,
    entry: UnsafeCell<MaybeUninit<(K, V)>>,
}

const EMPTY: u8 = 0;
const BEING_FILLED: u8 = 1;
const FULL: u8 = 2;

// SAFETY: the entry is written by the one thread that took the slot from `EMPTY`, before it makes it `FULL`; from then on, until
// the drop, it is only read, by those who have seen that. So it is sent to other threads, and shared between them.
unsafe impl<K: Send + Sync, V: Send + Sync> Sync for Slot<K, V> {}

impl<K, V> Slot<K, V> {
    const fn new() -> Self {
        Self { state: AtomicU8::new(EMPTY), entry: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    #[inline]
    fn get(&self) -> Option<&(K, V)> {
        // SAFETY: whoever made it full had written the entry, which the acquiring load makes seen, and it stays as it is.
        (self.state.load(Acquire) == FULL).then(|| unsafe { (*self.entry.get()).assume_init_ref() })
    }

    /// Fills the slot, unless it is not empty any more.
    #[inline]
    fn set(&self, entry: (K, V)) -> Result<(), (K, V)> {
        if self.state.compare_exchange(EMPTY, BEING_FILLED, Relaxed, Relaxed).is_err() {
            return Err(entry);
        }
        // SAFETY: only one thread gets here, and nobody reads the entry before it is said to be full.
        unsafe { (*self.entry.get()).write(entry) };
        self.state.store(FULL, Release);
        Ok(())
    }
}

impl<K, V> Drop for Slot<K, V> {
    fn drop(&mut self) {
        if *self.state.get_mut() == FULL {
            // SAFETY: it is full, and nobody else has it any more.
            unsafe { self.entry.get_mut().assume_init_drop() };
        }
    }
}

impl<K: Copy + Eq + Hash, V: Clone> Table<K, V> {
    fn new(bits: u32, evictions: u64) -> Self {
        let slots = (0..1_usize << bits).map(|_| Slot::new()).collect();
        Self { bits, slots, count: AtomicUsize::new(0), evictions }
    }

    /// Where an entry may be, in the order in which places are tried.
    #[inline]
    fn places(&self, key: &K) -> impl Iterator<Item = &Slot<K, V>> {
        let mut hash = Fibonacci(0);
        key.hash(&mut hash);
        let first = (hash.finish() >> (u64::BITS - self.bits)) as usize;
        let last = self.slots.len() - 1;
        (first..first + FARTHEST).filter_map(move |at| self.slots.get(at & last))
    }

    #[inline]
    fn find(&self, key: &K) -> Option<&V> {
        for slot in self.places(key) {
            match slot.get() {
                Some((of, value)) if of == key => return Some(value),
                // Behind one that is being filled there may be others.
                None if slot.state.load(Relaxed) == EMPTY => return None,
                _ => {}
            }
        }
        None
    }

    /// Adds what is not there yet, or gives it back if the table is full.
    fn add(&self, key: K, value: V) -> Result<(), V> {
        if self.count.load(Relaxed) >= self.slots.len() / 2 {
            return Err(value);
        }
        let mut new = (key, value);
        for slot in self.places(&key) {
            match slot.set(new) {
                Ok(()) => {
                    self.count.fetch_add(1, Relaxed);
                    break;
                }
                Err(back) => new = back,
            }
            if slot.get().is_some_and(|(of, _)| *of == key) {
                break;
            }
        }
        Ok(())
    }

    fn grown(&self) -> Self {
        let bigger = Self::new(self.bits + GROWTH_BITS, self.evictions);
        for (key, value) in self.slots.iter().filter_map(Slot::get) {
            // There is room for all of them.
            let _ = bigger.add(*key, value.clone());
        }
        bigger
    }
}

/// Multiplicative hashing, for identifiers: the upper bits of the product depend on all of the number's.
#[derive(Default)]
pub(super) struct Fibonacci(u64);

impl Hasher for Fibonacci {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_usize(byte.into());
        }
    }

    #[inline]
    fn write_usize(&mut self, number: usize) {
        // Addresses differ in their middle bits most; the fold brings the uppermost down to where the product uses them.
        let number = number as u64;
        self.0 = (self.0.rotate_left(5) ^ number ^ (number >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
    use std::thread;

    use super::*;

    fn ticket<V: Clone>(cache: &Cache<usize, V>, key: usize) -> Ticket<usize, V> {
        cache.get(&key).err().expect("not there yet")
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
        // Whoever was first is kept.
        cache.insert(ticket(&cache, 2), 1, 12);
        assert_eq!(cache.get(&1).ok(), Some(11));
    }

    #[test]
    fn grows_and_keeps_what_it_has() {
        let cache = Cache::new();
        // As the runtime's identifiers are: aligned, close together.
        let keys = || (1..20_000).map(|i| 0x7f12_3400_0000 + i * 0x48);
        for key in keys() {
            cache.insert(ticket(&cache, key), key, key as u64);
        }
        for key in keys() {
            assert_eq!(cache.get(&key).ok(), Some(key as u64));
        }
        let table = cache.table.load();
        let tries =
            |key: &usize| table.places(key).take_while(|slot| slot.get().is_some_and(|(of, _)| of != key)).count();
        let most = keys().map(|key| tries(&key)).max();
        assert!(most < Some(12), "{most:?}");
    }

    #[test]
    fn a_ticket_is_good_for_a_table_that_has_grown() {
        let cache = Cache::new();
        let early = ticket(&cache, 999);
        for key in 0..200 {
            cache.insert(ticket(&cache, key), key, key as u64);
        }
        cache.insert(early, 999, 10);
        assert_eq!(cache.get(&999).ok(), Some(10));
        let early = ticket(&cache, 1000);
        cache.clear();
        cache.insert(early, 1000, 11);
        assert_eq!(cache.get(&1000).ok(), None);
    }

    #[test]
    fn keys_that_all_collide_are_not_all_kept() {
        #[derive(Clone, Copy, PartialEq, Eq)]
        struct Same(u32);
        impl Hash for Same {
            fn hash<H: Hasher>(&self, state: &mut H) {
                state.write_usize(1);
            }
        }
        let cache = Cache::new();
        for i in 0..1000 {
            let Err(ticket) = cache.get(&Same(i)) else { panic!("{i} is there already") };
            cache.insert(ticket, Same(i), i);
        }
        let kept = (0..1000).filter(|&i| cache.get(&Same(i)).is_ok()).count();
        assert_eq!(kept, FARTHEST);
    }

    #[test]
    fn threads_never_see_what_was_evicted() {
        let (cache, begun, done, stop) = (Cache::new(), AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            for first in 0..3 {
                let (cache, begun, done, stop) = (&cache, &begun, &done, &stop);
                scope.spawn(move || {
                    let mut key = first;
                    while !stop.load(SeqCst) {
                        key = (key * 7 + 11) % 1000;
                        let least = done.load(SeqCst);
                        match cache.get(&key) {
                            Ok(found) => assert!(found >= least, "{found} was evicted before {least}"),
                            Err(ticket) => cache.insert(ticket, key, begun.load(SeqCst)),
                        }
                    }
                });
            }
            for round in 1..300 {
                begun.store(round, SeqCst);
                cache.clear();
                done.store(round, SeqCst);
                thread::yield_now();
            }
            stop.store(true, SeqCst);
        });
    }

    #[test]
    fn a_thread_being_torn_down_may_look_up() {
        struct LooksUp(Arc<Cache<usize, u64>>, Arc<AtomicU64>);
        impl Drop for LooksUp {
            fn drop(&mut self) {
                if let Ok(found) = self.0.get(&1) {
                    self.1.store(found, SeqCst);
                }
            }
        }
        thread_local! { static LAST: std::cell::RefCell<Option<LooksUp>> = const { std::cell::RefCell::new(None) }; }
        let (cache, seen) = (Arc::new(Cache::new()), Arc::new(AtomicU64::new(0)));
        cache.insert(ticket(&cache, 1), 1, 10);
        let last = LooksUp(Arc::clone(&cache), Arc::clone(&seen));
        let thread = thread::spawn(move || {
            // Made first, so destroyed last: after whatever the look-up keeps for the thread.
            LAST.set(Some(last));
            cache.get(&1).ok()
        });
        assert_eq!(thread.join().ok().flatten(), Some(10));
        assert_eq!(seen.load(SeqCst), 10);
    }

    /// `cargo test -p corprof --release -- --ignored --nocapture a_hit_costs`
    #[test]
    #[ignore = "a measurement"]
    fn a_hit_costs_under_100_ns() {
        const ROUNDS: usize = 200;
        let cache: Cache<usize, crate::names::Name> = Cache::new();
        let keys: Vec<usize> = (1..=20_000).map(|i| 0x7f12_3400_0000 + i * 0x48).collect();
        for &key in &keys {
            cache.insert(ticket(&cache, key), key, "Namespace.Type.Method(int32, string[])".into());
        }
        for (what, keys) in [("one of 64", &keys[..64]), ("one of 20000", &keys[..])] {
            let rounds = ROUNDS * 20_000 / keys.len();
            let start = std::time::Instant::now();
            for _ in 0..rounds {
                for key in keys {
                    assert!(std::hint::black_box(cache.get(key)).is_ok());
                }
            }
            let each = start.elapsed().as_nanos() as f64 / (rounds * keys.len()) as f64;
            println!("a hit, {what}: {each:.1} ns");
            assert!(cfg!(debug_assertions) || each < 100.0, "{each} ns");
        }
    }
}
