//! [`Compilations`]: which methods threads are compiling, so that no body is replaced that a compiler has read.
//!
//! The runtime reads the body when `jit_compilation_started` has returned. Code of the first tier goes on, in the middle
//! of a loop, in code that is compiled later, at a place of the body: that has to be the same body.

use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread::{self, ThreadId};
use std::time::Duration;

use super::observer::MethodKey;
use crate::lock::unpoisoned;
use crate::suspension;

/// The maximum wait for the replacement of a body, which takes microseconds.
const PATIENCE: Duration = Duration::from_millis(500);

/// The state of a session.
#[derive(Default)]
pub(crate) struct Compilations {
    state: Mutex<State>,
    replaced: Condvar,
}

#[derive(Default)]
struct State {
    under_way: Vec<Compilation>,
    /// The methods whose body is being replaced.
    replacements: Vec<MethodKey>,
}

struct Compilation {
    thread: ThreadId,
    /// An address in the frame of its beginning.
    frame: usize,
    function: usize,
    method: MethodKey,
    /// The runtime has not read the body yet.
    is_in_callback: bool,
}

impl Compilations {
    fn state(&self) -> MutexGuard<'_, State> {
        suspension::forbid("the lock of the compilations");
        unpoisoned(self.state.lock())
    }

    /// Waits until nobody replaces the body of a method.
    fn settled(&self, method: MethodKey) -> MutexGuard<'_, State> {
        let is_replaced_now = |state: &mut State| state.replacements.contains(&method);
        unpoisoned(self.replaced.wait_timeout_while(self.state(), PATIENCE, is_replaced_now)).0
    }

    /// `jit_compilation_started` begins on the calling thread.
    pub(crate) fn callback_begins(&self, function: usize, method: MethodKey) {
        let here = 0_u8;
        let frame = std::ptr::from_ref(&here).addr();
        let thread = thread::current().id();
        let mut state = self.settled(method);
        // Of those below, the runtime has not reported the end: the frames of outer compilations lie above.
        state.under_way.retain(|other| other.thread != thread || other.frame > frame);
        state.under_way.push(Compilation { thread, frame, function, method, is_in_callback: true });
    }

    /// `jit_compilation_started` returns.
    pub(crate) fn callback_ends(&self, function: usize) {
        let thread = thread::current().id();
        let mut state = self.state();
        let is_this = |other: &&mut Compilation| other.thread == thread && other.function == function;
        if let Some(compilation) = state.under_way.iter_mut().rfind(is_this) {
            compilation.is_in_callback = false;
        }
    }

    /// The calling thread has compiled a function.
    pub(crate) fn compilation_ends(&self, function: usize) {
        let thread = thread::current().id();
        let mut state = self.state();
        let is_this = |other: &Compilation| other.thread == thread && other.function == function;
        if let Some(place) = state.under_way.iter().rposition(is_this) {
            state.under_way.remove(place);
        }
    }

    /// The body of a method is about to be replaced. Compilations and other replacements of it wait for the end of the
    /// result; `None` if a compiler has read the body already.
    pub(crate) fn begin_replacement(&self, method: MethodKey) -> Option<Replacement<'_>> {
        let mut state = self.settled(method);
        if state.under_way.iter().any(|compilation| compilation.method == method && !compilation.is_in_callback) {
            return None;
        }
        state.replacements.push(method);
        Some(Replacement { compilations: self, method })
    }
}

/// While it lives, no compilation of a method begins.
pub(crate) struct Replacement<'a> {
    compilations: &'a Compilations,
    method: MethodKey,
}

impl Drop for Replacement<'_> {
    fn drop(&mut self) {
        let mut state = self.compilations.state();
        if let Some(place) = state.replacements.iter().position(|method| *method == self.method) {
            state.replacements.swap_remove(place);
        }
        drop(state);
        self.compilations.replaced.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_body_that_was_read_is_not_replaced_until_the_compilation_ends() {
        let compilations = Compilations::default();
        compilations.callback_begins(1, (8, 6));
        assert!(compilations.begin_replacement((8, 6)).is_some(), "the callback of the method itself");
        compilations.callback_ends(1);
        assert!(compilations.begin_replacement((8, 6)).is_none());
        assert!(compilations.begin_replacement((8, 7)).is_some(), "another method");
        // The thread compiles another instantiation meanwhile, as a class constructor runs.
        let inner = || {
            compilations.callback_begins(2, (8, 6));
            assert!(compilations.begin_replacement((8, 6)).is_none(), "the outer compilation has read the body");
            compilations.callback_ends(2);
            compilations.compilation_ends(2);
        };
        inner();
        assert!(compilations.begin_replacement((8, 6)).is_none());
        compilations.compilation_ends(1);
        assert!(compilations.begin_replacement((8, 6)).is_some());
    }

    #[test]
    fn a_compilation_without_an_end_is_forgotten_at_the_threads_next() {
        let compilations = Compilations::default();
        for function in 1..=3 {
            compilations.callback_begins(function, (8, 6));
            compilations.callback_ends(function);
        }
        assert_eq!(compilations.state().under_way.len(), 1);
    }

    #[test]
    fn a_compilation_waits_for_a_replacement() {
        let compilations = Compilations::default();
        let (sender, receiver) = mpsc::channel();
        let replacement = compilations.begin_replacement((8, 6));
        thread::scope(|scope| {
            scope.spawn(|| {
                compilations.callback_begins(1, (8, 6));
                sender.send("begins").unwrap();
            });
            compilations.callback_begins(2, (8, 7));
            assert!(receiver.recv_timeout(Duration::from_millis(50)).is_err());
            drop(replacement);
            assert_eq!(receiver.recv().unwrap(), "begins");
        });
    }
}
