//! [`Table`]: the state of identifiers, readable from any thread.
//!
//! A look-up takes no lock and allocates nothing. Maps of libraries lock, or make the reading thread help to reclaim
//! memory. Nothing is reclaimed here: an entry lives as long as the table, and is reused when the runtime reuses the
//! address, so there are at most as many entries as addresses that the runtime has ever used.
//!
//! The gain: `cargo test -p corprof --release -- --ignored --nocapture a_pin_costs` compares it with a `HashMap` under
//! an `RwLock`: 11 ns instead of 22 to pin and let go, and 25 instead of 65 with two threads.

use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// The number of chains: entries are few (threads, functions of plug-ins), and a chain of a dozen is still fast.
const CHAINS: usize = 1 << 14;

/// The state of one identifier.
///
/// The state and the number of calls that use the identifier right now share one word, so that no use can begin between
/// the check of the state and the count.
pub(crate) struct Entry {
    id: usize,
    next: *mut Entry,
    word: AtomicU32,
    /// How many lives it has begun: an address is reused, and a record of the one before must not end the next.
    lives: AtomicU32,
}

/// The part of an [`Entry`]'s word above the number of uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum State {
    /// Shared code that may have been unloaded with a module: the runtime does not say over which types it is shared,
    /// and it does not lie among code that stays. Refused until its code is found again.
    Doubtful = 0,
    /// It dies only with the process.
    Immortal = 1 << STATE_SHIFT,
    /// It dies when something collectible is unloaded.
    Mortal = 2 << STATE_SHIFT,
    /// It is about to die: calls may use it, walks may not.
    Ending = 3 << STATE_SHIFT,
    /// It must not be passed to the runtime again.
    Dead = 4 << STATE_SHIFT,
}

const STATE_SHIFT: u32 = 28;
const USES: u32 = (1 << STATE_SHIFT) - 1;

impl State {
    const fn of(word: u32) -> Self {
        match word >> STATE_SHIFT {
            0 => Self::Doubtful,
            1 => Self::Immortal,
            2 => Self::Mortal,
            3 => Self::Ending,
            _ => Self::Dead,
        }
    }
}

impl Entry {
    pub(super) fn id(&self) -> usize {
        self.id
    }

    pub(super) fn state(&self) -> State {
        State::of(self.word.load(Ordering::Acquire))
    }

    pub(super) fn set(&self, state: State) {
        let next = |word: u32| Some(state as u32 | word & USES);
        let _ = self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, next); // `next` never refuses
    }

    /// Whether calls may use it.
    pub(super) fn is_alive(&self) -> bool {
        !matches!(self.state(), State::Dead | State::Doubtful)
    }

    /// The number of its current life.
    pub(super) fn life(&self) -> u32 {
        self.lives.load(Ordering::Acquire)
    }

    /// Begins another life in this state and returns its number. [`Records`](super::Records) lets in one thread at a
    /// time.
    pub(super) fn begin_life(&self, state: State) -> u32 {
        let life = self.lives.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
        self.set(state);
        life
    }

    /// Counts one more use, unless the current state is one of `refused`.
    pub(super) fn begin_use(&self, refused: &[State]) -> bool {
        if refused.contains(&State::of(self.word.fetch_add(1, Ordering::AcqRel))) {
            self.end_use();
            return false;
        }
        true
    }

    pub(super) fn end_use(&self) {
        let before = self.word.fetch_sub(1, Ordering::Release);
        debug_assert!(before & USES != 0, "a use that was not counted ends");
    }

    pub(super) fn is_used(&self) -> bool {
        self.word.load(Ordering::Acquire) & USES != 0
    }
}

/// Entries by identifier.
pub(super) struct Table {
    /// Empty before the first entry: most applications never unload anything.
    chains: OnceLock<Box<[AtomicPtr<Entry>]>>,
}

impl Table {
    /// Whether nothing was ever inserted.
    pub(super) fn is_empty(&self) -> bool {
        self.chains.get().is_none()
    }

    pub(super) const fn new() -> Self {
        Self { chains: OnceLock::new() }
    }

