//! The event mask.

use corprof_sys as sys;

use crate::error::{Error, Result};
use crate::event_mask::EventMask;
use crate::generated::contract::contract;
use crate::info::Info;
use crate::tracker;

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

    /// Reads, checks and sets the mask, one thread at a time, so that no change is lost.
    fn change_event_mask(&self, change: impl FnOnce(EventMask) -> EventMask) -> Result<()> {
        let is_sealed = self.mask_lock();
        if *is_sealed {
            return Err(Error::new(sys::CORPROF_E_PROFILER_DETACHING, "SetEventMask2")
                .about("after Shutdown", "the application ends, and no event is made any more"));
        }
        let current = self.event_mask()?;
        let mask = change(current).with_bookkeeping();
        EventMask::check(current, mask, self.phase())?;
        // Before or after, objects may move without anybody hearing of it.
        let is_unheard = !(current & mask).contains(EventMask::MONITOR_GC);
        if is_unheard {
            tracker::count_report();
        }
        if !mask.contains(EventMask::MONITOR_ENTERLEAVE)
            && let Some(hooks) = self.hooks()
        {
            hooks.note_unasked();
        }
        let set = self.put_event_mask(mask).map_err(|error| EventMask::explain(error, current, mask));
        if is_unheard {
            tracker::count_report();
        }
        if !mask.watches_dynamic_methods() {
            self.alive().stop_watching_dynamic_methods();
        }
        set
    }

    fn put_event_mask(&self, mask: EventMask) -> Result<()> {
        const CALL: &str = "SetEventMask2";
        let (low, high) = mask.words();
        // SAFETY: the call takes two numbers.
        let code = unsafe { self.as_version::<sys::ICorProfilerInfo5>(CALL)?.SetEventMask2(low, high) };
        Error::check(code, CALL)
    }

    /// Turns everything off, the SDK's own events as well.
    pub(crate) fn silence(&self) -> Result<()> {
        let mut is_sealed = self.mask_lock();
        *is_sealed = true;
        self.put_event_mask(EventMask::empty())
    }

    /// Refuses every later change of the mask.
    pub(crate) fn seal_event_mask(&self) {
        *self.mask_lock() = true;
    }
}
