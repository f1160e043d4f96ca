//! Little-endian values off the front of a slice, as the messages of the diagnostics protocol have them.
//!
//! Nothing here panics or allocates more than the slice holds: a missing value is an error, and a length that is too large is
//! detected before any memory is allocated for it.

/// The slice ended before the value did, or the value is none of its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed;

/// The rest of a slice.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    #[inline]
    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (bytes, rest) = self.rest.split_at_checked(count).ok_or(Malformed)?;
        self.rest = rest;
        Ok(bytes)
    }

    #[inline]
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(Malformed)?;
        self.rest = rest;
        Ok(*bytes)
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Result<u8, Malformed> {
        let (byte, rest) = self.rest.split_first().ok_or(Malformed)?;
        self.rest = rest;
        Ok(*byte)
    }

    #[inline]
    pub(crate) fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }

    #[inline]
    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    #[inline]
    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    /// A u32 that counts something in memory.
    pub(crate) fn count(&mut self) -> Result<usize, Malformed> {
        usize::try_from(self.u32()?).map_err(|_| Malformed)
    }

    /// UTF-16 after its length in units, the terminating zero among them; the length 0 is no string at all.
    pub(crate) fn counted_utf16(&mut self) -> Result<Option<String>, Malformed> {
        let units = self.count()?;
        if units == 0 {
            return Ok(None);
        }
        let bytes = self.bytes(units.checked_mul(2).ok_or(Malformed)?)?;
        let text = bytes.strip_suffix(&[0, 0]).ok_or(Malformed)?;
        Ok(Some(utf16(text.chunks_exact(2))))
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
    fn strings_end_where_they_say() {
        assert_eq!(Cursor::new(b"\x02\0\0\0a\0\0\0").counted_utf16(), Ok(Some("a".to_owned())));
        assert_eq!(Cursor::new(b"\0\0\0\0").counted_utf16(), Ok(None));
        assert_eq!(Cursor::new(b"\x01\0\0\0a\0").counted_utf16(), Err(Malformed), "without its terminator");
        assert_eq!(Cursor::new(b"\xff\xff\xff\xffa\0").counted_utf16(), Err(Malformed));
    }
}
