//! How much memory a trace may take.

/// The memory limits of a [`Reader`](crate::Reader).
///
/// The defaults are about a hundred times the usual sizes: a block has about 100 KB, and there is a sequence point
/// every few megabytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes of one block.
    pub block_bytes: usize,
    /// Bytes of all definitions of events, as they are in memory.
    pub metadata_bytes: usize,
    /// Bytes of all stacks between two sequence points.
    pub stack_bytes: usize,
    /// Bytes of all label lists between two sequence points (version 6).
    pub label_bytes: usize,
    /// Threads that are known at a time.
    pub threads: usize,
    /// Bytes in memory for the thread information of version 6.
    pub thread_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        const MIB: usize = 1 << 20;
        Self {
            block_bytes: 16 * MIB,
            metadata_bytes: 64 * MIB,
            stack_bytes: 64 * MIB,
            label_bytes: 64 * MIB,
            threads: 1 << 18,
            thread_bytes: 64 * MIB,
        }
    }
}
