//! Which thread waits for which lock, and which thread holds it: also of waits that began before the attach.
//!
//! The runtime's events tell of waits that begin while a profiler listens. The threads of a deadlock began to wait
//! before that, and nothing ever happens again. [`Round::lock_waits`] reads it from the runtime's memory instead:
//!
//! - `Monitor` (`lock` of any object) on .NET 8 to 10, by what the runtime keeps for debuggers;
//! - `System.Threading.Lock` on .NET 9 and later, and `Monitor` on .NET 11, which is made of it, by their fields.
//!
//! On Linux. Elsewhere nothing is known, and a layout that is not recognised is not guessed: the thread is then among
//! those [whose lock is unknown](LockWaits::unknown).
//!
//! # How it is safe and sound
//!
//! The system reads the memory for it, so a wrong address is an error and not a fault. A wait is looked for while the
//! application runs, and what was read for it is kept as evidence. Then the runtime is suspended for a moment, as for a
//! collection, and all of it is compared with the memory once more: no object moves meanwhile, and no lock changes
//! hands. Only waits that are still there count, of threads that have not run in between. So all waits of one answer
//! are of one moment, and a cycle among them is a deadlock. An owner that is in no cycle may
//! [have run](LockWait::owner_has_run) since its stack was taken.

// `monitors.rs` finds waits for monitors of native code, `locks.rs` those for objects of the class `Lock`.

mod locks;
mod monitors;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use corprof_sys as sys;

use crate::error::Result;
use crate::id::FunctionId;
use crate::metadata::is_core_library;
use crate::names::Name;
use crate::object_chains::{Claim, compare, runs};
use crate::profiler_thread::ProfilerThread;
use crate::runtime_layout::descriptor::Descriptor;
use crate::runtime_layout::memory::{Evidence, number};
use crate::runtime_layout::{self, exported};
use crate::sampler::{Round, Sample};
use crate::system;

use locks::{LockClass, SyncTable};
use monitors::{Finding, Monitors};

/// The list of variables that the runtime exports for debuggers.
const VARIABLES: &std::ffi::CStr = c"g_dacTable";
/// How many times it is tried to see all waits at one moment.
const ATTEMPTS: u32 = 5;
/// The time between two attempts to suspend the runtime.
const PAUSE: Duration = Duration::from_millis(20);

/// The classes whose methods a thread is in while it waits.
const LOCK: &str = "System.Threading.Lock.";
const MONITOR: &str = "System.Threading.Monitor.";
const CONDITION: &str = "System.Threading.Condition.";
/// Methods that wait for a monitor.
const ENTERS: [&str; 3] =
    ["System.Threading.Monitor.Enter", "System.Threading.Monitor.TryEnter", "System.Threading.Monitor.ReliableEnter"];
/// Beginnings of names of methods that are between those and the system.
const INNER: [&str; 3] = ["System.", "Interop.", "<"];
/// Methods that give up after a time.
const LIMITED: [&str; 2] = ["System.Threading.Monitor.TryEnter", "System.Threading.Lock.TryEnter"];
/// One that those with and without a limit call.
const UNLIMITED: &str = "System.Threading.Lock.TryEnterSlow";

/// The locks that threads wait for, at one moment.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct LockWaits {
    /// The waits whose lock and owner are known.
    pub waits: Vec<LockWait>,
    /// The system's numbers of the threads that wait for a lock of which nothing more is known.
    pub unknown: Vec<u32>,
    /// Whether waits for monitors can be seen here. If not, no wait for one is in either list.
    pub sees_monitors: bool,
}

