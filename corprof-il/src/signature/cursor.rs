//! Reads a signature where it lies, without making a tree of it.
//!
//! The caller goes from element to element; this module reads the parts between them, and skips whole types. The
//! grammar is that of `decode`, and tests compare the two. A name's first look-up takes 425 ns by this, and 466 with a
//! tree (`cargo xtask bench --only calls`).

use super::decode::{MAX_DEPTH, MAX_RANK, kind};
use super::{CallingConvention, Primitive, SignatureError, SignatureProblem};

pub use super::decode::element;
pub use super::reader::Reader;

/// How a method's signature begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MethodHead {
    /// The calling convention.
    pub convention: CallingConvention,
    /// The number of its own generic parameters.
    pub generic_parameters: u32,
    /// How many parameters it takes.
    pub parameters: usize,
}

impl MethodHead {
    /// The beginning of a signature: the return type is next, and then the parameters.
    ///
    /// # Errors
    /// If the bytes do not begin a method's signature.
    #[inline(always)]
    pub fn read(reader: &mut Reader<'_>) -> Result<Self, SignatureError> {
        let start = reader.offset();
        let first = reader.byte()?;
        let Some(convention) = CallingConvention::from_low_nibble(first) else {
            return Err(SignatureError::new(start, SignatureProblem::WrongKind { wanted: "method", found: first }));
        };
        let generic_parameters = if first & kind::GENERIC == 0 { 0 } else { reader.unsigned()? };
        Ok(Self { convention, generic_parameters, parameters: reader.count()? })
    }

    /// Whether a method's signature is whole.
    #[cfg(test)]
    fn check(blob: &[u8]) -> Result<(), SignatureError> {
        Reader::new(blob).skip_method(0)
    }
}

