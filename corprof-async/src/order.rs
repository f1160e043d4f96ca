//! What several threads tell, in order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Items that wait until nothing older can come.
#[derive(Debug)]
pub(crate) struct InOrder<T> {
    /// Time, number and place of each item: those of one time stay as they came. The heap moves these instead of items.
    order: BinaryHeap<Reverse<(u64, u64, usize)>>,
    items: Vec<Option<T>>,
    free: Vec<usize>,
    pushed: u64,
}

impl<T> InOrder<T> {
    pub(crate) fn new() -> Self {
        Self { order: BinaryHeap::new(), items: Vec::new(), free: Vec::new(), pushed: 0 }
    }

    pub(crate) fn push(&mut self, ticks: u64, item: T) {
        let place = self.free.pop().unwrap_or(self.items.len());
        match self.items.get_mut(place) {
            Some(free) => *free = Some(item),
            None => self.items.push(Some(item)),
        }
        self.order.push(Reverse((ticks, self.pushed, place)));
        self.pushed += 1;
    }

    /// The oldest, if it is not younger than `until` or if there are more than `most`.
    pub(crate) fn pop(&mut self, until: Option<u64>, most: usize) -> Option<T> {
        let Reverse((ticks, ..)) = *self.order.peek()?;
        let is_due = until.is_some_and(|until| ticks <= until);
        if !is_due && self.order.len() <= most {
            return None;
        }
        let Reverse((_, _, place)) = self.order.pop()?;
        self.free.push(place);
        self.items.get_mut(place)?.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_comes_first_and_of_one_time_the_first() {
        let mut order = InOrder::new();
        for (ticks, name) in [(3, "c"), (1, "a"), (3, "d"), (2, "b")] {
            order.push(ticks, name);
        }
        assert_eq!([order.pop(None, 4), order.pop(None, 3), order.pop(None, 3)], [None, Some("a"), None]);
        order.push(4, "e");
        let rest: Vec<_> = std::iter::from_fn(|| order.pop(Some(3), 10)).collect();
        assert_eq!(rest, ["b", "c", "d"]);
        assert_eq!((order.pop(Some(4), 10), order.pop(Some(9), 0), order.items.len()), (Some("e"), None, 4));
    }
}
