//! PerfView's `FastSerialization`: objects in a stream, each with its type.

use std::io::{self, Write};

/// Marks in the stream.
mod tag {
    pub(super) const NULL: u8 = 1;
    pub(super) const BEGIN: u8 = 4;
    pub(super) const END: u8 = 6;
    pub(super) const BYTE: u8 = 8;
    pub(super) const SKIP_REGION: u8 = 12;
    pub(super) const TEXT: u8 = 13;
}

pub(super) struct Stream<W> {
    writer: W,
    length: u64,
    /// Ends of regions that a reader may skip.
    region_ends: Vec<u32>,
}

impl<W: Write> Stream<W> {
    pub(super) fn new(writer: W) -> Self {
        Self { writer, length: 0, region_ends: Vec::new() }
    }

    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.length += bytes.len() as u64;
        self.writer.write_all(bytes)
    }

    pub(super) fn byte(&mut self, value: u8) -> io::Result<()> {
        self.bytes(&[value])
    }

    pub(super) fn int(&mut self, value: u32) -> io::Result<()> {
        self.bytes(&value.to_le_bytes())
    }

    pub(super) fn long(&mut self, value: u64) -> io::Result<()> {
        self.bytes(&value.to_le_bytes())
    }

    pub(super) fn float(&mut self, value: f32) -> io::Result<()> {
        self.bytes(&value.to_le_bytes())
    }

    /// The number of UTF-16 units, then each of them alone in one to three bytes; -1 for none.
    pub(super) fn text(&mut self, text: Option<&str>) -> io::Result<()> {
        let Some(text) = text else { return self.int(u32::MAX) };
        let mut encoded = Vec::with_capacity(text.len());
        let mut count = 0;
        for unit in text.encode_utf16() {
            count += 1;
            match unit {
                ..0x80 => encoded.push(unit as u8),
                0x80..0x800 => encoded.extend([0xc0 | (unit >> 6) as u8, 0x80 | (unit & 0x3f) as u8]),
                _ => encoded.extend([
                    0xe0 | (unit >> 12) as u8,
                    0x80 | (unit >> 6 & 0x3f) as u8,
                    0x80 | (unit & 0x3f) as u8,
                ]),
            }
        }
        self.int(count)?;
        self.bytes(&encoded)
    }

    /// Begins an object of a type that comes for the first time.
    pub(super) fn begin(&mut self, name: &str, version: u32, oldest_reader: u32) -> io::Result<()> {
        self.bytes(&[tag::BEGIN, tag::BEGIN, tag::NULL])?;
        self.int(version)?;
        self.int(oldest_reader)?;
        self.text(Some(name))?;
        self.end()
    }

    pub(super) fn end(&mut self) -> io::Result<()> {
        self.byte(tag::END)
    }

    pub(super) fn null(&mut self) -> io::Result<()> {
        self.byte(tag::NULL)
    }

    pub(super) fn tagged_byte(&mut self, value: u8) -> io::Result<()> {
        self.bytes(&[tag::BYTE, value])
    }

    pub(super) fn tagged_text(&mut self, text: &str) -> io::Result<()> {
        self.byte(tag::TEXT)?;
        self.text(Some(text))
    }

    /// No object, where a reader may skip one.
    pub(super) fn skippable_null(&mut self) -> io::Result<()> {
        self.byte(tag::SKIP_REGION)?;
        self.int(self.region_ends.len() as u32)?;
        self.null()?;
        self.region_ends.push(self.length as u32);
        Ok(())
    }

    /// Seven bits a byte, the highest first; the first of them has the sign.
    pub(super) fn compressed(&mut self, value: i32) -> io::Result<()> {
        let length = compressed_length(value);
        let mut bytes = [0; 5];
        for (place, byte) in bytes[..length].iter_mut().enumerate() {
            let rest = length - 1 - place;
            let more = if rest == 0 { 0 } else { 0x80 };
            *byte = (value >> (7 * rest)) as u8 & 0x7f | more;
        }
        self.bytes(&bytes[..length])
    }

    /// Ends the stream: a mark, the ends of regions, where these are, and where that is.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.end()?;
        let table = self.length as u32;
        self.int(self.region_ends.len() as u32)?;
        for end in std::mem::take(&mut self.region_ends) {
            self.int(end)?;
        }
        let trailer = self.length as u32;
        self.int(table)?;
        self.int(trailer)?;
        self.writer.flush()
    }
}

/// How many bytes [`Stream::compressed`] writes.
pub(super) fn compressed_length(value: i32) -> usize {
    (1..5).find(|length| value << (32 - 7 * length) >> (32 - 7 * length) == value).unwrap_or(5)
}
