//! Calls in the order in which they happened, for the Perfetto UI and others, written as they come.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use indexmap::IndexSet;
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::Error;
use crate::profile::nanoseconds;

mod json;
mod perfetto;

/// Events are written when there is so much of them.
const BUFFER: usize = 64 * 1024;

/// The calls of an application's threads, in a file that grows as they come.
///
/// The name of the file chooses the format: `.json` is that of trace events, which Chrome's tracing page and speedscope
/// read as well; any other, `.pftrace` by custom, is Perfetto's own, a fifth of the size: at most 20 bytes for the
/// beginning or the end of a call. <https://ui.perfetto.dev> opens both.
///
/// Events are buffered, 64 KiB of them. After each write the file is whole: if the process dies, the events in the
/// buffer are lost, and the rest opens. So the file grows in place, unlike that of a [`Profile`](crate::Profile).
///
/// Times are relative to a moment of the caller's choice; they may come out of order between threads.
#[derive(Debug)]
pub struct Trace {
    path: PathBuf,
    file: File,
    /// Where the next events go.
    end: u64,
    /// The end of the file; the next events overwrite it.
    tail: &'static [u8],
    buffer: Vec<u8>,
    encoder: Encoder,
    lanes: FxHashMap<u32, Lane>,
    names: IndexSet<Box<str>, FxBuildHasher>,
}

/// Calls that were too short to be written one by one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Short {
    /// How many there were.
    pub calls: u64,
    /// How long they took, all together.
    pub time: Duration,
}

#[derive(Debug)]
enum Encoder {
    Json(json::Encoder),
    Perfetto(perfetto::Encoder),
}

/// The state of a thread.
#[derive(Debug, Default)]
struct Lane {
    number: u32,
    /// The system's number; the other where that is not known.
    os_id: u32,
    /// The names of the calls that have not ended, by their numbers.
    open: Vec<usize>,
    /// When it was last heard of, in nanoseconds.
    last: u64,
    /// The names that its part of the file has.
    named: Vec<bool>,
}

impl Lane {
    /// The first time that a name comes up on this thread?
    fn is_new(&mut self, name: usize) -> bool {
        if self.named.len() <= name {
            self.named.resize(name + 1, false);
        }
        !std::mem::replace(&mut self.named[name], true)
    }

    /// Time does not go back.
    fn pass(&mut self, at: Duration) -> u64 {
        self.last = self.last.max(nanoseconds(at));
        self.last
    }
}

impl Trace {
    /// Starts a file for a process; one that was there is replaced at once.
    ///
    /// # Errors
    /// If the file cannot be made.
    pub fn create(path: impl AsRef<Path>, process: u32, name: &str) -> Result<Self, Error> {
        let path = path.as_ref().to_owned();
        let is_json = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
        let file = File::create(&path).map_err(|source| Error::Create { path: path.clone(), source })?;
        let mut buffer = Vec::with_capacity(BUFFER);
        let (encoder, tail) = if is_json {
            (Encoder::Json(json::Encoder::begin(&mut buffer, process, name)), json::TAIL)
        } else {
            (Encoder::Perfetto(perfetto::Encoder::begin(&mut buffer, process, name)), [].as_slice())
        };
        let lanes = FxHashMap::default();
        let names = IndexSet::default();
        let mut trace = Self { path, file, end: 0, tail, buffer, encoder, lanes, names };
        trace.flush()?;
        Ok(trace)
    }

    /// Sets the system's thread and the name for a number, before its first call. Later names replace
    /// earlier ones.
    ///
    /// # Errors
    /// If the buffer was full and could not be written.
    pub fn thread(&mut self, thread: u32, os_id: u32, name: Option<&str>) -> Result<(), Error> {
        let lane = self.lanes.entry(thread).or_insert_with(|| Lane { number: thread, ..Lane::default() });
        lane.os_id = os_id;
        match &mut self.encoder {
            Encoder::Json(json) => json.thread(&mut self.buffer, lane, name),
            Encoder::Perfetto(perfetto) => perfetto.thread(&mut self.buffer, lane, name),
        }
        self.flush_if_full()
    }

