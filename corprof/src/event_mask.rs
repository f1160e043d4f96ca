//! The event mask: which events a profiler receives, and when each flag may be set.
//!
//! The flags and their rules are generated from the contract table. Profilers rarely set the mask themselves:
//! `#[callbacks]` derives it from the implemented callbacks ([`EventSet::mask`]).

use corprof_sys as sys;

use crate::error::{E_FAIL, E_INVALIDARG, Error, Result};
use crate::generated::events::{ALTERNATIVES, FLAGS, IN_EVERY, MAIN_PROFILER_ONLY};
pub use crate::generated::events::{Event, EventMask};

/// The contract table's row of one flag.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flag {
    pub(crate) mask: EventMask,
    pub(crate) name: &'static str,
    /// Only in `initialize`.
    pub(crate) immutable: bool,
    /// Allowed for a profiler that was attached to a running application.
    pub(crate) after_attach: bool,
    /// Allowed for a notification-only profiler.
    pub(crate) notification: bool,
    /// Whether a later runtime lifts a rule of older ones: then corprof lets the runtime refuse.
    pub(crate) is_lifted: bool,
}

/// The flags that the runtime accepts in `initialize` only, and with which it does not detach a profiler. `is_lenient`:
/// the runtime is .NET 10 or later, which has lifted both rules for some of them.
pub(crate) fn immutable_flags(is_lenient: bool) -> impl Iterator<Item = (EventMask, &'static str)> {
    FLAGS.iter().filter(move |flag| flag.immutable || flag.is_lifted && !is_lenient).map(|flag| (flag.mask, flag.name))
}

/// When a mask is set, which decides which flags it may contain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Inside `initialize`.
    Initialize,
    /// Any time after it.
    Running,
    /// A profiler that was attached, at any time.
    Attached,
}

impl EventMask {
    /// These events plus those that the SDK itself needs then: the ends of assemblies, modules, threads and dynamic
    /// methods, without which their identifiers and the cached names and metadata would refer to freed memory; and
    /// suspensions, in which the runtime removes code.
    pub(crate) fn with_bookkeeping(self) -> Self {
        let ends = Self::MONITOR_ASSEMBLY_LOADS | Self::MONITOR_MODULE_LOADS | Self::MONITOR_THREADS;
        let mut mask = self | ends | Self::MONITOR_SUSPENDS;
        if self.contains(Self::MONITOR_JIT_COMPILATION) {
            mask |= Self::HIGH_MONITOR_DYNAMIC_FUNCTION_UNLOADS;
        }
        mask
    }

    /// The same for a profiler that has no `objects_allocated_by_class`.
    pub(crate) fn without_class_counts(self) -> Self {
        let skip = Self::HIGH_MONITOR_GC_SKIP_ALLOCATED_BY_CLASS_STATISTIC;
        if self.contains(Self::MONITOR_GC) { self | skip } else { self }
    }

    /// Whether the SDK sees the ends of all dynamic methods whose beginning it has seen.
    pub(crate) fn watches_dynamic_methods(self) -> bool {
        self.contains(Self::MONITOR_JIT_COMPILATION | Self::HIGH_MONITOR_DYNAMIC_FUNCTION_UNLOADS)
    }

    pub(crate) fn from_words(low: u32, high: u32) -> Self {
        Self::from_bits_retain(u64::from(low) | u64::from(high) << 32)
    }

    /// The low and the high word, as arguments of `SetEventMask2`.
    pub fn words(self) -> (u32, u32) {
        (self.bits() as u32, (self.bits() >> 32) as u32)
    }

    /// Explains the runtime's refusal of `wanted` when its code does not.
    pub(crate) fn explain(error: Error, current: Self, wanted: Self) -> Error {
        let differs = |flag: &&Flag| flag.is_lifted && current.contains(flag.mask) != wanted.contains(flag.mask);
        match FLAGS.iter().find(differs) {
            Some(flag) => {
                let rule = "up to .NET 9 this flag can be turned on or off in `initialize` only: set it there";
                error.about(flag.name, rule)
            }
            None => error,
        }
    }

