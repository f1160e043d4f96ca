//! Handles of threads.

/// A thread of one [`Profile`](crate::Profile).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ThreadId(pub(crate) usize);
