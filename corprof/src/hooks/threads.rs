//! Each thread's state: a hook finds it without a lock or an allocation, and it ends once.
//!
//! A thread that passes the gate has its slot in hand (`session/thread_slot.rs`), and the slot points to the state. The
//! state is made on the thread when the runtime announces it; if it was not announced, by its first hook. A
//! thread-local, unused in the usual case, lists the states of its thread. Its destructor ends them with the
//! operating-system thread, before another thread can get the same slot; and it replaces the slot when there are more
//! threads than slots.
//!
//! A set of all states decides which thread ends one: the thread that removes it from the set. As long as the gate is
//! open this is the state's own thread; after that it is Shutdown, when no thread is inside any more.

use std::cell::{Cell, UnsafeCell};
use std::collections::HashSet;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard};

use super::FunctionHooks;
use super::installed::{AnyHooks, Installed};
use crate::lock::unpoisoned;
use crate::session::panics::catch;
use crate::session::thread_slot::Inside;
use crate::sync::thread_end::{EndsWithThread, OwnThings};

/// The states of one profiler's hooks.
#[derive(Default)]
pub(super) struct Threads {
    live: Mutex<HashSet<State>>,
}

/// A [`FunctionHooks::Thread`] on the heap, type-erased; the holder knows the hooks' type.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct State(NonNull<()>);

/// The target of a [`State`]. The user's part comes first, so that a pointer to the whole is one to it.
#[repr(C)]
pub(super) struct CallThreadState<H: FunctionHooks> {
    thread: UnsafeCell<H::Thread>,
    /// A borrower other than a hook of the usual case has it (`unwind.rs`).
    pub(super) is_lent: Cell<bool>,
    pub(super) hooks: &'static Installed<H>,
}

// SAFETY: its target is `Send`, and is used by one thread at a time: its own, until a thread removes it from the set.
unsafe impl Send for State {}

impl Threads {
    /// No user code runs under this lock.
    fn live(&self) -> MutexGuard<'_, HashSet<State>> {
        unpoisoned(self.live.lock())
    }
}

/// A state of the calling thread. A thread has several only if a process has several runtimes, as in tests.
struct OwnState(&'static dyn AnyHooks, State);

thread_local! {
    static OWN: OwnThings<OwnState> = const { OwnThings::new() };
}

impl EndsWithThread for OwnState {
    fn end(self) {
        let Self(hooks, state) = self;
        hooks.end_thread(state);
    }
}

impl<H: FunctionHooks> Installed<H> {
    /// The calling thread's state; none if it could not be made, or the thread is ending.
    pub(super) fn thread(&'static self, inside: &Inside) -> Option<NonNull<H::Thread>> {
        match inside.local(self.tag) {
            Some(state) => Some(state.cast()),
            None => self.find_thread(inside),
        }
    }

    #[cold]
    fn find_thread(&'static self, inside: &Inside) -> Option<NonNull<H::Thread>> {
        let is_ours = |&OwnState(hooks, state): &OwnState| (hooks.key() == self.key()).then_some(state);
        let state = match OWN.try_with(|own| own.find(is_ours)).ok()? {
            Some(state) => state,
            None => {
                let made = catch(|| self.user().thread_started(), || self.disable_after_panic("thread_started"))?;
                let kept = CallThreadState { thread: UnsafeCell::new(made), is_lent: Cell::new(false), hooks: self };
                let state = State(NonNull::from(Box::leak(Box::new(kept))).cast());
                self.threads.live().insert(state);
                // The thread-local was accessible a moment ago, and only `thread_started` has run since.
                OWN.try_with(|own| own.push(OwnState(self, state))).ok()?;
                state
            }
        };
        inside.set_local(self.tag, Some(state.0));
        Some(state.0.cast())
    }

    /// Removes a state from the set, for the caller to end; none if another thread has removed it.
    ///
    /// # Safety
    /// `state` belongs to these hooks, and its thread no longer uses it.
    unsafe fn take_thread(&self, state: State) -> Option<H::Thread> {
        let is_first = self.threads.live().remove(&state);
        // SAFETY: it comes from `Box::leak` in `find_thread`; the thread that removes it from the set is its only user,
        // by the caller's promise.
        is_first.then(|| unsafe { Box::from_raw(state.0.cast::<CallThreadState<H>>().as_ptr()) }.thread.into_inner())
    }

    /// Ends the calling thread's state, when the thread ends.
    pub(super) fn end_current_thread(&'static self, state: State) {
        // Once the gate is closed, Shutdown ends it.
        let Some(inside) = self.gate().enter() else { return };
        inside.set_local(self.tag, None);
        // SAFETY: called by the destructor of the thread's own list, after which no hook of this thread finds its
        // state: the list is gone. Other threads have states of their own (test: live
        // attacks::differs::managed_code_on_threads_that_are_nearly_gone_has_no_hooks).
        if let Some(thread) = unsafe { self.take_thread(state) } {
            catch(|| self.user().thread_ended(thread), || self.disable_after_panic("thread_ended"));
        }
    }

    /// Ends the states of the remaining threads, when no hook runs any more.
    ///
    /// # Safety
    /// The gate is closed and no thread is inside.
    pub(super) unsafe fn end_threads(&self, is_disabled: bool) {
        let live: Vec<_> = self.threads.live().iter().copied().collect();
        for state in live {
            // SAFETY: it was in the set; a thread uses its state inside the gate only, and no thread is inside.
            let Some(thread) = (unsafe { self.take_thread(state) }) else { continue };
            let end = || if is_disabled { drop(thread) } else { self.user().thread_ended(thread) };
            catch(end, || self.report_last_panic("thread_ended"));
        }
    }
}
