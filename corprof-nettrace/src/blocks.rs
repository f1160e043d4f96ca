//! Blocks: their limits, and the content of event blocks.

use std::io;

use crate::bytes::Cursor;
use crate::encode::LARGEST_BLOCK;
use crate::error::FormatErrorKind;
use crate::header::{Encoding, Header};

/// Why a step of reading did not succeed.
#[derive(Debug)]
pub(crate) enum Fault {
    Io(io::Error),
    Format(FormatErrorKind),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<FormatErrorKind> for Fault {
    fn from(kind: FormatErrorKind) -> Self {
        Self::Format(kind)
    }
}

/// The kind of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    End,
    Trace,
    Events,
    Metadata,
    SequencePoint,
    Stacks,
    Threads,
    RemovedThreads,
    Labels,
    /// Of a newer version: skipped.
    Unknown,
}

impl Kind {
    /// By their codes in version 6.
    const ALL: [Self; 9] = [
        Self::End,
        Self::Trace,
        Self::Events,
        Self::Metadata,
        Self::SequencePoint,
        Self::Stacks,
        Self::Threads,
        Self::RemovedThreads,
        Self::Labels,
    ];

    /// The kind with this code in version 6.
    pub(crate) fn of(code: u8) -> Self {
        Self::ALL.get(usize::from(code)).copied().unwrap_or(Self::Unknown)
    }

    /// Its code in version 6.
    pub(crate) fn code(self) -> u8 {
        (0..).zip(Self::ALL).find(|(_, kind)| *kind == self).map_or(u8::MAX, |(code, _)| code)
    }
}

/// Appends a block of version 6 with these parts, which the caller keeps below [`LARGEST_BLOCK`].
pub(crate) fn write(out: &mut Vec<u8>, kind: Kind, parts: &[&[u8]]) {
    let size: usize = parts.iter().map(|part| part.len()).sum();
    debug_assert!(size <= LARGEST_BLOCK, "a block of {size} bytes");
    let [low, middle, high, ..] = size.to_le_bytes();
    out.extend([low, middle, high, kind.code()]);
    parts.iter().for_each(|part| out.extend(*part));
}

/// A block in the window of the buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame {
    pub(crate) kind: Kind,
    /// Where its contents begin and end in the window.
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// How much of the window is done with when the block is.
    pub(crate) total: usize,
}

impl Frame {
    /// Its contents.
    pub(crate) fn contents<'a>(&self, window: &'a [u8]) -> &'a [u8] {
        window.get(self.start..self.end).unwrap_or_default()
    }
}

/// A block of events, or of definitions before version 6, that is being read.
#[derive(Debug)]
pub(crate) struct OpenBlock {
    frame: Frame,
    encoding: Encoding,
    /// Where the next event begins in the window.
    position: usize,
    header: Header,
}

/// The size of the header of a block of events at least.
pub(crate) const BLOCK_HEADER: u16 = 20;
pub(crate) const IS_COMPRESSED: u16 = 1;

impl OpenBlock {
    /// Opens a block at its first event.
    pub(crate) fn open(frame: Frame, window: &[u8], is_v6: bool) -> Result<Self, FormatErrorKind> {
        let short = |_| FormatErrorKind::Corrupt("a block of events is shorter than its header");
        let contents = frame.contents(window);
        let mut cursor = Cursor::new(contents);
        let size: usize = cursor.u16().map_err(short)?.into();
        let flags = cursor.u16().map_err(short)?;
        if size < BLOCK_HEADER.into() || size > contents.len() {
            return Err(FormatErrorKind::Corrupt("a block of events has a header of an impossible size"));
        }
        let encoding = Encoding { is_compressed: flags & IS_COMPRESSED != 0, is_v6 };
        Ok(Self { frame, encoding, position: frame.start + size, header: Header::default() })
    }

    pub(crate) fn frame(&self) -> Frame {
        self.frame
    }

    pub(crate) fn header(&self) -> &Header {
        &self.header
    }

    /// Moves on to the next event; answers with where its payload is in the window, or with nothing at the end of the
    /// block.
    #[inline]
    pub(crate) fn advance(&mut self, window: &[u8]) -> Result<Option<(usize, usize)>, FormatErrorKind> {
        let damaged = |_| FormatErrorKind::Corrupt("an event is longer than its block");
        let rest = window.get(self.position..self.frame.end).unwrap_or_default();
        if rest.is_empty() {
            return Ok(None);
        }
        let mut cursor = Cursor::new(rest);
        let stride = self.header.read_next(&mut cursor, self.encoding).map_err(damaged)?;
        let start = self.frame.end - cursor.rest().len();
        cursor.bytes(stride).map_err(damaged)?;
        self.position = start + stride;
        // Checked against the stride when the header was read.
        Ok(Some((start, start + self.header.payload_size as usize)))
    }
}
