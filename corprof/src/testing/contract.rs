//! The state machine of the runtime's entry macros: which call is refused where, and with which code.
//!
//! The rows are generated from contracts.toml (`generated/contract_table.rs`); this file evaluates them, as functions
//! without state.

use corprof_sys as sys;
use windows_core::HRESULT;

use crate::error::{E_FAIL, E_INVALIDARG, E_NOTIMPL, Error};
use crate::event_mask::{Event, EventMask};
use crate::generated::contract_table::FLAG_RULES;

/// A release of the runtime: major and minor version.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Release(pub(crate) u32, pub(crate) u32);

/// How the runtime enters a method.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Entry {
    /// Only inside a callback, on a managed thread.
    Sync,
    /// Anywhere.
    Async,
    /// Only in `Initialize`.
    InitOnly,
    /// No check is made.
    Unchecked,
}

/// A method of `ICorProfilerInfo` or a successor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) name: &'static str,
    pub(crate) slot: usize,
    /// The first supported release with its interface.
    pub(crate) since: Release,
    pub(crate) entry: Entry,
    /// Whether it may start a collection.
    pub(crate) triggers: bool,
    /// Whether an attached profiler may make it.
    pub(crate) attach: bool,
    /// Whether it needs a collection in progress, or a managed thread in cooperative mode.
    pub(crate) inspects_objects: bool,
    pub(crate) main_profiler_only: bool,
    /// The rules of earlier releases.
    pub(crate) earlier: &'static [Earlier],
}

/// The rules of a method up to a release.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Earlier {
    /// The last major version with these rules.
    pub(crate) up_to: u32,
    pub(crate) entry: Entry,
    pub(crate) triggers: bool,
}

/// The sync Info calls that work in a callback.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SyncInfo {
    All,
    NoTrigger,
    None,
}

/// A callback of the runtime.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivery {
    pub(crate) event: Event,
    pub(crate) sync_info: SyncInfo,
    /// Whether a collection waits until it returns.
    pub(crate) cooperative: bool,
    pub(crate) during_gc: bool,
    /// Whether an attached profiler receives it.
    pub(crate) attach: bool,
    /// Whether it is ever made.
    pub(crate) comes: bool,
}

/// The rules of a flag of the event mask.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlagRule {
    pub(crate) mask: EventMask,
    pub(crate) immutable: bool,
    pub(crate) attach: bool,
    pub(crate) prevents_detach: bool,
    /// The rules that later releases have changed.
    pub(crate) lifted: &'static [Lifted],
}

/// The rules of a flag from a release on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lifted {
    /// The first major version with these rules.
    pub(crate) from: u32,
    pub(crate) immutable: bool,
    pub(crate) attach: bool,
    pub(crate) prevents_detach: bool,
}

/// The profiler's status.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Status {
    /// Inside `Initialize`.
    Initializing,
    /// Inside `InitializeForAttach`.
    Attaching,
    /// Up and running.
    Active,
    /// A detach has begun: no more callbacks and calls.
    Detaching,
    /// Shutdown has been called: no more callbacks.
    Shut,
}

/// The calling thread's state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Standing {
    /// Whether it carries a managed thread.
    pub(crate) managed: bool,
    pub(crate) in_callback: bool,
    pub(crate) may_trigger: bool,
    pub(crate) cooperative: bool,
    /// Whether it is inside a callback that is part of a collection.
    pub(crate) in_collection: bool,
}

/// All other inputs of the rules.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Circumstances {
    pub(crate) release: Release,
    pub(crate) status: Status,
    pub(crate) attached: bool,
    pub(crate) notification_only: bool,
    /// Whether a collection is in progress.
    pub(crate) collecting: bool,
    pub(crate) standing: Standing,
}

impl Call {
    /// Its entry in a release, and whether it may start a collection there.
    fn rules(&self, release: Release) -> (Entry, bool) {
        let in_release =
            self.earlier.iter().filter(|earlier| release.0 <= earlier.up_to).min_by_key(|earlier| earlier.up_to);
        in_release.map_or((self.entry, self.triggers), |earlier| (earlier.entry, earlier.triggers))
    }

