//! The original bodies of methods whose body the profiler has replaced.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::lock::unpoisoned;
use crate::session::{Info, Interests, Observer};
use crate::suspension;

/// By module and method.
type Bodies = BTreeMap<(usize, u32), Original>;

struct Original {
    body: Arc<[u8]>,
    /// The runtime has the new body: until then, other threads may compile the original.
    is_replaced: bool,
}

/// The bodies that the runtime no longer returns once they were replaced. They are dropped with their module.
#[derive(Default)]
pub(crate) struct OriginalBodies(Mutex<Bodies>);

impl Info {
    /// The original bodies of methods whose body the profiler has replaced.
    pub(crate) fn original_bodies(&self) -> &OriginalBodies {
        self.extension()
    }
}

impl OriginalBodies {
    fn bodies(&self) -> MutexGuard<'_, Bodies> {
        suspension::forbid("the lock of the original bodies");
        unpoisoned(self.0.lock())
    }

    /// Keeps the body of a method before it is replaced. If it was replaced before, the first body stays.
    pub(crate) fn keep(&self, module: usize, method: u32, body: Vec<u8>) {
        self.bodies().entry((module, method)).or_insert_with(|| Original { body: body.into(), is_replaced: false });
    }

    /// The runtime has another body for a method whose original is kept.
    pub(crate) fn set_replaced(&self, module: usize, method: u32) {
        if let Some(original) = self.bodies().get_mut(&(module, method)) {
            original.is_replaced = true;
        }
    }

    pub(crate) fn is_replaced(&self, module: usize, method: u32) -> bool {
        self.bodies().get(&(module, method)).is_some_and(|original| original.is_replaced)
    }

    /// The body that a method was loaded with; `None` if nobody has begun to replace it.
    pub(crate) fn of(&self, module: usize, method: u32) -> Option<Arc<[u8]>> {
        self.bodies().get(&(module, method)).map(|original| Arc::clone(&original.body))
    }
}

impl Observer for OriginalBodies {
    fn interests(&self) -> Interests {
        Interests::MODULES
    }

    fn module_gone(&self, module: usize) {
        self.bodies().retain(|(of, _), _| *of != module);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_body_stays_until_its_module_goes() {
        let bodies = OriginalBodies::default();
        assert_eq!(bodies.of(8, 1), None);
        bodies.keep(8, 1, vec![1]);
        bodies.keep(8, 1, vec![2]);
        bodies.keep(9, 1, vec![3]);
        assert_eq!(bodies.of(8, 1).as_deref(), Some(&[1][..]));
        assert!(!bodies.is_replaced(8, 1));
        bodies.set_replaced(8, 1);
        assert!(bodies.is_replaced(8, 1));
        bodies.module_gone(8);
        assert_eq!(bodies.of(8, 1), None);
        assert!(!bodies.is_replaced(8, 1));
        assert_eq!(bodies.of(9, 1).as_deref(), Some(&[3][..]));
    }
}
