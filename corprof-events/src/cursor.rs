//! Reads little-endian values from a payload.

use crate::scalar::Widths;
use crate::text::Text;

/// The payload ended before the value did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Truncated;

/// The rest of a payload, and the widths of its values.
#[derive(Debug, Clone, Copy)]
pub struct Cursor<'a> {
    rest: &'a [u8],
    is_64_bit: bool,
    widths: Widths,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8], is_64_bit: bool) -> Self {
        Self { rest: bytes, is_64_bit, widths: Widths::Described }
    }

    pub(crate) fn with_widths(self, widths: Widths) -> Self {
        Self { widths, ..self }
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn is_64_bit(&self) -> bool {
        self.is_64_bit
    }

    pub(crate) fn widths(&self) -> Widths {
        self.widths
    }

    /// The bytes of an integer of `size` bytes that is written in `width` bytes. The others must be its extension.
    pub(crate) fn widened(&mut self, size: usize, is_signed: bool, width: usize) -> Result<Self, Truncated> {
        let (value, extension) = self.bytes(width)?.split_at_checked(size).ok_or(Truncated)?;
        let is_negative = is_signed && value.last().is_some_and(|top| *top >= 0x80);
        let filler = if is_negative { 0xff } else { 0 };
        if extension.iter().any(|byte| *byte != filler) {
            return Err(Truncated);
        }
        Ok(Self { rest: value, ..*self })
    }

    #[inline]
    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], Truncated> {
        let (bytes, rest) = self.rest.split_at_checked(count).ok_or(Truncated)?;
        self.rest = rest;
        Ok(bytes)
    }

    #[inline]
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Truncated> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(Truncated)?;
        self.rest = rest;
        Ok(*bytes)
    }

    #[inline]
    pub(crate) fn pointer(&mut self) -> Result<u64, Truncated> {
        if self.is_64_bit { self.u64() } else { self.u32().map(u64::from) }
    }

    /// Four bytes.
    #[inline]
    pub(crate) fn boolean(&mut self) -> Result<bool, Truncated> {
        self.u32().map(|value| value != 0)
    }

    /// UTF-16 up to its NUL, which is passed over.
    #[inline]
    pub(crate) fn utf16z(&mut self) -> Result<Text<'a>, Truncated> {
        let end = nul(self.rest).ok_or(Truncated)?;
        let text = self.bytes(end)?;
        self.bytes(2)?;
        Ok(Text::utf16(text))
    }

    /// Bytes up to a NUL, which is passed over.
    pub(crate) fn ansiz(&mut self) -> Result<Text<'a>, Truncated> {
        let end = self.rest.iter().position(|&byte| byte == 0).ok_or(Truncated)?;
        let text = self.bytes(end)?;
        self.bytes(1)?;
        Ok(Text::utf8(text))
    }

    /// UTF-8 after its length.
    pub(crate) fn counted_utf8(&mut self) -> Result<Text<'a>, Truncated> {
        let length = usize::try_from(self.varuint()?).map_err(|_| Truncated)?;
        self.bytes(length).map(Text::utf8)
    }

    /// UTF-8 after its length in 16 bits.
    pub(crate) fn utf8_counted(&mut self) -> Result<Text<'a>, Truncated> {
        let length = self.u16()?.into();
        self.bytes(length).map(Text::utf8)
    }

    /// Seven bits a byte, the lowest first; the eighth says that more follow.
    pub(crate) fn varuint(&mut self) -> Result<u64, Truncated> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let [byte] = self.array()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Truncated)
    }

    /// A varuint whose lowest bit is the sign.
    pub(crate) fn varint(&mut self) -> Result<i64, Truncated> {
        let value = self.varuint()?;
        Ok((value >> 1).cast_signed() ^ -((value & 1).cast_signed()))
    }
}

/// Where the first UTF-16 NUL is. Four units at a time: decoding a view with texts takes a quarter of the time.
#[inline]
fn nul(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = 0x0001_0001_0001_0001;
    const TOPS: u64 = ONES << 15;
    let (words, rest) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        // The lowest bit that is left is in the first unit that is zero.
        let zeros = word.wrapping_sub(ONES) & !word & TOPS;
        if zeros != 0 {
            return Some(8 * index + 2 * (zeros.trailing_zeros() as usize / 16));
        }
    }
    let at = rest.chunks_exact(2).position(|unit| unit == [0, 0])?;
    Some(8 * words.len() + 2 * at)
}

macro_rules! numbers {
    ($($name:ident),*) => {
        impl Cursor<'_> { $(
            #[inline]
            pub(crate) fn $name(&mut self) -> Result<$name, Truncated> {
                self.array().map($name::from_le_bytes)
            }
        )* }
    };
}
numbers!(u8, u16, u32, u64, i8, i16, i32, i64, f32, f64);

#[cfg(test)]
mod tests {
    use super::nul;

    #[test]
    fn the_first_nul_is_found_wherever_it_is() {
        // Units that have a zero byte, and some that borrow from their neighbour.
        for filler in [[1, 0], [0, 1], [0, 0x80], [0xff, 0xff]] {
            for length in 0..40 {
                let mut bytes = filler.repeat(length);
                assert_eq!(nul(&bytes), None);
                bytes.extend([0, 0, 0, 0, 1, 0]);
                assert_eq!(nul(&bytes), Some(2 * length), "{filler:?}");
            }
        }
    }
}
