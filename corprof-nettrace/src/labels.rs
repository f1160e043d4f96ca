//! Labels of events: contexts other than the thread (version 6).

use uuid::Uuid;

use crate::bytes::{Cursor, Malformed};
use crate::encode;
use crate::error::FormatErrorKind;
use crate::stacks::Runs;

/// One label of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Label {
    /// The activity that the event is part of.
    Activity(Uuid),
    /// The activity that this one was started by.
    RelatedActivity(Uuid),
    /// A W3C trace.
    TraceId([u8; 16]),
    /// A W3C span.
    SpanId(u64),
    /// A text with a name.
    Text(String, String),
    /// A number with a name.
    Number(String, i64),
    /// Instead of the [`Metadata`](crate::Metadata)'s.
    Opcode(u8),
    /// Instead of the [`Metadata`](crate::Metadata)'s.
    Keywords(u64),
    /// Instead of the [`Metadata`](crate::Metadata)'s.
    Level(u8),
    /// Instead of the [`Metadata`](crate::Metadata)'s.
    Version(u8),
}

/// This bit of a label's kind says that it is the last of its list.
const IS_LAST: u8 = 0x80;

impl Label {
    /// The next label, and whether it is the last of its list.
    fn read(cursor: &mut Cursor<'_>) -> Result<(Self, bool), Malformed> {
        let kind = cursor.u8()?;
        let label = match kind & !IS_LAST {
            1 => Self::Activity(Uuid::from_bytes_le(cursor.array()?)),
            2 => Self::RelatedActivity(Uuid::from_bytes_le(cursor.array()?)),
            3 => Self::TraceId(cursor.array()?),
            4 => Self::SpanId(cursor.u64()?),
            5 => Self::Text(cursor.utf8()?, cursor.utf8()?),
            6 => Self::Number(cursor.utf8()?, cursor.varint64()?),
            7 => Self::Opcode(cursor.u8()?),
            8 => Self::Keywords(cursor.u64()?),
            9 => Self::Level(cursor.u8()?),
            10 => Self::Version(cursor.u8()?),
            _ => return Err(Malformed),
        };
        Ok((label, kind & IS_LAST != 0))
    }

    /// Appends a list of labels.
    pub(crate) fn write_list(labels: &[Self], out: &mut Vec<u8>) {
        let last = labels.len().saturating_sub(1);
        for (index, label) in labels.iter().enumerate() {
            label.write(if index == last { IS_LAST } else { 0 }, out);
        }
    }

    fn write(&self, flag: u8, out: &mut Vec<u8>) {
        let mut kind = |kind: u8| out.push(kind | flag);
        match self {
            Self::Activity(id) => {
                kind(1);
                out.extend(id.to_bytes_le());
            }
            Self::RelatedActivity(id) => {
                kind(2);
                out.extend(id.to_bytes_le());
            }
            Self::TraceId(id) => {
                kind(3);
                out.extend(id);
            }
            Self::SpanId(id) => {
                kind(4);
                out.extend(id.to_le_bytes());
            }
            Self::Text(name, text) => {
                kind(5);
                encode::utf8(out, name);
                encode::utf8(out, text);
            }
            Self::Number(name, number) => {
                kind(6);
                encode::utf8(out, name);
                encode::varint(out, *number);
            }
            Self::Opcode(opcode) => {
                kind(7);
                out.push(*opcode);
            }
            Self::Keywords(keywords) => {
                kind(8);
                out.extend(keywords.to_le_bytes());
            }
            Self::Level(level) => {
                kind(9);
                out.push(*level);
            }
            Self::Version(version) => {
                kind(10);
                out.push(*version);
            }
        }
    }

    /// Moves past the next label without reading its texts; whether it is the last of its list.
    fn skip(cursor: &mut Cursor<'_>) -> Result<bool, Malformed> {
        let kind = cursor.u8()?;
        match kind & !IS_LAST {
            1..=3 => drop(cursor.array::<16>()?),
            4 | 8 => drop(cursor.u64()?),
            5 => drop((cursor.utf8_bytes()?, cursor.utf8_bytes()?)),
            6 => drop((cursor.utf8_bytes()?, cursor.varint64()?)),
            7 | 9 | 10 => drop(cursor.u8()?),
            _ => return Err(Malformed),
        }
        Ok(kind & IS_LAST != 0)
    }
}

/// The labels of an event.
#[derive(Debug, Clone)]
pub struct Labels<'a> {
    rest: Cursor<'a>,
}

impl<'a> Labels<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: Cursor::new(bytes) }
    }
}

impl Iterator for Labels<'_> {
    type Item = Label;

    fn next(&mut self) -> Option<Label> {
        let (label, _) = Label::read(&mut self.rest).ok()?;
        Some(label)
    }
}

/// Adds the label lists of a block.
pub(crate) fn read_block(block: &[u8], labels: &mut Runs, limit: usize) -> Result<(), FormatErrorKind> {
    let damaged = |_| FormatErrorKind::Corrupt("a block of labels is shorter than its contents, or of an unknown kind");
    let mut cursor = Cursor::new(block);
    let number = cursor.u32().map_err(damaged)?;
    let count = cursor.u32().map_err(damaged)?;
    if labels.cost().saturating_add(5 * block.len()) > limit {
        return Err(FormatErrorKind::Limit { name: "label_bytes", what: "bytes of labels", limit });
    }
    let mut run = labels.begin(number);
    for _ in 0..count {
        let start = cursor.rest();
        while !Label::skip(&mut cursor).map_err(damaged)? {}
        let length = start.len() - cursor.rest().len();
        run.push(start.get(..length).unwrap_or_default()).map_err(damaged)?;
    }
    run.finish();
    Ok(())
}
