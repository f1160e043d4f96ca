//! The gate that every callback passes, and that Shutdown closes.
//!
//! A callback may be made on any thread at any time, at the rate of object allocations, and the runtime goes on making them
//! after Shutdown (field knowledge, not documentation). So passing must cost next to nothing, and closing must be certain:
//! once [`Gate::close`] answers `true`, no callback is inside and none will get in.
//!
//! Passing is therefore asymmetric. A thread counts itself in and out in a slot that only it writes (`slot.rs`; no locked
//! instruction), and looks whether the gate is open in between; the closing thread pays for both with a process-wide memory
//! barrier (`system/`), then waits for the slots to empty. If the application has had that barrier forbidden since the profiler
//! was loaded, the closing thread waits instead until what the others have written must be visible ([`SETTLING`]). Slots belong
//! to threads, not to gates: closing waits for callbacks of any profiler in this library, which at Shutdown is what one wants.

use std::sync::atomic::{AtomicU8, Ordering, compiler_fence, fence};
use std::time::{Duration, Instant};

use super::slot::{self, First, Inside, Tag};
use crate::system;

/// Callbacks are let through, and closing pays for the fences of those who pass.
const OPEN: u8 = 0;
/// A callback has panicked: the profiler is quiet.
const QUIET: u8 = 1;
/// The application ends.
const CLOSED: u8 = 2;
/// Callbacks are let through, and each pays for a fence of its own.
const OPEN_FENCED: u8 = 3;

/// How long [`Gate::close`] waits for what other threads have written before it, where the system has refused to make them show
/// it. A processor keeps a store to itself for nanoseconds, at most for as long as it takes to get hold of the cache line, and a
/// thread that is taken off its processor has shown everything: this is thousands of times more.
const SETTLING: Duration = Duration::from_millis(50);

/// Whether callbacks are let through to one profiler.
pub(crate) struct Gate {
    state: AtomicU8,
    /// Which state it is open in: decided once, by what the system offers.
    open: u8,
}

impl Gate {
    pub(crate) fn new() -> Self {
        let open = if system::prepare_barrier() { OPEN } else { OPEN_FENCED };
        Self { state: AtomicU8::new(open), open }
    }

    /// As [`enter`](Self::enter) in the usual case, and nothing in any other: whoever gets nothing has to ask `enter`.
    #[inline]
    pub(crate) fn enter_as_usual(&self) -> Option<Inside> {
        let inside = Inside::count_in_at_home()?;
        // As in `enter`.
        compiler_fence(Ordering::SeqCst);
        if self.state.load(Ordering::Relaxed) == OPEN { Some(inside) } else { None }
    }

    /// As [`enter_as_usual`](Self::enter_as_usual) for a hook on a thread that is not inside yet.
    ///
    /// None either if nothing is at hand for these hooks.
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
        let mut slots = slot::all();
        let mut is_inside = false;
        let mut busy = slots.next();
        while busy.is_some() || slot::is_crowd_inside() {
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

    /// The table is the process's, so tests that close gates would wait for one another's callbacks.
    pub(super) static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());

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

    /// Four threads that enter until they are turned away, and find nobody `gone` while they are inside.
    pub(super) fn pushing(gate: &Arc<Gate>, gone: &Arc<AtomicBool>) -> Vec<std::thread::JoinHandle<()>> {
        let push = |_| {
            let (gate, gone) = (gate.clone(), gone.clone());
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
