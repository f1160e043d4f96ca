//! Reads the bytes of a signature: single bytes, compressed integers, coded tokens (ECMA-335 II.23.2).
//!
//! Every read is bounds-checked and either moves forward or fails, so loops over it end.

use super::{SignatureError, SignatureProblem};
use crate::token::{TypeDef, TypeDefOrRef, TypeRef, TypeSpec};

/// Goes through the bytes of a signature, which it does not trust: a method that finds something else than it reads, or
/// nothing more, is an error with the offset.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// At the first byte of a signature.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// How many bytes have been read: where an error is.
    #[inline]
    pub fn offset(&self) -> usize {
        self.at
    }

    /// How many bytes are left.
    #[inline]
    pub fn remaining(&self) -> usize {
        self.bytes.len().saturating_sub(self.at)
    }

    /// The next byte, without reading it.
    #[inline]
    pub fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// The next byte.
    #[inline]
    pub fn byte(&mut self) -> Result<u8, SignatureError> {
        let byte = self.peek().ok_or(SignatureError::new(self.bytes.len(), SignatureProblem::Truncated))?;
        self.at += 1;
        Ok(byte)
    }

    #[inline]
    fn take<const N: usize>(&mut self) -> Result<[u8; N], SignatureError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        match rest.first_chunk::<N>() {
            Some(chunk) => {
                self.at += N;
                Ok(*chunk)
            }
            // The end of the blob is where the missing byte would have been.
            None => Err(SignatureError::new(self.bytes.len(), SignatureProblem::Truncated)),
        }
    }

    /// A compressed unsigned integer: 7, 14 or 29 bits in 1, 2 or 4 bytes.
    #[inline]
    pub fn unsigned(&mut self) -> Result<u32, SignatureError> {
        self.compressed().map(|(value, _)| value)
    }

    /// A compressed signed integer: the same widths, rotated left by one with the sign in the lowest bit.
    #[inline]
    pub fn signed(&mut self) -> Result<i32, SignatureError> {
        let (value, bits) = self.compressed()?;
        // At most 29 bits, so the conversion cannot lose one.
        let magnitude = (value >> 1).cast_signed();
        Ok(if value & 1 == 0 { magnitude } else { magnitude - (1 << (bits - 1)) })
    }

    /// The value and the number of bits it was stored in.
    #[inline]
    fn compressed(&mut self) -> Result<(u32, u32), SignatureError> {
        let start = self.at;
        match self.peek() {
            Some(first) if first & 0x80 == 0 => Ok((u32::from(self.byte()?), 7)),
            Some(first) if first & 0xC0 == 0x80 => Ok((u32::from(u16::from_be_bytes(self.take()?) & 0x3FFF), 14)),
            Some(first) if first & 0xE0 == 0xC0 => Ok((u32::from_be_bytes(self.take()?) & 0x1FFF_FFFF, 29)),
            Some(first) => Err(SignatureError::new(start, SignatureProblem::BadInteger(first))),
            None => Err(SignatureError::new(start, SignatureProblem::Truncated)),
        }
    }

    /// A compressed count of things that each take at least one more byte: more than are left is a lie, and must not be
    /// believed by an allocation.
    #[inline]
    pub fn count(&mut self) -> Result<usize, SignatureError> {
        let start = self.at;
        let count = self.unsigned()?;
        match usize::try_from(count) {
            Ok(n) if n <= self.remaining() => Ok(n),
            _ => Err(SignatureError::new(start, SignatureProblem::CountTooLarge(count))),
        }
    }

    /// A TypeDefOrRefOrSpec coded token.
    #[inline]
    pub fn type_token(&mut self) -> Result<TypeDefOrRef, SignatureError> {
        let start = self.at;
        let coded = self.unsigned()?;
        let row = coded >> 2;
        let bad = SignatureError::new(start, SignatureProblem::BadToken(coded));
        if row == 0 || row > 0x00FF_FFFF {
            return Err(bad);
        }
        match coded & 3 {
            0 => Ok(TypeDefOrRef::Def(TypeDef(TypeDef::NIL.0 | row))),
            1 => Ok(TypeDefOrRef::Ref(TypeRef(TypeRef::NIL.0 | row))),
            2 => Ok(TypeDefOrRef::Spec(TypeSpec(TypeSpec::NIL.0 | row))),
            _ => Err(bad),
        }
    }

    /// A raw pointer of the runtime, as only signatures built in memory contain one.
    #[inline]
    pub fn pointer(&mut self) -> Result<usize, SignatureError> {
        Ok(usize::from_ne_bytes(self.take()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsigned_examples_of_the_standard() {
        let cases: [(&[u8], u32); 8] = [
            (&[0x03], 0x03),
            (&[0x7F], 0x7F),
            (&[0x80, 0x80], 0x80),
            (&[0xAE, 0x57], 0x2E57),
            (&[0xBF, 0xFF], 0x3FFF),
            (&[0xC0, 0x00, 0x40, 0x00], 0x4000),
            (&[0xDF, 0xFF, 0xFF, 0xFF], 0x1FFF_FFFF),
            (&[0x00], 0),
        ];
        for (bytes, value) in cases {
            let mut reader = Reader::new(bytes);
            assert_eq!(reader.unsigned(), Ok(value));
            assert_eq!(reader.remaining(), 0);
        }
    }

    #[test]
    fn signed_examples_of_the_standard() {
        let cases: [(&[u8], i32); 8] = [
            (&[0x06], 3),
            (&[0x7B], -3),
            (&[0x80, 0x80], 64),
            (&[0x01], -64),
            (&[0xC0, 0x00, 0x40, 0x00], 8192),
            (&[0x80, 0x01], -8192),
            (&[0xDF, 0xFF, 0xFF, 0xFE], 268_435_455),
            (&[0xC0, 0x00, 0x00, 0x01], -268_435_456),
        ];
        for (bytes, value) in cases {
            assert_eq!(Reader::new(bytes).signed(), Ok(value), "{bytes:x?}");
        }
    }

    #[test]
    fn bad_integers_name_their_place() {
        assert_eq!(Reader::new(&[0xFF]).unsigned(), Err(SignatureError::new(0, SignatureProblem::BadInteger(0xFF))));
        assert_eq!(Reader::new(&[0x80]).unsigned(), Err(SignatureError::new(1, SignatureProblem::Truncated)));
        assert_eq!(Reader::new(&[]).unsigned(), Err(SignatureError::new(0, SignatureProblem::Truncated)));
    }

    #[test]
    fn coded_tokens() {
        assert_eq!(Reader::new(&[0x49]).type_token(), Ok(TypeDefOrRef::Ref(TypeRef(0x0100_0012))));
        assert_eq!(Reader::new(&[0x04]).type_token(), Ok(TypeDefOrRef::Def(TypeDef(0x0200_0001))));
        assert_eq!(Reader::new(&[0x06]).type_token(), Ok(TypeDefOrRef::Spec(TypeSpec(0x1b00_0001))));
        for bytes in [&[0x07][..], &[0x00], &[0xDF, 0xFF, 0xFF, 0xFC]] {
            assert!(matches!(
                Reader::new(bytes).type_token(),
                Err(SignatureError { offset: 0, problem: SignatureProblem::BadToken(_) })
            ));
        }
    }
}
