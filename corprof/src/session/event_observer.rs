//! [`EventObserver`]: a feature of the SDK that receives EventPipe events before the profiler does.

use std::any::Any;

use super::Info;

/// An event that the runtime delivers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeliveredEvent<'a> {
    /// The identifier of its provider.
    pub(crate) provider: usize,
    pub(crate) id: u32,
    pub(crate) version: u32,
    /// The values of its fields.
    pub(crate) data: &'a [u8],
}

/// Receives events of all sessions, while the profiler's callbacks are let in.
pub(crate) trait EventObserver: Any + Send + Sync {
    /// Whether it keeps the event: then the profiler does not see it.
    fn keeps(&self, info: &Info, event: DeliveredEvent<'_>) -> bool;
}