    /// A call begins. Calls of a thread that do not end yet are within each other.
    ///
    /// # Errors
    /// If the buffer was full and could not be written.
    pub fn begin(&mut self, thread: u32, at: Duration, name: &str) -> Result<(), Error> {
        self.announce(thread)?;
        let Some(lane) = self.lanes.get_mut(&thread) else { return Ok(()) };
        let number = match self.names.get_index_of(name) {
            Some(number) => number,
            None => self.names.insert_full(name.into()).0,
        };
        lane.open.push(number);
        match &mut self.encoder {
            Encoder::Json(json) => json.begin_call(&mut self.buffer, lane, at, name),
            Encoder::Perfetto(perfetto) => perfetto.begin_call(&mut self.buffer, lane, at, number, name),
        }
        self.flush_if_full()
    }

    /// Ends the thread's innermost call, and reports the calls in it that were too short. An end without a beginning is
    /// ignored.
    ///
    /// # Errors
    /// If the buffer was full and could not be written.
    pub fn end(&mut self, thread: u32, at: Duration, short: Short) -> Result<(), Error> {
        let Some(lane) = self.lanes.get_mut(&thread) else { return Ok(()) };
        let Some(name) = lane.open.pop().and_then(|number| self.names.get_index(number)) else { return Ok(()) };
        match &mut self.encoder {
            Encoder::Json(json) => json.end(&mut self.buffer, lane, at, name, short),
            Encoder::Perfetto(perfetto) => perfetto.end(&mut self.buffer, lane, at, short),
        }
        self.flush_if_full()
    }

    /// Calls that were too short, in no call that was written: a moment of the thread, the end of the last of them.
    ///
    /// # Errors
    /// If the buffer was full and could not be written.
    pub fn short(&mut self, thread: u32, at: Duration, short: Short) -> Result<(), Error> {
        self.announce(thread)?;
        let Some(lane) = self.lanes.get_mut(&thread) else { return Ok(()) };
        match &mut self.encoder {
            Encoder::Json(json) => json.short(&mut self.buffer, lane, at, short),
            Encoder::Perfetto(perfetto) => perfetto.short(&mut self.buffer, lane, at, short),
        }
        self.flush_if_full()
    }

    /// A thread without a name gets its number as name.
    fn announce(&mut self, thread: u32) -> Result<(), Error> {
        if self.lanes.contains_key(&thread) { Ok(()) } else { self.thread(thread, thread, None) }
    }

    /// Writes the buffer to the file.
    ///
    /// # Errors
    /// If that fails. The events of the buffer are then lost; the file is cut back to those before.
    pub fn flush(&mut self) -> Result<(), Error> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let length = self.buffer.len() as u64;
        // One write of events and end, so that the file is never without its end for long.
        self.buffer.extend_from_slice(self.tail);
        let written = self.write();
        self.buffer.clear();
        match written {
            Ok(()) => {
                self.end += length;
                Ok(())
            }
            Err(source) => {
                // If this fails as well, there is nothing that could be done: readers take a file that breaks off.
                let _ = self.cut_back();
                Err(Error::Write { path: self.path.clone(), source })
            }
        }
    }

    fn write(&mut self) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(self.end))?;
        self.file.write_all(&self.buffer)
    }

    fn cut_back(&mut self) -> io::Result<()> {
        self.file.set_len(self.end)?;
        self.file.seek(SeekFrom::Start(self.end))?;
        if self.end > 0 { self.file.write_all(self.tail) } else { Ok(()) }
    }

    fn flush_if_full(&mut self) -> Result<(), Error> {
        if self.buffer.len() < BUFFER { Ok(()) } else { self.flush() }
    }
}

impl Drop for Trace {
    /// Writes the rest. Call [`Trace::flush`] before, to hear of errors.
    fn drop(&mut self) {
        let _ = self.flush();
    }
}
