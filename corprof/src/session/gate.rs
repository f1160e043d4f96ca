//! The gate that every callback passes, and that Shutdown closes.
//!
//! A callback may come on any thread at any time, as often as objects are allocated, and the runtime goes on making
//! callbacks after Shutdown (observed, not documented). So passing must cost next to nothing, and closing must be
//! certain: once [`Gate::close`] returns `true`, no callback is inside and none will get in.
//!
//! Passing is therefore asymmetric. A thread counts itself in and out in a slot that only it writes (`thread_slot.rs`;
//! no locked instruction), and checks in between that the gate is open. The closing thread pays for both sides with a
//! process-wide memory barrier (`system/`), then waits for the slots to empty. If the application has forbidden that
//! barrier since the profiler was loaded, the closing thread waits instead until the writes of other threads must be
//! visible ([`SETTLING`]). Slots belong to threads, not to gates: closing waits for the callbacks of all profilers in
//! this library, which is right at Shutdown.
//!
//! With one locked count for all threads, an allocated object took 41.5 ns instead of 34.6 on one thread
//! (`cargo xtask bench --only storm`, five interleaved runs of both); more threads would contend for it.

use std::sync::atomic::{AtomicU8, Ordering, compiler_fence, fence};
use std::time::{Duration, Instant};

use super::thread_slot::{self, First, Inside, Tag};
use crate::system;

/// Callbacks pass; the closing thread pays for the barrier.
const OPEN: u8 = 0;
/// A callback has panicked: the profiler is disabled.
const QUIET: u8 = 1;
/// The application is ending.
const CLOSED: u8 = 2;
/// Callbacks pass, and each executes a fence of its own.
const OPEN_FENCED: u8 = 3;

/// How long [`Gate::close`] waits for earlier writes of other threads to become visible when the system has refused the
/// barrier. A processor keeps a store to itself for nanoseconds, at most until it has acquired the cache line, and a
/// context switch makes all stores of a thread visible. This is thousands of times longer.
const SETTLING: Duration = Duration::from_millis(50);

/// Lets the callbacks of one profiler in.
pub(crate) struct Gate {
    state: AtomicU8,
    /// The state in which the gate is open, chosen once by what the system offers.
    open: u8,
}

impl Gate {
    pub(crate) fn new() -> Self {
        let open = if system::prepare_barrier() { OPEN } else { OPEN_FENCED };
        Self { state: AtomicU8::new(open), open }
    }

    /// Like [`enter`](Self::enter), for the usual case only: after `None` the caller must ask `enter`.
    #[inline]
    pub(crate) fn enter_as_usual(&self) -> Option<Inside> {
        let inside = Inside::count_in_at_home()?;
        // As in `enter`.
        compiler_fence(Ordering::SeqCst);
        if self.state.load(Ordering::Relaxed) == OPEN { Some(inside) } else { None }
    }

    /// Like [`enter_as_usual`](Self::enter_as_usual), for a hook on a thread that is not inside yet. Also `None` if the
    /// thread's slot has no local state for these hooks.
    ///
    /// A counted call takes 4.9 ns with its two hooks, and 10.9 ns if they come by `enter` (`cargo xtask bench --only
    /// hooks`).
    #[inline]
    pub(crate) fn enter_first(&self, tag: Tag) -> Option<First> {
        let first = First::begin(tag)?;
        // As in `enter`.
        compiler_fence(Ordering::SeqCst);
        if self.state.load(Ordering::Relaxed) == OPEN {
            Some(first)
        } else {
            first.leave();
            None
        }
    }

