//! [`Compilations`]: which methods threads are compiling, so that no body is replaced that a compiler has read.
//!
//! The runtime reads the body when `jit_compilation_started` has returned. Code of the first tier goes on, in the
//! middle of a loop, in code that is compiled later, at a place of the body: that has to be the same body.
//!
//! Compilations are reported with `MONITOR_JIT_COMPILATION` only. Of what has begun without it nothing is known, so then
//! bodies are replaced where a compilation cannot have begun: while their module is loaded, of modules that were loaded
//! since, and when the method is compiled itself, as the runtime lets one thread compile it at a time.

use std::collections::HashSet;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use super::observer::MethodKey;
use crate::id::FunctionId;
use crate::lock::unpoisoned;
use crate::suspension;
use crate::system;

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
    hearing: Hearing,
    /// The modules whose load is being reported, with the keys of the threads.
    loading: Vec<(usize, usize)>,
}

/// Of which compilations the profiler has heard.
#[derive(Default)]
enum Hearing {
    /// None, or not of all.
    #[default]
    No,
    /// Of all that there were, or were made since the attach began.
    All,
    /// Of those in modules that were loaded since.
    Of(HashSet<usize>),
}

struct Compilation {
    /// Its key, which a thread that is nearly gone has as well.
    thread: usize,
    /// An address in the frame of its beginning.
    frame: usize,
    function: FunctionId,
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

