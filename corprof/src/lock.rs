//! Locks of the standard library, without poison.

use std::sync::{LockResult, PoisonError};

/// What a lock guards, also after a panic under it: a panic ends the profiler, and what looks at the data afterwards only puts
/// things away.
#[inline]
pub(crate) fn unpoisoned<T>(result: LockResult<T>) -> T {
    result.unwrap_or_else(PoisonError::into_inner)
}
