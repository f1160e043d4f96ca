//! The source, and its bytes that are read but not used yet.

use std::io::{ErrorKind, Read, Result};

/// Read at once at first. It doubles until a block fits.
const CHUNK: usize = 16 * 1024;

/// A window on the source. It grows with the received bytes, never by a length in the input.
#[derive(Debug)]
pub(crate) struct Buffer<R> {
    source: R,
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// Where the window starts, from the beginning of the source.
    offset: u64,
}

impl<R: Read> Buffer<R> {
    pub(crate) fn new(source: R) -> Self {
        Self { source, bytes: Vec::new(), start: 0, end: 0, offset: 0 }
    }

    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    pub(crate) fn source(&self) -> &R {
        &self.source
    }

    pub(crate) fn source_mut(&mut self) -> &mut R {
        &mut self.source
    }

    pub(crate) fn into_source(self) -> R {
        self.source
    }

    /// The bytes in the window.
    #[inline]
    pub(crate) fn window(&self) -> &[u8] {
        self.bytes.get(self.start..self.end).unwrap_or_default()
    }

    /// Makes the window at least `count` bytes long; whether the source had that many. After an error, all that came is
    /// still there.
    pub(crate) fn fill(&mut self, count: usize) -> Result<bool> {
        while self.end - self.start < count {
            self.make_room(count);
            match self.source.read(&mut self.bytes[self.end..]) {
                Ok(0) => return Ok(false),
                Ok(read) => self.end = (self.end + read).min(self.bytes.len()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// There is room behind the window.
    fn make_room(&mut self, count: usize) {
        if self.bytes.len() - self.start < count || self.end == self.bytes.len() {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.bytes.len() {
            self.bytes.resize((self.bytes.len() * 2).max(CHUNK), 0);
        }
    }

    /// The first `count` bytes of the window are done with.
    pub(crate) fn consume(&mut self, count: usize) {
        let count = count.min(self.end - self.start);
        self.start += count;
        self.offset = self.offset.saturating_add(count as u64);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }
}
