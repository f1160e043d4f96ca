//! The profiler's own probe of async operations, where the runtime does not tell of them (.NET 8 to 10).
//!
//! A suspended async method is in a box, an object that is also its task. Whoever awaits it is the task's continuation:
//! the box of the next method, or something that leads to one. When a method is resumed, its box's `MoveNext` is
//! called; inserted code calls the hook here, which follows that chain and notes it (`runs`). The sampler, a moment
//! later, looks up what the thread of a sample had resumed (`callers`).
//!
//! What objects of a class are is found out on a thread of the profiler (`classes`). Until then a chain ends there.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use corprof::hooks::{HookValues, InSlowHook, Precompiled, SampleClock};
use corprof::instrumentation::StartError;
use corprof::prelude::*;
use corprof::values::{Arguments, ChainEnd, LinkCache, Links, ReturnValue, Value};

use runs::{MOST_METHODS, Runs};

mod callers;
mod classes;
mod runs;

pub(super) use callers::{ProbeCallers, is_method};
pub(crate) use classes::Machine;
pub(super) use classes::{Core, Part};

/// How many objects of a chain are visited.
const MOST_OBJECTS: usize = 256;

/// How many methods have numbers, and how many ends: an application that loads and unloads for months has ever new
/// ones.
const MOST_KNOWN: usize = 1 << 14;

/// What an object of a chain is.
#[derive(Clone, Copy)]
enum Hop {
    /// A suspended method, by its number.
    Method(u32),
    Passes,
    /// The chain ends here, at a class with this number.
    Ends(u32),
}

/// The numbers of what chains end at. Greater ones are those of classes.
const AT_ROOT: u32 = 0;
const AT_UNKNOWN: u32 = 1;
const AT_LIMIT: u32 = 2;
/// An iterator or a pooled box of which it is not known yet where it leads.
const AT_SOURCE: u32 = 3;
const FIRST_CLASS: u32 = 4;

/// The probe.
pub(super) struct AsyncProbe {
    links: Links<Hop>,
    clock: SampleClock,
    is_on: AtomicBool,
    core: OnceLock<Option<Core>>,
    /// By thread.
    threads: Mutex<HashMap<usize, Arc<Runs>>>,
    known: Mutex<Known>,
    /// What could not be learned yet.
    later: Mutex<Vec<Later>>,
    has_later: AtomicBool,
}

/// A class, what its objects are, and the field that leads on.
type Later = (ClassId, Hop, &'static [&'static str]);

/// What numbers stand for.
#[derive(Default)]
struct Known {
    methods: Vec<Machine>,
    numbers: HashMap<Machine, u32>,
    ends: Vec<Name>,
}

/// The state of a thread.
pub(super) struct ProbeThread {
    cache: LinkCache<Hop>,
    runs: Option<Arc<Runs>>,
    thread: Option<ThreadId>,
    /// The stack pointers of the runs that it is in, the innermost last.
    depth: Vec<usize>,
}

/// No lock here is held during a call of the runtime.
fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl AsyncProbe {
    fn new(cx: &InNoGc<'_>) -> Result<Arc<Self>> {
        Ok(Arc::new(Self {
            links: Links::new(cx)?,
            clock: SampleClock::new(),
            is_on: AtomicBool::new(true),
            core: OnceLock::new(),
            threads: Mutex::default(),
            known: Mutex::default(),
            later: Mutex::default(),
            has_later: AtomicBool::new(false),
        }))
    }

    /// Sets the hooks.
    pub(super) fn install(cx: &mut InInitialize<'_>) -> Result<Arc<Self>> {
        let probe = Self::new(cx)?;
        cx.hooks(Arc::clone(&probe)).inserted(Precompiled::Compile).install()?;
        Ok(probe)
    }

    /// The same after an attach: from then on the profiler cannot detach.
    pub(super) fn install_after_attach(cx: &mut InAttach<'_>) -> Result<Arc<Self>, StartError> {
        let probe = Self::new(cx)?;
        cx.hooks(Arc::clone(&probe)).install()?;
        Ok(probe)
    }

    /// The runtime tells of async operations by itself: spares it the questions about precompiled methods, which nobody
    /// else here needs.
    pub(super) fn give_up(&self, cx: &InNoGc<'_>) {
        self.stop();
        let _ = cx.remove_events(EventMask::MONITOR_CACHE_SEARCHES); // they only cost
    }

    /// Nothing more is noted.
    pub(super) fn stop(&self) {
        self.is_on.store(false, Ordering::Relaxed);
        locked(&self.threads).clear();
    }

    /// Finds out about the classes that hooks have met. Returns whether there were any.
    pub(super) fn learn(&self, cx: &mut InCallback<'_>) -> bool {
        let Some(core) = self.core.get().and_then(Option::as_ref) else { return false };
        let unknown = self.links.take_unknown(cx);
        let is_any = !unknown.is_empty();
        for class in unknown {
            let (hop, path) = match core.part(cx, class) {
                Part::Method(machine, path) => (self.method(machine), path),
                Part::Passes(path) => (Hop::Passes, path),
                Part::Ends(name) => (self.end(name), [].as_slice()),
            };
            if self.links.learn(cx, class, hop, path).is_err() {
                // A struct's class is to be had where classes may be loaded. Until then a chain ends here.
                let _ = self.links.learn(cx, class, hop, &[]); // or it has gone
                locked(&self.later).push((class, hop, path));
                self.has_later.store(true, Ordering::Release);
            }
        }
        is_any
    }

    /// Finds out what can be found out only on a thread that runs managed code: when a method is compiled, also for
    /// another tier.
    pub(super) fn learn_later(&self, cx: &mut InCallback<'_>) {
        if self.has_later.swap(false, Ordering::AcqRel) {
            let later = std::mem::take(&mut *locked(&self.later));
            for (class, hop, path) in later {
                let _ = self.links.learn(cx, class, hop, path); // or it ends there for good
            }
        }
    }

    fn method(&self, machine: Machine) -> Hop {
        let known = &mut *locked(&self.known);
        if let Some(number) = known.numbers.get(&machine) {
            return Hop::Method(*number);
        }
        if known.methods.len() == MOST_KNOWN {
            return Hop::Ends(AT_UNKNOWN);
        }
        let number = known.methods.len() as u32;
        known.methods.push(machine.clone());
        known.numbers.insert(machine, number);
        Hop::Method(number)
    }

    fn end(&self, name: Name) -> Hop {
        let known = &mut *locked(&self.known);
        let place = match known.ends.iter().position(|other| *other == name) {
            Some(place) => place,
            None if known.ends.len() == MOST_KNOWN => return Hop::Ends(AT_UNKNOWN),
            None => {
                known.ends.push(name);
                known.ends.len() - 1
            }
        };
        Hop::Ends(place as u32 + FIRST_CLASS)
    }

    /// The runs of the calling thread.
    #[cold]
    fn begin_thread(&self, cx: &InSlowHook<'_>, thread: &mut ProbeThread) {
        let Ok(Some(id)) = cx.current_thread() else { return };
        let runs = Arc::new(Runs::default());
        locked(&self.threads).insert(id.as_raw(), Arc::clone(&runs));
        thread.thread = Some(id);
        thread.runs = Some(runs);
    }
}