impl Reader<'_> {
    /// Whether a bare type is whole.
    #[cfg(test)]
    fn check_type(blob: &[u8]) -> Result<(), SignatureError> {
        Reader::new(blob).skip_type(0)
    }

    /// Goes past a whole type.
    #[inline]
    pub fn skip(&mut self) -> Result<(), SignatureError> {
        match self.next_if(Primitive::from_element) {
            Some(_) => Ok(()),
            None => self.skip_type(0),
        }
    }

    /// Goes past the next byte, if `of` makes something of it.
    #[inline]
    pub fn next_if<T>(&mut self, of: impl FnOnce(u8) -> Option<T>) -> Option<T> {
        let some = self.peek().and_then(of)?;
        // A byte has been looked at, so there is one.
        self.byte().ok().map(|_| some)
    }

    /// Goes past the dimensions of an array; returns how many they are.
    #[inline]
    pub fn rank(&mut self) -> Result<u32, SignatureError> {
        let start = self.offset();
        let rank = self.unsigned()?;
        if rank == 0 || rank > MAX_RANK {
            return Err(SignatureError::new(start, SignatureProblem::BadRank(rank)));
        }
        for _ in 0..self.count()? {
            self.unsigned()?;
        }
        for _ in 0..self.count()? {
            self.signed()?;
        }
        Ok(rank)
    }

    /// Skips the prefixes of a type that do not matter here: custom modifiers and pinning. Returns whether `byte`,
    /// which has been read, begins such a thing.
    #[inline]
    pub fn skip_modifier(&mut self, byte: u8) -> Result<bool, SignatureError> {
        match byte {
            element::CMOD_REQD | element::CMOD_OPT => _ = self.type_token()?,
            element::CMOD_INTERNAL => {
                self.byte()?;
                self.pointer()?;
            }
            element::PINNED => {}
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Whether a generic type is a class or a value type: its spelling does not depend on it.
    #[inline]
    pub fn kind_of_generic(&mut self) -> Result<(), SignatureError> {
        let start = self.offset();
        match self.byte()? {
            element::CLASS | element::VALUETYPE => Ok(()),
            other => Err(Self::bad_element(start, other)),
        }
    }

    /// The error of a byte that is not an element type.
    #[inline]
    pub fn bad_element(at: usize, byte: u8) -> SignatureError {
        SignatureError::new(at, SignatureProblem::BadElement(byte))
    }

    fn skip_method(&mut self, depth: usize) -> Result<(), SignatureError> {
        let head = MethodHead::read(self)?;
        self.skip_type(depth)?;
        let mut had_sentinel = false;
        for _ in 0..head.parameters {
            if !had_sentinel && self.peek() == Some(element::SENTINEL) {
                self.byte()?;
                had_sentinel = true;
            }
            self.skip_type(depth)?;
        }
        Ok(())
    }

    fn skip_type(&mut self, mut depth: usize) -> Result<(), SignatureError> {
        loop {
            if depth >= MAX_DEPTH {
                return Err(SignatureError::new(self.offset(), SignatureProblem::TooDeep));
            }
            depth += 1;
            let start = self.offset();
            let byte = self.byte()?;
            if Primitive::from_element(byte).is_some() {
                return Ok(());
            }
            match byte {
                // Their element type is next, with nothing after it.
                element::PTR | element::BYREF | element::SZARRAY => continue,
                element::VALUETYPE | element::CLASS => _ = self.type_token()?,
                element::VAR | element::MVAR => _ = self.unsigned()?,
                element::ARRAY => {
                    self.skip_type(depth)?;
                    self.rank()?;
                }
                element::GENERICINST => {
                    self.kind_of_generic()?;
                    self.type_token()?;
                    for _ in 0..self.count()? {
                        self.skip_type(depth)?;
                    }
                }
                element::FNPTR => self.skip_method(depth)?,
                element::INTERNAL => _ = self.pointer()?,
                other if self.skip_modifier(other)? => continue,
                other => return Err(Self::bad_element(start, other)),
            }
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::decode::Decoder;
    use super::*;

    /// Bytes that begin something, so that random signatures are whole now and then.
    const FERTILE: [u8; 24] = [
        0x00, 0x01, 0x02, 0x05, 0x08, 0x0f, 0x10, 0x12, 0x13, 0x14, 0x15, 0x1b, 0x1d, 0x1e, 0x1f, 0x20, 0x21, 0x22,
        0x30, 0x41, 0x45, 0x80, 0x09, 0xc0,
    ];

    #[test]
    fn finds_what_the_decoder_finds() {
        let mut state = 0x1234_5678_9abc_def1_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 20) as usize
        };
        let mut whole = 0;
        let mut broken = 0;
        for _ in 0..200_000 {
            let blob: Vec<u8> = (0..next() % 20).map(|_| FERTILE[next() % FERTILE.len()]).collect();
            let decoded = Decoder::new(&blob).method();
            assert_eq!(MethodHead::check(&blob).err(), decoded.as_ref().err().copied(), "{blob:x?}");
            if let Ok(signature) = decoded {
                let head = MethodHead::read(&mut Reader::new(&blob)).unwrap();
                assert_eq!(head.convention, signature.convention);
                assert_eq!(head.generic_parameters, signature.generic_parameters);
                assert_eq!(head.parameters, signature.parameters.len());
                whole += 1;
            } else {
                broken += 1;
            }
            assert_eq!(Reader::check_type(&blob).err(), Decoder::new(&blob).type_spec().err(), "{blob:x?}");
        }
        assert!(whole > 1000 && broken > 1000, "{whole} whole, {broken} broken");
    }

    #[test]
    fn depth_is_counted_as_the_decoder_counts() {
        for inner in [&[0x1d][..], &[0x1b, 0x00, 0x00], &[0x14], &[0x15, 0x12, 0x04, 0x01], &[0x20, 0x04], &[0x45]] {
            for depth in [1, MAX_DEPTH - 2, MAX_DEPTH - 1, MAX_DEPTH, MAX_DEPTH + 1] {
                let blob = [inner.repeat(depth), [0x08, 0x01, 0x00, 0x00].repeat(depth)].concat();
                assert_eq!(Reader::check_type(&blob).err(), Decoder::new(&blob).type_spec().err(), "{blob:x?}");
            }
        }
    }
}
