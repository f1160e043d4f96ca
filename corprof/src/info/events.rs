//! The event mask.

use corprof_sys as sys;

use crate::error::{Error, Result};
use crate::event_mask::EventMask;
use crate::generated::contract::contract;
use crate::info::Info;

impl Info {
    /// The events that are on.
    #[doc = contract!(GetEventMask2)]
    #[doc(alias = "GetEventMask2")]
    #[doc(alias = "GetEventMask")]
    pub fn event_mask(&self) -> Result<EventMask> {
        const CALL: &str = "GetEventMask2";
        let (mut low, mut high) = (0, 0);
        // SAFETY: the call writes the two words and keeps nothing.
        let code = unsafe { self.as_version::<sys::ICorProfilerInfo5>(CALL)?.GetEventMask2(&mut low, &mut high) };
        Error::check(code, CALL)?;
        Ok(EventMask::from_words(low, high))
    }

    /// Turns these events on and all others off, but for `MONITOR_MODULE_LOADS`: the SDK needs it for itself.
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
        const CALL: &str = "SetEventMask2";
        let mask = mask | EventMask::BOOKKEEPING;
        EventMask::check(self.event_mask()?, mask, self.phase())?;
        let (low, high) = mask.words();
        // SAFETY: the call takes two numbers.
        let code = unsafe { self.as_version::<sys::ICorProfilerInfo5>(CALL)?.SetEventMask2(low, high) };
        Error::check(code, CALL)
    }

    /// Turns these events on, besides those that are.
    ///
    /// # Errors
    /// As [`set_event_mask`](Self::set_event_mask).
    pub fn add_events(&self, mask: EventMask) -> Result<()> {
        self.set_event_mask(self.event_mask()? | mask)
    }

    /// Turns these events off and leaves the others as they are.
    ///
    /// # Errors
    /// As [`set_event_mask`](Self::set_event_mask).
    pub fn remove_events(&self, mask: EventMask) -> Result<()> {
        self.set_event_mask(self.event_mask()? - mask)
    }
}
