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

/// Why something cannot be written. What was refused leaves nothing in the trace, and writing can go on, except after
/// [`Io`](Self::Io).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The sink failed. The trace is cut there, and takes nothing more.
    #[error("cannot write the trace: {0}")]
    Io(#[from] io::Error),

    /// The sink failed before.
    #[error("the trace is cut, because writing failed before: write to another file")]
    Broken,

    /// An event refers to a definition that was not written.
    #[error("no event has the number {0}: call `Writer::define_event` before")]
    UnknownEvent(u32),

    /// Something refers to a thread that was not written, or was removed.
    #[error("no thread has the index {0}: call `Writer::define_thread` before")]
    UnknownThread(u64),

    /// Another definition or thread has the number.
    #[error("the {what} {number} is in the trace already: give the other one another number")]
    Redefined {
        /// What has the number.
        what: &'static str,
        /// The number.
        number: u64,
    },

    /// It is older than a promise allows that was made before: by a sorted event, by a sequence point, or by another
    /// event of the thread that captured it.
    #[error(
        "the time {ticks} comes after {after}: write each thread's events in order, and mark none as sorted that an older one can follow"
    )]
    OutOfOrder {
        /// The time that is too old, in ticks.
        ticks: u64,
        /// The oldest time that is allowed, in ticks.
        after: u64,
    },

    /// It has more than fits into the format, or into what readers take.
    #[error("{what} has {size}, and a .nettrace has room for {limit}: shorten it")]
    TooLong {
        /// What is too long.
        what: &'static str,
        /// How many bytes or rows it has.
        size: usize,
        /// How many it may have.
        limit: usize,
    },

    /// It has a value that readers refuse or misunderstand.
    #[error("{0}")]
    Impossible(&'static str),
}
