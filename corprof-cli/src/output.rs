//! Standard output, whose errors say that they are about it, and standard error, which has none.

use std::error::Error;
use std::fmt;
use std::io::{self, Stderr, StdoutLock, Write};

/// Standard output of this process.
pub(crate) struct Output(StdoutLock<'static>);

/// Standard output, for one thread at a time.
pub(crate) fn stdout() -> Output {
    Output(io::stdout().lock())
}

/// Standard error, for texts that a reader may not want. That they cannot be written there ends nothing, as nothing
/// could say so.
pub(crate) fn stderr() -> impl Write {
    Unread(io::stderr())
}

struct Unread(Stderr);

impl Write for Unread {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.0.write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let _ = self.0.flush();
        Ok(())
    }
}

/// `1 thread`, `2 threads`.
pub(crate) fn count(count: usize, noun: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{ending}")
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(named)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(named)
    }
}

/// An error of standard output. Its kind is that of the system's error.
#[derive(Debug)]
struct Unwritten(io::Error);

impl fmt::Display for Unwritten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot write to standard output: {}", self.0)
    }
}

impl Error for Unwritten {}

fn named(error: io::Error) -> io::Error {
    match error.kind() {
        // `write_all` tries again.
        io::ErrorKind::Interrupted => error,
        kind => io::Error::new(kind, Unwritten(error)),
    }
}

/// Whether an error is that the reader of standard output, such as `head`, has seen enough.
pub(crate) fn is_closed(error: &anyhow::Error) -> bool {
    error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>()).any(|error| {
        let is_of_output = error.get_ref().is_some_and(|inner| inner.is::<Unwritten>());
        is_of_output && error.kind() == io::ErrorKind::BrokenPipe
    })
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn a_closed_pipe_is_told_from_other_errors() {
        let error = |kind| anyhow::Error::from(named(io::Error::from(kind)));
        assert!(is_closed(&error(io::ErrorKind::BrokenPipe)));
        assert!(is_closed(&Err::<(), _>(error(io::ErrorKind::BrokenPipe)).context("cannot print").unwrap_err()));
        let full = error(io::ErrorKind::StorageFull);
        assert!(!is_closed(&full) && full.to_string().starts_with("cannot write to standard output: "), "{full}");
        assert!(!is_closed(&io::Error::from(io::ErrorKind::BrokenPipe).into()), "that of a socket");
    }
}
