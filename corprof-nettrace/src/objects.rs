//! Where blocks begin and end: as objects of FastSerialization in versions 4 and 5, with four bytes before each in
//! version 6.

use std::io::Read;

use crate::blocks::{Fault, Frame, Kind};
use crate::buffer::Buffer;
use crate::bytes::Cursor;
use crate::error::FormatErrorKind;
use crate::limits::Limits;
use crate::trace::{NEWEST, Trace};

pub(crate) const MAGIC: &[u8] = b"Nettrace";
const SERIALIZATION: &[u8] = b"!FastSerialization.1";

/// The newest versions before version 6 that are read: of the trace, and of its blocks.
const NEWEST_TRACE: u32 = 5;
const NEWEST_BLOCK: u32 = 2;

/// Tags of FastSerialization.
const NULL: u8 = 1;
const BEGIN: u8 = 5;
const END: u8 = 6;

/// Longer names of objects are not believed.
const LONGEST_NAME: usize = 64;

/// Whether the trace has the layout of version 6.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    Objects,
    Blocks,
}

fn filled<R: Read>(buffer: &mut Buffer<R>, count: usize) -> Result<&[u8], Fault> {
    if !buffer.fill(count)? {
        return Err(FormatErrorKind::Truncated.into());
    }
    Ok(buffer.window())
}

fn corrupt(what: &'static str) -> Fault {
    FormatErrorKind::Corrupt(what).into()
}

/// Reads the first bytes of a trace, and then its header.
pub(crate) fn read_start<R: Read>(buffer: &mut Buffer<R>, limits: &Limits) -> Result<(Layout, Trace), Fault> {
    // The source may be shorter than the magic and yet be no trace.
    let whole = buffer.fill(MAGIC.len() + 4)?;
    let window = buffer.window();
    if !window.starts_with(MAGIC.get(..window.len()).unwrap_or(MAGIC)) {
        return Err(FormatErrorKind::NotNettrace.into());
    }
    if !whole {
        return Err(FormatErrorKind::Truncated.into());
    }
    let mut cursor = Cursor::new(window.get(MAGIC.len()..).unwrap_or_default());
    let reserved = cursor.u32().map_err(|_| FormatErrorKind::Truncated)?;
    if reserved == 0 {
        return read_start_v6(buffer, limits).map(|trace| (Layout::Blocks, trace));
    }
    let start = MAGIC.len() + 4 + SERIALIZATION.len();
    let window = filled(buffer, start)?;
    let is_known =
        reserved as usize == SERIALIZATION.len() && window.get(MAGIC.len() + 4..start) == Some(SERIALIZATION);
    if !is_known {
        return Err(corrupt("`Nettrace` is followed by no serialization that is known"));
    }
    let object = read_object_header(buffer, start)?.ok_or_else(|| corrupt("it has no object `Trace`"))?;
    if object.name != Kind::Trace {
        return Err(corrupt("its first object is not `Trace`"));
    }
    let end = object.end + Trace::SIZE;
    let window = filled(buffer, end + 1)?;
    let bytes = window.get(object.end..end).unwrap_or_default();
    let trace = Trace::read(bytes, object.version).map_err(|_| corrupt("its object `Trace` has impossible values"))?;
    if window.get(end) != Some(&END) {
        return Err(corrupt("its object `Trace` does not end where it should"));
    }
    buffer.consume(end + 1);
    Ok((Layout::Objects, trace))
}

fn read_start_v6<R: Read>(buffer: &mut Buffer<R>, limits: &Limits) -> Result<Trace, Fault> {
    const SIZE: usize = 20;
    let window = filled(buffer, SIZE)?;
    let mut cursor = Cursor::new(window.get(12..SIZE).unwrap_or_default());
    let version = cursor.u32().map_err(|_| FormatErrorKind::Truncated)?;
    if version > NEWEST {
        return Err(FormatErrorKind::Version { what: "it", version, known: NEWEST }.into());
    }
    if version < NEWEST {
        return Err(corrupt("its header is of version 6, and its version is not"));
    }
    let frame = block_at(buffer, SIZE, limits)?;
    if frame.kind != Kind::Trace {
        return Err(corrupt("its first block is not that of the trace"));
    }
    let trace = Trace::read_block(frame.contents(buffer.window()), version)
        .map_err(|_| corrupt("its block of the trace has impossible values"))?;
    buffer.consume(frame.total);
    Ok(trace)
}

/// The beginning of an object.
struct Object {
    name: Kind,
    version: u32,
    /// Where it ends in the window and the object's fields begin.
    end: usize,
}

