//! Events that were dropped, found by the gaps in the numbers that each thread gives its events.

use std::collections::{HashMap, HashSet};

use crate::error::FormatErrorKind;

/// The last number of each thread that captured events.
///
/// Each thread counts from 1 in each session, dropped events too. So a thread that is seen for the first time with the
/// number 5 has lost four.
#[derive(Debug, Default)]
pub(crate) struct Sequences {
    last: HashMap<u64, u32>,
    /// The thread of the last event with its number, which is newer than in `last`: most events have the thread of the
    /// event before, and need no look-up.
    current: Option<(u64, u32)>,
    lost: u64,
}

/// A gap larger than this is a step back.
pub(crate) const LARGEST_GAP: u32 = i32::MAX.cast_unsigned();

impl Sequences {
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// `thread` captured an event with this number.
    #[inline]
    pub(crate) fn event(&mut self, thread: u64, number: u32, limit: usize) -> Result<(), FormatErrorKind> {
        let last = match self.current {
            Some((current, last)) if current == thread => last,
            _ => self.switch(thread, limit)?,
        };
        self.current = Some((thread, number));
        let gap = number.wrapping_sub(last).wrapping_sub(1);
        if gap != 0 {
            // A step back is another thread with the same number, that of one that ended.
            let lost = if gap <= LARGEST_GAP { gap } else { number.saturating_sub(1) };
            self.lost = self.lost.saturating_add(lost.into());
        }
        Ok(())
    }

    fn switch(&mut self, thread: u64, limit: usize) -> Result<u32, FormatErrorKind> {
        self.store_current();
        let last = self.last.get(&thread).copied();
        if last.is_none() && self.last.len() >= limit {
            return Err(FormatErrorKind::Limit { name: "threads", what: "threads", limit });
        }
        Ok(last.unwrap_or(0))
    }

    fn store_current(&mut self) {
        if let Some((thread, number)) = self.current.take() {
            self.last.insert(thread, number);
        }
    }

    /// `thread` has numbered events up to `number` at least.
    pub(crate) fn reached(&mut self, thread: u64, number: u32, limit: usize) -> Result<(), FormatErrorKind> {
        let last = self.switch(thread, limit)?;
        let gap = number.wrapping_sub(last);
        let is_ahead = gap <= LARGEST_GAP;
        if is_ahead {
            self.lost = self.lost.saturating_add(gap.into());
        }
        self.last.insert(thread, if is_ahead { number } else { last });
        Ok(())
    }

    /// Threads that are not in this list have ended: versions 4 and 5 list live threads at each sequence point.
    pub(crate) fn retain(&mut self, threads: &HashSet<u64>) {
        self.store_current();
        self.last.retain(|thread, _| threads.contains(thread));
    }

    pub(crate) fn remove(&mut self, thread: u64) {
        self.store_current();
        self.last.remove(&thread);
    }

    pub(crate) fn clear(&mut self) {
        self.current = None;
        self.last.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(events: &[(u64, u32)]) -> u64 {
        let mut sequences = Sequences::default();
        for (thread, number) in events {
            assert_eq!(sequences.event(*thread, *number, 10), Ok(()));
        }
        sequences.lost()
    }

    #[test]
    fn gaps_are_counted_by_thread() {
        assert_eq!(lost(&[(1, 1), (1, 2), (2, 1), (1, 3), (2, 2)]), 0);
        assert_eq!(lost(&[(1, 1), (2, 1), (1, 4), (2, 2)]), 2);
        assert_eq!(lost(&[(1, 5)]), 4, "the first ones");
    }

    #[test]
    fn a_number_that_begins_anew_is_another_thread() {
        assert_eq!(lost(&[(1, 1), (1, 2), (1, 1), (1, 2)]), 0);
        assert_eq!(lost(&[(1, 1), (1, 2), (1, 3), (1, 2)]), 1);
    }

    #[test]
    fn numbers_wrap() {
        let mut sequences = Sequences { current: Some((1, u32::MAX - 1)), ..Sequences::default() };
        for number in [u32::MAX, 0, 1] {
            assert_eq!(sequences.event(1, number, 10), Ok(()));
        }
        assert_eq!(sequences.lost(), 0);
        assert_eq!(sequences.event(1, 3, 10), Ok(()));
        assert_eq!(sequences.lost(), 1);
    }

    #[test]
    fn a_sequence_point_tells_of_events_that_never_came() {
        let mut sequences = Sequences::default();
        assert_eq!(sequences.event(1, 1, 10), Ok(()));
        assert_eq!(sequences.reached(1, 3, 10), Ok(()));
        assert_eq!(sequences.reached(2, 7, 10), Ok(()));
        assert_eq!(sequences.lost(), 9);
        assert_eq!(sequences.reached(2, 5, 10), Ok(()), "it is a lower bound");
        assert_eq!(sequences.event(2, 8, 10), Ok(()));
        assert_eq!(sequences.lost(), 9);
    }

    #[test]
    fn threads_are_bounded_and_forgotten() {
        let mut sequences = Sequences::default();
        for thread in 0..2 {
            assert_eq!(sequences.reached(thread, 1, 2), Ok(()));
        }
        assert!(matches!(sequences.event(2, 1, 2), Err(FormatErrorKind::Limit { limit: 2, .. })));
        sequences.retain(&HashSet::from([0]));
        assert_eq!(sequences.event(2, 1, 2), Ok(()));
        assert_eq!(sequences.event(0, 2, 2), Ok(()));
        assert_eq!(sequences.lost(), 2);
    }
}
