//! An event that an EventPipe session delivers.

use windows_core::GUID;

use crate::id::{EventPipeProviderId, ThreadId};
use crate::wire;

/// An event of an EventPipe session that this profiler started. Everything in it is gone when the callback returns.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct EventPipeEvent<'cb> {
    /// Who wrote it.
    pub provider: EventPipeProviderId,
    /// Its number within the provider.
    pub id: u32,
    /// Its version.
    pub version: u32,
    /// The description of its fields.
    pub metadata: &'cb [u8],
    /// The values of its fields.
    pub data: &'cb [u8],
    /// The activity it belongs to.
    pub activity: Option<&'cb GUID>,
    /// The activity that one belongs to.
    pub related_activity: Option<&'cb GUID>,
    /// The managed thread that wrote it, if one did.
    pub thread: Option<ThreadId>,
    /// The instruction pointers of its stack, leaf first.
    pub stack: &'cb [usize],
}

impl EventPipeEvent<'_> {
    /// # Safety
    /// Each (count, pointer) pair describes an array that outlives the result; so do the GUIDs, which may be null.
    #[allow(clippy::too_many_arguments, reason = "they are those of EventPipeEventDelivered")]
    pub(crate) unsafe fn new(
        provider: usize,
        id: u32,
        version: u32,
        metadata_size: u32,
        metadata: *const u8,
        data_size: u32,
        data: *const u8,
        activity: *const GUID,
        related_activity: *const GUID,
        thread: usize,
        frames: u32,
        stack: *const usize,
    ) -> Option<Self> {
        // SAFETY: the caller's promise.
        unsafe {
            Some(Self {
                provider: EventPipeProviderId::from_raw(provider)?,
                id,
                version,
                metadata: wire::slice(metadata_size, metadata),
                data: wire::slice(data_size, data),
                activity: wire::guid(activity),
                related_activity: wire::guid(related_activity),
                thread: ThreadId::from_raw(thread),
                stack: wire::slice(frames, stack),
            })
        }
    }
}
