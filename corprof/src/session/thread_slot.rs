//! Per-thread slots: whether the thread is inside callbacks and hooks, and its local state for hooks.
//!
//! The [gate](super::gate) lets threads in; this counts them. Slots belong to threads, not to gates.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

#[cfg(doc)]
use super::gate::Gate;
use crate::system;

/// How many threads get a slot of their own; the others share one, with locked instructions.
const SLOTS: usize = 2048;
/// How many places a thread tries for a free slot.
const TRIES: usize = 16;

/// Part of a slot's word: one callback that the owner is inside of. Callbacks nest when a call to the runtime makes
/// another.
const CALLBACK: usize = 1 << 48;
/// The rest of the word: the owner's key, and the tag of its local state.
const IDLE: usize = CALLBACK - 1;
/// The rest of the word during a hook that came through [`Gate::enter_first`].
const HOOK: usize = 1;
/// Keys of threads are addresses of something that begins with a pointer, so they are multiples of this: a [`Tag`] fits
/// beside them.
const ALIGNMENT: usize = 8;

/// The state of one thread, alone on its cache line and written by that thread only.
#[repr(align(64))]
pub(super) struct ThreadSlot {
    /// The owner's [`system::thread_key`], 0 while unowned. Never returned: a thread that ends leaves its slot to the
    /// next thread with the same key, and the count is 0 by then.
    owner: AtomicUsize,
    /// How many callbacks the owner is inside of; and below that [`HOOK`] or, outside of hooks, the owner's key and the
    /// tag of the hooks that `local` belongs to. One word, so that a hook reads only one.
    word: AtomicUsize,
    /// The owner's state for hooks (`hooks/threads.rs`).
    local: AtomicPtr<()>,
    /// How many calls the owner is making to the runtime, if calls are counted (`calls.rs`).
    calls: AtomicUsize,
}

impl ThreadSlot {
    const fn free() -> Self {
        let local = AtomicPtr::new(std::ptr::null_mut());
        Self { owner: AtomicUsize::new(0), word: AtomicUsize::new(0), local, calls: AtomicUsize::new(0) }
    }
}

static TABLE: [ThreadSlot; SLOTS] = [const { ThreadSlot::free() }; SLOTS];
/// The count of all threads without a slot.
static CROWD: AtomicUsize = AtomicUsize::new(0);
/// The calls of all threads without a slot.
static CALLS_OF_CROWD: AtomicUsize = AtomicUsize::new(0);

/// The slots of all threads.
pub(super) fn all() -> std::slice::Iter<'static, ThreadSlot> {
    TABLE.iter()
}

/// Whether a thread without a slot is inside of a callback.
pub(super) fn is_crowd_inside() -> bool {
    CROWD.load(Ordering::Acquire) != 0
}

/// Whether the calling thread is inside a callback or hook. Of threads without a slot it is known only whether any is.
pub(super) fn is_inside() -> bool {
    let key = system::thread_key();
    all().find(|slot| slot.is_owned_by(key)).map_or_else(is_crowd_inside, ThreadSlot::is_busy)
}

/// Whether the calling thread is certainly inside a callback or hook. If not, it may be all the same.
#[inline]
pub(super) fn is_surely_inside() -> bool {
    ThreadSlot::at_home(system::thread_key()).is_some_and(ThreadSlot::is_busy)
}

/// The counter for the calling thread's calls to the runtime.
pub(super) fn own_calls() -> &'static AtomicUsize {
    ThreadSlot::mine().map_or(&CALLS_OF_CROWD, |slot| &slot.calls)
}

/// The call counters of all threads.
pub(super) fn all_calls() -> impl Iterator<Item = &'static AtomicUsize> {
    all().map(|slot| &slot.calls).chain([&CALLS_OF_CROWD])
}

/// A callback under way: the gate does not finish closing while one exists.
pub(crate) struct Inside {
    slot: Option<&'static ThreadSlot>,
}

impl ThreadSlot {
    #[inline]
    fn count_in(&self) {
        // Only this thread writes the word, so it needs no locked instruction.
        self.word.store(self.word.load(Ordering::Relaxed) + CALLBACK, Ordering::Relaxed);
    }

    /// The calling thread's slot: the one that it has, or a free one.
    fn mine() -> Option<&'static ThreadSlot> {
        let key = system::thread_key();
        Self::at_home(key).or_else(|| Self::find(key))
    }

    /// The slot that is nearly always the thread's own.
    #[inline]
    fn at_home(key: usize) -> Option<&'static ThreadSlot> {
        let slot = &TABLE[Self::home(key)];
        (slot.owner.load(Ordering::Relaxed) == key).then_some(slot)
    }

    /// The place where a key is looked for first. Using more of the key's bits would send fewer threads to the same
    /// place, but each instruction here counts in each hook.
    #[inline]
    const fn home(key: usize) -> usize {
        key / system::THREAD_KEY_DISTANCE % SLOTS
    }

    /// Whether a hook that came through [`enter_first`](Gate::enter_first) encloses this call. Only the owner may ask.
    fn is_in_hook(&self) -> bool {
        self.word.load(Ordering::Relaxed) & IDLE == HOOK
    }

    /// Whether the owner's local state is under this tag. Only the owner may ask.
    fn has(&self, tag: Tag) -> bool {
        self.word.load(Ordering::Relaxed) & IDLE == self.owner.load(Ordering::Relaxed) | tag.0
    }

    /// Whether the owner has this [key](system::thread_key).
    pub(super) fn is_owned_by(&self, key: usize) -> bool {
        self.owner.load(Ordering::Relaxed) == key
    }

    /// Whether the owner is inside a callback or hook.
    pub(super) fn is_busy(&self) -> bool {
        let word = self.word.load(Ordering::Acquire);
        word & !IDLE != 0 || word == HOOK
    }

    #[cold]
    fn find(key: usize) -> Option<&'static ThreadSlot> {
        if key & !IDLE != 0 || !key.is_multiple_of(ALIGNMENT) {
            return None;
        }
        let home = Self::home(key);
        for step in 0..TRIES {
            let slot = &TABLE[(home + step) % SLOTS];
            // A plain load first leaves the cache line with a neighbour that owns the slot.
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
    /// Counts the calling thread in, if its slot is in the usual place.
    #[inline]
    pub(super) fn count_in_at_home() -> Option<Self> {
        let slot = ThreadSlot::at_home(system::thread_key())?;
        slot.count_in();
        Some(Self { slot: Some(slot) })
    }

    /// Counts the calling thread in.
    pub(super) fn count_in() -> Self {
        let slot = ThreadSlot::mine();
        match slot {
            Some(slot) => slot.count_in(),
            None => {
                CROWD.fetch_add(1, Ordering::SeqCst);
            }
        }
        Self { slot }
    }
}

