//! Results by identifier, kept until the runtime may reuse the identifier.
//!
//! A hit takes no lock and waits for no thread, so a thread that is suspended inside one blocks no other. This also holds for a
//! thread's first look-up and for one during the thread's teardown; a map whose readers register themselves under a mutex
//! (papaya, for one) would take the mutex, or panic. One thread at a time inserts, and the others do not wait for it: they work
//! out their answer again later. Everything is evicted at once, and `arc-swap` keeps alive a table that is being read.
//!
//! An answer is worked out between look-up and insertion, so an eviction may come in between. Each look-up therefore takes the
//! current table once ([`Cache::now`]), before anything else, and inserts into that one: after an eviction no new look-up sees
//! it, and it is freed when the last look-up ends.

use std::ptr;
use std::sync::atomic::{
    AtomicPtr, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, TryLockError};

use arc_swap::{ArcSwap, Guard};

use crate::id::{AssemblyId, ClassId, FunctionId, ModuleId};

/// A table that is evicted as a whole.
pub(crate) struct Cache<T>(ArcSwap<T>);

impl<T: Default> Cache<T> {
    pub(crate) fn new() -> Self {
        Self(ArcSwap::default())
    }

    /// The current table, to read from and insert into; for the length of one look-up.
    #[inline]
    pub(crate) fn now(&self) -> Guard<Arc<T>> {
        self.0.load()
    }

    /// Evicts everything.
    pub(crate) fn clear(&self) {
        self.0.store(Arc::default());
    }
}

/// An identifier that serves as a key.
pub(crate) trait Key: Copy {
    /// Its kind: the runtime may give things of two kinds the same number.
    const KIND: usize;

    /// The number, which is not 0.
    fn number(self) -> usize;
}

/// How many kinds of identifiers there are.
const KINDS: usize = 4;

macro_rules! keys {
    ($($id:ident $kind:literal),*) => { $(
        impl Key for $id {
            const KIND: usize = $kind;

            #[inline]
            fn number(self) -> usize {
                self.as_raw()
            }
        }
    )* };
}

keys!(FunctionId 0, ClassId 1, ModuleId 2, AssemblyId 3);

/// Values by identifier. It only grows.
pub(crate) struct Table<V> {
    indexes: [Index<V>; KINDS],
    /// The values themselves. None is ever moved: a full chunk is followed by another.
    chunks: Mutex<Vec<Vec<V>>>,
}

/// The capacity of the first chunk, and the limit for later ones.
const FEWEST_VALUES: usize = 64;
const MOST_VALUES: usize = 1024;

/// The right to insert into a table, which one thread has at a time.
pub(crate) struct Writer<'t, V> {
    indexes: &'t [Index<V>; KINDS],
    chunks: MutexGuard<'t, Vec<Vec<V>>>,
}

impl<V> Default for Table<V> {
    fn default() -> Self {
        Self { indexes: [const { Index::new() }; KINDS], chunks: Mutex::default() }
    }
}

// The owner of a table owns its values: it may read them by reference, insert and drop.
impl<V: Send + Sync> Table<V> {
    /// The value of `key`.
    #[inline]
    pub(crate) fn get<K: Key>(&self, key: K) -> Option<&V> {
        let value = self.indexes.get(K::KIND)?.find(key.number())?;
        // SAFETY: an index only has pointers to values that the writer of this table pushed to a chunk before. They stay there,
        // and are only read, until the table is dropped.
        Some(unsafe { &*value })
    }

    /// Lets the caller insert, unless another thread is inserting.
    #[inline]
    pub(crate) fn writer(&self) -> Option<Writer<'_, V>> {
        let chunks = match self.chunks.try_lock() {
            Ok(chunks) => chunks,
            // No user code runs under this lock, so nothing is left half-done.
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(Writer { indexes: &self.indexes, chunks })
    }
}

impl<'t, V: Send + Sync> Writer<'t, V> {
    /// Inserts `value`, unless another thread was first.
    #[inline]
    pub(crate) fn insert(&mut self, key: impl Key, value: V) {
        if let Some(place) = self.place(key)
            && let Some(value) = self.keep(value)
        {
            place.fill(value);
        }
    }

    /// Inserts `value` once, under both keys.
    #[inline]
    pub(crate) fn insert_for_both(&mut self, one: impl Key, other: impl Key, value: V) {
        let places = [self.place(one), self.place(other)];
        if places.iter().any(Option::is_some)
            && let Some(value) = self.keep(value)
        {
            places.into_iter().flatten().for_each(|place| place.fill(value));
        }
    }

    #[inline]
    fn place<K: Key>(&self, key: K) -> Option<Place<'t, V>> {
        self.indexes.get(K::KIND)?.place(key.number())
    }

    /// Moves the value to its final place.
    #[inline]
    fn keep(&mut self, value: V) -> Option<*const V> {
        let has_room = self.chunks.last().is_some_and(|chunk| chunk.len() < chunk.capacity());
        if !has_room {
            let room = self.chunks.last().map_or(FEWEST_VALUES, |last| MOST_VALUES.min(2 * last.len()));
            self.chunks.push(Vec::with_capacity(room));
        }
        let chunk = self.chunks.last_mut()?;
        let at = chunk.len();
        // There is room, so nothing is moved; and no reference is made to the values that other threads are reading.
        chunk.push(value);
        Some(chunk.as_ptr().wrapping_add(at))
    }
}

