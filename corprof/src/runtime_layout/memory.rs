//! Reads this process's memory without a fault, and remembers what was read, to check later that it is still so.

use crate::system;

/// The word at an address; none if there is no memory.
pub(crate) fn word(address: usize) -> Option<usize> {
    let mut bytes = [0; size_of::<usize>()];
    system::read_memory(address, &mut bytes).then(|| usize::from_ne_bytes(bytes))
}

/// The 32-bit number at an address; none if there is no memory.
pub(crate) fn number(address: usize) -> Option<u32> {
    let mut bytes = [0; 4];
    system::read_memory(address, &mut bytes).then(|| u32::from_ne_bytes(bytes))
}

/// The words from an address on, at most `most`, as far as there is memory.
pub(crate) fn words(address: usize, most: usize) -> Vec<usize> {
    const PART: usize = 64;
    let mut words = Vec::new();
    while words.len() < most {
        let mut bytes = [0; PART * size_of::<usize>()];
        if !system::read_memory(address + words.len() * size_of::<usize>(), &mut bytes) {
            break;
        }
        words.extend(bytes.as_chunks().0.iter().map(|word| usize::from_ne_bytes(*word)));
    }
    words.truncate(most);
    words
}

/// Reads objects that lie near each other by few calls of the system, as long as nothing changes.
#[derive(Default)]
pub(crate) struct NearbyObjects {
    /// The beginning of the part that was read last, and its bytes, if all of it is memory.
    start: Option<usize>,
    part: Vec<u8>,
    is_whole: bool,
    /// An object that is not in such a part.
    single: Vec<u8>,
}

impl NearbyObjects {
    /// As much is read at once.
    const PART: usize = 64 << 10;

    /// `length` bytes at an address; none if there is no memory.
    pub(crate) fn read(&mut self, address: usize, length: usize) -> Option<&[u8]> {
        let at = address % Self::PART;
        let start = address - at;
        if self.start != Some(start) {
            self.part.resize(Self::PART, 0);
            self.is_whole = system::read_memory(start, &mut self.part);
            self.start = Some(start);
        }
        if self.is_whole && at + length <= Self::PART {
            return self.part.get(at..at + length);
        }
        self.single.resize(length, 0);
        system::read_memory(address, &mut self.single).then_some(&self.single)
    }
}

/// What the memory held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fact {
    Word(usize, usize),
    Number(usize, u32),
}

/// What was read to find something out.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Evidence(Vec<Fact>);

impl Evidence {
    /// Reads a word, and remembers it.
    pub(crate) fn word(&mut self, address: usize) -> Option<usize> {
        let value = word(address)?;
        self.0.push(Fact::Word(address, value));
        Some(value)
    }

    /// Reads a 32-bit number, and remembers it.
    pub(crate) fn number(&mut self, address: usize) -> Option<u32> {
        let value = number(address)?;
        self.0.push(Fact::Number(address, value));
        Some(value)
    }

    /// Whether the memory still holds all of it. Allocates nothing.
    pub(crate) fn holds(&self) -> bool {
        self.0.iter().all(|fact| match *fact {
            Fact::Word(address, value) => word(address) == Some(value),
            Fact::Number(address, value) => number(address) == Some(value),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evidence_holds_until_the_memory_changes() {
        let mut memory = Box::new([1_usize, 2, 3]);
        let address = memory.as_ptr().expose_provenance();
        let mut evidence = Evidence::default();
        assert_eq!(evidence.word(address), Some(1));
        assert_eq!(evidence.number(address + size_of::<usize>()), Some(2));
        assert_eq!(evidence.word(8), None);
        assert!(evidence.holds());
        memory[2] = 4;
        assert!(evidence.holds());
        memory[1] = 5;
        assert!(!evidence.holds());
    }

    #[test]
    fn nearby_objects_are_read_within_a_part_across_parts_and_not_where_no_memory_is() {
        const PART: usize = NearbyObjects::PART;
        let memory: Vec<u8> = (0..4 * PART).map(|place| (place / 251) as u8).collect();
        let address = memory.as_ptr().expose_provenance();
        let mut objects = NearbyObjects::default();
        for place in [0, 8, PART - 8, PART, 2 * PART + 8, 16, 4 * PART - 24] {
            assert_eq!(objects.read(address + place, 24), Some(&memory[place..place + 24]), "{place}");
        }
        assert_eq!(objects.read(8, 24), None);
    }

    #[test]
    fn words_end_where_the_memory_ends() {
        let memory: Vec<usize> = (0..200).collect();
        assert_eq!(words(memory.as_ptr().expose_provenance(), 130), memory[..130]);
        assert_eq!(words(8, 10), []);
    }
}
