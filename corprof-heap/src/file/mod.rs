//! Files of snapshots, to be compared later: `.cheap`, about 8 bytes an object.
//!
//! # Format, version 2
//!
//! `"corprof heap\0"`, the version as a byte, then numbers in groups of seven bits, the lowest first (LEB128). Texts
//! are a length and UTF-8.
//!
//! | part | content |
//! |---|---|
//! | about | title; 0, or 1 and milliseconds since 1970; how many counts of losses, the counts |
//! | classes | how many; each: assembly, name, key, size of an instance, a method that tells for what it was made |
//! | shapes | how many; each: class, size |
//! | objects | how many; the power of 2 by which distances are divided; each: distance from the address before, shape, number of edges |
//! | edges | of each object: where they lead, as distance from the one before, the first from the object itself, zigzag |
//! | weak edges | how many; each: distance of the edge's number from the one before, 0 or the table's object and 1 |
//! | roots | how many; each: distance of the object from the one before, kind, 0 or 1 and a name |
//! | end | CRC-32 of all before, 4 bytes, the lowest first |
//!
//! A reader of version 2 refuses other versions: unknown parts cannot be skipped.

use std::io;

mod read;
mod write;

const MAGIC: &[u8; 13] = b"corprof heap\0";
const VERSION: u8 = 2;

/// Why a file could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The system could not read it.
    #[error("cannot read the snapshot: {0}")]
    Io(#[from] io::Error),

    /// It begins differently.
    #[error("this is not a heap snapshot of corprof: it does not begin with `corprof heap`")]
    NotASnapshot,

    /// A newer corprof wrote it.
    #[error(
        "the snapshot has version {0} of the format, and this corprof reads version {VERSION} only: use the corprof that wrote it"
    )]
    Version(u8),

    /// Its content contradicts itself.
    #[error("the snapshot is damaged near byte {at}: {what}; take it again, or copy it again from where it came")]
    Damaged {
        /// How many bytes were read by then.
        at: u64,
        /// The part that does not fit.
        what: &'static str,
    },
}

/// A number with its sign in the lowest bit, so that small ones of either sign are short.
fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63).cast_unsigned()
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::{unzigzag, zigzag};

    #[test]
    fn signs_come_back() {
        for value in [0, 1, -1, 2, -2, i64::MAX, i64::MIN] {
            assert_eq!(unzigzag(zigzag(value)), value);
        }
        assert_eq!([0, -1, 1, -2].map(zigzag), [0, 1, 2, 3]);
    }
}
