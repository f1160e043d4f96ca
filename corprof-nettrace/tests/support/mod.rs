//! Shared by the tests: traces of all versions, built from the specification.
#![allow(dead_code, reason = "no test uses all of it")]

pub(crate) mod demands;
pub(crate) mod mutated;
pub(crate) mod v4;
pub(crate) mod v6;

/// Bytes in the order in which a trace has them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bytes(pub(crate) Vec<u8>);

impl Bytes {
    pub(crate) fn u8(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }

    pub(crate) fn u16(mut self, value: u16) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn bytes(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.0.extend(bytes.as_ref());
        self
    }

    pub(crate) fn varuint(mut self, mut value: u64) -> Self {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
        self
    }

    /// UTF-16 with a terminating zero.
    pub(crate) fn utf16z(mut self, text: &str) -> Self {
        self.0.extend(text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes));
        self
    }

    /// UTF-8 after its length as a varuint.
    pub(crate) fn utf8(self, text: &str) -> Self {
        self.varuint(text.len() as u64).bytes(text)
    }

    /// The contents of `part`, after its size in 16 bits.
    pub(crate) fn sized16(self, part: Bytes) -> Self {
        self.u16(part.0.len() as u16).bytes(part.0)
    }
}

/// 2026-11-22, a Sunday, 15:04:05.006.
pub(crate) fn utc() -> Bytes {
    [2026, 11, 0, 22, 15, 4, 5, 6].into_iter().fold(Bytes::default(), Bytes::u16)
}

/// When the built traces begin, and how fast their clock is.
pub(crate) const START: u64 = 1000;
pub(crate) const FREQUENCY: u64 = 10_000_000;