    /// Checks whether `wanted` may be set while `current` is in force.
    ///
    /// # Errors
    /// The code that the runtime would return, with the first flag that breaks a rule, and the rule.
    pub(crate) fn check(current: Self, wanted: Self, phase: Phase, is_notification_only: bool) -> Result<()> {
        for flag in FLAGS {
            let differs = current.contains(flag.mask) != wanted.contains(flag.mask);
            let (code, rule) = match phase {
                _ if is_notification_only && !flag.notification && wanted.contains(flag.mask) => (
                    E_INVALIDARG,
                    "this flag is not allowed for a notification-only profiler: load it as the main profiler",
                ),
                Phase::Running if flag.immutable && differs => {
                    (E_FAIL, "this flag can be turned on or off in `initialize` only: set it there")
                }
                Phase::Attached if !flag.after_attach && wanted.contains(flag.mask) => (
                    sys::CORPROF_E_UNSUPPORTED_FOR_ATTACHING_PROFILER,
                    "this flag is not allowed for an attached profiler: load the profiler at start-up to use it",
                ),
                _ => continue,
            };
            return Err(Error::new(code, "SetEventMask2").about(flag.name, rule));
        }
        Ok(())
    }
}

/// A set of callbacks: those that a profiler implements.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct EventSet(u128);

impl EventSet {
    /// No callback.
    pub const EMPTY: Self = Self(0);

    /// This set and one more callback.
    #[must_use]
    pub const fn with(self, event: Event) -> Self {
        Self(self.0 | 1 << event as u8)
    }

    /// All callbacks of both sets.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether a callback is in the set.
    pub const fn contains(self, event: Event) -> bool {
        self.0 & 1 << event as u8 != 0
    }

    /// The callbacks that [`every`](crate::Callbacks::every) hears of, out of those that these flags turn on.
    ///
    /// For the macro `#[callbacks]`.
    #[doc(hidden)]
    #[must_use]
    pub const fn enabled_by(flags: EventMask) -> Self {
        let mut events = Self::EMPTY;
        let mut at = 0;
        while at < ALTERNATIVES.len() {
            let event = Event::ALL[at];
            if IN_EVERY.contains(event) && is_enabled(ALTERNATIVES[at], flags) {
                events = events.with(event);
            }
            at += 1;
        }
        events
    }

    /// The first of these callbacks that a profiler of this kind cannot receive.
    const fn first_forbidden(self, kind: Kind) -> Option<Event> {
        let mut at = 0;
        while at < ALTERNATIVES.len() {
            let event = Event::ALL[at];
            let is_main_only = matches!(kind, Kind::NotificationOnly) && MAIN_PROFILER_ONLY.contains(event);
            // `mask` sets the first.
            let needs = if ALTERNATIVES[at].is_empty() { EventMask::empty() } else { ALTERNATIVES[at][0] };
            if self.contains(event) && (is_main_only || !are_allowed(needs, kind)) {
                return Some(event);
            }
            at += 1;
        }
        None
    }

    /// The callbacks in the set, in the order of the IDL.
    pub fn iter(self) -> impl Iterator<Item = Event> {
        Event::ALL.iter().copied().filter(move |&event| self.contains(event))
    }

    /// The smallest mask with which the runtime makes these callbacks.
    ///
    /// If several flags enable a callback, it uses one that the others need anyway, otherwise the cheapest. So the two
    /// callbacks around a collection set `HIGH_BASIC_GC`, which leaves concurrent collection on, unless another
    /// callback needs `MONITOR_GC`.
    pub fn mask(self) -> EventMask {
        let alternatives = |event: Event| ALTERNATIVES.get(event as usize).copied().unwrap_or_default();
        let mut mask = EventMask::empty();
        for event in self.iter() {
            if let [only] = alternatives(event) {
                mask |= *only;
            }
        }
        for event in self.iter() {
            let choices = alternatives(event);
            if choices.iter().all(|&choice| !mask.contains(choice)) {
                mask |= choices.first().copied().unwrap_or_default();
            }
        }
        mask
    }
}

