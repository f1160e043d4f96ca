//! Information about threads in version 6. In earlier versions an event has the id of the system's thread only.

use std::collections::HashMap;

use crate::bytes::{Cursor, Malformed};
use crate::encode;
use crate::error::FormatErrorKind;

/// A thread of a trace of version 6.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Thread {
    /// Its number in the trace.
    pub index: u64,
    /// Its name.
    pub name: Option<String>,
    /// The process that it is in.
    pub process_id: Option<u64>,
    /// Its number for the system.
    pub os_thread_id: Option<u64>,
    /// Further entries.
    pub properties: Vec<(String, String)>,
}

impl Thread {
    fn read(row: &[u8]) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(row);
        let mut thread = Self { index: cursor.varuint64()?, ..Self::default() };
        while !cursor.is_empty() {
            match cursor.u8()? {
                1 => thread.name = Some(cursor.utf8()?),
                2 => thread.process_id = Some(cursor.varuint64()?),
                3 => thread.os_thread_id = Some(cursor.varuint64()?),
                4 => thread.properties.push((cursor.utf8()?, cursor.utf8()?)),
                // It has no size, so that nothing behind it can be read; the row has.
                _ => break,
            }
        }
        Ok(thread)
    }

    /// A thread with this number in the trace, of which nothing else is known.
    #[must_use]
    pub fn new(index: u64) -> Self {
        Self { index, ..Self::default() }
    }

    /// Appends it as a row of a block.
    pub(crate) fn write_row(&self, out: &mut Vec<u8>) {
        encode::varuint(out, self.index);
        if let Some(name) = &self.name {
            out.push(1);
            encode::utf8(out, name);
        }
        for (kind, id) in [(2, self.process_id), (3, self.os_thread_id)] {
            if let Some(id) = id {
                out.push(kind);
                encode::varuint(out, id);
            }
        }
        for property in &self.properties {
            out.push(4);
            encode::property(out, property);
        }
    }

    fn cost(&self) -> usize {
        let properties: usize =
            self.properties.iter().map(|(key, value)| size_of::<(String, String)>() + key.len() + value.len()).sum();
        2 * size_of::<Self>() + self.name.as_ref().map_or(0, String::len) + properties
    }
}

/// The threads that are known.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    threads: HashMap<u64, Thread>,
    cost: usize,
}

impl Threads {
    pub(crate) fn get(&self, index: u64) -> Option<&Thread> {
        self.threads.get(&index)
    }

    /// Adds the threads of a block.
    pub(crate) fn read_block(&mut self, block: &[u8], limit: usize) -> Result<(), FormatErrorKind> {
        let damaged = |_| FormatErrorKind::Corrupt("a block of threads is shorter than its contents");
        let mut cursor = Cursor::new(block);
        while !cursor.is_empty() {
            let size = cursor.u16().map_err(damaged)?.into();
            let thread = Thread::read(cursor.bytes(size).map_err(damaged)?).map_err(damaged)?;
            self.cost += thread.cost();
            if self.cost > limit {
                return Err(FormatErrorKind::Limit { name: "thread_bytes", what: "bytes of threads", limit });
            }
            if let Some(before) = self.threads.insert(thread.index, thread) {
                self.cost -= before.cost();
            }
        }
        Ok(())
    }

    pub(crate) fn remove(&mut self, index: u64) {
        if let Some(thread) = self.threads.remove(&index) {
            self.cost -= thread.cost();
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}
