//! Trace events, for the Perfetto UI and Chrome's tracing page, written as they come.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::Error;

/// Events are written when there is so much of them.
const BUFFER: usize = 64 * 1024;
/// Ends the file; the next events go over it.
const END: &[u8] = b"\n]\n";

/// A `.trace.json` file, for any name.
///
/// Events are buffered, 64 KiB of them. After each write the file is whole: if the process dies, what was in the
/// buffer is lost, and the rest opens. So the file grows in place, unlike that of a [`Profile`](crate::Profile).
///
/// Times are relative to a moment of the caller's choice; they may come out of order between threads.
#[derive(Debug)]
pub struct Trace {
    path: PathBuf,
    file: File,
    process: u32,
    /// Where the next events go.
    end: u64,
    is_first: bool,
    buffer: String,
}

impl Trace {
    /// Starts a file for a process; one that was there is replaced at once.
    ///
    /// # Errors
    /// If the file cannot be made.
    pub fn create(path: impl AsRef<Path>, process: u32, name: &str) -> Result<Self, Error> {
        let path = path.as_ref().to_owned();
        let file = File::create(&path).map_err(|source| Error::Create { path: path.clone(), source })?;
        let buffer = String::with_capacity(BUFFER);
        let mut trace = Self { path, file, process, end: 0, is_first: true, buffer };
        trace.metadata("process_name", 0, name);
        trace.flush()?;
        Ok(trace)
    }

    /// Names a thread. Later names replace earlier ones.
    ///
    /// # Errors
    /// If the buffer was full and could not be written.
    pub fn thread_name(&mut self, thread: u32, name: &str) -> Result<(), Error> {
        self.metadata("thread_name", thread, name);
        self.flush_if_full()
    }

    /// A call begins. Calls of a thread that do not end yet are within each other.
    ///
    /// # Errors
    /// If the buffer was full and could not be written.
    pub fn begin(&mut self, thread: u32, at: Duration, category: &str, name: &str) -> Result<(), Error> {
        self.event('B', thread, at);
        self.named(category, name);
        self.close()
    }

    /// The thread's innermost call ends.
    ///
    /// # Errors
    /// If the buffer was full and could not be written.
    pub fn end(&mut self, thread: u32, at: Duration) -> Result<(), Error> {
        self.event('E', thread, at);
        self.close()
    }

    /// A call that is over.
    ///
    /// # Errors
    /// If the buffer was full and could not be written.
    pub fn complete(
        &mut self,
        thread: u32,
        at: Duration,
        took: Duration,
        category: &str,
        name: &str,
    ) -> Result<(), Error> {
        self.event('X', thread, at);
        self.buffer.push_str(r#","dur":"#);
        push_time(&mut self.buffer, took);
        self.named(category, name);
        self.close()
    }

    /// Something that took no time, such as an exception.
    ///
    /// # Errors
    /// If the buffer was full and could not be written.
    pub fn instant(&mut self, thread: u32, at: Duration, category: &str, name: &str) -> Result<(), Error> {
        self.event('i', thread, at);
        self.buffer.push_str(r#","s":"t""#);
        self.named(category, name);
        self.close()
    }

    /// Writes what is in the buffer.
    ///
    /// # Errors
    /// If that fails. The events of the buffer are then lost; the file is cut back to those before.
    pub fn flush(&mut self) -> Result<(), Error> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let length = self.buffer.len() as u64;
        let written = self.write();
        self.buffer.clear();
        match written {
            Ok(()) => {
                self.end += length;
                self.is_first = false;
                Ok(())
            }
            Err(source) => {
                // If this fails as well, there is nothing that could be done: readers take a file that breaks off.
                let _ = self.cut_back();
                Err(Error::Write { path: self.path.clone(), source })
            }
        }
    }

    /// One write of events and end, so that the file is never without its end for long.
    fn write(&mut self) -> io::Result<()> {
        if self.is_first {
            // The comma between this event and the one before it, of which there is none.
            self.buffer.replace_range(..1, "[");
        }
        self.buffer.push_str("\n]\n");
        self.file.seek(SeekFrom::Start(self.end))?;
        self.file.write_all(self.buffer.as_bytes())
    }

    fn cut_back(&mut self) -> io::Result<()> {
        self.file.set_len(self.end)?;
        self.file.seek(SeekFrom::Start(self.end))?;
        self.file.write_all(if self.is_first { b"[\n]\n" } else { END })
    }

    fn metadata(&mut self, what: &str, thread: u32, name: &str) {
        self.event('M', thread, Duration::ZERO);
        let _ = write!(self.buffer, r#","name":"{what}","args":{{"name":"#);
        push_text(&mut self.buffer, name);
        self.buffer.push_str("}}");
    }

    fn event(&mut self, phase: char, thread: u32, at: Duration) {
        let process = self.process;
        let _ = write!(self.buffer, ",\n{{\"ph\":\"{phase}\",\"pid\":{process},\"tid\":{thread},\"ts\":");
        push_time(&mut self.buffer, at);
    }

    fn named(&mut self, category: &str, name: &str) {
        self.buffer.push_str(r#","cat":"#);
        push_text(&mut self.buffer, category);
        self.buffer.push_str(r#","name":"#);
        push_text(&mut self.buffer, name);
    }

    fn close(&mut self) -> Result<(), Error> {
        self.buffer.push('}');
        self.flush_if_full()
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

/// The format counts in microseconds; three digits after the point are nanoseconds.
fn push_time(buffer: &mut String, time: Duration) {
    let _ = write!(buffer, "{}.{:03}", time.as_micros(), time.subsec_nanos() % 1000);
}

fn push_text(buffer: &mut String, text: &str) {
    // A text always has a form in JSON.
    buffer.push_str(&serde_json::to_string(text).unwrap_or_else(|_| "\"\"".to_owned()));
}