/// The only callback or hook under way on its thread. It must [leave](Self::leave).
#[must_use]
pub(crate) struct First {
    slot: &'static ThreadSlot,
    /// The word's value before.
    idle: usize,
}

impl First {
    /// Begins it, if nothing else is under way on the calling thread and the thread has local state under this tag.
    ///
    /// It stores the word without a read-modify-write, so that the processor need not wait for its last store there:
    /// hooks follow each other faster than that takes.
    #[inline]
    pub(super) fn begin(tag: Tag) -> Option<Self> {
        let key = system::thread_key();
        let slot = &TABLE[ThreadSlot::home(key)];
        let idle = key | tag.0;
        if slot.word.load(Ordering::Relaxed) != idle {
            return None;
        }
        slot.word.store(HOOK, Ordering::Relaxed);
        Some(Self { slot, idle })
    }

    /// The hook that is under way on the calling thread; none if there is none that came through
    /// [`enter_first`](Gate::enter_first). `tag_of` returns the tag of the hooks that a local state belongs to.
    pub(crate) fn under_way(tag_of: impl FnOnce(NonNull<()>) -> Tag) -> Option<Self> {
        let key = system::thread_key();
        let slot = ThreadSlot::at_home(key).filter(|slot| slot.is_in_hook())?;
        let state = NonNull::new(slot.local.load(Ordering::Relaxed))?;
        let tag = tag_of(state);
        Some(Self { slot, idle: key | tag.0 })
    }

    /// The calling thread's local state for the hooks of the tag that it came with, which is not
    /// [`STATELESS`](Tag::STATELESS).
    #[inline]
    pub(crate) fn local(&self) -> NonNull<()> {
        // SAFETY: the word had the tag, which `set_local` writes after a pointer that is not null.
        unsafe { NonNull::new_unchecked(self.slot.local.load(Ordering::Relaxed)) }
    }

    /// Ends it.
    #[inline]
    pub(crate) fn leave(self) {
        // Callbacks that came and went in between have left the word unchanged.
        self.slot.word.store(self.idle, Ordering::Release);
    }
}

/// Tells the hooks of different profilers apart: a tag for the first few profilers of a process, as many as fit beside
/// a thread's key. The hooks of later profilers never use [`enter_first`](Gate::enter_first).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tag(usize);

impl Tag {
    /// The tag that no state can be kept under.
    pub(crate) const NONE: Self = Self(HOOK);

    /// For code that keeps no state: on a thread that has none.
    pub(crate) const STATELESS: Self = Self(0);

    /// A tag of its own, or [`NONE`](Self::NONE) if all are taken.
    pub(crate) fn new() -> Self {
        static LAST: AtomicUsize = AtomicUsize::new(HOOK);
        let next = |last| (last + 1 < ALIGNMENT).then_some(last + 1);
        LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).map_or(Self::NONE, |last| Self(last + 1))
    }
}

impl Inside {
    /// Whether a hook that came through [`enter_first`](Gate::enter_first) encloses this.
    pub(crate) fn is_in_hook(&self) -> bool {
        self.slot.is_some_and(ThreadSlot::is_in_hook)
    }

    /// The state that the calling thread last put into its slot, if it was under this tag.
    pub(crate) fn local(&self, tag: Tag) -> Option<NonNull<()>> {
        let slot = self.slot.filter(|slot| slot.has(tag))?;
        NonNull::new(slot.local.load(Ordering::Relaxed))
    }

    /// Stores local state in the calling thread's slot, if it has a slot and no hook is using it; `None` removes the
    /// state under this tag.
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
            // glibc's default with and without a guard page and with alignment to large pages, and .NET's 1.5 MiB.
            0x8_0000 => &[0x80_0000, 0x80_1000, 0xa0_0000, 0x18_0000, 0x18_1000],
            least => &[least, 2 * least, 5 * least],
        };
        for &distance in distances {
            let home = |at: usize| ThreadSlot::home(0x7f12_3456_7000 + at * distance + 0x640);
            let homes: std::collections::HashSet<_> = (1..=128).map(home).collect();
            assert_eq!(homes.len(), 128, "{distance:#x}: the first threads are all at home");
            let mut taken = [false; SLOTS];
            let homeless = (1..=SLOTS / 4).filter(|&at| {
                let home = home(at);
                let free = (0..TRIES).map(|step| (home + step) % SLOTS).find(|&slot| !taken[slot]);
                free.is_none_or(|slot| std::mem::replace(&mut taken[slot], true))
            });
            assert_eq!(homeless.count(), 0, "{distance:#x}");
        }
    }
}