impl LockWaits {
    /// The waits of each deadlock: the thread of each waits for a lock that the next one's holds, the last for one of
    /// the first. If one of them [has a limit](LockWait::has_limit), the deadlock ends by itself.
    #[must_use]
    pub fn deadlocks(&self) -> Vec<Vec<&LockWait>> {
        // A thread waits for one lock at a time, so it is in one circle at most.
        let by_waiter: BTreeMap<u32, &LockWait> = self.waits.iter().map(|wait| (wait.waiter, wait)).collect();
        let mut done = BTreeSet::new();
        let mut deadlocks = Vec::new();
        for first in by_waiter.keys() {
            let mut path: Vec<&LockWait> = Vec::new();
            let mut thread = *first;
            // Whoever was reached before is in a circle that is known, or leads to one, or to none.
            while let Some(wait) = by_waiter.get(&thread).filter(|_| done.insert(thread)) {
                path.push(wait);
                thread = wait.owner;
            }
            if let Some(start) = path.iter().position(|wait| wait.waiter == thread) {
                deadlocks.push(path.split_off(start));
            }
        }
        deadlocks
    }
}

/// A thread waits for a lock that another one holds.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LockWait {
    /// The system's number of the thread that waits.
    pub waiter: u32,
    /// The system's number of the thread that holds the lock.
    pub owner: u32,
    /// The same number for waits for the same lock, within one answer.
    pub lock: usize,
    /// The class of the object that is locked.
    pub class: Name,
    /// Whether the thread gives up after a time: `Monitor.TryEnter` with a timeout.
    pub has_limit: bool,
    /// Whether the owner has run since its stack of this round was taken, or may have: that stack may then be of a time
    /// before it had the lock.
    pub owner_has_run: bool,
}

/// What is known of a thread before its locks are looked for.
struct WaitingThread {
    /// The runtime's object of the thread.
    address: usize,
    os_id: u32,
    app_domain: usize,
    /// The end of its stack; 0 if it runs.
    stack_pointer: usize,
    /// How often it has run.
    runs: Option<u64>,
    /// The number that managed code knows it by, and where that is.
    managed_id: Option<u32>,
    managed_id_offset: Option<usize>,
    frames: Frames,
}

/// A wait before its class has a name.
struct Found {
    waiter: u32,
    owner: u32,
    lock: usize,
    class: usize,
    has_limit: bool,
    evidence: Evidence,
    runs: Option<u64>,
}

/// What was found, and not yet compared.
#[derive(Default)]
struct Search {
    found: Vec<Found>,
    unknown: Vec<u32>,
}

/// Where the runtime keeps its locks.
struct Places {
    app_domain: usize,
    descriptor: Option<Descriptor>,
    monitors: Option<Monitors>,
    lock_class: Option<LockClass>,
    table: Option<SyncTable>,
}

impl Round<'_, '_> {
    /// Which threads wait for locks, and which threads hold these: now, of the threads that this round has seen.
    ///
    /// It suspends the runtime once, for some microseconds for each wait; if threads have run meanwhile, up to five
    /// times.
    ///
    /// # Errors
    /// If the runtime cannot be suspended, or this thread has become a managed one.
    pub fn lock_waits(&mut self) -> Result<LockWaits> {
        // How often threads had run before they were sampled.
        let sampled = self.samples().filter_map(|sample| Some((sample.thread().os_id?, sample.thread().run_count)));
        let sampled: HashMap<u32, Option<u64>> = sampled.filter(|(_, runs)| runs.is_some()).collect();
        let lock_method = self.samples().find_map(|sample| Frames::of(self.cx(), &sample).lock_method);
        let mut places = Places::find(self.cx_mut(), lock_method);
        let mut answer = LockWaits { sees_monitors: places.sees_monitors(), ..LockWaits::default() };
        for attempt in 1..=ATTEMPTS {
            // A class whose name is asked for below must not be unloaded before that.
            let look_up = self.cx().liveness().look_up();
            let samples = self.samples();
            let threads = samples.filter_map(|sample| WaitingThread::new(self.cx(), &sample, &places));
            let search = places.search(&threads.collect::<Vec<_>>());
            let claims = search.found.iter().map(|found| Claim::new(&found.evidence, found.waiter, found.runs));
            let stay = match compare(self.cx(), &claims.collect::<Vec<_>>()) {
                Err(error) if error.code() == sys::CORPROF_E_SUSPENSION_IN_PROGRESS && attempt < ATTEMPTS => {
                    drop(look_up);
                    let _ = self.cx_mut().wait(PAUSE); // for a collection
                    continue;
                }
                stay => stay?,
            };
            if stay.contains(&false) && attempt < ATTEMPTS {
                continue;
            }
            answer.unknown = search.unknown;
            for (found, stays) in search.found.into_iter().zip(stay) {
                // What did not stay may never have been a class: a collection marks objects at this word.
                let class = if stays { class_name(self.cx(), found.class) } else { None };
                match class {
                    Some(class) => answer.waits.push(LockWait {
                        waiter: found.waiter,
                        owner: found.owner,
                        lock: found.lock,
                        class,
                        has_limit: found.has_limit,
                        owner_has_run: sampled.get(&found.owner).is_none_or(|sampled| *sampled != runs(found.owner)),
                    }),
                    None => answer.unknown.push(found.waiter),
                }
            }
            break;
        }
        Ok(answer)
    }
}