    /// The code with which the runtime refuses the call, if it does: the checks of the entry macro in their order, then
    /// those of object inspection.
    pub(crate) fn refusal(&self, now: &Circumstances) -> Option<HRESULT> {
        let (entry, triggers) = self.rules(now.release);
        let standing = now.standing;
        if self.since > now.release {
            // Such a call goes past the end of an older runtime's vtable.
            return Some(E_NOTIMPL);
        }
        if entry == Entry::Unchecked {
            return None;
        }
        if now.status == Status::Detaching {
            return Some(sys::CORPROF_E_PROFILER_DETACHING);
        }
        if now.attached && !self.attach {
            return Some(sys::CORPROF_E_UNSUPPORTED_FOR_ATTACHING_PROFILER);
        }
        if entry == Entry::InitOnly && now.status != Status::Initializing {
            return Some(sys::CORPROF_E_CALL_ONLY_FROM_INIT);
        }
        // The runtime checks managed threads only, and leaves a profiler's own threads alone.
        let is_out_of_place = !standing.in_callback || (triggers && !standing.may_trigger);
        if entry == Entry::Sync && standing.managed && is_out_of_place {
            return Some(sys::CORPROF_E_UNSUPPORTED_CALL_SEQUENCE);
        }
        if now.notification_only && self.main_profiler_only {
            return Some(E_INVALIDARG);
        }
        match (self.inspects_objects && !now.collecting, standing.managed, standing.cooperative) {
            (true, false, _) => Some(sys::CORPROF_E_NOT_MANAGED_THREAD),
            (true, true, false) => Some(sys::CORPROF_E_UNSUPPORTED_CALL_SEQUENCE),
            _ => None,
        }
    }
}

impl Delivery {
    /// A thread's state while it makes the callback.
    pub(crate) fn standing(&self, managed: bool) -> Standing {
        Standing {
            managed,
            in_callback: self.sync_info != SyncInfo::None,
            may_trigger: self.sync_info == SyncInfo::All,
            cooperative: self.cooperative,
            in_collection: self.during_gc,
        }
    }
}

impl FlagRule {
    fn in_release(&self, release: Release) -> (bool, bool, bool) {
        let now = self.lifted.iter().filter(|lifted| release.0 >= lifted.from).max_by_key(|lifted| lifted.from);
        now.map_or((self.immutable, self.attach, self.prevents_detach), |now| {
            (now.immutable, now.attach, now.prevents_detach)
        })
    }
}

/// The result of `SetEventMask2` by the rules of the flags.
pub(crate) fn check_mask(current: EventMask, wanted: EventMask, now: &Circumstances) -> Result<(), Error> {
    for flag in FLAG_RULES {
        let (immutable, attach, _) = flag.in_release(now.release);
        let differs = current.contains(flag.mask) != wanted.contains(flag.mask);
        if now.attached && !attach && wanted.contains(flag.mask) {
            return Err(Error::new(sys::CORPROF_E_UNSUPPORTED_FOR_ATTACHING_PROFILER, "SetEventMask2"));
        }
        if immutable && differs && now.status != Status::Initializing {
            return Err(Error::new(E_FAIL, "SetEventMask2"));
        }
    }
    Ok(())
}

