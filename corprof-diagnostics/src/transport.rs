//! Connections to runtimes: Unix sockets, and named pipes on Windows. Every operation has a deadline.

#[cfg(unix)]
#[path = "transport/unix.rs"]
mod system;
#[cfg(windows)]
#[path = "transport/windows.rs"]
mod system;

use std::io;

pub(crate) use system::{Listener, Stream};
#[cfg(windows)]
pub(crate) use system::{pipe_exists, processes};

use crate::deadline::Deadline;

/// The time between two checks for changes that the system does not signal.
pub(crate) const RETRY: std::time::Duration = std::time::Duration::from_millis(5);

impl Stream {
    /// Reads exactly as many bytes.
    pub(crate) fn read_exact(&mut self, mut buffer: &mut [u8], deadline: Deadline) -> io::Result<()> {
        while !buffer.is_empty() {
            match self.read(buffer, deadline)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => buffer = buffer.get_mut(read..).unwrap_or_default(),
            }
        }
        Ok(())
    }

    /// Writes all of it, in one piece if the system takes it in one.
    pub(crate) fn write_all(&mut self, mut bytes: &[u8], deadline: Deadline) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.write(bytes, deadline)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => bytes = bytes.get(written..).unwrap_or_default(),
            }
        }
        Ok(())
    }
}