    /// Lets a callback in, unless the profiler is disabled or the gate is closed.
    pub(crate) fn enter(&self) -> Option<Inside> {
        let inside = Inside::count_in();
        // The count must be visible before the gate is read. This fence orders the two for the compiler. For the
        // processor, the barrier of the closing thread does, or else a full fence and a second read.
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

    /// Lets no more callbacks in; returns `true` the first time. Callbacks inside go on.
    pub(crate) fn disable(&self) -> bool {
        self.state.compare_exchange(self.open, QUIET, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Whether callbacks are let in.
    pub(crate) fn is_open(&self) -> bool {
        self.state.load(Ordering::Relaxed) == self.open
    }

    /// Whether callbacks are no longer let in because of a panic.
    pub(crate) fn is_disabled(&self) -> bool {
        self.state.load(Ordering::Relaxed) == QUIET
    }

    /// Closes the gate for good, and waits up to `patience` until no callback of another thread is inside. Returns
    /// whether no thread is inside, including the calling thread (which is inside if a callback ended the process by a
    /// call that makes the runtime shut down).
    pub(crate) fn close(&self, patience: Duration) -> bool {
        self.state.store(CLOSED, Ordering::SeqCst);
        // After this barrier every thread either sees the closed gate, or its count is visible here. Threads that
        // execute their own fences need no barrier.
        if !system::process_wide_barrier() && self.open == OPEN {
            std::thread::sleep(SETTLING);
        }
        let deadline = Instant::now() + patience;
        let own = system::thread_key();
        // A slot seen empty once stays empty, except for a thread that came too late and is leaving again.
        let mut slots = thread_slot::all();
        let mut is_inside = false;
        let mut busy = slots.next();
        while busy.is_some() || thread_slot::is_crowd_inside() {
            match busy {
                Some(slot) if slot.is_owned_by(own) => {
                    is_inside = slot.is_busy();
                    busy = slots.next();
                }
                Some(slot) if !slot.is_busy() => busy = slots.next(),
                _ if Instant::now() >= deadline => return false,
                _ => std::thread::sleep(Duration::from_micros(100)),
            }
        }
        !is_inside
    }
}

#[cfg(all(test, target_os = "linux"))]
mod sandbox;

#[cfg(test)]
mod tests {
    use std::ptr::NonNull;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::*;

    /// The table of slots belongs to the process: tests that close gates would wait for one another's callbacks.
    pub(super) static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());

    #[test]
    fn a_hook_comes_in_where_something_is_kept_for_it() {
        let _turn = ONE_AT_A_TIME.lock();
        let gate = Gate::new();
        let tag = Tag::new();
        let other = Tag::new();
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
        assert!(First::under_way(found).is_none());
        let _ = gate.enter_first(tag).unwrap();
        First::under_way(found).unwrap().leave();
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
    fn code_without_state_comes_in_where_nothing_is_kept() {
        let _turn = ONE_AT_A_TIME.lock();
        let gate = Gate::new();
        let tag = Tag::new();
        if gate.open != OPEN {
            return;
        }
        // The first entry of a thread gets it a slot.
        drop(gate.enter());
        let first = gate.enter_first(Tag::STATELESS).unwrap();
        assert!(gate.enter_first(Tag::STATELESS).is_none(), "one at a time");
        drop(gate.enter());
        first.leave();
        gate.enter().unwrap().set_local(tag, Some(NonNull::<u8>::dangling().cast()));
        assert!(gate.enter_first(Tag::STATELESS).is_none(), "there is state of hooks");
        gate.enter().unwrap().set_local(tag, None);
        gate.enter_first(Tag::STATELESS).unwrap().leave();
        assert!(gate.close(Duration::ZERO));
        assert!(gate.enter_first(Tag::STATELESS).is_none(), "closed");
    }

    #[test]
    fn a_closed_gate_lets_nobody_in() {
        let _turn = ONE_AT_A_TIME.lock();
        let gate = Gate::new();
        assert!(gate.enter().is_some());
        assert!(gate.close(Duration::ZERO));
        assert!(gate.enter().is_none());
        assert!(!gate.disable(), "closed stays closed");
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
        assert!(!gate.close(Duration::from_millis(20)), "another thread is inside");
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

    /// Four threads that enter until they are refused, and assert while inside that `gone` is not set.
    pub(super) fn pushing(gate: &Arc<Gate>, gone: &Arc<AtomicBool>) -> Vec<std::thread::JoinHandle<()>> {
        let push = |_| {
            let gate = gate.clone();
            let gone = gone.clone();
            std::thread::spawn(move || {
                while let Some(_inside) = gate.enter() {
                    assert!(!gone.load(Ordering::SeqCst), "inside a closed gate");
                }
            })
        };
        (0..4).map(push).collect()
    }

    #[test]
    fn nobody_is_inside_after_closing_however_many_threads_push() {
        let _turn = ONE_AT_A_TIME.lock();
        for _ in 0..200 {
            let gate = Arc::new(Gate::new());
            let gone = Arc::new(AtomicBool::new(false));
            let threads = pushing(&gate, &gone);
            std::thread::sleep(Duration::from_micros(200));
            assert!(gate.close(Duration::from_secs(60)));
            gone.store(true, Ordering::SeqCst);
            for thread in threads {
                thread.join().unwrap();
            }
        }
    }
}