/// The result of `RequestProfilerDetach` by the flags that are set.
pub(crate) fn check_detach(mask: EventMask, release: Release) -> Result<(), HRESULT> {
    let is_on = |flag: &&FlagRule| mask.contains(flag.mask);
    let mut on = FLAG_RULES.iter().filter(is_on).map(|flag| flag.in_release(release));
    if on.clone().any(|(immutable, ..)| immutable) {
        return Err(sys::CORPROF_E_IMMUTABLE_FLAGS_SET);
    }
    if on.any(|(.., prevents_detach)| prevents_detach) {
        return Err(sys::CORPROF_E_IRREVERSIBLE_INSTRUMENTATION_PRESENT);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generated::contract_table::{CALLS, DELIVERIES};

    const NOWHERE: Circumstances = Circumstances {
        release: Release(10, 0),
        status: Status::Active,
        attached: false,
        notification_only: false,
        collecting: false,
        standing: Standing {
            managed: true,
            in_callback: false,
            may_trigger: false,
            cooperative: false,
            in_collection: false,
        },
    };

    fn call(name: &str) -> &'static Call {
        CALLS.iter().find(|call| call.name == name).unwrap()
    }

    fn from(event: Event) -> Circumstances {
        let delivery = &DELIVERIES[event as usize];
        Circumstances { standing: delivery.standing(true), collecting: delivery.during_gc, ..NOWHERE }
    }

    #[test]
    fn rows_stand_where_they_are_looked_for() {
        for (at, call) in CALLS.iter().enumerate() {
            assert_eq!(call.slot, at + 3, "{}", call.name);
        }
        for (event, delivery) in Event::ALL.iter().zip(&DELIVERIES) {
            assert_eq!(delivery.event, *event);
        }
    }

    #[test]
    fn sync_calls_need_a_callback_or_a_native_thread() {
        let refused = Some(sys::CORPROF_E_UNSUPPORTED_CALL_SEQUENCE);
        let native = Circumstances { standing: Standing::default(), ..NOWHERE };
        for call in CALLS.iter().filter(|call| call.entry == Entry::Sync && !call.inspects_objects) {
            assert_eq!(call.refusal(&NOWHERE), refused, "{}", call.name);
            assert_eq!(call.refusal(&native), None, "{}", call.name);
            assert_eq!(call.refusal(&from(Event::ClassLoadFinished)), None, "{}", call.name);
            let in_collection = call.refusal(&from(Event::GarbageCollectionStarted));
            assert_eq!(in_collection, if call.triggers { refused } else { None }, "{}", call.name);
        }
        for call in CALLS.iter().filter(|call| call.entry == Entry::Async && !call.inspects_objects) {
            assert_eq!(call.refusal(&NOWHERE), None, "{}", call.name);
        }
    }

    #[test]
    fn objects_are_inspected_in_collections_and_cooperative_callbacks() {
        let call = call("GetClassFromObject");
        let native = Circumstances { standing: Standing::default(), ..NOWHERE };
        assert_eq!(call.refusal(&from(Event::GarbageCollectionStarted)), None);
        assert_eq!(call.refusal(&from(Event::ObjectAllocated)), None);
        let refused = Some(sys::CORPROF_E_UNSUPPORTED_CALL_SEQUENCE);
        assert_eq!(call.refusal(&from(Event::JitCompilationStarted)), refused);
        assert_eq!(call.refusal(&native), Some(sys::CORPROF_E_NOT_MANAGED_THREAD));
        assert_eq!(call.refusal(&Circumstances { collecting: true, ..native }), None);
    }

    #[test]
    fn hooks_are_set_in_initialize_only() {
        let call = call("SetEnterLeaveFunctionHooks3");
        assert_eq!(call.refusal(&Circumstances { status: Status::Initializing, ..NOWHERE }), None);
        assert_eq!(call.refusal(&NOWHERE), Some(sys::CORPROF_E_CALL_ONLY_FROM_INIT));
        let attaching = Circumstances { status: Status::Attaching, attached: true, ..NOWHERE };
        assert_eq!(call.refusal(&attaching), Some(sys::CORPROF_E_UNSUPPORTED_FOR_ATTACHING_PROFILER));
    }

    #[test]
    fn detaching_comes_first() {
        let detaching = Circumstances { status: Status::Detaching, ..from(Event::ClassLoadFinished) };
        for call in CALLS.iter().filter(|call| call.entry != Entry::Unchecked) {
            assert_eq!(call.refusal(&detaching), Some(sys::CORPROF_E_PROFILER_DETACHING), "{}", call.name);
        }
    }

    #[test]
    fn releases_differ() {
        let suspend = call("SuspendRuntime");
        let old = Circumstances { release: Release(8, 0), ..NOWHERE };
        assert_eq!(suspend.refusal(&old), Some(sys::CORPROF_E_UNSUPPORTED_CALL_SEQUENCE));
        assert_eq!(suspend.refusal(&NOWHERE), None);
        let none = EventMask::empty();
        let flag = EventMask::DISABLE_INLINING;
        assert!(check_mask(none, flag, &old).is_err());
        assert!(check_mask(none, flag, &NOWHERE).is_ok());
    }

    #[test]
    fn rejit_costs_detach() {
        assert_eq!(
            check_detach(EventMask::ENABLE_REJIT, Release(8, 0)),
            Err(sys::CORPROF_E_IRREVERSIBLE_INSTRUMENTATION_PRESENT)
        );
        assert_eq!(
            check_detach(EventMask::ENABLE_OBJECT_ALLOCATED, Release(8, 0)),
            Err(sys::CORPROF_E_IMMUTABLE_FLAGS_SET)
        );
        assert_eq!(check_detach(EventMask::MONITOR_THREADS, Release(8, 0)), Ok(()));
    }
}
