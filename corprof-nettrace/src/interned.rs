//! Rows that events refer to by number, each written once: stacks and label lists.

use std::collections::HashMap;

/// Rows that were written, and those that are to be written before the next events.
#[derive(Debug)]
pub(crate) struct Interned {
    numbers: HashMap<Box<[u8]>, u32>,
    /// Bytes of memory that `numbers` takes, about.
    cost: usize,
    /// The number of the next new row.
    next: u32,
    /// The rows to be written, and the number of the first.
    pending: Vec<u8>,
    first_pending: u32,
}

/// The largest number: TraceEvent reads it with a sign.
const LAST: u32 = i32::MAX.cast_unsigned();

impl Interned {
    pub(crate) fn new() -> Self {
        Self { numbers: HashMap::new(), cost: 0, next: 1, pending: Vec::new(), first_pending: 1 }
    }

    /// The number of a row, which `write` appends if it is new. 0 is the empty row, which is not written. Nothing if
    /// there are no numbers left.
    pub(crate) fn number(&mut self, row: &[u8], write: impl FnOnce(&mut Vec<u8>)) -> Option<u32> {
        if row.is_empty() {
            return Some(0);
        }
        if let Some(number) = self.numbers.get(row) {
            return Some(*number);
        }
        if self.next == LAST {
            return None;
        }
        let number = self.next;
        self.next += 1;
        write(&mut self.pending);
        // The entry and its box.
        self.cost += row.len() + 48;
        self.numbers.insert(row.into(), number);
        Some(number)
    }

    /// How many bytes of memory it takes, about.
    pub(crate) fn cost(&self) -> usize {
        self.cost
    }

    /// How many bytes are to be written.
    pub(crate) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// The number of the first row to be written, how many there are, and the rows. None if there are none.
    pub(crate) fn take_pending(&mut self) -> Option<([u8; 8], Vec<u8>)> {
        let count = self.next - self.first_pending;
        if count == 0 {
            return None;
        }
        let [a, b, c, d] = self.first_pending.to_le_bytes();
        let [e, f, g, h] = count.to_le_bytes();
        self.first_pending = self.next;
        Some(([a, b, c, d, e, f, g, h], std::mem::take(&mut self.pending)))
    }

    /// Writes rows again that were written before, under new numbers.
    pub(crate) fn forget(&mut self) {
        self.numbers = HashMap::new();
        self.cost = 0;
    }

    /// As at the beginning, after a sequence point. Nothing is pending.
    pub(crate) fn clear(&mut self) {
        *self = Self::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_written_once_until_it_is_forgotten() {
        let mut rows = Interned::new();
        let number = |rows: &mut Interned, row: &[u8]| rows.number(row, |out| out.extend(row));
        assert_eq!(number(&mut rows, b""), Some(0));
        assert_eq!(number(&mut rows, b"ab"), Some(1));
        assert_eq!(number(&mut rows, b"c"), Some(2));
        assert_eq!(number(&mut rows, b"ab"), Some(1));
        assert_eq!(rows.take_pending(), Some(([1, 0, 0, 0, 2, 0, 0, 0], b"abc".to_vec())));
        assert_eq!(rows.take_pending(), None);
        rows.forget();
        assert_eq!(number(&mut rows, b"ab"), Some(3));
        assert_eq!(rows.take_pending(), Some(([3, 0, 0, 0, 1, 0, 0, 0], b"ab".to_vec())));
        rows.clear();
        assert_eq!((number(&mut rows, b"ab"), rows.cost() < 100), (Some(1), true));
    }
}
