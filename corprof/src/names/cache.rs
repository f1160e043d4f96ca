//! What has been found out once, by identifier, until the runtime may use the identifier for something else.
//!
//! A look-up that finds takes no lock and waits for nobody, so a thread that was stopped inside one holds up nobody. That is
//! so for a thread's first look-up and for one made while the thread is torn down, too, where a map whose readers register
//! themselves under a mutex (papaya, for one) would take it, or panic. Entries are only ever added to a table, and stay where
//! they are: when it is full, a bigger one is put beside it. All go at once, and `arc-swap` keeps what is being read from
//! going away.
//!
//! Because an answer is worked out between look-up and insertion, an eviction may come first. So a look-up asks once for what
//! is known ([`Cache::now`]), before anything else, and adds what it finds out to that: after an eviction this is nobody's any
//! more, and goes when the look-up ends.

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::cell::UnsafeCell;
use std::hash::{Hash, Hasher};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{
    AtomicU8, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, Guard};

/// Everything that is forgotten at once.
pub(super) struct Cache<T>(ArcSwap<T>);

impl<T: Default> Cache<T> {
    pub(super) fn new() -> Self {
        Self(ArcSwap::default())
    }

    /// What is known, and where to put what is found out; for the length of one look-up.
    #[inline]
    pub(super) fn now(&self) -> Guard<Arc<T>> {
        self.0.load()
    }

    /// Forgets everything.
    pub(super) fn clear(&self) {
        self.0.store(Arc::default());
    }
}

/// The size of the first level of a table, as a power of two: what a small application needs.
const FEWEST_BITS: u32 = 9;
/// By how much a level is bigger than the one before, as a power of two.
const GROWTH_BITS: u32 = 2;
/// How many levels there may be: the last has more room than there are functions.
const LEVELS: usize = 9;
/// How far behind its place an entry may be; few are as far in a level that is at most half full.
const FARTHEST: usize = 16;

/// A hash table of identifiers. There is no memory for entries before the first.
pub(super) struct Table<K, V> {
    levels: [OnceLock<Level<K, V>>; LEVELS],
    /// The level that is filled now, the last that there is.
    newest: AtomicUsize,
}

/// Where an entry was looked for in vain, and may be put.
pub(super) struct Vacancy<'a, K, V>(Option<&'a Slot<K, V>>);

/// A hash table that only grows fuller.
struct Level<K, V> {
    bits: u32,
    /// So many more than the hash tells apart that an entry at the end has no need to begin again at the front.
    slots: Box<[Slot<K, V>]>,
}

/// A place for an entry, filled once, if ever. Nobody waits for it: one that another thread is filling just now is passed by.
#[repr(C)]
struct Slot<K, V> {
    state: AtomicU8,
    entry: UnsafeCell<MaybeUninit<(K, V)>>,
}

/// All bits are 0, so memory that the allocator gives as such is made of empty slots.
const EMPTY: u8 = 0;
const BEING_FILLED: u8 = 1;
const FULL: u8 = 2;

// SAFETY: the entry is written by the one thread that took the slot from `EMPTY`, before it makes it `FULL`; from then on, until
// the drop, it is only read, by those who have seen that. So it is sent to other threads, and shared between them.
unsafe impl<K: Send + Sync, V: Send + Sync> Sync for Slot<K, V> {}

impl<K, V> Slot<K, V> {
    #[inline]
    fn get(&self) -> Option<&(K, V)> {
        // SAFETY: whoever made it full had written the entry, which the acquiring load makes seen, and it stays as it is.
        (self.state.load(Acquire) == FULL).then(|| unsafe { (*self.entry.get()).assume_init_ref() })
    }

    fn is_empty(&self) -> bool {
        self.state.load(Relaxed) == EMPTY
    }

    /// Takes the slot for an entry, unless it is not empty any more.
    #[inline]
    fn claim(&self) -> Option<Claim<'_, K, V>> {
        let is_mine = self.is_empty() && self.state.compare_exchange(EMPTY, BEING_FILLED, Relaxed, Relaxed).is_ok();
        is_mine.then_some(Claim(self))
    }
}

/// An empty slot that only the owner of this may fill. One that is not filled stays as it is, and is passed by.
struct Claim<'a, K, V>(&'a Slot<K, V>);

