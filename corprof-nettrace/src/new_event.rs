//! An event to be written.

use crate::labels::Label;

/// An event for [`Writer::write`](crate::Writer::write).
///
/// ```
/// use corprof_nettrace::NewEvent;
///
/// let mut event = NewEvent::new(1, 7, 1_000);
/// event.payload = &[42];
/// event.stack = &[0x7f00_1234, 0x7f00_1000];
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct NewEvent<'a> {
    /// The number of its definition, the [`id`](crate::Metadata::id) of a [`Metadata`](crate::Metadata) that was
    /// written before.
    pub metadata_id: u32,
    /// The thread that it is about: the [`index`](crate::Thread::index) of a [`Thread`](crate::Thread) that was written
    /// before.
    pub thread: u64,
    /// The thread that wrote it, which is nearly always the one that it is about.
    pub capture_thread: u64,
    /// The processor that its writer ran on; 0 if that is not known.
    pub processor: u32,
    /// When it happened, in ticks of the [`Trace`](crate::Trace).
    pub ticks: u64,
    /// The promise that no event that is written after it is older than it.
    pub is_sorted: bool,
    /// How many events its writer lost since the one before.
    pub lost_before: u32,
    /// Addresses of instructions, the innermost first. Empty if no stack was taken. A stack that many events have is
    /// written once.
    pub stack: &'a [u64],
    /// Its labels. A list that many events have is written once.
    pub labels: &'a [Label],
    /// The values of its fields, as its definition describes them: at most 65,535 bytes.
    pub payload: &'a [u8],
}

impl<'a> NewEvent<'a> {
    /// An event of this definition, about and by this thread, at this time in ticks; the rest is empty. It is
    /// [sorted](Self::is_sorted).
    #[must_use]
    pub fn new(metadata_id: u32, thread: u64, ticks: u64) -> Self {
        Self {
            metadata_id,
            thread,
            capture_thread: thread,
            processor: 0,
            ticks,
            is_sorted: true,
            lost_before: 0,
            stack: &[],
            labels: &[],
            payload: &[],
        }
    }
}
