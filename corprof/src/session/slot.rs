//! What one thread writes of its whereabouts: whether it is inside of callbacks and hooks, and what it keeps for hooks.
//!
//! The [gate](super::gate) lets threads in; here they are counted. Slots belong to threads, not to gates.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

#[cfg(doc)]
use super::gate::Gate;
use crate::system;

/// How many threads get a slot of their own; those beyond share one, with locked instructions.
const SLOTS: usize = 2048;
/// How far from its place a thread looks for a free slot.
const PROBES: usize = 16;

/// In a slot's word: one callback that its owner is inside of. They nest when a call into the runtime makes another.
const CALLBACK: usize = 1 << 48;
/// The rest of the word: whose it is, and what is at hand.
const IDLE: usize = CALLBACK - 1;
/// The rest of the word while a hook that came by [`Gate::enter_first`] is under way.
const HOOK: usize = 1;
/// Keys of threads are addresses of something that begins with a pointer, so multiples of this: there is room for a [`Tag`]
/// beside them.
const ALIGNMENT: usize = 8;

/// What one thread writes of its whereabouts, alone on its cache line.
#[repr(align(64))]
pub(super) struct Slot {
    /// The owner's [`system::thread_key`], 0 while nobody's. Never given back: a thread that ends leaves its key to the next thread
    /// that gets the same one, and the count is 0 by then.
    owner: AtomicUsize,
    /// Where the owner is: how many callbacks it is inside of, and below that [`HOOK`] or, outside of hooks, its key and the
    /// tag of the hooks that `local` is kept for. One word, so that a hook has one thing to look at.
    word: AtomicUsize,
    /// What the owner keeps for hooks (`hooks/threads.rs`).
    local: AtomicPtr<()>,
    /// The calls that the owner is making to the runtime, where they are counted (`calls.rs`).
    calls: AtomicUsize,
}

impl Slot {
    const fn free() -> Self {
        let local = AtomicPtr::new(std::ptr::null_mut());
        Self { owner: AtomicUsize::new(0), word: AtomicUsize::new(0), local, calls: AtomicUsize::new(0) }
    }
}

static TABLE: [Slot; SLOTS] = [const { Slot::free() }; SLOTS];
/// The count of all threads that found no slot.
static CROWD: AtomicUsize = AtomicUsize::new(0);
/// The calls of all threads that found no slot.
static CALLS_OF_CROWD: AtomicUsize = AtomicUsize::new(0);

/// The slots of all threads.
pub(super) fn all() -> std::slice::Iter<'static, Slot> {
    TABLE.iter()
}

/// Whether a thread without a slot is inside of a callback.
pub(super) fn is_crowd_inside() -> bool {
    CROWD.load(Ordering::Acquire) != 0
}

/// Where the calling thread counts its calls to the runtime.
pub(super) fn own_calls() -> &'static AtomicUsize {
    Slot::mine().map_or(&CALLS_OF_CROWD, |slot| &slot.calls)
}

/// Where all threads count theirs.
pub(super) fn all_calls() -> impl Iterator<Item = &'static AtomicUsize> {
    all().map(|slot| &slot.calls).chain([&CALLS_OF_CROWD])
}

/// A callback under way: the gate cannot finish closing while one lives.
pub(crate) struct Inside {
    slot: Option<&'static Slot>,
}

impl Slot {
    #[inline]
    fn count_in(&self) {
        // Only this thread writes the word, so it needs no locked instruction.
        self.word.store(self.word.load(Ordering::Relaxed) + CALLBACK, Ordering::Relaxed);
    }