/// The name of a class, as C# spells it.
fn class_name(cx: &ProfilerThread<'_>, class: usize) -> Option<Name> {
    Some(cx.names().csharp().class(cx.class(class)?))
}

/// The methods of locks at the inner end of a stack.
#[derive(Default)]
struct Frames {
    /// The addresses of their frames and of those inside them, the innermost first.
    inner_addresses: Vec<usize>,
    /// The address of the frame of the method that has called them.
    caller_address: Option<usize>,
    /// A method of the class of locks, if there is one among them.
    lock_method: Option<FunctionId>,
    is_in_monitor: bool,
    enters_monitor: bool,
    has_limit: bool,
}

impl Frames {
    fn of(cx: &ProfilerThread<'_>, sample: &Sample<'_>) -> Self {
        let mut frames = Self::default();
        for frame in sample.frames() {
            let Some(function) = frame.function else { continue };
            let name = cx.names().csharp().function(function);
            let is_of_lock = name.starts_with(LOCK);
            let is_of_monitor = name.starts_with(MONITOR);
            let is_in_any = frames.lock_method.is_some() || frames.is_in_monitor;
            let goes_on = match is_in_any {
                true => is_of_lock || is_of_monitor || name.starts_with(CONDITION),
                false => INNER.iter().any(|inner| name.starts_with(inner)),
            };
            if !goes_on {
                frames.caller_address = Some(frame.ip);
                break;
            }
            frames.inner_addresses.push(frame.ip);
            if is_of_lock {
                frames.lock_method = Some(function);
            }
            frames.is_in_monitor |= is_of_monitor;
            frames.enters_monitor |= ENTERS.iter().any(|enters| name.starts_with(enters));
            frames.has_limit |= LIMITED.iter().any(|limited| name.starts_with(limited)) && !name.starts_with(UNLIMITED);
        }
        frames
    }
}

impl WaitingThread {
    /// What is known of the thread of a sample, if it waits in the system.
    fn new(cx: &ProfilerThread<'_>, sample: &Sample<'_>, places: &Places) -> Option<Self> {
        let os_id = sample.thread().os_id?;
        let runs = runs(os_id);
        let stack_pointer = system::stack_pointer(os_id).unwrap_or_default();
        let address = sample.thread().id.as_raw();
        let managed_id_offset = places.managed_id_offset(address, os_id);
        Some(Self {
            address,
            os_id,
            app_domain: places.app_domain,
            stack_pointer,
            runs,
            managed_id: managed_id_offset.and_then(|offset| number(address + offset)),
            managed_id_offset,
            frames: Frames::of(cx, sample),
        })
    }
}

impl Places {
    /// Asks the runtime. `lock_method` is a method of the class of locks, if some thread is in one.
    fn find(cx: &mut ProfilerThread<'_>, lock_method: Option<FunctionId>) -> Self {
        let descriptor = runtime_layout::descriptor(cx);
        let table = descriptor.as_ref().and_then(SyncTable::new);
        let monitors = if table.is_some() { None } else { exported(cx, VARIABLES).map(Monitors::new) };
        let lock_class = lock_method.and_then(|method| lock_class(cx, method).ok().flatten());
        // There is one domain.
        let thread = cx.enum_threads().ok().and_then(|threads| threads.first().copied());
        let domain = thread.and_then(|thread| cx.thread_app_domain(thread).ok());
        let app_domain = domain.map_or(0, |domain| domain.as_raw());
        Self { app_domain, descriptor, monitors, lock_class, table }
    }

