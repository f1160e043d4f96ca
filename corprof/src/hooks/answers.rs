//! The profiler's answers about functions, from the first question on.
//!
//! The compiler may want to inline a function long before the function is compiled by itself, or never compile it by
//! itself. So the profiler is asked at the first occasion, and its answer kept for the second.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard};

use super::Hook;
use crate::lock::unpoisoned;
use crate::suspension;

/// The answers, by what stands for a function.
pub(super) struct Answers<K, F>(Mutex<HashMap<K, Answer<F>>>);

struct Answer<F> {
    is_exact: bool,
    /// The answer, until the function is compiled.
    pending: Option<Hook<F>>,
}

impl<K, F> Default for Answers<K, F> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Copy + Eq + Hash, F> Answers<K, F> {
    /// No user code and no call of the runtime runs under this lock.
    fn answers(&self) -> MutexGuard<'_, HashMap<K, Answer<F>>> {
        suspension::forbid("the answers about functions");
        unpoisoned(self.0.lock())
    }

    /// Whether a function is hooked exactly. `ask` asks the profiler, if it was not asked yet; if that panics, there is
    /// no answer.
    pub(super) fn is_exact(&self, function: K, ask: impl FnOnce() -> Option<Hook<F>>) -> bool {
        if let Some(answer) = self.answers().get(&function) {
            return answer.is_exact;
        }
        let Some(hook) = ask() else { return false };
        let is_exact = matches!(hook, Hook::Exact(_));
        match self.answers().entry(function) {
            Entry::Vacant(entry) => {
                entry.insert(Answer { is_exact, pending: Some(hook) });
                is_exact
            }
            // Another thread has asked meanwhile. Nothing of the profiler is dropped under the lock, nor elsewhere.
            Entry::Occupied(mut entry) => {
                std::mem::forget(hook);
                entry.get_mut().is_exact |= is_exact;
                entry.get().is_exact
            }
        }
    }

    /// The answer about a function that is compiled. `ask` asks the profiler, if it was not asked yet.
    pub(super) fn take(&self, function: K, ask: impl FnOnce() -> Hook<F>) -> Hook<F> {
        let pending = self.answers().get_mut(&function).and_then(|answer| answer.pending.take());
        if let Some(hook) = pending {
            return hook;
        }
        let hook = ask();
        let is_exact = matches!(hook, Hook::Exact(_));
        let mut answers = self.answers();
        answers.entry(function).or_insert(Answer { is_exact, pending: None }).is_exact |= is_exact;
        drop(answers);
        hook
    }

    /// Forgets the answers about functions that are gone: others may get what stood for them.
    pub(super) fn forget(&self, is_gone: impl Fn(&K) -> bool) {
        let mut answers = self.answers();
        let all = std::mem::take(&mut *answers);
        let (gone, kept): (HashMap<_, _>, HashMap<_, _>) = all.into_iter().partition(|(function, _)| is_gone(function));
        *answers = kept;
        drop(answers);
        // The profiler's values are never dropped.
        gone.into_values().for_each(std::mem::forget);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unasked() -> Hook<u32> {
        unreachable!("it was asked before")
    }

    #[test]
    fn the_profiler_is_asked_once_whichever_question_comes_first() {
        let answers = Answers::default();
        assert!(answers.is_exact(1, || Some(Hook::Exact(10))));
        assert!(answers.is_exact(1, || Some(unasked())));
        assert_eq!(answers.take(1, unasked), Hook::Exact(10));
        assert!(answers.is_exact(1, || Some(unasked())), "after it was compiled as well");

        assert_eq!(answers.take(2, || Hook::Inlinable(20)), Hook::Inlinable(20));
        assert!(!answers.is_exact(2, || Some(unasked())));
        assert!(!answers.is_exact(3, || Some(Hook::No)));
        assert_eq!(answers.take(3, unasked), Hook::No);
    }

    #[test]
    fn of_two_answers_an_exact_one_counts() {
        let answers = Answers::default();
        // The second thread asks while the first is asking.
        let asks = || {
            assert!(answers.is_exact(1, || Some(Hook::Exact(10))));
            Some(Hook::Inlinable(11))
        };
        assert!(answers.is_exact(1, asks));
        assert_eq!(answers.take(1, unasked), Hook::Exact(10));
    }

    #[test]
    fn what_is_gone_is_asked_about_again() {
        let answers = Answers::default();
        assert!(answers.is_exact(1, || Some(Hook::Exact(10))));
        assert!(answers.is_exact(2, || Some(Hook::Exact(20))));
        answers.forget(|&function| function == 1);
        assert!(!answers.is_exact(1, || Some(Hook::No)));
        assert_eq!(answers.take(2, unasked), Hook::Exact(20));
        assert!(!answers.is_exact(4, || None), "a panic is not an answer");
        assert!(answers.is_exact(4, || Some(Hook::Exact(40))));
    }
}
