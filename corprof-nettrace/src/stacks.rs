//! The stacks that events refer to, from one sequence point to the next.

use std::collections::BTreeMap;

use crate::bytes::{Cursor, Malformed};
use crate::error::FormatErrorKind;

/// A stack as the runtime wrote it: addresses of instructions, the innermost first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stack<'a> {
    bytes: &'a [u8],
    pointer_size: u32,
}

impl<'a> Stack<'a> {
    pub(crate) fn new(bytes: &'a [u8], pointer_size: u32) -> Self {
        Self { bytes, pointer_size }
    }

    /// The addresses, the innermost first.
    pub fn addresses(&self) -> impl ExactSizeIterator<Item = u64> + use<'a> {
        let width = if self.pointer_size == 4 { 4 } else { 8 };
        self.bytes.chunks_exact(width).map(|chunk| {
            let mut whole = [0; 8];
            whole.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
            u64::from_le_bytes(whole)
        })
    }

    /// Whether it has no frame: the event was written without a stack.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The addresses as they are in the trace.
    #[must_use]
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

/// Rows that are numbered from a first one on, a run of them for each block. A run costs one entry however many rows it
/// has, and looking one up is no matter of hashing, so no choice of numbers makes it slow.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    runs: BTreeMap<u32, Run>,
    /// Where each row ends in `bytes`; it begins where the one before ended.
    ends: Vec<u32>,
    bytes: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
struct Run {
    /// Index of the first row's end in `ends`.
    first: usize,
    count: usize,
}

impl Runs {
    /// Adds a block whose first row has this number.
    pub(crate) fn begin(&mut self, number: u32) -> RunWriter<'_> {
        let first = self.ends.len();
        RunWriter { runs: self, number, first }
    }

    /// The bytes of the row, if there is one.
    pub(crate) fn get(&self, number: u32) -> Option<&[u8]> {
        let (first, run) = self.runs.range(..=number).next_back()?;
        let index = usize::try_from(number - first).ok().filter(|index| *index < run.count)? + run.first;
        let start = index.checked_sub(1).map_or(Some(&0), |before| self.ends.get(before))?;
        self.bytes.get(*start as usize..*self.ends.get(index)? as usize)
    }

    pub(crate) fn clear(&mut self) {
        self.runs.clear();
        self.ends.clear();
        self.bytes.clear();
    }

    /// How many bytes of memory they take, about.
    pub(crate) fn cost(&self) -> usize {
        self.bytes.len() + self.ends.len() * size_of::<u32>() + self.runs.len() * 2 * size_of::<(u32, Run)>()
    }
}

/// Writes the rows of a block.
#[derive(Debug)]
pub(crate) struct RunWriter<'a> {
    runs: &'a mut Runs,
    number: u32,
    first: usize,
}

impl RunWriter<'_> {
    pub(crate) fn push(&mut self, row: &[u8]) -> Result<(), Malformed> {
        self.runs.bytes.extend_from_slice(row);
        self.runs.ends.push(u32::try_from(self.runs.bytes.len()).map_err(|_| Malformed)?);
        Ok(())
    }

    pub(crate) fn finish(self) {
        let run = Run { first: self.first, count: self.runs.ends.len() - self.first };
        if run.count > 0 {
            self.runs.runs.insert(self.number, run);
        }
    }
}

/// Adds the stacks of a block. Its layout is the same in all versions.
pub(crate) fn read_block(block: &[u8], stacks: &mut Runs, limit: usize) -> Result<(), FormatErrorKind> {
    let damaged = |_| FormatErrorKind::Corrupt("a block of stacks is shorter than its contents");
    let mut cursor = Cursor::new(block);
    let number = cursor.u32().map_err(damaged)?;
    let count = cursor.u32().map_err(damaged)?;
    if stacks.cost().saturating_add(block.len()) > limit {
        return Err(FormatErrorKind::Limit { name: "stack_bytes", what: "bytes of stacks", limit });
    }
    let mut run = stacks.begin(number);
    for _ in 0..count {
        let size = cursor.count().map_err(damaged)?;
        let stack = cursor.bytes(size).map_err(damaged)?;
        run.push(stack).map_err(damaged)?;
    }
    run.finish();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_in_their_run_and_nowhere_else() {
        let mut runs = Runs::default();
        for (number, rows) in [(1, &["a", "bc"][..]), (10, &["d"]), (u32::MAX, &["e", "f"])] {
            let mut run = runs.begin(number);
            for row in rows {
                assert_eq!(run.push(row.as_bytes()), Ok(()));
            }
            run.finish();
        }
        let found = |number| runs.get(number).map(|row| String::from_utf8_lossy(row).into_owned());
        assert_eq!(found(0), None);
        assert_eq!(found(1).as_deref(), Some("a"));
        assert_eq!(found(2).as_deref(), Some("bc"));
        assert_eq!(found(3), None);
        assert_eq!(found(10).as_deref(), Some("d"));
        assert_eq!(found(u32::MAX).as_deref(), Some("e"));
    }

    #[test]
    fn addresses_are_as_wide_as_pointers() {
        let bytes = [1, 0, 0, 0, 2, 0, 0, 0, 3];
        assert_eq!(Stack::new(&bytes, 4).addresses().collect::<Vec<_>>(), [1, 2]);
        assert_eq!(Stack::new(&bytes, 8).addresses().collect::<Vec<_>>(), [0x2_0000_0001]);
    }

    #[test]
    fn stacks_are_bounded() {
        let mut block = [1_u32, 2, 8].map(u32::to_le_bytes).concat();
        block.extend([0; 8]);
        assert!(matches!(read_block(&block, &mut Runs::default(), 1000), Err(FormatErrorKind::Corrupt(_))));
        block.extend([0; 4]);
        let mut stacks = Runs::default();
        assert_eq!(read_block(&block, &mut stacks, 1000), Ok(()));
        assert_eq!(stacks.get(2), Some(&[][..]));
        assert!(matches!(read_block(&block, &mut stacks, 40), Err(FormatErrorKind::Limit { limit: 40, .. })));
    }
}
