//! Errors of writing files.

use std::io;
use std::path::PathBuf;

use crate::format;

/// Why a file was not written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The name of the file does not say which format is wanted.
    #[error("the extension of {path} is of no known format: use one of {}", format::known(), path = .path.display())]
    UnknownExtension {
        /// The path as it was given.
        path: PathBuf,
    },

    /// The name asks for trace events, which a [`Profile`](crate::Profile) does not hold.
    #[error(
        "cannot write samples as the trace-event file {path}: write calls to a `Trace`, or let it end in one of {}",
        format::known(), path = .path.display()
    )]
    TraceOfSamples {
        /// The path as it was given.
        path: PathBuf,
    },

    /// The system would not create the file; nothing was changed.
    #[error("cannot create {path}: {source} (does the folder exist, and may this process write into it?)", path = .path.display())]
    Create {
        /// The file that was to be written.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },

    /// Writing failed. A file that a [`Profile`](crate::Profile) would have replaced is unchanged; a
    /// [`Trace`](crate::Trace) ends with the events written before.
    #[error("cannot write {path}: {source} (is the disk full, or a file too large for the system's limit?)", path = .path.display())]
    Write {
        /// The file that was to be written.
        path: PathBuf,
        /// The error of the system or the encoder.
        source: io::Error,
    },
}
