//! Counts the times at which objects may have moved, which trackers of objects must not miss.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// How many callbacks about moving objects this process has had, plus the times at which such callbacks may have gone unseen.
static REPORTS: AtomicU64 = AtomicU64::new(0);

/// Counts a callback that trackers must not miss, and returns its number.
pub(crate) fn count_report() -> u64 {
    REPORTS.fetch_add(1, SeqCst) + 1
}

/// How many have been counted.
pub(crate) fn reports() -> u64 {
    REPORTS.load(SeqCst)
}
