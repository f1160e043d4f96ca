//! Streams, heaps and tables of a file's metadata (ECMA-335 II.24).

use super::FileError;
use super::schema::{Coded, Column, NO_TABLE, TABLES, columns};
use crate::token::{Table, Token};

/// A part of the file.
type Span = std::ops::Range<usize>;

#[derive(Clone, Debug, Default)]
struct Layout {
    rows: u32,
    row_size: usize,
    start: usize,
    /// Where each column begins in a row, and how wide it is.
    columns: Vec<(u8, u8)>,
}

/// Where everything is in the file.
#[derive(Debug)]
pub(super) struct Metadata {
    strings: Span,
    blobs: Span,
    user_strings: Span,
    tables: Vec<Layout>,
}

fn number(bytes: &[u8], at: usize, width: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(width)?)?;
    Some(bytes.iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte)))
}

const CUT: FileError = FileError::Metadata("it is cut short");

/// A compressed unsigned integer at the beginning of `bytes`, and its size (II.23.2).
fn compressed(bytes: &[u8]) -> Option<(usize, usize)> {
    Some(match *bytes.first()? {
        first @ 0..0x80 => (first.into(), 1),
        first @ 0x80..0xc0 => (usize::from(first & 0x3f) << 8 | usize::from(*bytes.get(1)?), 2),
        first @ 0xc0..0xe0 => {
            let rest: [u8; 3] = *bytes.get(1..)?.first_chunk()?;
            (rest.iter().fold(usize::from(first & 0x1f), |value, byte| value << 8 | usize::from(*byte)), 4)
        }
        _ => return None,
    })
}

impl Metadata {
    /// Finds everything; `root` is where the metadata begin in the file.
    pub(super) fn read(file: &[u8], root: usize) -> Result<Self, FileError> {
        if number(file, root, 4) != Some(0x424a_5342) {
            return Err(FileError::Metadata("they do not begin with their signature"));
        }
        let version = number(file, root + 12, 4).ok_or(CUT)? as usize;
        let mut at = root.checked_add(16 + version).ok_or(CUT)?;
        let count = number(file, at + 2, 2).ok_or(CUT)?;
        at += 4;
        let mut streams: Vec<(&[u8], Span)> = Vec::new();
        for _ in 0..count {
            let offset = number(file, at, 4).ok_or(CUT)? as usize;
            let size = number(file, at + 4, 4).ok_or(CUT)? as usize;
            let name = file.get(at + 8..).ok_or(CUT)?;
            let length = name.iter().take(32).position(|byte| *byte == 0);
            let length = length.ok_or(FileError::Metadata("a stream has no name"))?;
            let start = root.checked_add(offset).ok_or(CUT)?;
            let span = start..start.checked_add(size).ok_or(CUT)?;
            file.get(span.clone()).ok_or(CUT)?;
            streams.push((name.get(..length).unwrap_or_default(), span));
            at += 8 + (length + 1).next_multiple_of(4);
        }
        let mut of_tables = streams.iter().filter(|(name, _)| matches!(*name, b"#~" | b"#-"));
        let (name, tables) = of_tables.next().ok_or(FileError::Metadata("there are no tables"))?;
        if of_tables.next().is_some() {
            return Err(FileError::Metadata("there are two streams of tables"));
        }
        // As .NET 10 does: of heaps with one name the last counts. Beside `#-` the first does, in any case.
        let is_uncompressed = *name == b"#-";
        let heap = |wanted: &[u8]| {
            let is_it = |stream: &&(&[u8], Span)| stream.0 == wanted;
            let is_alike = |stream: &&(&[u8], Span)| stream.0.eq_ignore_ascii_case(wanted);
            let found = if is_uncompressed { streams.iter().find(is_alike) } else { streams.iter().rfind(is_it) };
            found.map(|(_, span)| span.clone())
        };
        let is_wide = is_uncompressed && heap(b"#JTD").is_some();
        Ok(Self {
            strings: heap(b"#Strings").unwrap_or_default(),
            blobs: heap(b"#Blob").unwrap_or_default(),
            user_strings: heap(b"#US").unwrap_or_default(),
            tables: Self::layouts(file, tables.clone(), is_wide)?,
        })
    }

