//! How often objects may have moved: what trackers of objects must not miss.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// How many callbacks about moving objects there have been in this process, and times when there could have been unseen ones.
static REPORTS: AtomicU64 = AtomicU64::new(0);

/// Counts a callback that trackers must not miss; the answer is its number.
pub(crate) fn count_report() -> u64 {
    REPORTS.fetch_add(1, SeqCst) + 1
}

/// How many there have been.
pub(crate) fn reports() -> u64 {
    REPORTS.load(SeqCst)
}
