//! The names of the application's threads.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use crate::id::ThreadId;
use crate::lock::unpoisoned;
use crate::suspension;

use super::names::Name;

/// The names that the runtime has reported, of threads that have not ended.
#[derive(Default)]
pub(crate) struct ThreadNames(Mutex<HashMap<usize, Name>>);

impl ThreadNames {
    fn names(&self) -> MutexGuard<'_, HashMap<usize, Name>> {
        suspension::forbid("the lock of the names of threads");
        unpoisoned(self.0.lock())
    }

    /// A thread has been named, perhaps before its `thread_created`.
    pub(crate) fn named(&self, thread: ThreadId, name: &str) {
        let mut names = self.names();
        if name.is_empty() {
            names.remove(&thread.as_raw());
        } else {
            names.insert(thread.as_raw(), name.to_owned().into());
        }
    }

    /// The next thread with this id is another thread.
    pub(crate) fn ended(&self, thread: usize) {
        self.names().remove(&thread);
    }

    pub(crate) fn of(&self, thread: ThreadId) -> Option<Name> {
        self.names().get(&thread.as_raw()).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_come_before_its_thread_and_ends_with_it() {
        let names = ThreadNames::default();
        let thread = ThreadId::from_raw(8).unwrap();
        names.named(thread, "first");
        names.named(thread, "second");
        assert_eq!(names.of(thread).unwrap(), "second");
        names.ended(8);
        assert_eq!(names.of(thread), None);
        names.named(thread, "third"); // of a new thread with the same id
        assert_eq!(names.of(thread).unwrap(), "third");
        names.named(thread, "");
        assert_eq!(names.of(thread), None);
    }
}
