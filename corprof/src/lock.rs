//! Locks of the standard library, without poison.

use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};

/// The data under a lock, even after a panic: a panic disables the profiler, and code that uses the data afterwards
/// only cleans up.
#[inline]
pub(crate) fn unpoisoned<T>(result: LockResult<T>) -> T {
    result.unwrap_or_else(PoisonError::into_inner)
}

/// Like [`unpoisoned`], for a lock that is not waited for: `None` while another thread holds it.
#[inline]
pub(crate) fn try_unpoisoned<T>(result: TryLockResult<T>) -> Option<T> {
    match result {
        Ok(data) => Some(data),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
