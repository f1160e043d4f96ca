//! The gate that every callback passes, and that Shutdown closes.
//!
//! A callback may be made on any thread at any time, at the rate of object allocations, and the runtime goes on making them
//! after Shutdown (field knowledge, not documentation). So passing must cost next to nothing, and closing must be certain:
//! once [`Gate::close`] answers `true`, no callback is inside and none will get in.
//!
//! Passing is therefore asymmetric. A thread counts itself in and out in a slot that only it writes (no locked instruction),
//! and looks whether the gate is open in between; the closing thread pays for both with a process-wide memory barrier
//! (`system/`), then waits for the slots to empty. If the application has had that barrier forbidden since the profiler was loaded,
//! the closing thread waits instead until what the others have written must be visible ([`SETTLING`]). Slots belong to threads, not to gates: closing waits for callbacks of
//! any profiler in this library, which at Shutdown is what one wants.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize, Ordering, compiler_fence, fence};
use std::time::{Duration, Instant};

use crate::system;

/// Callbacks are let through, and closing pays for the fences of those who pass.
const OPEN: u8 = 0;
/// A callback has panicked: the profiler is quiet.
const QUIET: u8 = 1;
/// The application ends.
const CLOSED: u8 = 2;
/// Callbacks are let through, and each pays for a fence of its own.
const OPEN_FENCED: u8 = 3;

/// How many threads get a slot of their own; those beyond share one, with locked instructions.
const SLOTS: usize = 2048;
/// How long [`Gate::close`] waits for what other threads have written before it, where the system has refused to make them show
/// it. A processor keeps a store to itself for nanoseconds, at most for as long as it takes to get hold of the cache line, and a
/// thread that is taken off its processor has shown everything: this is thousands of times more.
const SETTLING: Duration = Duration::from_millis(50);
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
struct Slot {
    /// The owner's [`system::thread_key`], 0 while nobody's. Never given back: a thread that ends leaves its key to the next thread
    /// that gets the same one, and the count is 0 by then.
    owner: AtomicUsize,
    /// Where the owner is: how many callbacks it is inside of, and below that [`HOOK`] or, outside of hooks, its key and the
    /// tag of the hooks that `local` is kept for. One word, so that a hook has one thing to look at.
    word: AtomicUsize,
    /// What the owner keeps for hooks (`hooks/threads.rs`).
    local: AtomicPtr<()>,
}

impl Slot {
    const fn free() -> Self {
        Self { owner: AtomicUsize::new(0), word: AtomicUsize::new(0), local: AtomicPtr::new(std::ptr::null_mut()) }
    }
}

static TABLE: [Slot; SLOTS] = [const { Slot::free() }; SLOTS];
/// The count of all threads that found no slot.
static CROWD: AtomicUsize = AtomicUsize::new(0);

/// Whether callbacks are let through to one profiler.
pub(crate) struct Gate {
    state: AtomicU8,
    /// Which state it is open in: decided once, by what the system offers.
    open: u8,
}

/// A callback under way: the gate cannot finish closing while one lives.
pub(crate) struct Inside {
    slot: Option<&'static Slot>,
}

impl Gate {
    pub(crate) fn new() -> Self {
        let open = if system::prepare_barrier() { OPEN } else { OPEN_FENCED };
        Self { state: AtomicU8::new(open), open }
    }

    /// As [`enter`](Self::enter) in the usual case, and nothing in any other: whoever gets nothing has to ask `enter`.
    #[inline]
    pub(crate) fn enter_as_usual(&self) -> Option<Inside> {
        let slot = Slot::at_home(system::thread_key())?;
        slot.count_in();
        let inside = Inside { slot: Some(slot) };
        // As in `enter`.
        compiler_fence(Ordering::SeqCst);
        if self.state.load(Ordering::Relaxed) == OPEN { Some(inside) } else { None }
    }