impl FunctionHooks for AsyncProbe {
    type Function = ();
    type Thread = ProbeThread;

    const VALUES: HookValues = HookValues::ARGUMENTS;
    const KINDS: HookKinds = HookKinds::ENTER.union(HookKinds::LEAVE);

    fn select(&self, cx: &mut InCallback<'_>, function: FunctionId) -> Hook<()> {
        let Ok(info) = cx.function_info(function) else { return Hook::No };
        let core = match self.core.get() {
            Some(core) => core,
            None if Core::is_core(cx, info.module) => {
                let core = Core::of(cx, info.module).ok().flatten();
                self.core.get_or_init(|| core)
            }
            None => return Hook::No,
        };
        if core.is_some()
            && let Some(class) = classes::iterator_of(cx, &info)
        {
            let _ = self.links.learn(cx, class, Hop::Passes, classes::OF_ITERATOR); // otherwise when it is met
        }
        let is_it = core.as_ref().is_some_and(|core| core.is_resuming(info.module, info.token));
        if is_it { Hook::Exact(()) } else { Hook::No }
    }

    fn thread_started(&self) -> ProbeThread {
        ProbeThread { cache: self.links.cache(), runs: None, thread: None, depth: Vec::with_capacity(16) }
    }

    fn enter_with_args(&self, cx: &InSlowHook<'_>, thread: &mut ProbeThread, (): &(), args: &Arguments<'_>) {
        if !self.is_on.load(Ordering::Relaxed) {
            return;
        }
        let Some(Value::Object(Some(resumed))) = args.this() else { return };
        let now = self.clock.now();
        thread.leave(cx.stack_pointer());
        thread.depth.push(cx.stack_pointer());
        if thread.runs.is_none() {
            self.begin_thread(cx, thread);
        }
        let Some(runs) = &thread.runs else { return };
        let mut methods = [0; MOST_METHODS];
        let mut count = 0;
        let mut end = AT_ROOT;
        let followed = self.links.follow(cx, &mut thread.cache, resumed, MOST_OBJECTS, |hop| match hop {
            Hop::Method(number) => {
                if let Some(place) = methods.get_mut(count) {
                    *place = number;
                    count += 1;
                }
            }
            Hop::Passes => {}
            Hop::Ends(class) => end = class,
        });
        match followed {
            Ok(ChainEnd::Unknown) | Err(_) => end = AT_UNKNOWN,
            Ok(ChainEnd::Limit) => end = AT_LIMIT,
            Ok(ChainEnd::Last) if end == AT_ROOT => end = AT_SOURCE,
            Ok(_) => {}
        }
        let depth = u16::try_from(thread.depth.len()).unwrap_or(u16::MAX);
        runs.begin(now, depth, methods.get(..count).unwrap_or_default(), end);
    }

    fn leave_with_value(&self, cx: &InSlowHook<'_>, thread: &mut ProbeThread, (): &(), _value: &ReturnValue<'_>) {
        thread.leave(cx.stack_pointer());
    }

    fn thread_ended(&self, thread: ProbeThread) {
        if let Some(id) = thread.thread {
            locked(&self.threads).remove(&id.as_raw());
        }
    }
}

impl ProbeThread {
    /// The run with this stack pointer has ended, and those in it: an exception may have ended them.
    fn leave(&mut self, stack_pointer: usize) {
        while self.depth.last().is_some_and(|run| *run <= stack_pointer) {
            self.depth.pop();
        }
    }
}