    /// The tables in a stream. With `is_wide` all indices have four bytes.
    fn layouts(file: &[u8], span: Span, is_wide: bool) -> Result<Vec<Layout>, FileError> {
        let heaps = number(file, span.start + 6, 1).ok_or(CUT)?;
        let low = u64::from(number(file, span.start + 8, 4).ok_or(CUT)?);
        let present = low | u64::from(number(file, span.start + 12, 4).ok_or(CUT)?) << 32;
        let mut at = span.start + 24;
        let mut tables = vec![Layout::default(); TABLES];
        for (table, layout) in tables.iter_mut().enumerate() {
            if present >> table & 1 != 0 {
                layout.rows = number(file, at, 4).ok_or(CUT)?;
                at += 4;
            }
        }
        // Tables of debug information come after all others, and nothing here needs them.
        at += 4 * (present >> TABLES).count_ones() as usize;
        // A heap-size flag says that four bytes with nothing in them come before the rows.
        if heaps & 0x40 != 0 {
            at += 4;
        }
        let rows: Vec<u32> = tables.iter().map(|table| table.rows).collect();
        let count = |table: u8| rows.get(usize::from(table)).copied().unwrap_or_default();
        let indirect = [0x03, 0x05, 0x07, 0x13, 0x16];
        if indirect.iter().any(|table| count(*table) != 0) {
            return Err(FileError::Metadata("tables with indirections are not supported"));
        }
        let wide = |is_large: bool| if is_wide || is_large { 4 } else { 2 };
        for (table, layout) in tables.iter_mut().enumerate() {
            let mut size = 0;
            for column in columns(table as u8) {
                let width = match column {
                    Column::U2 => 2,
                    Column::U4 => 4,
                    Column::String => wide(heaps & 1 != 0),
                    Column::Guid => wide(heaps & 2 != 0),
                    Column::Blob => wide(heaps & 4 != 0),
                    Column::Row(of) => wide(count(*of) > 0xffff),
                    Column::Coded(Coded { bits, tables }) => {
                        let most = tables.iter().filter(|of| **of != NO_TABLE).map(|of| count(*of)).max();
                        wide(most.unwrap_or_default() > 0xffff >> bits)
                    }
                };
                layout.columns.push((size, width));
                size += width;
            }
            layout.row_size = size.into();
            layout.start = at;
            let length = (layout.rows as usize).checked_mul(layout.row_size).ok_or(CUT)?;
            at = at.checked_add(length).filter(|end| *end <= span.end).ok_or(CUT)?;
        }
        Ok(tables)
    }

    /// How many rows a table has.
    pub(super) fn rows(&self, table: Table) -> u32 {
        self.rows_of(table.as_byte())
    }

    pub(super) fn rows_of(&self, table: u8) -> u32 {
        self.tables.get(usize::from(table)).map_or(0, |layout| layout.rows)
    }

    /// A cell of a table; rows are counted from 1. `None` if there is no such row.
    #[inline]
    pub(super) fn cell(&self, file: &[u8], table: u8, row: u32, column: usize) -> Option<u32> {
        let layout = self.tables.get(usize::from(table))?;
        if row == 0 || row > layout.rows {
            return None;
        }
        let (offset, width) = *layout.columns.get(column)?;
        number(file, layout.start + (row as usize - 1) * layout.row_size + usize::from(offset), width.into())
    }

    /// The token that a coded index in a cell stands for.
    pub(super) fn coded(&self, file: &[u8], table: u8, row: u32, column: usize, coded: Coded) -> Option<Token> {
        let value = self.cell(file, table, row, column)?;
        let tag = value & ((1 << coded.bits) - 1);
        let of = *coded.tables.get(tag as usize)?;
        Some(Token::from_raw(u32::from(of) << 24 | value >> coded.bits))
    }

    /// A string that a cell names.
    pub(super) fn string<'f>(&self, file: &'f [u8], table: u8, row: u32, column: usize) -> Option<&'f str> {
        let at = self.cell(file, table, row, column)? as usize;
        let bytes = file.get(self.strings.clone())?.get(at..)?;
        let length = bytes.iter().position(|byte| *byte == 0)?;
        std::str::from_utf8(bytes.get(..length)?).ok()
    }

    /// A blob that a cell names.
    pub(super) fn blob<'f>(&self, file: &'f [u8], table: u8, row: u32, column: usize) -> Option<&'f [u8]> {
        let at = self.cell(file, table, row, column)? as usize;
        let bytes = file.get(self.blobs.clone())?.get(at..)?;
        let (length, start) = compressed(bytes)?;
        bytes.get(start..start.checked_add(length)?)
    }

    /// Whether there is a literal string at this offset.
    pub(super) fn has_user_string(&self, file: &[u8], at: u32) -> bool {
        self.user_string_bytes(file, at).is_some()
    }

    /// The units of the literal string at this offset.
    pub(super) fn user_string(&self, file: &[u8], at: u32) -> Option<Vec<u16>> {
        // A byte follows that says whether there is anything but ASCII.
        let units = self.user_string_bytes(file, at)?.as_chunks::<2>().0;
        Some(units.iter().map(|unit| u16::from_le_bytes(*unit)).collect())
    }

    fn user_string_bytes<'f>(&self, file: &'f [u8], at: u32) -> Option<&'f [u8]> {
        let bytes = file.get(self.user_strings.clone())?.get(at as usize..)?;
        let (length, start) = compressed(bytes)?;
        // The empty literal has its last byte. Runtimes find no string where there is no byte at all.
        bytes.get(start..start.checked_add(length)?).filter(|bytes| at != 0 && !bytes.is_empty())
    }
}
