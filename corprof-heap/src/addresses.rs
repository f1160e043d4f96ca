//! The sorted addresses of all objects, as distances: 1 to 2 bytes an object in place of 8.

use crate::varint;

/// Addresses that share one full address. Reading one decodes half a block on average.
const BLOCK: usize = 32;

/// Addresses in ascending order, without repetition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Addresses {
    /// Distances are divided by 2 to this power: 3 where all objects are aligned to 8 bytes.
    shift: u32,
    len: usize,
    last: u64,
    /// For each block its first address, and where its distances begin.
    blocks: Vec<(u64, usize)>,
    distances: Vec<u8>,
}

impl Addresses {
    /// No addresses yet; all that come are multiples of 2 to the power of `shift`.
    pub(crate) fn new(shift: u32) -> Self {
        Self { shift, ..Self::default() }
    }

    /// The largest `shift` for these addresses, at most 3.
    pub(crate) fn shift_for(all: impl Iterator<Item = u64>) -> u32 {
        all.fold(8_u64, |bits, address| bits | address).trailing_zeros()
    }

    pub(crate) fn shift(&self) -> u32 {
        self.shift
    }

    /// Appends an address that is higher than all before. False if it is not, or not a multiple as agreed.
    pub(crate) fn push(&mut self, address: u64) -> bool {
        if (self.len > 0 && address <= self.last) || address.trailing_zeros() < self.shift {
            return false;
        }
        if self.len.is_multiple_of(BLOCK) {
            self.blocks.push((address, self.distances.len()));
        } else {
            varint::push(&mut self.distances, (address - self.last) >> self.shift);
        }
        self.last = address;
        self.len += 1;
        true
    }

    pub(crate) fn shrink(&mut self) {
        self.blocks.shrink_to_fit();
        self.distances.shrink_to_fit();
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The address at `index`, which is below [`len`](Self::len).
    pub(crate) fn get(&self, index: usize) -> u64 {
        self.block(index / BLOCK).nth(index % BLOCK).unwrap_or_default()
    }

    /// All addresses, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u64> {
        (0..self.blocks.len()).flat_map(|block| self.block(block))
    }

    /// The index of the highest address that is at most `address`.
    pub(crate) fn at_or_below(&self, address: u64) -> Option<usize> {
        let block = self.blocks.partition_point(|&(first, _)| first <= address).checked_sub(1)?;
        Some(block * BLOCK + self.block(block).take_while(|&other| other <= address).count() - 1)
    }

    /// Bytes that this takes.
    pub(crate) fn memory(&self) -> usize {
        self.blocks.capacity() * size_of::<(u64, usize)>() + self.distances.capacity()
    }

    fn block(&self, block: usize) -> impl Iterator<Item = u64> {
        let (mut address, mut at) = self.blocks[block];
        let count = BLOCK.min(self.len - block * BLOCK);
        (0..count).map(move |place| {
            if place > 0 {
                address += varint::read(&self.distances, &mut at).unwrap_or_default() << self.shift;
            }
            address
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Addresses;

    #[test]
    fn addresses_come_back_and_are_found() {
        let mut random = fastrand::Rng::with_seed(1);
        for shift in [0, 3] {
            for count in [0, 1, 31, 32, 33, 1000] {
                let mut all: Vec<u64> =
                    (0..count).map(|_| (random.u64(..) >> random.u32(..40)) >> shift << shift).collect();
                all.sort_unstable();
                all.dedup();
                let mut addresses = Addresses::new(shift);
                assert!(all.iter().all(|&address| addresses.push(address)));
                assert_eq!(addresses.iter().collect::<Vec<_>>(), all);
                for (index, &address) in all.iter().enumerate() {
                    assert_eq!(addresses.get(index), address);
                    assert_eq!(addresses.at_or_below(address), Some(index));
                    let before = address.checked_sub(1).and_then(|before| addresses.at_or_below(before));
                    assert_eq!(before, index.checked_sub(1));
                }
            }
        }
    }

    #[test]
    fn what_is_not_in_order_is_refused() {
        let mut addresses = Addresses::new(3);
        assert!(addresses.push(8));
        assert!(!addresses.push(8), "repeated");
        assert!(!addresses.push(12), "not aligned as agreed");
        assert!(addresses.push(16));
        assert_eq!(Addresses::shift_for([16, 24].into_iter()), 3);
        assert_eq!(Addresses::shift_for([16, 20].into_iter()), 2);
    }
}
