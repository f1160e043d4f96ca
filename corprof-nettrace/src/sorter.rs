//! Events of several threads in order of time.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Puts what a program makes of events in order of time, while they come.
///
/// A runtime writes the events of one thread after those of another. It bounds this disorder by [sorted
/// events](crate::Event::is_sorted), at least one each time that it writes, and by [sequence
/// points](crate::Item::SequencePoint). So a sorter holds each item until nothing older can follow:
///
/// ```no_run
/// use corprof_nettrace::{Item, Reader, Sorter};
///
/// let mut reader = Reader::new(std::fs::File::open("app.nettrace")?);
/// let mut sorter = Sorter::new(100_000);
/// while let Some(item) = reader.next_item()? {
///     match item {
///         Item::Event(event) => {
///             if event.is_sorted() {
///                 sorter.release_before(event.ticks());
///             }
///             sorter.push(event.ticks(), event.decoded().name().to_string());
///         }
///         _ => sorter.release(),
///     }
///     sorter.by_ref().for_each(|name| println!("{name}"));
/// }
/// sorter.release();
/// sorter.for_each(|name| println!("{name}"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// In a live session, release after a pause as well: a runtime writes its events several times a second, and all of
/// them.
#[derive(Debug)]
pub struct Sorter<T> {
    held: BinaryHeap<Reverse<Held<T>>>,
    /// The most items that are held.
    limit: usize,
    /// Items of this time and older are due.
    due: Option<u64>,
    /// The time of the youngest item so far.
    youngest: u64,
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

impl<T> Sorter<T> {
    /// Holds at most `limit` items: of more, it hands out the oldest before their time.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { held: BinaryHeap::new(), limit, due: None, youngest: 0, pushed: 0 }
    }

    /// Takes what was made of an event of this time.
    pub fn push(&mut self, ticks: u64, item: T) {
        self.held.push(Reverse(Held { order: (ticks, self.pushed), item }));
        self.youngest = self.youngest.max(ticks);
        self.pushed += 1;
    }

    /// Nothing that follows is older than `ticks`.
    pub fn release_before(&mut self, ticks: u64) {
        self.due = self.due.max(ticks.checked_sub(1));
    }

    /// Nothing that follows is older than what came.
    pub fn release(&mut self) {
        self.due = self.due.max(Some(self.youngest));
    }
}

/// The items that are due, the oldest first.
impl<T> Iterator for Sorter<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        let Reverse(oldest) = self.held.peek()?;
        let is_due = self.due.is_some_and(|due| oldest.order.0 <= due);
        if !is_due && self.held.len() <= self.limit {
            return None;
        }
        self.held.pop().map(|Reverse(held)| held.item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(sorter: &mut Sorter<&'static str>) -> Vec<&'static str> {
        sorter.by_ref().collect()
    }

    #[test]
    fn a_sorted_event_releases_those_that_are_older() {
        let mut sorter = Sorter::new(10);
        // As the runtime writes two threads at once: the first event of each is the oldest that is left.
        sorter.release_before(1);
        sorter.push(1, "start");
        sorter.push(4, "end");
        assert!(due(&mut sorter).is_empty());
        sorter.release_before(2);
        sorter.push(2, "part");
        sorter.push(3, "last part");
        assert_eq!(due(&mut sorter), ["start"]);
        sorter.release_before(4);
        assert_eq!(due(&mut sorter), ["part", "last part"], "another of the time 4 may follow");
        sorter.release();
        assert_eq!(due(&mut sorter), ["end"]);
        sorter.release();
        sorter.push(2, "late");
        assert_eq!(due(&mut sorter), ["late"], "for ever is not an answer");
    }

    #[test]
    fn events_of_one_time_keep_their_order() {
        let mut sorter = Sorter::new(10);
        for name in ["one", "two", "three"] {
            sorter.push(5, name);
        }
        sorter.push(0, "zero");
        sorter.release_before(0);
        assert!(due(&mut sorter).is_empty());
        sorter.release();
        assert_eq!(due(&mut sorter), ["zero", "one", "two", "three"]);
    }

    #[test]
    fn its_memory_is_bounded() {
        let mut sorter = Sorter::new(2);
        for (ticks, name) in [(3, "three"), (1, "one"), (2, "two")] {
            sorter.push(ticks, name);
        }
        assert_eq!(due(&mut sorter), ["one"]);
    }
}
