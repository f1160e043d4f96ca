//! The state of one fake CLR, shared by all of its objects and threads.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use corprof_sys as sys;
use windows_core::HRESULT;

use crate::adapter::exception_pins;
use crate::error::{E_FAIL, Error};
use crate::event_mask::{Event, EventMask};
use crate::generated::contract_table::{CALLS, DELIVERIES};
use crate::generated::events::ALTERNATIVES;
use crate::generated::{fake_info, fake_metadata};
use crate::lock::unpoisoned;

use super::contract::{self, Circumstances, Delivery, Release, Status};
use super::here;
use super::world::World;

/// The state that all objects and threads of one fake CLR share.
///
/// No lock in it is held while a callback runs, except `execution`.
pub(crate) struct Runtime {
    /// Identifies this fake CLR; never reused.
    pub(crate) id: u64,
    pub(crate) info_version: u8,
    pub(crate) release: Release,
    pub(crate) concurrent_gc: bool,
    pub(crate) attached: bool,
    pub(crate) notification_only: AtomicBool,
    status: AtomicU8,
    mask: AtomicU64,
    /// Whether `ENABLE_REJIT` is or was set.
    had_rejit: AtomicBool,
    /// The managed thread that runs a collection now; 0 if none does.
    pub(crate) collector: AtomicUsize,
    /// Held for reading by callbacks that a collection waits for, for writing by the collection.
    pub(crate) execution: RwLock<()>,
    /// One suspension at a time.
    pub(crate) suspension: Mutex<()>,
    /// The operating-system thread that has suspended the runtime; none if it runs.
    pub(crate) suspender: Mutex<Option<std::thread::ThreadId>>,
    /// How many times it was suspended.
    pub(crate) suspensions: AtomicU64,
    pub(crate) faults: Faults,
    refusals: Mutex<Vec<(&'static str, HRESULT)>>,
    delivered: Mutex<Vec<Event>>,
    world: RwLock<World>,
}

/// The codes with which calls must fail, instead of their results.
#[derive(Default)]
pub(crate) struct Faults {
    /// Whether there are any: only then is the rest read.
    any: AtomicBool,
    by_call: Mutex<HashMap<&'static str, Fault>>,
}

#[derive(Default)]
struct Fault {
    next: VecDeque<HRESULT>,
    always: Option<HRESULT>,
}

/// Takes a lock. No code of a test runs under one, so a panic cannot leave the data in a bad state.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    unpoisoned(mutex.lock())
}

