//! Locks of the standard library, without poison.

use std::sync::{LockResult, PoisonError};

/// The data under a lock, even after a panic: a panic disables the profiler, and code that uses the data afterwards only cleans
/// up.
#[inline]
pub(crate) fn unpoisoned<T>(result: LockResult<T>) -> T {
    result.unwrap_or_else(PoisonError::into_inner)
}
