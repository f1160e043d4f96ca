//! Code without a line: the hidden sequence points of a portable PDB.
//!
//! The format is that of the specification "Portable PDB" of .NET, with the tables of ECMA-335, II.22 to II.24.

use std::collections::HashMap;
use std::ops::Range;

/// The code of methods that has no line.
#[derive(Debug, Default)]
pub(super) struct Hidden {
    /// By the row of the method, in order: offsets in its IL.
    methods: HashMap<u32, Vec<Range<u32>>>,
}

/// The tables that a PDB begins with.
const DOCUMENT: u32 = 0x30;
const METHOD_DEBUG_INFORMATION: u32 = 0x31;

impl Hidden {
    /// None if the PDB is not as expected.
    pub(super) fn of_pdb(pdb: &[u8]) -> Option<Self> {
        let tables = stream(pdb, b"#~")?;
        let blobs = stream(pdb, b"#Blob")?;
        let mut at = Bytes(tables);
        at.take(6)?;
        let heaps = at.number(1)?;
        at.take(1)?;
        let valid = at.number(8)?;
        at.take(8)?;
        let mut rows = [0; 64];
        for table in (0..64).filter(|table| valid >> table & 1 == 1) {
            *rows.get_mut(table as usize)? = at.number(4)?;
        }
        // Tables of the module itself are not in a PDB of its own.
        if valid & ((1 << DOCUMENT) - 1) != 0 {
            return None;
        }
        let wide = |bit: u64| if heaps & bit == 0 { 2 } else { 4 };
        let [guid, blob] = [wide(2), wide(4)];
        let documents = *rows.get(DOCUMENT as usize)?;
        let document = if documents < 1 << 16 { 2 } else { 4 };
        at.take(usize::try_from(documents).ok()?.checked_mul(2 * (guid + blob))?)?;
        let mut hidden = Self::default();
        for row in 1..=u32::try_from(*rows.get(METHOD_DEBUG_INFORMATION as usize)?).ok()? {
            let has_document = at.number(document)? != 0;
            let points = usize::try_from(at.number(blob)?).ok()?;
            if points == 0 {
                continue;
            }
            let mut bytes = Bytes(blobs.get(points..)?);
            let length = bytes.compressed()?;
            let ranges = ranges(Bytes(bytes.take(length as usize)?), has_document)?;
            if !ranges.is_empty() {
                hidden.methods.insert(row, ranges);
            }
        }
        Some(hidden)
    }

    /// Whether a method's code at this offset has no line.
    pub(super) fn covers(&self, row: u32, il_offset: u32) -> bool {
        self.methods.get(&row).is_some_and(|ranges| ranges.iter().any(|range| range.contains(&il_offset)))
    }
}

/// The code without lines, by the sequence points of a method. What comes before the first point has no line either.
fn ranges(mut bytes: Bytes<'_>, has_document: bool) -> Option<Vec<Range<u32>>> {
    bytes.compressed()?; // the signature of the local variables
    if !has_document {
        bytes.compressed()?;
    }
    let mut ranges: Vec<Range<u32>> = Vec::new();
    let mut offset = 0_u32;
    let mut begin = Some(0);
    let mut is_first = true;
    while !bytes.0.is_empty() {
        let delta = bytes.compressed()?;
        if delta == 0 && !is_first {
            bytes.compressed()?; // the document changes
            continue;
        }
        is_first = false;
        offset = offset.checked_add(delta)?;
        let lines = bytes.compressed()?;
        let columns = bytes.compressed()?;
        let is_hidden = lines == 0 && columns == 0;
        if is_hidden {
            begin = begin.or(Some(offset));
            continue;
        }
        // Where it begins: line and column, or differences, which are as long.
        bytes.compressed()?;
        bytes.compressed()?;
        if let Some(begin) = begin.take().filter(|begin| *begin < offset) {
            ranges.push(begin..offset);
        }
    }
    ranges.extend(begin.map(|begin| begin..u32::MAX));
    Some(ranges)
}

/// The bytes of a stream of metadata.
fn stream<'a>(pdb: &'a [u8], wanted: &[u8]) -> Option<&'a [u8]> {
    let mut at = Bytes(pdb);
    if at.take(4)? != b"BSJB" {
        return None;
    }
    at.take(8)?;
    let version = at.number(4)?;
    at.take(usize::try_from(version).ok()?)?;
    at.take(2)?;
    for _ in 0..at.number(2)? {
        let offset = usize::try_from(at.number(4)?).ok()?;
        let size = usize::try_from(at.number(4)?).ok()?;
        let length = at.0.iter().position(|byte| *byte == 0)?;
        let name = at.take(length.checked_add(1)?.next_multiple_of(4))?;
        if name.get(..length)? == wanted {
            return pdb.get(offset..offset.checked_add(size)?);
        }
    }
    None
}

/// Bytes that are read from their beginning on.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// A little-endian number of at most eight bytes.
    fn number(&mut self, size: usize) -> Option<u64> {
        let mut bytes = [0; 8];
        bytes.get_mut(..size)?.copy_from_slice(self.take(size)?);
        Some(u64::from_le_bytes(bytes))
    }

    /// A number in one, two or four bytes, by its first bits.
    fn compressed(&mut self) -> Option<u32> {
        let first = *self.0.first()?;
        let size = match first {
            0..0x80 => 1,
            0x80..0xC0 => 2,
            0xC0..0xE0 => 4,
            _ => return None,
        };
        let mut bytes = [0; 4];
        bytes.get_mut(4 - size..)?.copy_from_slice(self.take(size)?);
        let marks = match size {
            1 => 0,
            2 => 0x8000,
            _ => 0xC000_0000,
        };
        Some(u32::from_be_bytes(bytes) & !marks)
    }
}
