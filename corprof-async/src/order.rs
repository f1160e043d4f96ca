//! What several threads tell, in order of time.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Items that wait until nothing older can come.
#[derive(Debug)]
pub(crate) struct InOrder<T> {
    held: BinaryHeap<Reverse<Held<T>>>,
    pushed: u64,
}

/// An item, ordered by time and then as it came.
#[derive(Debug)]
struct Held<T> {
    order: (u64, u64),
    item: T,
}

impl<T> PartialEq for Held<T> {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl<T> Eq for Held<T> {}

impl<T> PartialOrd for Held<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Held<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order.cmp(&other.order)
    }
}

impl<T> InOrder<T> {
    pub(crate) fn new() -> Self {
        Self { held: BinaryHeap::new(), pushed: 0 }
    }

    pub(crate) fn push(&mut self, ticks: u64, item: T) {
        self.held.push(Reverse(Held { order: (ticks, self.pushed), item }));
        self.pushed += 1;
    }

    /// The oldest, if it is not younger than `until` or if there are more than `most`.
    pub(crate) fn pop(&mut self, until: Option<u64>, most: usize) -> Option<T> {
        let Reverse(oldest) = self.held.peek()?;
        let is_due = until.is_some_and(|until| oldest.order.0 <= until);
        if !is_due && self.held.len() <= most {
            return None;
        }
        self.held.pop().map(|Reverse(held)| held.item)
    }
}
