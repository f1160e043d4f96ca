//! The event mask: which events the runtime reports. One thread at a time changes it.

use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

use corprof_sys as sys;

use super::{Attaching, Info, RuntimeInfo};
use crate::error::{E_FAIL, E_INVALIDARG, Error, Result};
use crate::event_mask::{Event, EventMask, Phase, immutable_flags};
use crate::lock::unpoisoned;

impl Info {
    /// The events that are on.
    pub(crate) fn current_event_mask(&self) -> Result<EventMask> {
        const CALL: &str = "GetEventMask2";
        let mut low = 0;
        let mut high = 0;
        // SAFETY: the call writes the two words and keeps nothing (fact: outputs).
        let code = unsafe { self.as_version::<sys::ICorProfilerInfo5>(CALL)?.GetEventMask2(&mut low, &mut high) };
        Error::check(code, CALL)?;
        Ok(EventMask::from_words(low, high))
    }

    /// Held while the mask changes; the flag says whether the mask is sealed. No user code runs under this lock.
    fn mask_lock(&self) -> MutexGuard<'_, bool> {
        unpoisoned(self.0.is_mask_sealed.lock())
    }

    /// Reads, checks and sets the mask, one thread at a time, so that no change is lost.
    pub(crate) fn change_event_mask(&self, change: impl FnOnce(EventMask) -> EventMask) -> Result<()> {
        let is_sealed = self.mask_lock();
        if *is_sealed {
            return Err(Error::new(sys::CORPROF_E_PROFILER_DETACHING, "SetEventMask2")
                .about("after Shutdown", "the application is ending and reports no more events"));
        }
        let current = self.current_event_mask()?;
        let mut mask = (change(current) | self.lasting_events()).with_bookkeeping();
        if mask.contains(EventMask::ENABLE_REJIT) {
            let runtime = || {
                let info = self.as_version::<sys::ICorProfilerInfo3>("GetRuntimeInformation")?;
                Ok(RuntimeInfo::read(&info)?.1)
            };
            if self.inlinings().watch(runtime)? {
                mask = (mask | EventMask::MONITOR_JIT_COMPILATION).with_bookkeeping();
            }
        }
        EventMask::check(current, mask, self.phase(), self.profiler().is_notification_only)?;
        self.all_observers().for_each(|observer| observer.event_mask_changes(self, mask));
        if mask.contains(EventMask::ENABLE_REJIT) {
            self.prevent_detach("SetEventMask2(COR_PRF_ENABLE_REJIT)");
        }
        let are_reported = mask.contains(EventMask::MONITOR_JIT_COMPILATION);
        if !are_reported {
            self.compilations().are_reported(false, false);
        }
        let set = self.put_lightest_event_mask(mask).map_err(|error| EventMask::explain(error, current, mask));
        if are_reported && set.is_ok() {
            let is_beginning = self.phase() == Phase::Initialize || Attaching::is_current();
            self.compilations().are_reported(true, is_beginning);
        }
        if !mask.watches_dynamic_methods() {
            self.liveness().stop_watching_dynamic_methods();
        }
        set
    }

    /// Sets the mask, and has the runtime leave out what the profiler has no callback for, if it knows how.
    ///
    /// With `MONITOR_GC` a runtime counts the objects of each class before each collection, while all threads stand
    /// still, whoever wants the counts. The flag that turns this off came with .NET 11. Older runtimes ignore it, and
    /// one that refuses it is asked without it.
    fn put_lightest_event_mask(&self, mask: EventMask) -> Result<()> {
        let wants_counts = self.profiler().events.contains(Event::ObjectsAllocatedByClass);
        let light = if wants_counts { mask } else { mask.without_class_counts() };
        let is_allowed = EventMask::check(mask, light, self.phase(), self.profiler().is_notification_only).is_ok();
        if light == mask || !is_allowed {
            return self.put_event_mask(mask);
        }
        match self.put_event_mask(light) {
            Err(error) if matches!(error.code(), E_INVALIDARG | E_FAIL) => self.put_event_mask(mask),
            set => set,
        }
    }

    fn put_event_mask(&self, mask: EventMask) -> Result<()> {
        const CALL: &str = "SetEventMask2";
        let (low, high) = mask.words();
        // SAFETY: the call takes two numbers.
        let code = unsafe { self.as_version::<sys::ICorProfilerInfo5>(CALL)?.SetEventMask2(low, high) };
        Error::check(code, CALL)
    }

    /// Turns these events on for as long as the process lives: without them, code that the profiler has changed would do
    /// harm. They stay on also when the profiler turns them off, retires or fails.
    ///
    /// # Errors
    /// As `SetEventMask2`; the events last all the same.
    pub(crate) fn add_lasting_events(&self, mask: EventMask) -> Result<()> {
        self.0.lasting_events.fetch_or(mask.bits(), Ordering::SeqCst);
        // Under the lock: a change that has not seen the new events yet is over then.
        let is_sealed = self.mask_lock();
        let are_on = self.current_event_mask()?.contains(mask);
        drop(is_sealed);
        if are_on { Ok(()) } else { self.change_event_mask(|current| current | mask) }
    }

    /// The events that last.
    pub(crate) fn lasting_events(&self) -> EventMask {
        EventMask::from_bits_retain(self.0.lasting_events.load(Ordering::SeqCst))
    }

    /// Turns all events off in `initialize`, including the SDK's own, but for those that last. The flags of hooks stay:
    /// there the runtime, once it has hooks, refuses each mask without them.
    pub(crate) fn silence(&self) -> Result<()> {
        const OF_HOOKS: EventMask = EventMask::MONITOR_ENTERLEAVE
            .union(EventMask::ENABLE_FUNCTION_ARGS)
            .union(EventMask::ENABLE_FUNCTION_RETVAL)
            .union(EventMask::ENABLE_FRAME_INFO);
        self.keep_of_event_mask(OF_HOOKS)
    }

    /// The same after `initialize`, when some flags cannot be cleared any more: these stay.
    pub(crate) fn silence_the_rest(&self) -> Result<()> {
        self.keep_of_event_mask(immutable_flags(false).fold(EventMask::empty(), |mask, (flag, _)| mask | flag))
    }

    /// Turns exceptions off: with calls closed they cannot be pinned (`adapter/exception_pins`).
    pub(crate) fn silence_exceptions(&self) -> Result<()> {
        self.keep_of_event_mask(!EventMask::MONITOR_EXCEPTIONS)
    }

    /// Turns off what is neither among these events nor among those that last, and refuses every later change.
    fn keep_of_event_mask(&self, kept: EventMask) -> Result<()> {
        let mut is_sealed = self.mask_lock();
        *is_sealed = true;
        let current = self.current_event_mask()?;
        self.put_event_mask(current & kept | self.lasting_events())
    }

    /// Refuses every later change of the mask.
    pub(crate) fn seal_event_mask(&self) {
        *self.mask_lock() = true;
    }
}
