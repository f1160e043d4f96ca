//! The tables that events refer to: definitions, stacks, labels and threads.

use std::collections::{HashMap, HashSet};

use crate::bytes::{Cursor, Malformed};
use crate::error::FormatErrorKind;
use crate::limits::Limits;
use crate::metadata::Metadata;
use crate::sequence::Sequences;
use crate::stacks::Runs;
use crate::threads::Threads;

/// All tables of a trace.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    pub(crate) metadata: MetadataTable,
    pub(crate) stacks: Runs,
    pub(crate) labels: Runs,
    pub(crate) threads: Threads,
    pub(crate) sequences: Sequences,
}

/// The definitions of events by their numbers.
#[derive(Debug, Default)]
pub(crate) struct MetadataTable {
    rows: Vec<Metadata>,
    by_id: HashMap<u32, usize>,
    /// The last definition that was asked for, which most events share with the one before.
    last: Option<(u32, usize)>,
    cost: usize,
}

impl MetadataTable {
    /// The row of a definition.
    #[inline]
    pub(crate) fn row_of(&mut self, id: u32) -> Option<usize> {
        match self.last {
            Some((last, row)) if last == id => Some(row),
            _ => {
                let row = *self.by_id.get(&id)?;
                self.last = Some((id, row));
                Some(row)
            }
        }
    }

    pub(crate) fn get(&self, row: usize) -> Option<&Metadata> {
        self.rows.get(row)
    }

    /// Adds a definition, instead of an earlier one with the same number.
    pub(crate) fn add(&mut self, metadata: Metadata, limit: usize) -> Result<(), FormatErrorKind> {
        self.cost += metadata.cost();
        if self.cost > limit {
            return Err(FormatErrorKind::Limit {
                name: "metadata_bytes",
                what: "bytes of definitions of events",
                limit,
            });
        }
        match self.by_id.get(&metadata.id).and_then(|row| self.rows.get_mut(*row)) {
            Some(before) => {
                self.cost -= before.cost();
                *before = metadata;
            }
            None => {
                self.by_id.insert(metadata.id, self.rows.len());
                self.rows.push(metadata);
            }
        }
        Ok(())
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}

const SHORT_SEQUENCE_POINT: FormatErrorKind = FormatErrorKind::Corrupt("a sequence point is shorter than its contents");

/// Flags of a sequence point of version 6.
const FLUSH_THREADS: u32 = 1;
const FLUSH_METADATA: u32 = 2;

impl Tables {
    /// A sequence point of versions 4 and 5; answers with its time in ticks.
    pub(crate) fn sequence_point(&mut self, block: &[u8], limits: &Limits) -> Result<u64, FormatErrorKind> {
        let short = |_| SHORT_SEQUENCE_POINT;
        let mut cursor = Cursor::new(block);
        let ticks = cursor.u64().map_err(short)?;
        let count = cursor.count().map_err(short)?;
        if count > cursor.rest().len() / 12 {
            return Err(SHORT_SEQUENCE_POINT);
        }
        let mut threads = HashSet::with_capacity(count);
        for _ in 0..count {
            let thread = cursor.u64().map_err(short)?;
            let number = cursor.u32().map_err(short)?;
            self.sequences.reached(thread, number, limits.threads)?;
            threads.insert(thread);
        }
        self.sequences.retain(&threads);
        self.stacks.clear();
        Ok(ticks)
    }

    /// A sequence point of version 6; answers with its time in ticks.
    pub(crate) fn sequence_point_v6(&mut self, block: &[u8], limits: &Limits) -> Result<u64, FormatErrorKind> {
        let short = |_| SHORT_SEQUENCE_POINT;
        let mut cursor = Cursor::new(block);
        let ticks = cursor.u64().map_err(short)?;
        let flags = cursor.u32().map_err(short)?;
        for _ in 0..cursor.u32().map_err(short)? {
            let thread = cursor.varuint64().map_err(short)?;
            let number = cursor.varuint32().map_err(short)?;
            self.sequences.reached(thread, number, limits.threads)?;
        }
        if flags & FLUSH_THREADS != 0 {
            self.sequences.clear();
            self.threads.clear();
        }
        if flags & FLUSH_METADATA != 0 {
            self.metadata.clear();
        }
        self.stacks.clear();
        self.labels.clear();
        Ok(ticks)
    }

    /// Threads that have ended (version 6).
    pub(crate) fn remove_threads(&mut self, block: &[u8], limits: &Limits) -> Result<(), FormatErrorKind> {
        let short = |_: Malformed| FormatErrorKind::Corrupt("a block of ended threads is shorter than its contents");
        let mut cursor = Cursor::new(block);
        while !cursor.is_empty() {
            let thread = cursor.varuint64().map_err(short)?;
            let number = cursor.varuint32().map_err(short)?;
            self.sequences.reached(thread, number, limits.threads)?;
            self.sequences.remove(thread);
            self.threads.remove(thread);
        }
        Ok(())
    }

    /// A metadata block of version 6.
    pub(crate) fn metadata_rows(&mut self, block: &[u8], limits: &Limits) -> Result<(), FormatErrorKind> {
        let short = |_| FormatErrorKind::Corrupt("a block of definitions is shorter than its contents");
        let mut cursor = Cursor::new(block);
        let header = cursor.u16().map_err(short)?.into();
        cursor.bytes(header).map_err(short)?;
        while !cursor.is_empty() {
            let size = cursor.u16().map_err(short)?.into();
            let metadata = Metadata::read_row(cursor.bytes(size).map_err(short)?).map_err(short)?;
            self.metadata.add(metadata, limits.metadata_bytes)?;
        }
        Ok(())
    }
}
