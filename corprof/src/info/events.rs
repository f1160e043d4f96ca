//! The event mask.

use crate::error::Result;
use crate::event_mask::EventMask;
use crate::generated::contract::contract;
use crate::info::Info;

impl Info {
    /// The events that are on.
    #[doc = contract!(GetEventMask2)]
    #[doc(alias = "GetEventMask2")]
    #[doc(alias = "GetEventMask")]
    pub fn event_mask(&self) -> Result<EventMask> {
        self.current_event_mask()
    }

    /// Turns these events on and all others off, but for what the SDK needs itself to know which identifiers are alive:
    /// `MONITOR_MODULE_LOADS`, `MONITOR_THREADS` and, with `MONITOR_JIT_COMPILATION`,
    /// `HIGH_MONITOR_DYNAMIC_FUNCTION_UNLOADS`.
    ///
    /// `#[callbacks]` has already asked for what the profiler's callbacks need when `initialize` is called; this is for a
    /// profiler that wants less (a filter) or more ([`add_events`](Self::add_events)).
    #[doc = contract!(SetEventMask2)]
    ///
    /// A flag that may not be turned on or off now is named, with the rule: an immutable flag after `initialize`, a flag that
    /// attach forbids. `CORPROF_E_CONCURRENT_GC_NOT_PROFILABLE`: `MONITOR_GC` after `initialize`.
    #[doc(alias = "SetEventMask2")]
    #[doc(alias = "SetEventMask")]
    pub fn set_event_mask(&self, mask: EventMask) -> Result<()> {
        self.change_event_mask(|_| mask)
    }

    /// Turns these events on, besides those that are.
    ///
    /// # Errors
    /// As [`set_event_mask`](Self::set_event_mask).
    pub fn add_events(&self, mask: EventMask) -> Result<()> {
        self.change_event_mask(|current| current | mask)
    }

    /// Turns these events off and leaves the others as they are.
    ///
    /// # Errors
    /// As [`set_event_mask`](Self::set_event_mask).
    pub fn remove_events(&self, mask: EventMask) -> Result<()> {
        self.change_event_mask(|current| current - mask)
    }
}