/// Whether the flags contain one of the masks that turn an event on.
const fn is_enabled(masks: &[EventMask], flags: EventMask) -> bool {
    let mut at = 0;
    while at < masks.len() {
        if flags.contains(masks[at]) {
            return true;
        }
        at += 1;
    }
    false
}

/// A kind of profiler, from which the runtime withholds some events.
#[derive(Clone, Copy)]
enum Kind {
    Attached,
    NotificationOnly,
}

/// Whether a profiler of this kind may set these flags.
const fn are_allowed(mask: EventMask, kind: Kind) -> bool {
    let mut at = 0;
    while at < FLAGS.len() {
        let is_allowed = match kind {
            Kind::Attached => FLAGS[at].after_attach,
            Kind::NotificationOnly => FLAGS[at].notification,
        };
        if mask.bits() & FLAGS[at].mask.bits() != 0 && !is_allowed {
            return false;
        }
        at += 1;
    }
    true
}

/// Stops the build of a profiler that has a callback which it can never receive.
pub(crate) const fn assert_receivable(events: EventSet, is_notification_only: bool) {
    if events.contains(Event::InitializeForAttach)
        && let Some(event) = events.first_forbidden(Kind::Attached)
    {
        refuse(
            "the profiler has `initialize_for_attach` and `",
            event,
            "`, whose event the runtime refuses to an attached profiler: leave one of them out",
        );
    }
    if is_notification_only && let Some(event) = events.first_forbidden(Kind::NotificationOnly) {
        refuse(
            "the profiler is `notification_only` and has `",
            event,
            "`, whose event the runtime refuses to such a profiler: leave one of them out",
        );
    }
}

#[allow(clippy::panic, reason = "it runs at compile time only")]
const fn refuse(before: &str, event: Event, after: &str) {
    let mut text = [0; 256];
    let mut length = 0;
    let parts = [before, event.method(), after];
    let mut part = 0;
    while part < parts.len() {
        let bytes = parts[part].as_bytes();
        let mut at = 0;
        while at < bytes.len() && length < text.len() {
            text[length] = bytes[at];
            length += 1;
            at += 1;
        }
        part += 1;
    }
    match std::str::from_utf8(text.split_at(length).0) {
        Ok(text) => panic!("{}", text),
        Err(_) => panic!("the profiler has a callback that it never receives"),
    }
}