impl Runtime {
    pub(crate) fn new(info_version: u8, release: Release, concurrent_gc: bool, attached: bool, faults: Faults) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let status = if attached { Status::Attaching } else { Status::Initializing };
        Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            info_version,
            release,
            concurrent_gc,
            attached,
            notification_only: AtomicBool::new(false),
            status: AtomicU8::new(status as u8),
            mask: AtomicU64::new(0),
            had_rejit: AtomicBool::new(false),
            collector: AtomicUsize::new(0),
            execution: RwLock::new(()),
            suspension: Mutex::default(),
            suspender: Mutex::default(),
            suspensions: AtomicU64::new(0),
            faults,
            refusals: Mutex::default(),
            delivered: Mutex::default(),
            world: RwLock::new(World::new()),
        }
    }

    pub(crate) fn status(&self) -> Status {
        let status = self.status.load(Ordering::Acquire);
        let all = [Status::Initializing, Status::Attaching, Status::Active, Status::Detaching];
        all.into_iter().find(|&one| one as u8 == status).unwrap_or(Status::Shut)
    }

    pub(crate) fn set_status(&self, status: Status) {
        self.status.store(status as u8, Ordering::Release);
    }

    pub(crate) fn world(&self) -> RwLockReadGuard<'_, World> {
        unpoisoned(self.world.read())
    }

    pub(crate) fn world_mut(&self) -> RwLockWriteGuard<'_, World> {
        unpoisoned(self.world.write())
    }

    fn circumstances(&self) -> Circumstances {
        let standing = here::standing(self.id);
        Circumstances {
            release: self.release,
            status: self.status(),
            attached: self.attached,
            notification_only: self.notification_only.load(Ordering::Relaxed),
            collecting: self.collector.load(Ordering::Acquire) != 0 || standing.in_collection,
            standing,
        }
    }

    /// Lets a call of an Info method in, or returns the code of its refusal.
    pub(crate) fn let_in(&self, slot: usize) -> Result<(), HRESULT> {
        let call = slot.checked_sub(3).and_then(|at| CALLS.get(at)).filter(|call| call.slot == slot).ok_or(E_FAIL)?;
        if let Some(code) = self.faults.take(call.name) {
            return Err(code);
        }
        match call.refusal(&self.circumstances()) {
            None => Ok(()),
            Some(code) => {
                lock(&self.refusals).push((call.name, code));
                Err(code)
            }
        }
    }

    pub(crate) fn refusals(&self) -> Vec<(&'static str, HRESULT)> {
        lock(&self.refusals).clone()
    }

    pub(crate) fn delivered(&self) -> Vec<Event> {
        lock(&self.delivered).clone()
    }

    pub(crate) fn forget_delivered(&self) {
        lock(&self.delivered).clear();
    }

    pub(crate) fn mask(&self) -> EventMask {
        EventMask::from_bits_retain(self.mask.load(Ordering::Acquire))
    }

    /// `SetEventMask2`, with the runtime's checks.
    pub(crate) fn set_mask(&self, mask: EventMask) -> Result<(), HRESULT> {
        let current = self.mask();
        let now = self.circumstances();
        contract::check_mask(current, mask, &now).map_err(|error: Error| error.code())?;
        let starting = matches!(now.status, Status::Initializing | Status::Attaching);
        let turns_gc_on = mask.contains(EventMask::MONITOR_GC) && !current.contains(EventMask::MONITOR_GC);
        if turns_gc_on && self.concurrent_gc && !starting {
            return Err(sys::CORPROF_E_CONCURRENT_GC_NOT_PROFILABLE);
        }
        if mask.contains(EventMask::ENABLE_REJIT) {
            self.had_rejit.store(true, Ordering::Relaxed);
        }
        self.mask.store(mask.bits(), Ordering::Release);
        Ok(())
    }

    /// `RequestProfilerDetach`, with the runtime's checks.
    pub(crate) fn request_detach(&self) -> Result<(), HRESULT> {
        match self.status() {
            Status::Active => {}
            Status::Initializing | Status::Attaching => return Err(sys::CORPROF_E_PROFILER_NOT_YET_INITIALIZED),
            Status::Detaching | Status::Shut => return Err(sys::CORPROF_E_PROFILER_DETACHING),
        }
        let rejit = if self.had_rejit.load(Ordering::Relaxed) { EventMask::ENABLE_REJIT } else { EventMask::empty() };
        contract::check_detach(self.mask() | rejit, self.release)?;
        self.set_status(Status::Detaching);
        Ok(())
    }

    /// Whether the profiler receives a callback now: its runtime has it, its flags enable it, its state allows it.
    pub(crate) fn is_wanted(&self, event: Event) -> Option<&'static Delivery> {
        let delivery = DELIVERIES.get(event as usize).filter(|delivery| delivery.event == event)?;
        let alternatives = ALTERNATIVES.get(event as usize).copied().unwrap_or_default();
        let mask = self.mask();
        let is_enabled = alternatives.is_empty() || alternatives.iter().any(|&flags| mask.contains(flags));
        let is_there = delivery.comes && (!self.attached || delivery.attach);
        let is_time = match self.status() {
            Status::Active => {
                !matches!(event, Event::Initialize | Event::InitializeForAttach)
                    && !matches!(event, Event::ProfilerDetachSucceeded | Event::LoadAsNotificationOnly)
            }
            Status::Initializing => event == Event::Initialize,
            Status::Attaching => event == Event::InitializeForAttach,
            Status::Detaching => event == Event::ProfilerDetachSucceeded,
            Status::Shut => false,
        };
        (is_enabled && is_there && is_time).then_some(delivery)
    }

    pub(crate) fn note_delivery(&self, event: Event) {
        lock(&self.delivered).push(event);
    }
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("Runtime");
        debug.field("info_version", &self.info_version).field("release", &self.release).finish_non_exhaustive()
    }
}

impl Faults {
    /// The name as in the tables, if a call has it.
    fn call(name: &str) -> Option<&'static str> {
        fake_info::NAMES.into_iter().chain(fake_metadata::NAMES).find(|known| *known == name)
    }

    /// Returns whether there is such a call.
    #[must_use]
    pub(crate) fn next(&self, call: &str, code: HRESULT) -> bool {
        self.change(call, |fault| fault.next.push_back(code))
    }

    /// See [`next`](Self::next).
    #[must_use]
    pub(crate) fn always(&self, call: &str, code: Option<HRESULT>) -> bool {
        self.change(call, |fault| fault.always = code)
    }

    fn change(&self, call: &str, change: impl FnOnce(&mut Fault)) -> bool {
        let Some(call) = Self::call(call) else { return false };
        change(lock(&self.by_call).entry(call).or_default());
        self.any.store(true, Ordering::Release);
        true
    }

    /// The code with which the call must fail now.
    pub(crate) fn take(&self, call: &str) -> Option<HRESULT> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let mut by_call = lock(&self.by_call);
        let fault = by_call.get_mut(call)?;
        // Single failures are for the profiler's calls, not for the SDK's own.
        let next = if exception_pins::is_at_work() { None } else { fault.next.pop_front() };
        next.or(fault.always)
    }
}
