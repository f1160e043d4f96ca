//! A set of numbers below a limit, one bit each.

#[derive(Debug)]
pub(crate) struct BitSet(Vec<u64>);

impl BitSet {
    pub(crate) fn new(limit: usize) -> Self {
        Self(vec![0; limit.div_ceil(64)])
    }

    pub(crate) fn contains(&self, number: usize) -> bool {
        self.0[number / 64] >> (number % 64) & 1 == 1
    }

    /// True if the number was not in the set.
    pub(crate) fn insert(&mut self, number: usize) -> bool {
        let bit = 1 << (number % 64);
        let word = &mut self.0[number / 64];
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }
}