impl<K, V> Claim<'_, K, V> {
    #[inline]
    fn fill(self, entry: (K, V)) {
        // SAFETY: only one thread has got the claim, and nobody reads the entry before it is said to be full.
        unsafe { (*self.0.entry.get()).write(entry) };
        self.0.state.store(FULL, Release);
    }
}

/// Where an entry may go in a level.
enum Place<'a, K, V> {
    Here(Claim<'a, K, V>),
    /// It is there already.
    Known,
    Full,
}

impl<K, V> Drop for Slot<K, V> {
    fn drop(&mut self) {
        if *self.state.get_mut() == FULL {
            // SAFETY: it is full, and nobody else has it any more.
            unsafe { self.entry.get_mut().assume_init_drop() };
        }
    }
}

impl<K: Copy + Eq + Hash, V> Table<K, V> {
    #[inline]
    fn hash(key: &K) -> u64 {
        let mut hash = Fibonacci(0);
        key.hash(&mut hash);
        hash.finish()
    }

    /// What is known about `key`, or where to put it.
    #[inline]
    pub(super) fn get(&self, key: &K) -> Result<&V, Vacancy<'_, K, V>> {
        let (hash, newest) = (Self::hash(key), self.newest.load(Relaxed));
        let Some(level) = self.levels.get(newest).and_then(OnceLock::get) else { return Err(Vacancy(None)) };
        let vacancy = match level.find(hash, key) {
            Ok(value) => return Ok(value),
            Err(vacancy) => vacancy,
        };
        // Most entries are in the last level, as it is bigger than all others together.
        let older = self.levels.get(..newest).unwrap_or_default();
        let known = older.iter().rev().find_map(|level| level.get()?.find(hash, key).ok());
        known.ok_or(vacancy)
    }

    /// Keeps `value` where a look-up has found that there is room, unless another thread was first.
    #[inline]
    pub(super) fn insert(&self, vacancy: Vacancy<'_, K, V>, key: K, value: V) {
        match vacancy.0.and_then(Slot::claim) {
            Some(claim) => claim.fill((key, value)),
            None => self.insert_elsewhere(key, value),
        }
    }

    #[cold]
    fn insert_elsewhere(&self, key: K, value: V) {
        let (hash, newest) = (Self::hash(&key), self.newest.load(Relaxed));
        let Some(level) = self.levels.get(newest).and_then(OnceLock::get) else {
            return self.insert_into(newest, (key, value));
        };
        match level.claim(hash, &key) {
            Place::Here(claim) => claim.fill((key, value)),
            Place::Known => {}
            // With keys that all want the same place, bigger levels are of no use: these are found out again each time.
            Place::Full if level.is_well_filled() => self.insert_into(newest + 1, (key, value)),
            Place::Full => {}
        }
    }

    /// Keeps the entry in a level that there need not be yet.
    fn insert_into(&self, at: usize, entry: (K, V)) {
        let Some(place) = self.levels.get(at) else { return };
        if place.get().is_none() {
            // Another thread may be first, and nobody waits for the memory that it asks for.
            let _ = place.set(Level::new(FEWEST_BITS + GROWTH_BITS * at as u32));
            self.newest.fetch_max(at, Relaxed);
        }
        // If this one is full as well, by what others have added meanwhile, the next who has something to add makes room.
        if let Some(Place::Here(claim)) = place.get().map(|level| level.claim(Self::hash(&entry.0), &entry.0)) {
            claim.fill(entry);
        }
    }
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self { levels: [const { OnceLock::new() }; LEVELS], newest: AtomicUsize::new(0) }
    }
}