/// The addresses of the values of one kind of identifier. It takes no memory before the first.
struct Index<V> {
    /// Each level is twice as big as the one before and contains all of it. Old levels stay, as a thread may still be reading
    /// them.
    levels: [OnceLock<Level<V>>; LEVELS],
    /// The index of the newest level.
    newest: AtomicUsize,
}

/// The size of the first level, as a power of two: enough for a small application.
const FEWEST_BITS: u32 = 10;
/// The limit on levels: the last has more room than any application has functions.
const LEVELS: usize = 20;

/// A hash table that only grows fuller, to a quarter at most, so that each search ends at an empty slot, and mostly at once.
/// (Filled to a half, a miss costs 5 % more, from wrong branch predictions.)
struct Level<V> {
    bits: u32,
    slots: Box<[Slot<V>]>,
    /// How many slots are filled.
    count: AtomicUsize,
}

struct Slot<V> {
    /// 0 while it is empty.
    key: AtomicUsize,
    /// Written before the key, once.
    value: AtomicPtr<V>,
}

impl<V> Index<V> {
    const fn new() -> Self {
        Self { levels: [const { OnceLock::new() }; LEVELS], newest: AtomicUsize::new(0) }
    }

    #[inline]
    fn find(&self, key: usize) -> Option<*const V> {
        let (slot, found) = self.levels.get(self.newest.load(Acquire))?.get()?.slot(key)?;
        (found == key).then(|| slot.value.load(Relaxed).cast_const())
    }

    /// The slot in which the writer may put `key`, if the key is not there yet.
    #[inline]
    fn place(&self, key: usize) -> Option<Place<'_, V>> {
        let newest = self.newest.load(Relaxed);
        let level = match self.levels.get(newest)?.get() {
            Some(level) if !level.is_full() => level,
            _ => self.grow(newest)?,
        };
        let (slot, found) = level.slot(key)?;
        (found != key).then_some(Place { level, slot, key })
    }

    /// The first level, or the next one after `newest`.
    #[cold]
    fn grow(&self, newest: usize) -> Option<&Level<V>> {
        let full = self.levels.get(newest)?.get();
        let at = if full.is_some() { newest + 1 } else { newest };
        let level = self.levels.get(at)?.get_or_init(|| {
            let level = Level::new(FEWEST_BITS + at as u32);
            for slot in full.iter().flat_map(|full| &full.slots) {
                let (key, value) = (slot.key.load(Relaxed), slot.value.load(Relaxed));
                if key != 0
                    && let Some((slot, _)) = level.slot(key)
                {
                    Place { level: &level, slot, key }.fill(value);
                }
            }
            level
        });
        self.newest.store(at, Release);
        Some(level)
    }
}

impl<V> Level<V> {
    fn new(bits: u32) -> Self {
        let empty = || Slot { key: AtomicUsize::new(0), value: AtomicPtr::new(ptr::null_mut()) };
        Self { bits, slots: (0..1_usize << bits).map(|_| empty()).collect(), count: AtomicUsize::new(0) }
    }