    /// As [`enter_as_usual`](Self::enter_as_usual) for a hook on a thread that is not inside yet.
    ///
    /// None either if nothing is at hand for these hooks. It writes the word and does not change it, so that the processor need
    /// not wait for what it last wrote there: hooks follow each other more closely than that takes.
    #[inline]
    pub(crate) fn enter_first(&self, tag: Tag) -> Option<First> {
        let key = system::thread_key();
        let slot = &TABLE[Slot::home(key)];
        let idle = key | tag.0;
        if slot.word.load(Ordering::Relaxed) != idle {
            return None;
        }
        slot.word.store(HOOK, Ordering::Relaxed);
        let first = First { slot, idle };
        // As in `enter`.
        compiler_fence(Ordering::SeqCst);
        if self.state.load(Ordering::Relaxed) == OPEN {
            Some(first)
        } else {
            first.leave();
            None
        }
    }

    /// Lets a callback in, unless the profiler has gone quiet or the gate is closed.
    pub(crate) fn enter(&self) -> Option<Inside> {
        let inside = Inside::count_in();
        // Having counted itself must come before the look at the gate: against the compiler this fence sees to it, against
        // the processor the barrier of whoever closes, or else a full fence and a second look.
        compiler_fence(Ordering::SeqCst);
        match self.state.load(Ordering::Relaxed) {
            OPEN => Some(inside),
            OPEN_FENCED if self.is_open_after_fence() => Some(inside),
            _ => None,
        }
    }

    fn is_open_after_fence(&self) -> bool {
        fence(Ordering::SeqCst);
        self.is_open()
    }