    fn chain(chains: &[AtomicPtr<Entry>], id: usize) -> Option<&AtomicPtr<Entry>> {
        // The lowest bits of addresses are all alike; a multiplication by an odd number spreads the others over the
        // upper half.
        let spread = (id as u64 >> 3).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        chains.get(spread as usize % CHAINS)
    }

    fn find(mut at: *mut Entry, id: usize) -> Option<*mut Entry> {
        while !at.is_null() {
            // SAFETY: a chain holds entries that `insert` completed before it linked them in, and none is freed before
            // the table.
            let entry = unsafe { &*at };
            if entry.id == id {
                return Some(at);
            }
            at = entry.next;
        }
        None
    }

    pub(super) fn get(&self, id: usize) -> Option<&Entry> {
        let head = Self::chain(self.chains.get()?, id)?.load(Ordering::Acquire);
        // SAFETY: entries live as long as the table.
        Self::find(head, id).map(|entry| unsafe { &*entry })
    }

    /// The entry of `id`; a new entry begins in this state.
    pub(super) fn insert(&self, id: usize, state: State) -> &Entry {
        let chains = self.chains.get_or_init(|| (0..CHAINS).map(|_| AtomicPtr::new(ptr::null_mut())).collect());
        let Some(chain) = Self::chain(chains, id) else { unreachable!("the remainder is a chain's index") };
        let mut head = chain.load(Ordering::Acquire);
        let mut new: *mut Entry = ptr::null_mut();
        loop {
            if let Some(entry) = Self::find(head, id) {
                if !new.is_null() {
                    // SAFETY: made below by `Box::into_raw`, and never linked in, as another thread was first.
                    drop(unsafe { Box::from_raw(new) });
                }
                // SAFETY: entries live as long as the table.
                return unsafe { &*entry };
            }
            if new.is_null() {
                let entry = Entry { id, next: head, word: AtomicU32::new(state as u32), lives: AtomicU32::new(0) };
                new = Box::into_raw(Box::new(entry));
            } else {
                // SAFETY: not linked in yet, so no other thread has it.
                unsafe { (*new).next = head };
            }
            match chain.compare_exchange(head, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    // SAFETY: entries live as long as the table.
                    return unsafe { &*new };
                }
                Err(now) => head = now,
            }
        }
    }

    /// All entries that exist from the beginning to the end of the iteration.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        let heads = self.chains.get().into_iter().flatten().map(|chain| chain.load(Ordering::Acquire));
        heads.flat_map(|head| {
            // SAFETY: as in `find`.
            std::iter::successors(unsafe { head.as_ref() }, |entry| unsafe { entry.next.as_ref() })
        })
    }
}

/// A filter over memory pages: a single load tells that an address is not among them. It makes `function_info` 1.06 of
/// C instead of 1.13 (`cargo xtask bench --only calls`).
pub(super) struct Pages([AtomicU64; PAGE_WORDS]);

/// Pages that are 4 MiB apart share one bit.
const PAGE_WORDS: usize = 16;
const PAGE_SHIFT: u32 = 12;