impl std::fmt::Debug for EventSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(events: &[Event]) -> EventMask {
        events.iter().fold(EventSet::EMPTY, |set, &event| set.with(event)).mask()
    }

    #[test]
    fn the_mask_is_that_of_the_callbacks() {
        assert_eq!(mask(&[]), EventMask::empty());
        assert_eq!(mask(&[Event::Initialize, Event::Shutdown]), EventMask::empty());
        assert_eq!(mask(&[Event::ClassLoadFinished]), EventMask::MONITOR_CLASS_LOADS);
        assert_eq!(
            mask(&[Event::ObjectAllocated]),
            EventMask::MONITOR_OBJECT_ALLOCATED | EventMask::ENABLE_OBJECT_ALLOCATED
        );
    }

    #[test]
    fn collections_alone_leave_concurrent_collection_on() {
        assert_eq!(mask(&[Event::GarbageCollectionStarted]), EventMask::HIGH_BASIC_GC);
        assert_eq!(mask(&[Event::GarbageCollectionStarted, Event::ObjectsAllocatedByClass]), EventMask::MONITOR_GC);
    }

    #[test]
    fn an_immutable_flag_changes_in_initialize_only() {
        let none = EventMask::empty();
        let flag = EventMask::ENABLE_OBJECT_ALLOCATED;
        assert_eq!(EventMask::check(none, flag, Phase::Initialize, false), Ok(()));
        assert_eq!(EventMask::check(flag, flag, Phase::Running, false), Ok(()));
        let error = EventMask::check(none, flag, Phase::Running, false).unwrap_err();
        assert!(error.to_string().starts_with("SetEventMask2(COR_PRF_ENABLE_OBJECT_ALLOCATED): "), "{error}");
        assert!(error.to_string().contains("in `initialize` only"), "{error}");
        assert!(EventMask::check(flag, none, Phase::Running, false).is_err(), "nor turned off");
    }

    #[test]
    fn an_attached_profiler_gets_what_attach_allows() {
        let none = EventMask::empty();
        assert_eq!(EventMask::check(none, EventMask::MONITOR_THREADS, Phase::Attached, false), Ok(()));
        let error = EventMask::check(none, EventMask::MONITOR_ENTERLEAVE, Phase::Attached, false).unwrap_err();
        assert!(error.to_string().starts_with("SetEventMask2(COR_PRF_MONITOR_ENTERLEAVE): "), "{error}");
    }

    #[test]
    fn a_notification_profiler_gets_what_changes_no_code() {
        let none = EventMask::empty();
        let allowed = EventMask::MONITOR_EXCEPTIONS.with_bookkeeping() | EventMask::MONITOR_JIT_COMPILATION;
        assert_eq!(EventMask::check(none, allowed.with_bookkeeping(), Phase::Initialize, true), Ok(()));
        let error = EventMask::check(none, EventMask::ENABLE_REJIT, Phase::Initialize, true).unwrap_err();
        assert!(error.to_string().starts_with("SetEventMask2(COR_PRF_ENABLE_REJIT): "), "{error}");
        assert!(error.to_string().contains("load it as the main profiler"), "{error}");
    }

    #[test]
    fn callbacks_that_attach_forbids_are_known() {
        let forbidden = |events: &[Event], kind| {
            events.iter().fold(EventSet::EMPTY, |set, &event| set.with(event)).first_forbidden(kind)
        };
        for kind in [Kind::Attached, Kind::NotificationOnly] {
            let allowed = [Event::ClassLoadFinished, Event::ExceptionThrown, Event::GarbageCollectionStarted];
            assert_eq!(forbidden(&allowed, kind), None);
        }
        let events = [Event::ClassLoadFinished, Event::ObjectAllocated, Event::ObjectsAllocatedByClass];
        assert_eq!(forbidden(&events, Kind::Attached), Some(Event::ObjectAllocated));
        assert_eq!(forbidden(&events, Kind::NotificationOnly), Some(Event::ObjectsAllocatedByClass));
        assert_eq!(forbidden(&[Event::RejitError], Kind::Attached), None);
        assert_eq!(forbidden(&[Event::RejitError], Kind::NotificationOnly), Some(Event::RejitError));
    }

    #[test]
    fn a_flag_stands_for_its_events() {
        let events = EventSet::enabled_by(EventMask::MONITOR_SUSPENDS | EventMask::HIGH_BASIC_GC);
        let names: Vec<_> = events.iter().map(Event::name).collect();
        // `RuntimeThreadSuspended` is not for `every`.
        assert_eq!(
            names,
            [
                "RuntimeSuspendStarted",
                "RuntimeSuspendFinished",
                "RuntimeSuspendAborted",
                "RuntimeResumeStarted",
                "RuntimeResumeFinished",
                "RuntimeThreadResumed",
                "GarbageCollectionStarted",
                "GarbageCollectionFinished"
            ]
        );
        assert_eq!(events.mask(), EventMask::MONITOR_SUSPENDS | EventMask::HIGH_BASIC_GC);
    }

    #[test]
    fn words_are_the_halves() {
        let mask = EventMask::MONITOR_GC | EventMask::HIGH_BASIC_GC;
        assert_eq!(mask.words(), (0x80, 0x10));
        assert_eq!(EventMask::from_words(0x80, 0x10), mask);
    }
}