/// The header of the object at `at` in the window, or nothing at the end of the trace.
fn read_object_header<R: Read>(buffer: &mut Buffer<R>, at: usize) -> Result<Option<Object>, Fault> {
    match filled(buffer, at + 1)?.get(at) {
        Some(&NULL) => return Ok(None),
        Some(&BEGIN) => {}
        _ => return Err(corrupt("there is no object where one should begin")),
    }
    // Two tags, two versions, and the length of the name.
    let name_at = at + 1 + 2 + 8 + 4;
    let window = filled(buffer, name_at)?;
    let mut cursor = Cursor::new(window.get(at + 1..name_at).unwrap_or_default());
    let truncated = |_| FormatErrorKind::Truncated;
    if cursor.array().map_err(truncated)? != [BEGIN, NULL] {
        return Err(corrupt("an object has no type"));
    }
    let version = cursor.u32().map_err(truncated)?;
    let needed = cursor.u32().map_err(truncated)?;
    let length = cursor.count().map_err(truncated)?;
    if length > LONGEST_NAME {
        return Err(corrupt("an object has an impossible name"));
    }
    let end = name_at + length;
    let window = filled(buffer, end + 1)?;
    if window.get(end) != Some(&END) {
        return Err(corrupt("the type of an object does not end where it should"));
    }
    let (name, what, known) = match window.get(name_at..end).unwrap_or_default() {
        b"Trace" => (Kind::Trace, "it", NEWEST_TRACE),
        b"EventBlock" => (Kind::Events, "a block of events", NEWEST_BLOCK),
        b"MetadataBlock" => (Kind::Metadata, "a block of definitions", NEWEST_BLOCK),
        b"StackBlock" => (Kind::Stacks, "a block of stacks", NEWEST_BLOCK),
        b"SPBlock" => (Kind::SequencePoint, "a sequence point", NEWEST_BLOCK),
        _ => (Kind::Unknown, "", u32::MAX),
    };
    if needed > known {
        return Err(FormatErrorKind::Version { what, version: needed, known }.into());
    }
    if name == Kind::Trace && version < 4 {
        return Err(FormatErrorKind::NotNettrace.into());
    }
    Ok(Some(Object { name, version, end: end + 1 }))
}

/// The next block of versions 4 and 5, whole.
pub(crate) fn next_object<R: Read>(buffer: &mut Buffer<R>, limits: &Limits) -> Result<Frame, Fault> {
    let Some(object) = read_object_header(buffer, 0)? else {
        return Ok(Frame { kind: Kind::End, start: 1, end: 1, total: 1 });
    };
    let size_end = object.end + 4;
    let window = filled(buffer, size_end)?;
    let mut cursor = Cursor::new(window.get(object.end..size_end).unwrap_or_default());
    let size = cursor.count().map_err(|_| FormatErrorKind::Truncated)?;
    check_size(size, limits)?;
    // To a multiple of 4 from the beginning of the file.
    let padding = (4 - (buffer.offset() % 4 + size_end as u64) % 4) % 4;
    let start = size_end + padding as usize;
    let end = start + size;
    if filled(buffer, end + 1)?.get(end) != Some(&END) {
        return Err(corrupt("a block does not end where it should"));
    }
    Ok(Frame { kind: object.name, start, end, total: end + 1 })
}

/// The next block of version 6, whole.
pub(crate) fn next_block<R: Read>(buffer: &mut Buffer<R>, limits: &Limits) -> Result<Frame, Fault> {
    block_at(buffer, 0, limits)
}

fn block_at<R: Read>(buffer: &mut Buffer<R>, at: usize, limits: &Limits) -> Result<Frame, Fault> {
    let start = at + 4;
    let window = filled(buffer, start)?;
    let mut cursor = Cursor::new(window.get(at..start).unwrap_or_default());
    let header = cursor.u32().map_err(|_| FormatErrorKind::Truncated)?;
    let size = (header & 0xff_ffff) as usize;
    check_size(size, limits)?;
    let [.., code] = header.to_le_bytes();
    let kind = Kind::of(code);
    let end = start + size;
    filled(buffer, end)?;
    Ok(Frame { kind, start, end, total: end })
}

fn check_size(size: usize, limits: &Limits) -> Result<(), FormatErrorKind> {
    let limit = limits.block_bytes;
    if size > limit {
        return Err(FormatErrorKind::Limit { name: "block_bytes", what: "bytes of one block", limit });
    }
    Ok(())
}