    /// The calling thread's slot: its own from before, or a free one.
    fn mine() -> Option<&'static Slot> {
        let key = system::thread_key();
        Self::at_home(key).or_else(|| Self::find(key))
    }

    /// The slot that is nearly always the right one.
    #[inline]
    fn at_home(key: usize) -> Option<&'static Slot> {
        let slot = &TABLE[Self::home(key)];
        (slot.owner.load(Ordering::Relaxed) == key).then_some(slot)
    }

    /// Where the owner of a key looks first. Taking in more of the key's bits would send fewer threads to the same place, but
    /// each instruction here counts in each hook.
    #[inline]
    const fn home(key: usize) -> usize {
        key / system::THREAD_KEY_DISTANCE % SLOTS
    }

    /// Whether a hook that came by [`enter_first`](Gate::enter_first) is around what asks. Only the owner may ask.
    fn is_in_hook(&self) -> bool {
        self.word.load(Ordering::Relaxed) & IDLE == HOOK
    }

    /// Whether what the owner keeps is under this tag. Only the owner may ask.
    fn has(&self, tag: Tag) -> bool {
        self.word.load(Ordering::Relaxed) & IDLE == self.owner.load(Ordering::Relaxed) | tag.0
    }

    /// Whether this thread's [key](system::thread_key) is its owner's.
    pub(super) fn is_owned_by(&self, key: usize) -> bool {
        self.owner.load(Ordering::Relaxed) == key
    }

    /// Whether the owner is inside of a callback or hook.
    pub(super) fn is_busy(&self) -> bool {
        let word = self.word.load(Ordering::Acquire);
        word & !IDLE != 0 || word == HOOK
    }

    #[cold]
    fn find(key: usize) -> Option<&'static Slot> {
        if key & !IDLE != 0 || !key.is_multiple_of(ALIGNMENT) {
            return None;
        }
        let home = Self::home(key);
        for step in 0..PROBES {
            let slot = &TABLE[(home + step) % SLOTS];
            // Looking first keeps a neighbour's cache line his.
            let owner = slot.owner.load(Ordering::Relaxed);
            if owner == key {
                return Some(slot);
            }
            if owner == 0 && slot.owner.compare_exchange(0, key, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                slot.word.store(key, Ordering::Relaxed);
                return Some(slot);
            }
        }
        None
    }
}

impl Inside {
    /// The calling thread is inside from now on, if its slot is where it nearly always is.
    #[inline]
    pub(super) fn count_in_at_home() -> Option<Self> {
        let slot = Slot::at_home(system::thread_key())?;
        slot.count_in();
        Some(Self { slot: Some(slot) })
    }

    /// The calling thread is inside from now on.
    pub(super) fn count_in() -> Self {
        let slot = Slot::mine();
        match slot {
            Some(slot) => slot.count_in(),
            None => {
                CROWD.fetch_add(1, Ordering::SeqCst);
            }
        }
        Self { slot }
    }
}

/// The only callback or hook of its thread that is under way. It has to [leave](Self::leave).
#[must_use]
pub(crate) struct First {
    slot: &'static Slot,
    /// The word before.
    idle: usize,
}

impl First {
    /// It begins, if nothing else is under way on the calling thread and something is kept there under this tag.
    ///
    /// It writes the word and does not change it, so that the processor need not wait for what it last wrote there: hooks follow
    /// each other more closely than that takes.
    #[inline]
    pub(super) fn begin(tag: Tag) -> Option<Self> {
        let key = system::thread_key();
        let slot = &TABLE[Slot::home(key)];
        let idle = key | tag.0;
        if slot.word.load(Ordering::Relaxed) != idle {
            return None;
        }
        slot.word.store(HOOK, Ordering::Relaxed);
        Some(Self { slot, idle })
    }

    /// The calling thread's, found again; `tag` is told what the thread keeps, for the tag that it came with. None if no hook is
    /// under way that came by [`enter_first`](Gate::enter_first).
    pub(crate) fn again(tag: impl FnOnce(NonNull<()>) -> Tag) -> Option<Self> {
        let key = system::thread_key();
        let slot = Slot::at_home(key).filter(|slot| slot.is_in_hook())?;
        let tag = tag(NonNull::new(slot.local.load(Ordering::Relaxed))?);
        Some(Self { slot, idle: key | tag.0 })
    }

