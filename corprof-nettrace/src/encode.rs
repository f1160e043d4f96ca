//! Appends little-endian values, as `.nettrace` has them: the counterpart of `bytes`.

use crate::error::WriteError;

/// Seven bits a byte, the lowest first; the eighth says that more follow.
#[inline]
pub(crate) fn varuint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

/// A varuint whose lowest bit is the sign.
pub(crate) fn varint(out: &mut Vec<u8>, value: i64) {
    varuint(out, ((value << 1) ^ (value >> 63)).cast_unsigned());
}

/// UTF-8 after its length in bytes as a varuint.
pub(crate) fn utf8(out: &mut Vec<u8>, text: &str) {
    varuint(out, text.len() as u64);
    out.extend(text.as_bytes());
}

/// A name and a value.
pub(crate) fn property(out: &mut Vec<u8>, (name, value): &(String, String)) {
    utf8(out, name);
    utf8(out, value);
}

/// The length of `bytes` in 16 bits, which `what` is too long for otherwise.
pub(crate) fn length16(what: &'static str, bytes: &[u8]) -> Result<[u8; 2], WriteError> {
    let limit = usize::from(u16::MAX);
    let too_long = |_| WriteError::TooLong { what, size: bytes.len(), limit };
    u16::try_from(bytes.len()).map(u16::to_le_bytes).map_err(too_long)
}

/// The most bytes of a block that are written. Readers allow 16 MiB.
pub(crate) const LARGEST_BLOCK: usize = 0xff_ffff;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::Cursor;

    #[test]
    fn numbers_come_back() {
        let mut out = Vec::new();
        let unsigned = [0, 1, 0x7f, 0x80, 0x3fff, 0x4000, u64::MAX - 1, u64::MAX];
        let signed = [0, -1, 1, i64::MIN, i64::MAX];
        unsigned.iter().for_each(|value| varuint(&mut out, *value));
        signed.iter().for_each(|value| varint(&mut out, *value));
        let mut cursor = Cursor::new(&out);
        for value in unsigned {
            assert_eq!(cursor.varuint64(), Ok(value));
        }
        for value in signed {
            assert_eq!(cursor.varint64(), Ok(value));
        }
        assert!(cursor.is_empty());
    }
}