    fn sees_monitors(&self) -> bool {
        self.monitors.is_some() || self.table.is_some()
    }

    /// Where the number of a thread is that managed code knows it by.
    fn managed_id_offset(&self, address: usize, os_id: u32) -> Option<usize> {
        let descriptor = self.descriptor.as_ref()?;
        let system = number(address + descriptor.offset("Thread", "OSId")?)?;
        descriptor.offset("Thread", "Id").filter(|_| system == os_id)
    }

    /// What the threads wait for.
    fn search(&mut self, threads: &[WaitingThread]) -> Search {
        let mut search = Search::default();
        // Those that run wait for nothing; they may own locks.
        for thread in threads.iter().filter(|thread| thread.stack_pointer != 0) {
            match self.wait_of(thread, threads) {
                Finding::None => {}
                Finding::Wait(found) => search.found.push(found),
                Finding::Unknown => search.unknown.push(thread.os_id),
            }
        }
        search
    }

    fn wait_of(&mut self, thread: &WaitingThread, threads: &[WaitingThread]) -> Finding<Found> {
        if thread.frames.lock_method.is_some() {
            let Some(class) = self.lock_class else { return Finding::Unknown };
            return locks::wait_of(thread, threads, class, self.table.as_ref());
        }
        let found = self.monitors.as_mut().map_or(Finding::None, |monitors| monitors.wait_of(thread, threads));
        match found {
            // It is in a method that waits, and there is no trace of what for.
            Finding::None if thread.frames.enters_monitor && self.monitors.is_some() => Finding::Unknown,
            found => found,
        }
    }
}

/// The class of locks, of which this is a method, and the offsets of its fields; none if it has no such fields.
fn lock_class(cx: &ProfilerThread<'_>, method: FunctionId) -> Result<Option<LockClass>> {
    let info = cx.function_info(method)?;
    let metadata = cx.metadata(info.module)?;
    let Some(class) = info.class.filter(|_| is_core_library(&metadata) == Ok(true)) else { return Ok(None) };
    let mut owner = None;
    let mut event = None;
    for field in cx.class_layout(class)?.fields {
        let offset = Some(field.offset as usize);
        match metadata.field(field.field)?.name.as_str() {
            "_owningThreadId" => owner = offset,
            // On .NET 11 it may be of the class `Condition`, too.
            "_waitEvent" | "_waitEventOrCondition" => event = offset,
            _ => {}
        }
    }
    // As `locks` (profilers/library/locks.rs) finds out whose numbers are in the events.
    let is_owner_of_system =
        !metadata.methods_named(metadata.method(info.token)?.class, "get_OwningOSThreadId")?.is_empty();
    let class = class.as_raw();
    Ok(owner.zip(event).map(|(owner, event)| LockClass { class, owner, event, is_owner_of_system }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The waiters of the deadlocks among waits for owners.
    fn deadlocks(pairs: &[(u32, u32)]) -> Vec<Vec<u32>> {
        let wait = |&(waiter, owner): &(u32, u32)| LockWait {
            waiter,
            owner,
            lock: owner as usize,
            class: "System.Object".into(),
            has_limit: false,
            owner_has_run: false,
        };
        let locks = LockWaits { waits: pairs.iter().map(wait).collect(), ..LockWaits::default() };
        locks.deadlocks().iter().map(|waits| waits.iter().map(|wait| wait.waiter).collect()).collect()
    }

    #[test]
    fn deadlocks_are_found_whoever_leads_to_them() {
        assert_eq!(deadlocks(&[(1, 2)]), Vec::<Vec<u32>>::new());
        assert_eq!(deadlocks(&[(1, 2), (2, 1)]), [[1, 2]]);
        let two = [(5, 4), (4, 3), (3, 5), (1, 4), (2, 1), (8, 9), (9, 8)];
        assert_eq!(deadlocks(&two), [vec![4, 3, 5], vec![8, 9]]);
    }
}