    /// What the calling thread keeps for the hooks of the tag that it came with.
    #[inline]
    pub(crate) fn local(&self) -> NonNull<()> {
        // SAFETY: the word had the tag, which `set_local` writes after something that is not null.
        unsafe { NonNull::new_unchecked(self.slot.local.load(Ordering::Relaxed)) }
    }

    /// Ends it.
    #[inline]
    pub(crate) fn leave(self) {
        // What has come and gone in between has left it as it was.
        self.slot.word.store(self.idle, Ordering::Release);
    }
}

/// Tells hooks apart: those of the first few profilers of a process, for which there is room beside a thread's key. Hooks of
/// any others never come by [`enter_first`](Gate::enter_first).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tag(usize);

impl Tag {
    /// One that nothing can be kept under.
    pub(crate) const NONE: Self = Self(HOOK);

    /// One that nobody else has, or none.
    pub(crate) fn new() -> Self {
        static LAST: AtomicUsize = AtomicUsize::new(HOOK);
        let next = |last| (last + 1 < ALIGNMENT).then_some(last + 1);
        LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).map_or(Self::NONE, |last| Self(last + 1))
    }
}

impl Inside {
    /// Whether a hook that came by [`enter_first`](Gate::enter_first) is around this.
    pub(crate) fn is_in_hook(&self) -> bool {
        self.slot.is_some_and(Slot::is_in_hook)
    }

    /// What the calling thread last kept in its slot, if it was under this tag.
    pub(crate) fn local(&self, tag: Tag) -> Option<NonNull<()>> {
        let slot = self.slot.filter(|slot| slot.has(tag))?;
        NonNull::new(slot.local.load(Ordering::Relaxed))
    }

    /// Keeps something in the calling thread's slot, if it has one and no hook is using it; `None` ends what was kept under
    /// this tag.
    pub(crate) fn set_local(&self, tag: Tag, local: Option<NonNull<()>>) {
        let Some(slot) = self.slot.filter(|_| tag != Tag::NONE && !self.is_in_hook()) else { return };
        let tag = match local {
            Some(local) => {
                slot.local.store(local.as_ptr(), Ordering::Relaxed);
                tag.0
            }
            None if slot.has(tag) => 0,
            None => return,
        };
        let callbacks = slot.word.load(Ordering::Relaxed) & !IDLE;
        slot.word.store(callbacks | slot.owner.load(Ordering::Relaxed) | tag, Ordering::Relaxed);
    }
}

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        match self.slot {
            Some(slot) => slot.word.store(slot.word.load(Ordering::Relaxed).wrapping_sub(CALLBACK), Ordering::Release),
            None => {
                CROWD.fetch_sub(1, Ordering::Release);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn homes_of_threads_lie_apart_whatever_their_stacks() {
        let distances: &[usize] = match system::THREAD_KEY_DISTANCE {
            // glibc's default with and without a guard page and as large pages align it, and .NET's 1.5 MiB.
            0x8_0000 => &[0x80_0000, 0x80_1000, 0xa0_0000, 0x18_0000, 0x18_1000],
            least => &[least, 2 * least, 5 * least],
        };
        for &distance in distances {
            let home = |at: usize| Slot::home(0x7f12_3456_7000 + at * distance + 0x640);
            let homes: std::collections::HashSet<_> = (1..=128).map(home).collect();
            assert_eq!(homes.len(), 128, "{distance:#x}: the first threads are all at home");
            let mut taken = [false; SLOTS];
            let homeless = (1..=SLOTS / 4).filter(|&at| {
                let home = home(at);
                let free = (0..PROBES).map(|step| (home + step) % SLOTS).find(|&slot| !taken[slot]);
                free.is_none_or(|slot| std::mem::replace(&mut taken[slot], true))
            });
            assert_eq!(homeless.count(), 0, "{distance:#x}");
        }
    }
}
