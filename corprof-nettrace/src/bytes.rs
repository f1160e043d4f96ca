//! Little-endian values off the front of a slice, as both the diagnostics protocol and `.nettrace` have them.
//!
//! Nothing here panics or allocates more than the slice holds: a missing value is an error, and a length that is too
//! large is detected before any memory is allocated for it.

/// The slice ended before the value did, or the value is none of its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

/// The rest of a slice.
#[derive(Debug, Clone, Copy)]
pub struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The unread bytes.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    #[inline]
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (bytes, rest) = self.rest.split_at_checked(count).ok_or(Malformed)?;
        self.rest = rest;
        Ok(bytes)
    }

    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(Malformed)?;
        self.rest = rest;
        Ok(*bytes)
    }

    #[inline]
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        let (byte, rest) = self.rest.split_first().ok_or(Malformed)?;
        self.rest = rest;
        Ok(*byte)
    }

    #[inline]
    pub fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }

    #[inline]
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    #[inline]
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    /// A u32 that counts something in memory.
    pub fn count(&mut self) -> Result<usize, Malformed> {
        usize::try_from(self.u32()?).map_err(|_| Malformed)
    }

    /// Seven bits a byte, the lowest first; the eighth says that more follow.
    #[inline]
    pub fn varuint64(&mut self) -> Result<u64, Malformed> {
        let first = self.u8()?;
        if first < 0x80 {
            return Ok(u64::from(first));
        }
        let mut value = u64::from(first & 0x7f);
        for shift in (7..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(Malformed);
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Malformed)
    }

    #[inline]
    pub fn varuint32(&mut self) -> Result<u32, Malformed> {
        self.varuint64().and_then(|value| u32::try_from(value).map_err(|_| Malformed))
    }

    /// A varuint whose lowest bit is the sign.
    pub fn varint64(&mut self) -> Result<i64, Malformed> {
        let value = self.varuint64()?;
        Ok((value >> 1).cast_signed() ^ -((value & 1).cast_signed()))
    }

    /// UTF-16 up to a terminating zero. Invalid UTF-16 becomes U+FFFD.
    pub fn utf16z(&mut self) -> Result<String, Malformed> {
        let units = self.rest.chunks_exact(2);
        let length = units.clone().position(|unit| unit == [0, 0]).ok_or(Malformed)?;
        let text = utf16(units.take(length));
        self.bytes(length * 2 + 2)?;
        Ok(text)
    }

    /// UTF-16 after its length in units, the terminating zero among them; the length 0 is not a string at all.
    pub fn counted_utf16(&mut self) -> Result<Option<String>, Malformed> {
        let units = self.count()?;
        if units == 0 {
            return Ok(None);
        }
        let bytes = self.bytes(units.checked_mul(2).ok_or(Malformed)?)?;
        let text = bytes.strip_suffix(&[0, 0]).ok_or(Malformed)?;
        Ok(Some(utf16(text.chunks_exact(2))))
    }

    /// UTF-8 after its length in bytes as a varuint. Invalid UTF-8 becomes U+FFFD.
    pub fn utf8(&mut self) -> Result<String, Malformed> {
        self.utf8_bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    /// The bytes of [`utf8`](Self::utf8).
    pub fn utf8_bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = usize::try_from(self.varuint32()?).map_err(|_| Malformed)?;
        self.bytes(length)
    }
}

fn utf16<'a>(units: impl Iterator<Item = &'a [u8]>) -> String {
    let units = units.map(|unit| match unit {
        [low, high] => u16::from_le_bytes([*low, *high]),
        _ => 0xfffd,
    });
    char::decode_utf16(units).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varuints_are_whole_or_refused() {
        let read = |bytes: &[u8]| Cursor::new(bytes).varuint64();
        assert_eq!(read(&[0x7f]), Ok(127));
        assert_eq!(read(&[0x80, 0x01]), Ok(128));
        assert_eq!(read(&[0xff; 9]), Err(Malformed));
        let largest = [&[0xff; 9][..], &[1]].concat();
        assert_eq!(read(&largest), Ok(u64::MAX));
        let too_large = [&[0xff; 9][..], &[2]].concat();
        assert_eq!(read(&too_large), Err(Malformed));
        let too_long = [&[0x80; 10][..], &[0]].concat();
        assert_eq!(read(&too_long), Err(Malformed));
        assert_eq!(Cursor::new(&[0xff, 0xff, 0xff, 0xff, 0x1f]).varuint32(), Err(Malformed));
        assert_eq!(Cursor::new(&[0xff, 0xff, 0xff, 0xff, 0x0f]).varuint32(), Ok(u32::MAX));
    }

    #[test]
    fn varints_have_their_sign_in_the_lowest_bit() {
        let read = |bytes: &[u8]| Cursor::new(bytes).varint64();
        assert_eq!(read(&[0]), Ok(0));
        assert_eq!(read(&[1]), Ok(-1));
        assert_eq!(read(&[2]), Ok(1));
        let lowest = [&[0xff; 9][..], &[1]].concat();
        assert_eq!(read(&lowest), Ok(i64::MIN));
    }

    #[test]
    fn strings_end_where_they_say() {
        let mut cursor = Cursor::new(b"a\0b\0\0\0c");
        assert_eq!(cursor.utf16z().as_deref(), Ok("ab"));
        assert_eq!(cursor.rest(), b"c");
        assert_eq!(Cursor::new(b"a\0b").utf16z(), Err(Malformed));
        assert_eq!(Cursor::new(b"\x02\0\0\0a\0\0\0").counted_utf16(), Ok(Some("a".to_owned())));
        assert_eq!(Cursor::new(b"\0\0\0\0").counted_utf16(), Ok(None));
        assert_eq!(Cursor::new(b"\x01\0\0\0a\0").counted_utf16(), Err(Malformed), "without its terminator");
        assert_eq!(Cursor::new(b"\xff\xff\xff\xffa\0").counted_utf16(), Err(Malformed));
        assert_eq!(Cursor::new(b"\x02\xc3\xa4").utf8().as_deref(), Ok("ä"));
    }
}