    /// Waits until nobody replaces the body of a function, whose method `ask` returns.
    fn settled_function(&self, ask: impl FnOnce() -> Option<MethodKey>) -> MutexGuard<'_, State> {
        let state = self.state();
        if state.replacements.is_empty() {
            return state;
        }
        drop(state);
        match ask() {
            Some(method) => self.settled(method),
            None => self.state(),
        }
    }

    /// From now on the runtime reports compilations, or not. `is_beginning`: the profiler is being initialized.
    pub(crate) fn are_reported(&self, are_reported: bool, is_beginning: bool) {
        let hearing = &mut self.state().hearing;
        match hearing {
            _ if !are_reported => *hearing = Hearing::No,
            _ if is_beginning => *hearing = Hearing::All,
            Hearing::No => *hearing = Hearing::Of(HashSet::new()),
            Hearing::All | Hearing::Of(_) => {}
        }
    }

    /// The callback about the load of a module begins on the calling thread: none of its code has been compiled.
    pub(crate) fn module_load_begins(&self, module: usize) {
        let mut state = self.state();
        state.loading.push((system::thread_key(), module));
        if let Hearing::Of(modules) = &mut state.hearing {
            modules.insert(module);
        }
    }

    /// The callback about the load of a module returns.
    pub(crate) fn module_load_ends(&self, module: usize) {
        let this = (system::thread_key(), module);
        let mut state = self.state();
        if let Some(place) = state.loading.iter().rposition(|other| *other == this) {
            state.loading.swap_remove(place);
        }
    }

    /// A module has gone: the next one at its address may have been loaded before.
    pub(crate) fn module_gone(&self, module: usize) {
        if let Hearing::Of(modules) = &mut self.state().hearing {
            modules.remove(&module);
        }
    }

    /// Whether a compilation of a method may have begun unheard. `ask` returns the method of a function.
    pub(crate) fn may_be_unheard(&self, method: MethodKey, ask: impl Fn(FunctionId) -> Option<MethodKey>) -> bool {
        let thread = system::thread_key();
        let state = self.state();
        let is_heard = match &state.hearing {
            Hearing::All => true,
            Hearing::Of(modules) => modules.contains(&method.0),
            Hearing::No => false,
        };
        if is_heard || state.loading.contains(&(thread, method.0)) {
            return false;
        }
        let own = state.under_way.iter().filter(|other| other.thread == thread && other.is_in_callback);
        let functions: Vec<FunctionId> = own.map(|compilation| compilation.function).collect();
        drop(state);
        !functions.into_iter().any(|function| ask(function) == Some(method))
    }

    /// `jit_compilation_started` begins on the calling thread. `ask` returns the method of the function.
    pub(crate) fn callback_begins(&self, function: FunctionId, ask: impl FnOnce() -> Option<MethodKey>) {
        let here = 0_u8;
        let frame = std::ptr::from_ref(&here).addr();
        let thread = system::thread_key();
        let mut state = self.settled_function(ask);
        // Of those below, the runtime has not reported the end: the frames of outer compilations lie above.
        state.under_way.retain(|other| other.thread != thread || other.frame > frame);
        state.under_way.push(Compilation { thread, frame, function, is_in_callback: true });
    }

    /// `jit_compilation_started` returns.
    pub(crate) fn callback_ends(&self, function: FunctionId, ask: impl FnOnce() -> Option<MethodKey>) {
        let thread = system::thread_key();
        let mut state = self.settled_function(ask);
        let is_this = |other: &&mut Compilation| other.thread == thread && other.function == function;
        if let Some(compilation) = state.under_way.iter_mut().rfind(is_this) {
            compilation.is_in_callback = false;
        }
    }

    /// The calling thread has compiled a function.
    pub(crate) fn compilation_ends(&self, function: FunctionId) {
        let thread = system::thread_key();
        let mut state = self.state();
        let is_this = |other: &Compilation| other.thread == thread && other.function == function;
        if let Some(place) = state.under_way.iter().rposition(is_this) {
            state.under_way.remove(place);
        }
    }

    /// The body of a method is about to be replaced. Compilations and other replacements of it wait for the end of the
    /// result; `None` if a compiler has read the body already. `ask` returns the method of a function, unless it has
    /// been unloaded.
    pub(crate) fn begin_replacement(
        &self,
        method: MethodKey,
        ask: impl Fn(FunctionId) -> Option<MethodKey>,
    ) -> Option<Replacement<'_>> {
        let mut state = self.settled(method);
        state.replacements.push(method);
        let readers = state.under_way.iter().filter(|compilation| !compilation.is_in_callback);
        let functions: Vec<FunctionId> = readers.map(|compilation| compilation.function).collect();
        drop(state);
        let replacement = Replacement { compilations: self, method };
        let is_read = functions.into_iter().any(|function| ask(function) == Some(method));
        if is_read { None } else { Some(replacement) }
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
    use std::thread;

    use super::*;

    /// Functions 1 and 2 are instantiations of one method.
    fn method_of(function: FunctionId) -> Option<MethodKey> {
        Some((8, if function.as_raw() <= 2 { 6 } else { 7 }))
    }

    fn function(id: usize) -> FunctionId {
        FunctionId::from_raw(id).unwrap()
    }

    impl Compilations {
        fn begins(&self, id: usize) {
            self.callback_begins(function(id), || method_of(function(id)));
        }

        fn is_read(&self, id: usize) {
            self.callback_ends(function(id), || method_of(function(id)));
        }

        fn may_replace(&self, method: u32) -> bool {
            self.begin_replacement((8, method), method_of).is_some()
        }
    }

    #[test]
    fn a_body_that_was_read_is_not_replaced_until_the_compilation_ends() {
        let compilations = Compilations::default();
        compilations.begins(1);
        assert!(compilations.may_replace(6), "the callback of the method itself");
        compilations.is_read(1);
        assert!(!compilations.may_replace(6));
        assert!(compilations.may_replace(7), "another method");
        // The thread compiles another instantiation meanwhile, as a class constructor runs.
        let inner = || {
            compilations.begins(2);
            assert!(!compilations.may_replace(6), "the outer compilation has read the body");
            compilations.is_read(2);
            compilations.compilation_ends(function(2));
        };
        inner();
        assert!(!compilations.may_replace(6));
        compilations.compilation_ends(function(1));
        assert!(compilations.may_replace(6));
    }

    #[test]
    fn of_what_begins_unreported_nothing_is_known() {
        let compilations = Compilations::default();
        let may_be_unheard = |method: u32| compilations.may_be_unheard((8, method), method_of);
        assert!(may_be_unheard(6));
        compilations.module_load_begins(8);
        assert!(!may_be_unheard(6), "the module is being loaded");
        compilations.module_load_ends(8);
        assert!(may_be_unheard(6));
        compilations.begins(1);
        assert!(!may_be_unheard(6) && may_be_unheard(7), "the callback of the method itself");
        compilations.is_read(1);
        assert!(may_be_unheard(6));
        compilations.are_reported(true, false);
        assert!(may_be_unheard(6), "the module is older");
        compilations.module_load_begins(8);
        compilations.module_load_ends(8);
        assert!(!may_be_unheard(6));
        compilations.module_gone(8);
        assert!(may_be_unheard(6));
        compilations.are_reported(true, true);
        assert!(!may_be_unheard(6));
        compilations.are_reported(false, true);
        assert!(may_be_unheard(6));
    }

    #[test]
    fn a_compilation_without_an_end_is_forgotten_at_the_threads_next() {
        let compilations = Compilations::default();
        for id in 1..=3 {
            compilations.begins(id);
            compilations.is_read(id);
        }
        assert_eq!(compilations.state().under_way.len(), 1);
    }

    #[test]
    fn compilers_wait_for_a_replacement() {
        let compilations = Compilations::default();
        let (sender, receiver) = mpsc::channel();
        compilations.begins(1);
        let replacement = compilations.begin_replacement((8, 6), method_of);
        thread::scope(|scope| {
            let steps: [fn(&Compilations); 2] = [|all| all.begins(2), |all| all.is_read(1)];
            for step in steps {
                let sender = sender.clone();
                let compilations = &compilations;
                scope.spawn(move || {
                    step(compilations);
                    sender.send(()).unwrap();
                });
            }
            compilations.begins(3);
            assert!(receiver.recv_timeout(Duration::from_millis(50)).is_err());
            drop(replacement);
            assert_eq!(receiver.recv(), Ok(()));
            assert_eq!(receiver.recv(), Ok(()));
        });
    }
}