    /// No further callback is let in; `true` the first time. Those inside go on.
    pub(crate) fn quieten(&self) -> bool {
        self.state.compare_exchange(self.open, QUIET, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Whether callbacks are let in.
    pub(crate) fn is_open(&self) -> bool {
        self.state.load(Ordering::Relaxed) == self.open
    }

    /// Whether callbacks are no longer let in because of a panic.
    pub(crate) fn is_quiet(&self) -> bool {
        self.state.load(Ordering::Relaxed) == QUIET
    }

    /// Closes the gate for good and waits until no callback of another thread is inside, at most `patience` long. Answers
    /// whether nobody is inside, the calling thread included (as it would be if a callback ended the process by a call that
    /// makes the runtime shut down).
    pub(crate) fn close(&self, patience: Duration) -> bool {
        self.state.store(CLOSED, Ordering::SeqCst);
        // After this barrier every thread either sees the closed gate or has its count visible here. Threads that fence for
        // themselves do so without it.
        if !system::process_wide_barrier() && self.open == OPEN {
            std::thread::sleep(SETTLING);
        }
        let deadline = Instant::now() + patience;
        let own = system::thread_key();
        // A slot seen empty once stays so, but for a thread that has come too late and is on its way out again.
        let mut slots = TABLE.iter();
        let mut is_inside = false;
        let mut busy = slots.next();
        while busy.is_some() || CROWD.load(Ordering::Acquire) != 0 {
            match busy {
                Some(slot) if slot.owner.load(Ordering::Relaxed) == own => {
                    is_inside = Slot::is_busy(slot.word.load(Ordering::Relaxed));
                    busy = slots.next();
                }
                Some(slot) if !Slot::is_busy(slot.word.load(Ordering::Acquire)) => busy = slots.next(),
                _ if Instant::now() >= deadline => return false,
                _ => std::thread::sleep(Duration::from_micros(100)),
            }
        }
        !is_inside
    }
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

    /// Whether the owner of a slot with this word is inside of a callback or hook.
    fn is_busy(word: usize) -> bool {
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
    fn count_in() -> Self {
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

#[cfg(all(test, target_os = "linux"))]
mod sandbox;

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::*;

    /// The table is the process's, so tests that close gates would wait for one another's callbacks.
    pub(super) static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());

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

    #[test]
    fn a_hook_comes_in_where_something_is_kept_for_it() {
        let _turn = ONE_AT_A_TIME.lock();
        let (gate, tag, other) = (Gate::new(), Tag::new(), Tag::new());
        if gate.open != OPEN {
            return;
        }
        assert!(gate.enter_first(tag).is_none());
        let local = NonNull::<u8>::dangling().cast();
        gate.enter().unwrap().set_local(tag, Some(local));
        assert!(gate.enter_first(other).is_none() && gate.enter_first(Tag::NONE).is_none());

        let first = gate.enter_first(tag).unwrap();
        assert_eq!(first.local(), local);
        assert!(gate.enter_first(tag).is_none(), "one hook at a time");
        let inside = gate.enter().unwrap();
        assert!(inside.is_in_hook());
        inside.set_local(tag, None);
        drop(inside);
        assert!(!gate.close(Duration::ZERO), "a hook is under way");
        first.leave();
        assert!(gate.close(Duration::ZERO));
        assert!(gate.enter_first(tag).is_none(), "closed");

        let gate = Gate::new();
        let found = |kept| {
            assert_eq!(kept, local);
            tag
        };
        assert!(First::again(found).is_none());
        let _ = gate.enter_first(tag).unwrap();
        First::again(found).unwrap().leave();
        let inside = gate.enter().unwrap();
        assert!(gate.enter_first(tag).is_none(), "a callback is around it");
        assert_eq!(inside.local(tag), Some(local));
        inside.set_local(other, None);
        inside.set_local(tag, None);
        assert_eq!((inside.local(tag), inside.local(other)), (None, None));
        drop(inside);
        assert!(gate.enter_first(tag).is_none());
    }

    #[test]
    fn a_closed_gate_lets_nobody_in() {
        let _turn = ONE_AT_A_TIME.lock();
        let gate = Gate::new();
        assert!(gate.enter().is_some());
        assert!(gate.close(Duration::ZERO));
        assert!(gate.enter().is_none());
        assert!(!gate.quieten(), "closed stays closed");
    }

    #[test]
    fn closing_waits_for_those_inside_but_not_for_ever() {
        let _turn = ONE_AT_A_TIME.lock();
        let gate = Arc::new(Gate::new());
        let (entered, wait_for_entry) = std::sync::mpsc::channel();
        let (leave, wait_for_leave) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn({
            let gate = gate.clone();
            move || {
                let inside = gate.enter();
                entered.send(()).unwrap();
                wait_for_leave.recv().unwrap();
                drop(inside);
            }
        });
        wait_for_entry.recv().unwrap();
        assert!(!gate.close(Duration::from_millis(20)), "somebody is inside");
        leave.send(()).unwrap();
        assert!(gate.close(Duration::from_secs(60)));
        thread.join().unwrap();
    }

    #[test]
    fn ones_own_callback_is_not_waited_for() {
        let _turn = ONE_AT_A_TIME.lock();
        let gate = Gate::new();
        let inside = gate.enter();
        let begun = Instant::now();
        assert!(!gate.close(Duration::from_secs(60)), "this thread is inside");
        assert!(begun.elapsed() < Duration::from_secs(30));
        drop(inside);
        assert!(gate.close(Duration::ZERO));
    }

    #[test]
    fn nobody_is_inside_after_closing_however_many_threads_push() {
        let _turn = ONE_AT_A_TIME.lock();
        for _ in 0..200 {
            let gate = Arc::new(Gate::new());
            let gone = Arc::new(AtomicBool::new(false));
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    let (gate, gone) = (gate.clone(), gone.clone());
                    std::thread::spawn(move || {
                        while let Some(_inside) = gate.enter() {
                            assert!(!gone.load(Ordering::SeqCst), "inside a closed gate");
                        }
                    })
                })
                .collect();
            std::thread::sleep(Duration::from_micros(200));
            assert!(gate.close(Duration::from_secs(60)));
            gone.store(true, Ordering::SeqCst);
            for thread in threads {
                thread.join().unwrap();
            }
        }
    }
}
