//! Little-endian values off the front of a slice. A missing value is an error; nothing panics or allocates.

use crate::error::Problem;

/// The rest of a slice.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The unread bytes.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], Problem> {
        let (bytes, rest) = self.rest.split_at_checked(count).ok_or(Problem::Truncated)?;
        self.rest = rest;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Problem> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(Problem::Truncated)?;
        self.rest = rest;
        Ok(*bytes)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Problem> {
        self.array().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Problem> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Problem> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Problem> {
        self.array().map(u64::from_le_bytes)
    }

    /// Seven bits a byte, the lowest first; the eighth says that more follow.
    pub(crate) fn varuint(&mut self) -> Result<u64, Problem> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(Problem::Number);
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Problem::Number)
    }

    /// A varuint whose lowest bit is the sign.
    pub(crate) fn varint(&mut self) -> Result<i64, Problem> {
        let value = self.varuint()?;
        Ok((value >> 1).cast_signed() ^ -((value & 1).cast_signed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_whole_or_refused() {
        let read = |bytes: &[u8]| Cursor::new(bytes).varuint();
        assert_eq!(read(&[0x7f]), Ok(127));
        assert_eq!(read(&[0x80, 0x01]), Ok(128));
        assert_eq!(read(&[0xff; 9]), Err(Problem::Truncated));
        let largest = [&[0xff; 9][..], &[1]].concat();
        assert_eq!(read(&largest), Ok(u64::MAX));
        let too_large = [&[0xff; 9][..], &[2]].concat();
        assert_eq!(read(&too_large), Err(Problem::Number));
        assert_eq!(read(&[0x80; 11]), Err(Problem::Number));
        assert_eq!(Cursor::new(&[1]).varint(), Ok(-1));
        assert_eq!(Cursor::new(&largest).varint(), Ok(i64::MIN));
    }
}
