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

    /// Turns these events on and all others off, except those by which the SDK itself tracks identifiers:
    /// `MONITOR_ASSEMBLY_LOADS`, `MONITOR_MODULE_LOADS`, `MONITOR_THREADS`, `MONITOR_SUSPENDS` and, with
    /// `MONITOR_JIT_COMPILATION`, `HIGH_MONITOR_DYNAMIC_FUNCTION_UNLOADS`. `MONITOR_GC` comes with
    /// `HIGH_MONITOR_GC_SKIP_ALLOCATED_BY_CLASS_STATISTIC` unless the profiler has `objects_allocated_by_class`: then
    /// .NET 11 need not count the objects of each class at every collection. Once the profiler has replaced the body of
    /// a method by one with a probe, or has hooks by inserted code, `MONITOR_JIT_COMPILATION` stays on: the compiler
    /// must not inline such methods.
    ///
    /// Before `initialize` is called, `#[callbacks]` has already set the flags that the profiler's callbacks need; use
    /// this to receive fewer events (a filter), and [`add_events`](Self::add_events) to receive more.
    #[doc = contract!(SetEventMask2)]
    ///
    /// An error names the flag that may not change now, with the rule: an immutable flag after `initialize`, a flag
    /// that attach forbids. `CORPROF_E_CONCURRENT_GC_NOT_PROFILABLE`: `MONITOR_GC` after `initialize`.
    #[doc(alias = "SetEventMask2")]
    #[doc(alias = "SetEventMask")]
    pub fn set_event_mask(&self, mask: EventMask) -> Result<()> {
        self.change_event_mask(|_| mask)
    }

    /// Turns these events on, in addition to those that are on.
    ///
    /// # Errors
    /// As [`set_event_mask`](Self::set_event_mask).
    pub fn add_events(&self, mask: EventMask) -> Result<()> {
        self.change_event_mask(|current| current | mask)
    }

    /// Turns these events off and leaves the others unchanged.
    ///
    /// # Errors
    /// As [`set_event_mask`](Self::set_event_mask).
    pub fn remove_events(&self, mask: EventMask) -> Result<()> {
        self.change_event_mask(|current| current - mask)
    }
}