impl<K: Copy + Eq + Hash, V> Level<K, V> {
    /// Most of the memory is not touched before there are entries in it.
    fn new(bits: u32) -> Self {
        let count = (1 << bits) + FARTHEST - 1;
        let Ok(layout) = Layout::array::<Slot<K, V>>(count) else { unreachable!("no level is half the address space") };
        // SAFETY: there are slots, and each has a size.
        let start = unsafe { alloc_zeroed(layout) }.cast::<Slot<K, V>>();
        if start.is_null() {
            handle_alloc_error(layout);
        }
        // SAFETY: the global allocator made it just now with the layout of this very slice. Zeros are `EMPTY` slots, and of the
        // entry of one nothing is asked.
        let slots = unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(start, count)) };
        Self { bits, slots }
    }

    /// Where an entry may be, in the order in which places are tried.
    #[inline]
    fn places(&self, hash: u64) -> &[Slot<K, V>] {
        let first = (hash >> (u64::BITS - self.bits)) as usize;
        self.slots.get(first..first + FARTHEST).unwrap_or_default()
    }

    #[inline]
    fn find(&self, hash: u64, key: &K) -> Result<&V, Vacancy<'_, K, V>> {
        for slot in self.places(hash) {
            match slot.get() {
                Some((of, value)) if of == key => return Ok(value),
                // Behind one that is being filled there may be others.
                None if slot.is_empty() => return Err(Vacancy(Some(slot))),
                _ => {}
            }
        }
        Err(Vacancy(None))
    }

    /// Finds a place for an entry.
    #[inline]
    fn claim(&self, hash: u64, key: &K) -> Place<'_, K, V> {
        for slot in self.places(hash) {
            if let Some(claim) = slot.claim() {
                return Place::Here(claim);
            }
            if slot.get().is_some_and(|(of, _)| of == key) {
                return Place::Known;
            }
        }
        Place::Full
    }

    /// Whether a bigger one is worth its memory, by a look at a part of it.
    #[cold]
    fn is_well_filled(&self) -> bool {
        let some = self.slots.get(..1 << FEWEST_BITS).unwrap_or_default();
        some.iter().filter(|slot| !slot.is_empty()).count() >= some.len() / 4
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

    type Numbers = Cache<Table<usize, u64>>;

    /// Under Miri, which makes each step a thousand.
    const fn fewer(many: usize, few: usize) -> usize {
        if cfg!(miri) { few } else { many }
    }

    fn known(cache: &Numbers, key: usize) -> Option<u64> {
        cache.now().get(&key).ok().copied()
    }

    fn insert<K: Copy + Eq + Hash, V>(table: &Table<K, V>, key: K, value: V) {
        if let Err(vacancy) = table.get(&key) {
            table.insert(vacancy, key, value);
        }
    }

    #[test]
    fn keeps_until_evicted() {
        let cache = Numbers::new();
        assert_eq!(known(&cache, 1), None);
        insert(&cache.now(), 1, 10);
        insert(&cache.now(), 2, 20);
        assert_eq!(known(&cache, 1), Some(10));
        // Whoever was first is kept, and the other's place is taken.
        let now = cache.now();
        let (Err(one), Err(other)) = (now.get(&3), now.get(&3)) else { panic!("there already") };
        now.insert(one, 3, 30);
        now.insert(other, 3, 31);
        assert_eq!(known(&cache, 3), Some(30));
        cache.clear();
        assert_eq!((known(&cache, 1), known(&cache, 2)), (None, None));
    }

    #[test]
    fn what_was_asked_for_before_an_eviction_is_not_kept() {
        let cache = Numbers::new();
        let early = cache.now();
        insert(&early, 1, 10);
        cache.clear();
        insert(&early, 2, 20);
        assert!(early.get(&1).is_ok_and(|one| *one == 10) && early.get(&2).is_ok_and(|two| *two == 20));
        drop(early);
        assert_eq!((known(&cache, 1), known(&cache, 2)), (None, None));
        insert(&cache.now(), 1, 11);
        assert_eq!(known(&cache, 1), Some(11));
    }

    #[test]
    fn grows_and_keeps_what_it_has() {
        let cache = Numbers::new();
        // As the runtime's identifiers are: aligned, close together.
        let keys = || (1..fewer(20_000, 1000)).map(|i| 0x7f12_3400_0000 + i * 0x48);
        // For which it must not matter how often the table grows before it is answered.
        let early = cache.now();
        for key in keys() {
            insert(&cache.now(), key, key as u64);
        }
        assert!(keys().all(|key| early.get(&key).is_ok_and(|found| *found == key as u64)));
        assert_eq!(early.newest.load(SeqCst), fewer(3, 1));
        let slots: usize = early.levels.iter().filter_map(OnceLock::get).map(|level| level.slots.len()).sum();
        assert!(slots < 4 * keys().len(), "{slots}");
        insert(&early, 999, 10);
        assert_eq!(known(&cache, 999), Some(10));
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
        let table = Table::default();
        (0..100).for_each(|i| insert(&table, Same(i), i));
        assert_eq!((0..100).filter(|&i| table.get(&Same(i)).is_ok_and(|found| *found == i)).count(), FARTHEST);
        assert_eq!(table.newest.load(SeqCst), 0, "bigger levels, for nothing");
    }

    #[test]
    fn entries_go_with_their_table_and_once() {
        let value = Arc::new(());
        let cache = Cache::<Table<usize, Arc<()>>>::new();
        let count = fewer(3000, 400);
        let reader = cache.now();
        thread::scope(|scope| {
            for first in 0..3 {
                let (cache, value) = (&cache, &value);
                // Each adds two thirds, so that they meet.
                let keys = (first * count / 3..first * count / 3 + 2 * count / 3).map(move |key| 8 * (key % count));
                scope.spawn(move || keys.for_each(|key| insert(&cache.now(), key, Arc::clone(value))));
            }
        });
        assert!((0..count).all(|key| reader.get(&(8 * key)).is_ok()));
        let all = Arc::strong_count(&value);
        assert!((count + 1..=2 * count + 1).contains(&all), "{all}");
        cache.clear();
        assert_eq!(Arc::strong_count(&value), all, "somebody still reads it");
        drop(reader);
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn threads_never_see_what_was_evicted() {
        let (cache, begun, done, stop) = (Numbers::new(), AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            for first in 0..3 {
                let (cache, begun, done, stop) = (&cache, &begun, &done, &stop);
                scope.spawn(move || {
                    let mut key = first;
                    while !stop.load(SeqCst) {
                        key = (key * 7 + 11) % 1000;
                        let least = done.load(SeqCst);
                        let now = cache.now();
                        match now.get(&key) {
                            Ok(&found) => assert!(found >= least, "{found} was evicted before {least}"),
                            Err(vacancy) => now.insert(vacancy, key, begun.load(SeqCst)),
                        }
                    }
                });
            }
            for round in 1..fewer(300, 10) as u64 {
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
        struct LooksUp(Arc<Numbers>, Arc<AtomicU64>);
        impl Drop for LooksUp {
            fn drop(&mut self) {
                if let Some(found) = known(&self.0, 1) {
                    self.1.store(found, SeqCst);
                }
            }
        }
        thread_local! { static LAST: std::cell::RefCell<Option<LooksUp>> = const { std::cell::RefCell::new(None) }; }
        let (cache, seen) = (Arc::new(Numbers::new()), Arc::new(AtomicU64::new(0)));
        insert(&cache.now(), 1, 10);
        let last = LooksUp(Arc::clone(&cache), Arc::clone(&seen));
        let thread = thread::spawn(move || {
            // Made first, so destroyed last: after whatever the look-up keeps for the thread.
            LAST.set(Some(last));
            known(&cache, 1)
        });
        assert_eq!(thread.join().ok().flatten(), Some(10));
        assert_eq!(seen.load(SeqCst), 10);
    }

    /// `cargo test -p corprof --release -- --ignored --nocapture a_hit_costs`
    #[test]
    #[ignore = "a measurement"]
    fn a_hit_costs_under_100_ns() {
        const ROUNDS: usize = 200;
        let cache = Cache::<Table<usize, crate::names::Name>>::new();
        let keys: Vec<usize> = (1..=20_000).map(|i| 0x7f12_3400_0000 + i * 0x48).collect();
        for &key in &keys {
            insert(&cache.now(), key, "Namespace.Type.Method(int32, string[])".into());
        }
        for (what, keys) in [("one of 64", &keys[..64]), ("one of 20000", &keys[..])] {
            let rounds = ROUNDS * 20_000 / keys.len();
            let start = std::time::Instant::now();
            for _ in 0..rounds {
                for key in keys {
                    assert!(std::hint::black_box(cache.now().get(key).ok().cloned()).is_some());
                }
            }
            let each = start.elapsed().as_nanos() as f64 / (rounds * keys.len()) as f64;
            println!("a hit, {what}: {each:.1} ns");
            assert!(cfg!(debug_assertions) || each < 100.0, "{each} ns");
        }
    }
}
