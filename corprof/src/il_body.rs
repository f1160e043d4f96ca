//! The shape of a method body: header, code and data sections, as ECMA-335 II.25.4 lays them out.
//!
//! The runtime reads a body from its first byte as far as its header says. So corprof checks a profiler's body before
//! the call: the length in its header must be its real length. The instructions are not checked.

use corprof_sys as sys;
use windows_core::BOOL;

use crate::error::{E_INVALIDARG, Error, Result};

/// The header's kind, in the two lowest bits: a length in one byte, no locals, no sections.
const TINY: u8 = 0b10;
/// The header's kind, in the three lowest bits: 12 bytes or more.
const FAT: u8 = 0b011;
/// In a fat header's flags: sections follow the code.
const MORE_SECTIONS: u8 = 0x08;
/// The least size of a fat header.
const FAT_HEADER: usize = 12;
/// In a section's kind: its length has three bytes, and its clauses are large.
const SECTION_IS_FAT: u8 = 0x40;
/// In a section's kind: another one follows.
const SECTION_FOLLOWS: u8 = 0x80;
/// The size of a section's header, in both formats.
const SECTION_HEADER: usize = 4;
/// The sizes of an exception clause in a fat and in a small section.
const FAT_CLAUSE: usize = 24;
const SMALL_CLAUSE: usize = 12;
/// Sections begin on a multiple of this, counted from the header, which itself lies on one.
const ALIGNMENT: usize = 4;

/// Maps an instruction of a function's first body to one of its new body, for debuggers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct IlMapEntry {
    /// The offset of the old instruction, in bytes from the start of the old code.
    pub old_offset: u32,
    /// The offset of the new instruction, in bytes from the start of the new code.
    pub new_offset: u32,
    /// Whether the two do the same.
    pub is_accurate: bool,
}

impl IlMapEntry {
    /// The entries in their wire form, and their number.
    pub(crate) fn to_wire(entries: &[Self], call: &'static str) -> Result<(Vec<sys::COR_IL_MAP>, u32)> {
        let count = u32::try_from(entries.len()).map_err(|_| Error::new(E_INVALIDARG, call))?;
        let wire = entries.iter().map(|entry| sys::COR_IL_MAP {
            oldOffset: entry.old_offset,
            newOffset: entry.new_offset,
            fAccurate: BOOL::from(entry.is_accurate),
        });
        Ok((wire.collect(), count))
    }
}

/// `Ok` with the length of `body` if it has the length that it says: header, code, and sections.
pub(crate) fn check_body(body: &[u8], call: &'static str) -> Result<u32> {
    match (length(body), u32::try_from(body.len())) {
        (Some(length), Ok(wire_length)) if length == body.len() => Ok(wire_length),
        _ => Err(Error::new(E_INVALIDARG, call)
            .about("method body", "its header, code and sections must end where the bytes end")),
    }
}

/// The length of the body at the start of `bytes`, or none if it does not end within them.
fn length(bytes: &[u8]) -> Option<usize> {
    let &first = bytes.first()?;
    let end = if first & 0b11 == TINY {
        1 + usize::from(first >> 2)
    } else if first & 0b111 == FAT {
        fat_length(bytes, first & MORE_SECTIONS != 0)?
    } else {
        return None;
    };
    (end <= bytes.len()).then_some(end)
}

fn fat_length(bytes: &[u8], has_sections: bool) -> Option<usize> {
    let header = usize::from(bytes.get(1)? >> 4) * 4;
    if header < FAT_HEADER {
        return None;
    }
    let code = u32::from_le_bytes(*bytes.get(4..)?.first_chunk()?);
    let mut end = header.checked_add(usize::try_from(code).ok()?)?;
    let mut follows = has_sections;
    while follows {
        let start = end.checked_next_multiple_of(ALIGNMENT)?;
        let &[kind, low, middle, high] = bytes.get(start..)?.first_chunk()?;
        let (length, clause) = if kind & SECTION_IS_FAT == 0 {
            (usize::from(low), SMALL_CLAUSE)
        } else {
            (usize::from(low) | usize::from(middle) << 8 | usize::from(high) << 16, FAT_CLAUSE)
        };
        // A length less than the header's would make the runtime read this section for ever.
        if length < SECTION_HEADER {
            return None;
        }
        // Some compilers leave the header out of the length; the runtime reads as many whole clauses as it covers.
        let clauses = SECTION_HEADER + length / clause * clause;
        end = start.checked_add(length.max(clauses))?;
        follows = kind & SECTION_FOLLOWS != 0;
    }
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fat body with this code and these sections, each with its kind, length field and the bytes after its header.
    fn fat(code: usize, sections: &[(u8, usize, usize)]) -> Vec<u8> {
        let flags = FAT | if sections.is_empty() { 0 } else { MORE_SECTIONS };
        let mut body = vec![flags, 0x30, 8, 0];
        body.extend_from_slice(&(code as u32).to_le_bytes());
        body.extend_from_slice(&[0; 4]);
        body.resize(body.len() + code, 0x2A);
        for &(kind, length, data) in sections {
            body.resize(body.len().next_multiple_of(ALIGNMENT), 0);
            let [low, middle, high, _] = (length as u32).to_le_bytes();
            body.extend_from_slice(&[kind, low, middle, high]);
            body.resize(body.len() + data, 0);
        }
        body
    }

    #[test]
    fn measures_bodies_of_all_shapes() {
        assert_eq!(length(&[0x06, 0x2A]), Some(2));
        assert_eq!(length(&[0x06, 0x2A, 0xFF]), Some(2));
        for body in [
            fat(0, &[]),
            fat(301, &[]),
            fat(5, &[(0x01, 16, 12)]),
            fat(6, &[(0x01, 12, 12)]), // the length leaves out the header
            fat(7, &[(0x41, 4 + 48, 48)]),
            fat(7, &[(0x41, 48, 48)]),
            fat(8, &[(0xC1, 4 + 24, 24), (0x01, 4 + 12, 12)]),
        ] {
            assert_eq!(length(&body), Some(body.len()), "{body:02X?}");
        }
    }

    #[test]
    fn refuses_every_body_that_is_cut_short() {
        for body in [vec![0x06, 0x2A], fat(9, &[]), fat(8, &[(0xC1, 28, 24), (0x01, 16, 12)])] {
            for end in 0..body.len() {
                assert_eq!(length(&body[..end]), None, "{end} bytes of {body:02X?}");
            }
        }
    }

    #[test]
    fn refuses_what_would_mislead_the_runtime() {
        assert_eq!(length(&[0x00, 0x2A]), None);
        assert_eq!(length(&[0x07; 32]), None);
        let mut short_header = fat(1, &[]);
        short_header[1] = 0x20;
        assert_eq!(length(&short_header), None);
        let mut huge = fat(1, &[]);
        huge[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(length(&huge), None);
        assert_eq!(length(&fat(4, &[(0x81, 0, 64)])), None);
    }

    #[test]
    fn a_body_must_end_where_the_bytes_end() {
        assert_eq!(check_body(&[0x06, 0x2A], "X"), Ok(2));
        for body in [&[][..], &[0x06], &[0x06, 0x2A, 0x00]] {
            let error = check_body(body, "X").unwrap_err();
            assert_eq!(error.code(), E_INVALIDARG);
            assert!(error.to_string().contains("must end where the bytes end"), "{error}");
        }
    }
}