    /// The slot of `key`, or the slot where it would go. The number says which: `key`, or 0.
    #[inline]
    fn slot(&self, key: usize) -> Option<(&Slot<V>, usize)> {
        // Multiplicative hashing: the upper bits of the product depend on all bits of the number. Addresses differ mostly in
        // their middle bits; the fold moves the uppermost bits down to where the product uses them.
        let key_bits = key as u64;
        let hash = (key_bits ^ (key_bits >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut at = (hash >> (u64::BITS - self.bits)) as usize;
        loop {
            let slot = self.slots.get(at)?;
            let found = slot.key.load(Acquire);
            if found == key || found == 0 {
                return Some((slot, found));
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    fn is_full(&self) -> bool {
        self.count.load(Relaxed) >= self.slots.len() / 4
    }
}

/// An empty slot that the writer is about to fill.
struct Place<'t, V> {
    level: &'t Level<V>,
    slot: &'t Slot<V>,
    key: usize,
}

impl<V> Place<'_, V> {
    #[inline]
    fn fill(self, value: *const V) {
        self.slot.value.store(value.cast_mut(), Relaxed);
        self.slot.key.store(self.key, Release);
        self.level.count.store(self.level.count.load(Relaxed) + 1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
    use std::thread;

    use super::*;

    type Numbers = Cache<Table<u64>>;

    impl Key for usize {
        const KIND: usize = 0;

        fn number(self) -> usize {
            self
        }
    }

    /// A smaller number under Miri, which makes each step a thousand times slower.
    const fn fewer(many: usize, few: usize) -> usize {
        if cfg!(miri) { few } else { many }
    }

    fn known(cache: &Numbers, key: usize) -> Option<u64> {
        cache.now().get(key).copied()
    }

    /// Returns `false` if another thread is inserting.
    fn insert<V: Send + Sync>(table: &Table<V>, key: impl Key, value: V) -> bool {
        table.writer().map(|mut writer| writer.insert(key, value)).is_some()
    }

    #[test]
    fn keeps_until_evicted() {
        let cache = Numbers::new();
        assert_eq!(known(&cache, 1), None);
        insert(&cache.now(), 1, 10);
        insert(&cache.now(), 2, 20);
        assert_eq!(known(&cache, 1), Some(10));
        // The first value is kept; and while one thread inserts, no other does.
        let now = cache.now();
        let mut one = now.writer().unwrap();
        assert!(!insert(&now, 3, 31));
        one.insert(3, 30);
        drop(one);
        assert!(insert(&now, 3, 31));
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
        assert_eq!((early.get(1), early.get(2)), (Some(&10), Some(&20)));
        drop(early);
        assert_eq!((known(&cache, 1), known(&cache, 2)), (None, None));
        insert(&cache.now(), 1, 11);
        assert_eq!(known(&cache, 1), Some(11));
    }

    #[test]
    fn grows_and_keeps_what_it_has() {
        let cache = Numbers::new();
        // Like the runtime's identifiers: aligned, close together.
        let keys = || (1..fewer(20_000, 1000)).map(|i| 0x7f12_3400_0000 + i * 0x48);
        // A look-up that began before the table grew: growth must not change its answer.
        let early = cache.now();
        for (key, at) in keys().zip(0_u64..) {
            insert(&cache.now(), key, at);
        }
        assert!(keys().zip(0_u64..).all(|(key, at)| early.get(key) == Some(&at)));
        let [index, others @ ..] = &early.indexes;
        assert_eq!(index.newest.load(SeqCst), fewer(7, 2));
        assert!(others.iter().all(|other| other.levels.iter().all(|level| level.get().is_none())));
        let slots: usize = index.levels.iter().filter_map(OnceLock::get).map(|level| level.slots.len()).sum();
        assert!(slots <= 16 * keys().len(), "{slots}");
        insert(&early, 999, 10);
        assert_eq!(known(&cache, 999), Some(10));
    }

    #[test]
    fn kinds_are_kept_apart() {
        let table = Table::default();
        let (function, class) = (FunctionId::from_raw(8).unwrap(), ClassId::from_raw(8).unwrap());
        insert(&table, function, "function");
        assert_eq!((table.get(function), table.get(class)), (Some(&"function"), None));
        table.writer().unwrap().insert_for_both(function, class, "both");
        assert_eq!((table.get(function), table.get(class)), (Some(&"function"), Some(&"both")));
    }

    #[test]
    fn values_go_with_their_table_and_once() {
        let value = Arc::new(());
        let cache = Cache::<Table<Arc<()>>>::new();
        let count = fewer(3000, 400);
        let reader = cache.now();
        thread::scope(|scope| {
            for first in 0..3 {
                let (cache, value) = (&cache, &value);
                // Each thread inserts two thirds, so that they overlap.
                let keys = (first * count / 3..first * count / 3 + 2 * count / 3).map(move |key| 8 + 8 * (key % count));
                scope.spawn(move || {
                    for key in keys {
                        while !insert(&cache.now(), key, Arc::clone(value)) {
                            thread::yield_now();
                        }
                    }
                });
            }
        });
        assert!((0..count).all(|key| reader.get(8 + 8 * key).is_some()));
        let all = Arc::strong_count(&value);
        assert_eq!(all, count + 1);
        cache.clear();
        assert_eq!(Arc::strong_count(&value), all, "a look-up still reads it");
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
                    let mut key: usize = first;
                    while !stop.load(SeqCst) {
                        key = 1 + (key * 7 + 11) % 1000;
                        let least = done.load(SeqCst);
                        let now = cache.now();
                        match now.get(key) {
                            Some(&found) => assert!(found >= least, "{found} was evicted before {least}"),
                            None => _ = insert(&now, key, begun.load(SeqCst)),
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
            // Made first, so destroyed last: after all thread-locals that the look-up uses.
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
        let cache = Cache::<Table<crate::names::Name>>::new();
        let keys: Vec<usize> = (1..=20_000).map(|i| 0x7f12_3400_0000 + i * 0x48).collect();
        for &key in &keys {
            insert(&cache.now(), key, "Namespace.Type.Method(int32, string[])".into());
        }
        for (what, keys) in [("one of 64", &keys[..64]), ("one of 20000", &keys[..])] {
            let rounds = ROUNDS * 20_000 / keys.len();
            let start = std::time::Instant::now();
            for _ in 0..rounds {
                for key in keys {
                    assert!(std::hint::black_box(cache.now().get(*key).cloned()).is_some());
                }
            }
            let each = start.elapsed().as_nanos() as f64 / (rounds * keys.len()) as f64;
            println!("a hit, {what}: {each:.1} ns");
            assert!(cfg!(debug_assertions) || each < 100.0, "{each} ns");
        }
    }
}