impl Pages {
    pub(super) const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; PAGE_WORDS])
    }

    pub(super) fn add(&self, id: usize) {
        let (word, bit) = self.place(id);
        word.fetch_or(bit, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn may_have(&self, id: usize) -> bool {
        let (word, bit) = self.place(id);
        word.load(Ordering::Relaxed) & bit != 0
    }

    #[inline]
    fn place(&self, id: usize) -> (&AtomicU64, u64) {
        let page = id >> PAGE_SHIFT;
        (&self.0[page / u64::BITS as usize % PAGE_WORDS], 1 << (page % u64::BITS as usize))
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        for chain in self.chains.get_mut().into_iter().flatten() {
            let mut at = *chain.get_mut();
            while !at.is_null() {
                // SAFETY: made by `Box::into_raw` in `insert`; the table is being dropped, so no reference to its
                // entries exists any more.
                let entry = unsafe { Box::from_raw(at) };
                at = entry.next;
            }
        }
    }
}

// SAFETY: any thread may read and write the fields of entries, and their pointers only lead to entries that live as
// long as the table.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_inserted_is_found_whichever_chain_it_is_in() {
        let table = Table::new();
        assert!(table.get(8).is_none());
        for id in 1..40_000 {
            table.insert(id * 8, State::Mortal);
        }
        assert!((1..40_000).all(|id| table.get(id * 8).is_some_and(|entry| entry.id == id * 8)));
        assert!(table.get(4).is_none());
        assert_eq!(table.iter().count(), 39_999);
        table.insert(8, State::Dead);
        assert_eq!(table.get(8).map(Entry::state), Some(State::Mortal), "an entry is made once");
    }

    #[test]
    fn a_page_has_what_was_added_and_few_others() {
        let pages = Pages::new();
        assert!(!pages.may_have(0x7f12_3456_7890));
        pages.add(0x7f12_3456_7890);
        assert!(pages.may_have(0x7f12_3456_7890) && pages.may_have(0x7f12_3456_7000));
        assert!((1..1024).all(|page| !pages.may_have(0x7f12_3456_7890 + (page << PAGE_SHIFT))));
        (0..2000).for_each(|page| pages.add(page << PAGE_SHIFT));
        assert!((0..2000).all(|page| pages.may_have(page << PAGE_SHIFT)));
    }

    #[test]
    fn threads_that_insert_at_once_share_the_entries() {
        let table = Table::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (1..5_000).for_each(|id| assert!(table.insert(id * 16, State::Mortal).begin_use(&[]))));
            }
        });
        assert_eq!(table.iter().count(), 4_999);
        assert!(table.iter().all(|entry| entry.word.load(Ordering::Relaxed) & USES == 4));
    }

    #[test]
    #[ignore = "a measurement"]
    fn a_pin_costs_less_than_under_a_lock() {
        use std::collections::HashMap;
        use std::sync::RwLock;
        use std::time::Instant;

        use rustc_hash::FxBuildHasher;

        struct Shared<'a>(&'a Entry);
        // SAFETY: as for `Table`.
        unsafe impl Send for Shared<'_> {}
        // SAFETY: as for `Table`.
        unsafe impl Sync for Shared<'_> {}

        const USES: usize = 400_000;
        /// The least of some runs: the system interrupts others. Nanoseconds a use.
        fn least(threads: usize, ids: &[usize], pin: impl Fn(usize) + Sync) -> f64 {
            let run = || {
                let start = Instant::now();
                std::thread::scope(|scope| {
                    for _ in 0..threads {
                        scope.spawn(|| (0..USES / ids.len()).for_each(|_| ids.iter().for_each(|&id| pin(id))));
                    }
                });
                start.elapsed().as_nanos() as f64 / USES as f64
            };
            (0..30).map(|_| run()).fold(f64::INFINITY, f64::min)
        }
        let use_once = |entry: &Entry| {
            assert!(entry.begin_use(&[State::Dead]));
            entry.end_use();
        };
        let table = Table::new();
        let map = RwLock::new(HashMap::<usize, Shared<'_>, FxBuildHasher>::default());
        let ids: Vec<usize> = (1..=4000).map(|at| 0x7f12_3400_0000 + at * 0x48).collect();
        ids.iter().for_each(|&id| _ = map.write().unwrap().insert(id, Shared(table.insert(id, State::Mortal))));
        for threads in [1, 2] {
            let own = least(threads, &ids, |id| table.get(id).into_iter().for_each(use_once));
            let locked =
                least(threads, &ids, |id| map.read().unwrap().get(&id).into_iter().for_each(|it| use_once(it.0)));
            println!("{threads} threads: {own:.1} ns, under a lock {locked:.1} ns");
        }
    }

    #[test]
    fn a_refused_use_is_not_counted() {
        let table = Table::new();
        let entry = table.insert(8, State::Mortal);
        assert!(entry.begin_use(&[State::Dead]));
        entry.set(State::Dead);
        assert!(entry.is_used(), "the use that began before goes on");
        assert!(!entry.begin_use(&[State::Dead]));
        entry.end_use();
        assert!(!entry.is_used());
        assert_eq!(entry.state(), State::Dead);
        assert_eq!((entry.life(), entry.is_alive()), (0, false));
        assert_eq!(entry.begin_life(State::Mortal), 1);
        assert_eq!((entry.life(), entry.is_alive()), (1, true));
    }
}
