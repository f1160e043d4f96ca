//! Whether the blocks of a dump fit together: none missing, none twice, none of another length than it says.

/// Kinds of blocks that the runtime numbers, each from 0.
const KINDS: usize = 4;

/// Events of `Microsoft-Windows-DotNETRuntime` that have parts of the heap.
mod id {
    pub(crate) const ROOT_EDGE: u32 = 16;
    pub(crate) const WEAK_TABLE_PAIR: u32 = 17;
    pub(crate) const NODE: u32 = 18;
    pub(crate) const EDGE: u32 = 19;
    pub(crate) const ROOT_STATIC_VAR: u32 = 38;
}

/// The bytes before the entries of a block: its number, the count of its entries, the runtime's number.
const HEADER: usize = 10;

/// Bytes of an address.
const POINTER: usize = size_of::<usize>();

/// Whether it is the event of a block.
pub(super) fn is_block(event: u32) -> bool {
    matches!(event, id::ROOT_EDGE..=id::EDGE | id::ROOT_STATIC_VAR)
}

/// The blocks so far.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    next: [u32; KINDS],
    pub(super) count: u64,
    pub(super) bytes: u64,
    pub(super) objects: u64,
    pub(super) references: u64,
    roots: u64,
    /// References that the objects announce.
    announced: u64,
    /// Numbers that were left out, and numbers that came again.
    pub(super) missing: u64,
    pub(super) repeated: u64,
    pub(super) malformed: u64,
}

impl Blocks {
    /// Checks a block, and calls `object` with the address and the class of each object in it. Returns whether it is
    /// new and well-formed.
    pub(super) fn add(&mut self, event: u32, payload: &[u8], mut object: impl FnMut(u64, u64)) -> bool {
        self.count += 1;
        self.bytes += payload.len() as u64;
        let (kind, size) = match event {
            id::ROOT_EDGE => (0, 2 * POINTER + 5),
            id::WEAK_TABLE_PAIR => (1, 3 * POINTER),
            id::NODE => (2, POINTER + 24),
            id::EDGE => (3, POINTER + 4),
            // It has no number, and its entries end with names.
            _ => return true,
        };
        let entries = payload.get(HEADER..).unwrap_or_default();
        let index = number(payload, 0, 4);
        let count = number(payload, 4, 4);
        if payload.len() < HEADER || entries.len() as u64 != count * size as u64 {
            self.malformed += 1;
            return false;
        }
        let next = self.next.get_mut(kind).map_or(0, |next| std::mem::replace(next, (index as u32).saturating_add(1)));
        match index.cmp(&u64::from(next)) {
            std::cmp::Ordering::Less => {
                self.repeated += 1;
                return false;
            }
            std::cmp::Ordering::Equal => {}
            std::cmp::Ordering::Greater => self.missing += index - u64::from(next),
        }
        match event {
            id::ROOT_EDGE => self.roots += count,
            id::EDGE => self.references += count,
            id::NODE => {
                self.objects += count;
                for entry in entries.chunks_exact(size) {
                    object(number(entry, 0, POINTER), number(entry, POINTER + 8, 8));
                    self.announced = self.announced.saturating_add(number(entry, POINTER + 16, 8));
                }
            }
            _ => {}
        }
        true
    }

    /// What says that a part is missing; none if all is there.
    pub(super) fn cut(&self) -> Option<String> {
        let mut faults = Vec::new();
        if self.missing > 0 {
            faults.push(format!("{} blocks are missing", self.missing));
        }
        if self.malformed > 0 {
            faults.push(format!("{} blocks have another length than they say", self.malformed));
        }
        if self.announced != self.references {
            faults.push(format!("{} references came, and the objects have {}", self.references, self.announced));
        }
        // They come last.
        if self.objects == 0 || self.roots == 0 {
            faults.push(format!("it has {} objects and {} roots", self.objects, self.roots));
        }
        (!faults.is_empty()).then(|| faults.join(", "))
    }
}

/// The little-endian number of `size` bytes at `at`; 0 where the bytes end before.
fn number(bytes: &[u8], at: usize, size: usize) -> u64 {
    let bytes = bytes.get(at..at + size).unwrap_or_default();
    bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(index: u32, entries: &[Vec<u8>]) -> Vec<u8> {
        let mut payload = [index.to_le_bytes(), (entries.len() as u32).to_le_bytes()].concat();
        payload.extend([0; 2]);
        payload.extend(entries.concat());
        payload
    }

    fn object(class: u64, references: u64) -> Vec<u8> {
        let words = [32, class, references].map(u64::to_le_bytes).concat();
        [vec![1; POINTER], words].concat()
    }

    fn edge() -> Vec<u8> {
        vec![1; POINTER + 4]
    }

    fn root() -> Vec<u8> {
        vec![1; 2 * POINTER + 5]
    }

    #[test]
    fn a_whole_dump_fits_together() {
        let mut blocks = Blocks::default();
        let mut classes = Vec::new();
        assert!(blocks.cut().is_some(), "nothing has come");
        assert!(blocks.add(id::EDGE, &block(0, &[edge(), edge()]), |_, _| {}));
        assert!(blocks.add(id::NODE, &block(0, &[object(7, 2), object(8, 1)]), |_, class| classes.push(class)));
        assert!(blocks.add(id::ROOT_STATIC_VAR, b"names", |_, _| {}));
        assert!(blocks.add(id::EDGE, &block(1, &[edge()]), |_, _| {}));
        assert!(blocks.cut().unwrap().contains("0 roots"), "they come last");
        assert!(blocks.add(id::ROOT_EDGE, &block(0, &[root()]), |_, _| {}));
        assert_eq!(blocks.cut(), None);
        assert_eq!((classes, blocks.objects, blocks.references, blocks.repeated), (vec![7, 8], 2, 3, 0));
    }

    #[test]
    fn what_is_missing_or_comes_twice_is_noticed() {
        let mut blocks = Blocks::default();
        assert!(blocks.add(id::NODE, &block(0, &[object(7, 1)]), |_, _| {}));
        assert!(blocks.add(id::ROOT_EDGE, &block(0, &[root()]), |_, _| {}));
        assert!(blocks.cut().unwrap().contains("0 references came, and the objects have 1"));
        assert!(blocks.add(id::EDGE, &block(2, &[edge()]), |_, _| {}));
        assert_eq!(blocks.cut().unwrap(), "2 blocks are missing");
        assert!(!blocks.add(id::NODE, &block(0, &[object(7, 1)]), |_, _| {}));
        assert_eq!((blocks.repeated, blocks.objects), (1, 1), "it counts once");
        for payload in [&[][..], &[0; 9], &[9; 10], &[0; 11]] {
            assert!(!blocks.add(id::NODE, payload, |_, _| {}));
        }
        assert_eq!(blocks.malformed, 4);
    }
}
