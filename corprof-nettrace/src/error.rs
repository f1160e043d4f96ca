//! Errors of traces.

use std::io;

/// Why no further event can be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The source failed. Nothing that was read is lost: after a time-out, reading can go on.
    #[error("cannot read the trace: {0}")]
    Io(#[from] io::Error),

    /// The trace is malformed. The reader returns the same error from then on.
    #[error(transparent)]
    Format(#[from] FormatError),
}

impl Error {
    /// Whether the source only had nothing to offer in time, so that reading can go on.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::Io(error) if matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock))
    }
}

/// The problem of the trace, and its offset.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} (at byte {offset} of the trace)")]
pub struct FormatError {
    /// The problem.
    pub kind: FormatErrorKind,
    /// The offset of the block, or of the last read before the blocks, from the beginning of the trace.
    pub offset: u64,
}

/// The kinds of [`FormatError`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatErrorKind {
    /// It does not begin as a trace does.
    #[error("this is no .nettrace: it does not begin with `Nettrace` (a .netperf of .NET Core 2 is not read)")]
    NotNettrace,

    /// It needs a reader of a newer version.
    #[error("{what} has version {version}, and this reader knows up to {known}: is there a newer corprof?")]
    Version {
        /// The trace, or which object in it.
        what: &'static str,
        /// The version of the format that is needed at least.
        version: u32,
        /// The newest version that is read.
        known: u32,
    },

    /// It ends before its end: its writer was killed, or the connection broke.
    #[error("the trace is truncated: its writer did not finish it. Events that were read before are valid")]
    Truncated,

    /// It contradicts the format.
    #[error("the trace is damaged: {0}")]
    Corrupt(&'static str),

    /// It needs more memory than the reader may use.
    #[error("the trace needs more than {limit} {what}: raise `Limits::{name}` if its origin is trusted")]
    Limit {
        /// The field of [`Limits`](crate::Limits).
        name: &'static str,
        /// The unit of the limit, for the message.
        what: &'static str,
        /// Its value.
        limit: usize,
    },
}
