//! Why there is no snapshot.

use std::io;
use std::time::Duration;

use crate::error::Error;

/// Why there is no snapshot.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HeapDumpError {
    /// Another snapshot of this profiler has not ended.
    #[error("another snapshot is being taken: wait for its end")]
    Busy,
    /// The runtime refused a call.
    #[error("the runtime refused a call: {0}")]
    Runtime(#[from] Error),
    /// The system could not make a thread, or the profiler is being shut down.
    #[error("cannot make the thread of the snapshot: {0}")]
    Thread(#[source] io::Error),
    /// A sink returned this error. Blocks after it were dropped.
    #[error("the blocks could not be written, so that the dump was thrown away: {0}")]
    Sink(#[source] io::Error),
    /// A part is missing.
    #[error("the dump is cut, and was thrown away: {0}")]
    Cut(String),
    /// Blocks came twice within one collection.
    #[error(
        "{0} blocks came twice, so that the dump was thrown away: another session of this profiler asks for heap dumps too; stop it, or \
         leave GC_HEAP_DUMP out of its keywords"
    )]
    Doubled(u64),
    /// The deadline has passed. The collection goes on, if it has begun, and its blocks are dropped.
    #[error("the dump has not ended within {0:?}: {1}")]
    Deadline(Duration, &'static str),
    /// The profiler is being shut down or detached.
    #[error("the profiler is being stopped, so that the dump was thrown away")]
    Stopping,
}
