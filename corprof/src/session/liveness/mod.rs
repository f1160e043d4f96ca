//! Tracks which identifiers may still be passed to the runtime.
//!
//! The runtime does not recognise a dead identifier: it reads the memory that used to hold the object. So each call
//! that takes an identifier first pins it here ([`Liveness::pin`]), and returns an error if it is dead. While it is
//! pinned, the callback that announces its end waits (this also makes `thread_destroyed` wait for a walk of its thread:
//! suspension rule 2).
//!
//! These can die:
//! - **threads**: between `ThreadCreated` and `ThreadDestroyed`;
//! - **everything that was loaded to be unloaded**: collectible modules, their assembly, classes and functions, and
//!   instantiations of others over their classes. Before the first collectible module is loaded none of these exist,
//!   and a call pays for one load and one branch. From then on each function and class that the runtime hands out is
//!   recorded once ([`Liveness::function`], [`Liveness::class`]) with the collectible modules that it depends on
//!   (`owners.rs`). When one of these modules begins to unload, its dependents count as dead (`unload.rs`). The runtime
//!   does not always say which modules shared code depends on; its address can prove that it stays (`neighbours.rs`).
//!   Calls that find things without an identifier hold up every unload (`lookups.rs`);
//! - **dynamic methods**: until `DynamicMethodUnloaded`.
//!
//! What the application has emitted into a module, its bodies and data, ends before the module (`emitted.rs`).
//!
//! After an attach, the ends of what began to end before are not announced (`attach.rs`). What another session was told
//! of is refused if it could die (`sessions.rs`).

mod attach;
mod emitted;
mod lookups;
mod neighbours;
mod owners;
mod sessions;
mod subject;
mod table;
#[cfg(test)]
mod tests;
mod unload;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use corprof_sys as sys;

use crate::error::{Error, Result};
use crate::id::{AssemblyId, ClassId, FunctionId, ModuleId, ThreadId};
use crate::report;
use crate::session::Info;
use crate::system;

use attach::Attach;
pub(crate) use attach::Scout;
pub(crate) use lookups::LookUp;
use lookups::LookUps;
use neighbours::ImmortalCode;
use owners::Owners;
use sessions::MortalIds;
pub(crate) use subject::Subject;
use table::{Entry, Pages, State, Table};
use unload::{Kind, Records, begin_life};

/// The identifiers that can die, and the dead ones.
pub(crate) struct Liveness {
    /// Whether a collectible module or a dynamic method was ever loaded.
    is_unloading_possible: AtomicBool,
    /// The pages that hold dynamic methods: a function on no such page needs no look into the table.
    dynamic_pages: Pages,
    /// Whether a module has begun to unload.
    has_unloaded: AtomicBool,
    /// Whether the runtime failed to enumerate its compiled code when a module began to unload.
    is_code_unlisted: AtomicBool,
    look_ups: LookUps,
    records: Mutex<Records>,
    /// To be locked before the records, if both are.
    immortal_code: Mutex<ImmortalCode>,
    delayed: AtomicU64,
    threads_started: AtomicU64,
    /// How many times a module was loaded or began to unload.
    changes: AtomicU64,
    attach: Attach,
    /// Whether the session has ended: from then on nothing is heard of ends.
    is_over: AtomicBool,
    of_all_sessions: Arc<MortalIds>,
    assemblies: Table,
    modules: Table,
    /// By module: what the application has emitted into it.
    emitted: Table,
    classes: Table,
    functions: Table,
    dynamic_methods: Table,
    watches_older_dynamic_methods: AtomicBool,
    dynamic_methods_ended: AtomicU64,
    /// When the last one ended, in [`ticks`](system::ticks).
    last_dynamic_end: AtomicU64,
    threads: Table,
}

/// An identifier that stays alive until this is dropped.
pub(crate) struct Pinned<'a, I> {
    id: I,
    /// None for an identifier that cannot die.
    entry: Option<&'a Entry>,
}

impl<I: Mortal> Pinned<'_, I> {
    /// The value passed to the runtime.
    #[inline]
    pub(crate) fn as_raw(&self) -> usize {
        self.id.as_wire()
    }

    /// The identifier itself.
    pub(crate) fn id(&self) -> I {
        self.id
    }
}

impl<I> Drop for Pinned<'_, I> {
    #[inline]
    fn drop(&mut self) {
        if let Some(entry) = self.entry {
            entry.end_use();
        }
    }
}

/// A kind of identifier that can die.
pub(crate) trait Mortal: Copy {
    /// The cure, for the error about a dead identifier.
    const RULE: &'static str;
    /// The kind, for messages.
    const KIND: &'static str;
    const IS_FUNCTION: bool;

    fn as_wire(self) -> usize;

    /// Its entry, if it can die at all.
    fn entry(self, liveness: &Liveness) -> Option<&Entry>;

    /// Whether it has died without an end that calls must wait for.
    fn has_ended(self, liveness: &Liveness) -> bool;

    /// Whether it may have died.
    fn is_in_doubt(self, liveness: &Liveness) -> bool {
        self.entry(liveness).is_some_and(|entry| entry.state() == State::Doubtful)
    }
}

macro_rules! mortals {
    ($($id:ident $kind:literal $entry:expr, $has_ended:expr, $rule:literal;)*) => { $(
        impl Mortal for $id {
            const RULE: &'static str = $rule;
            const KIND: &'static str = $kind;
            const IS_FUNCTION: bool = matches!($kind.as_bytes(), b"function");

            #[inline]
            fn as_wire(self) -> usize {
                self.as_raw()
            }

            #[inline]
            fn entry(self, liveness: &Liveness) -> Option<&Entry> {
                let entry: fn(&Liveness, usize) -> Option<&Entry> = $entry;
                entry(liveness, self.as_raw())
            }

            #[inline]
            fn has_ended(self, liveness: &Liveness) -> bool {
                let has_ended: fn(&Liveness, usize) -> bool = $has_ended;
                has_ended(liveness, self.as_raw())
            }
        }
    )* };
}

mortals! {
    AssemblyId "assembly" |liveness, id| liveness.if_unloading(&liveness.assemblies, id),
        |liveness, id| MortalIds::is_foreign(&liveness.assemblies, &liveness.of_all_sessions.assemblies, id),
        "the assembly has been unloaded: ask before `module_unload_started` of its module returns";
    ModuleId "module" |liveness, id| liveness.if_unloading(&liveness.modules, id),
        |liveness, id| MortalIds::is_foreign(&liveness.modules, &liveness.of_all_sessions.modules, id),
        "the module has been unloaded: ask before its `module_unload_started` returns";
    ClassId "class" |liveness, id| liveness.if_unloading(&liveness.classes, id),
        |liveness, id| MortalIds::is_foreign(&liveness.classes, &liveness.of_all_sessions.classes, id),
        "the class went with its module, or with that of a type argument: ask before `module_unload_started` returns";
    FunctionId "function" |liveness, id| liveness.if_unloading(&liveness.functions, id),
        // Only the name and the signature of a dynamic method end with it; the runtime keeps the rest and reuses it for
        // the next one.
        |liveness, id| {
            liveness.dynamic_method(id).is_some_and(|entry| entry.state() == State::Dead)
                || MortalIds::is_foreign(&liveness.functions, &liveness.of_all_sessions.functions, id)
        },
        "the function went with its module, or is a dynamic method that has ended: ask before `module_unload_started`, or \
         `dynamic_method_unloaded`, returns";
    // A thread that was never handed out as running may never have begun to run, and then the runtime does not report
    // its end.
    ThreadId "thread" |liveness, id| liveness.threads.get(id), |liveness, id| liveness.threads.get(id).is_none(),
        "the thread has ended: ask before its `thread_destroyed` returns";
}

impl Info {
    /// Pins `id`: its end blocks until the guard is dropped, so keep it short.
    ///
    /// # Errors
    /// `COR_E_OBJECTDISPOSED` if it is dead.
    #[inline]
    pub(crate) fn pin<I: Mortal>(&self, id: I, call: &'static str) -> Result<Pinned<'_, I>> {
        match self.liveness().pin(id, call) {
            Err(_) if I::IS_FUNCTION && Subject::is(id.as_wire()) => {
                self.liveness().note(self.runtime(), Kind::Function, id.as_wire());
                self.liveness().pin(id, call)
            }
            Err(_) if id.is_in_doubt(self.liveness()) && self.liveness().settle(self.runtime(), id.as_wire()) => {
                self.liveness().pin(id, call)
            }
            answer => answer,
        }
    }
}

impl Info {
    /// [`pin`](Self::pin), for several identifiers.
    pub(crate) fn pin_all<I: Mortal>(&self, ids: &[I], call: &'static str) -> Result<Vec<Pinned<'_, I>>> {
        ids.iter().map(|&id| self.pin(id, call)).collect()
    }

    /// The id of a class that the runtime hands out.
    #[inline]
    pub(crate) fn class(&self, raw: usize) -> Option<ClassId> {
        ClassId::from_raw(raw).inspect(|&class| self.note_class(class))
    }

    /// Records a class that the runtime hands out.
    #[inline]
    pub(crate) fn note_class(&self, class: ClassId) {
        if self.liveness().is_unloading_possible() {
            self.liveness().note(self.runtime(), Kind::Class, class.as_raw());
        }
    }

    /// The id of a function that the runtime hands out.
    #[inline]
    pub(crate) fn function(&self, raw: usize) -> Option<FunctionId> {
        FunctionId::from_raw(raw).inspect(|&function| self.note_function(function))
    }

    /// Records a function that the runtime hands out.
    #[inline]
    pub(crate) fn note_function(&self, function: FunctionId) {
        if self.liveness().is_unloading_possible() {
            self.liveness().note(self.runtime(), Kind::Function, function.as_raw());
        }
    }

    /// The id of a function found by a look-up (by address or by enumeration), or `None` if it is dead: such a look-up
    /// also finds functions whose module is being unloaded.
    ///
    /// `is_all_gone`: the answer of [`Liveness::is_all_gone`], asked after the look-up began and before the runtime
    /// was. If it is true, an identifier that is recorded as dead has been reused.
    pub(crate) fn found_function(&self, raw: usize, is_all_gone: bool, _look_up: &LookUp<'_>) -> Option<FunctionId> {
        let liveness = self.liveness();
        let is_alive = !liveness.is_unloading_possible()
            || match liveness.functions.get(raw) {
                Some(entry) if entry.is_alive() => true,
                Some(_) => is_all_gone && liveness.note(self.runtime(), Kind::Function, raw),
                // All compiled code of unloading modules has been recorded, so this function belongs to none of them;
                // but not that of unloads which were not announced.
                None => {
                    let is_sure = is_all_gone || liveness.is_code_listed() && !liveness.is_attaching();
                    is_sure && liveness.note(self.runtime(), Kind::Function, raw)
                }
            };
        FunctionId::from_raw(raw).filter(|_| is_alive)
    }

    /// The id of a thread that the runtime hands out: it runs, or has run.
    #[inline]
    pub(crate) fn thread(&self, raw: usize) -> Option<ThreadId> {
        ThreadId::from_raw(raw).inspect(|_| _ = self.liveness().threads.insert(raw, State::Mortal))
    }
}

/// A thread that can be pinned for a walk later, unless its end has begun by then.
#[derive(Clone, Copy)]
pub(crate) struct WalkCandidate<'a> {
    thread: ThreadId,
    entry: &'a Entry,
}

impl<'a> WalkCandidate<'a> {
    /// Pins the thread, unless its end has begun (suspension rule 2). It touches one word, so it may be called while
    /// threads are suspended.
    ///
    /// Call it only after the suspension: the runtime reports the ends of some threads while it holds the lock that a
    /// suspension waits for, and such an end would wait for the pin.
    pub(crate) fn pin(&self) -> Option<Pinned<'a, ThreadId>> {
        let is_alive = self.entry.begin_use(&[State::Ending, State::Dead]);
        // Not `then_some`: it would make a `Pinned` in either case, and dropping that returns a use which was not
        // counted.
        is_alive.then(|| Pinned { id: self.thread, entry: Some(self.entry) })
    }
}

impl Liveness {
    /// The thread as a candidate for a walk, unless the runtime has reported its end.
    pub(crate) fn walk_candidate(&self, thread: ThreadId) -> Option<WalkCandidate<'_>> {
        let entry = self.threads.insert(thread.as_raw(), State::Mortal);
        (!matches!(entry.state(), State::Ending | State::Dead)).then_some(WalkCandidate { thread, entry })
    }

    /// Call it before the runtime is asked for anything that may be loaded, and before suspending threads whose stacks
    /// will show functions: none of these is unloaded before the guard is dropped.
    pub(crate) fn look_up(&self) -> LookUp<'_> {
        self.look_ups.begin()
    }

    /// Whether a module has ever begun to unload. If it has not during a look-up, nothing was freed before the end of
    /// that look-up.
    pub(crate) fn has_unloaded(&self) -> bool {
        self.has_unloaded.load(Ordering::SeqCst)
    }

    fn is_code_listed(&self) -> bool {
        !self.is_code_unlisted.load(Ordering::SeqCst)
    }

    /// How many threads had to wait at their end for a walk or a call.
    pub(crate) fn delayed(&self) -> u64 {
        self.delayed.load(Ordering::Relaxed)
    }

    /// The identifiers of another session of the runtime with this number.
    pub(crate) fn of_runtime(number: u16) -> Self {
        Self::new(MortalIds::of_runtime(number))
    }

    fn new(of_all_sessions: Arc<MortalIds>) -> Self {
        Self {
            is_unloading_possible: AtomicBool::new(false),
            dynamic_pages: Pages::new(),
            has_unloaded: AtomicBool::new(false),
            is_code_unlisted: AtomicBool::new(false),
            look_ups: LookUps::new(),
            records: Mutex::default(),
            immortal_code: Mutex::default(),
            delayed: AtomicU64::new(0),
            threads_started: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            attach: Attach::new(),
            is_over: AtomicBool::new(false),
            of_all_sessions,
            assemblies: Table::new(),
            modules: Table::new(),
            emitted: Table::new(),
            classes: Table::new(),
            functions: Table::new(),
            dynamic_methods: Table::new(),
            watches_older_dynamic_methods: AtomicBool::new(false),
            dynamic_methods_ended: AtomicU64::new(0),
            last_dynamic_end: AtomicU64::new(0),
            threads: Table::new(),
        }
    }

    /// The session has ended: its identifiers are no others' any more.
    pub(crate) fn session_ended(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        let all = &self.of_all_sessions;
        MortalIds::take(&all.assemblies, &self.assemblies);
        MortalIds::take(&all.modules, &self.modules);
        MortalIds::take(&all.classes, &self.classes);
        MortalIds::take(&all.functions, &self.functions);
        all.forget_if_empty();
    }

    #[inline]
    fn pin<I: Mortal>(&self, id: I, call: &'static str) -> Result<Pinned<'_, I>> {
        if id.has_ended(self) {
            return Err(dead::<I>(call));
        }
        pinned(id, id.entry(self), call)
    }

    #[inline]
    fn if_unloading<'a>(&'a self, table: &'a Table, id: usize) -> Option<&'a Entry> {
        if self.is_unloading_possible.load(Ordering::Relaxed) { table.get(id) } else { None }
    }

    #[inline]
    fn dynamic_method(&self, id: usize) -> Option<&Entry> {
        if self.dynamic_pages.may_have(id) { self.dynamic_methods.get(id) } else { None }
    }

    /// Whether identifiers must be recorded. Calls that ask this first save the pin: `function_info` takes 8.2 ns
    /// instead of 21.6, `function_from_ip` 29.4 instead of 33.5 (`cargo xtask bench --only calls`).
    #[inline]
    pub(crate) fn is_unloading_possible(&self) -> bool {
        self.is_unloading_possible.load(Ordering::Relaxed)
    }

    /// Whether neither the function nor anything that it depends on can die: it is not a dynamic method, and nothing
    /// collectible was ever loaded. If something collectible is loaded later, this function was there before.
    #[inline]
    pub(crate) fn is_sure_to_stay(&self, function: FunctionId) -> bool {
        !self.is_unloading_possible() && !self.dynamic_pages.may_have(function.as_raw())
    }

    /// How often the set of loaded modules has changed.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// How many threads the runtime has reported.
    pub(crate) fn threads_started(&self) -> u64 {
        self.threads_started.load(Ordering::Relaxed)
    }

    pub(crate) fn thread_created(&self, thread: usize) {
        self.threads_started.fetch_add(1, Ordering::Relaxed);
        self.threads.insert(thread, State::Mortal).set(State::Mortal);
    }

    /// Before `thread_destroyed` reaches the profiler: from now on the thread is not walked.
    pub(crate) fn thread_ending(&self, thread: usize) {
        let entry = self.threads.insert(thread, State::Ending);
        entry.set(State::Ending);
        if wait_while(|| entry.is_used(), "a walk of a thread that ends") {
            self.delayed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// After the profiler has handled `thread_destroyed`.
    pub(crate) fn thread_ended(&self, thread: usize) {
        end(self.threads.insert(thread, State::Dead), State::Dead, "a call about a thread that ends");
    }

    pub(crate) fn dynamic_method_compiled(&self, function: usize) {
        self.dynamic_pages.add(function);
        self.dynamic_methods.insert(function, State::Mortal).set(State::Mortal);
    }

    pub(crate) fn dynamic_method_unloaded(&self, function: usize) {
        self.dynamic_pages.add(function);
        end(self.dynamic_methods.insert(function, State::Dead), State::Dead, "a call about a dynamic method that ends");
        self.dynamic_methods_ended.fetch_add(1, Ordering::SeqCst);
        self.last_dynamic_end.fetch_max(system::ticks(), Ordering::SeqCst);
    }

    /// From now on the end of every dynamic method will be reported, also of those that were compiled before the
    /// profiler came.
    pub(crate) fn watch_older_dynamic_methods(&self) {
        self.watches_older_dynamic_methods.store(true, Ordering::SeqCst);
    }

    pub(crate) fn watches_older_dynamic_methods(&self) -> bool {
        self.watches_older_dynamic_methods.load(Ordering::SeqCst)
    }

    /// The runtime has found code of this dynamic method since the ends of all are reported. If it has ended meanwhile,
    /// that is recorded, and stays so.
    pub(crate) fn dynamic_method_found(&self, function: usize) {
        self.dynamic_pages.add(function);
        self.dynamic_methods.insert(function, State::Mortal);
    }

    /// How many ends of dynamic methods the runtime has reported.
    pub(crate) fn dynamic_methods_ended(&self) -> u64 {
        self.dynamic_methods_ended.load(Ordering::SeqCst)
    }

    /// Whether a function is the one that it was at a moment, in [`ticks`](system::ticks). When a dynamic method ends,
    /// the next may get its code's place and its identifier; that is after the end was reported.
    pub(crate) fn is_still(&self, function: FunctionId, since: u64) -> bool {
        let last_end = self.last_dynamic_end.load(Ordering::SeqCst);
        last_end == 0 || since > last_end || !self.is_watched(function)
    }

    /// Whether the end of this dynamic method will be reported.
    pub(crate) fn is_watched(&self, function: FunctionId) -> bool {
        self.dynamic_method(function.as_raw()).is_some()
    }

    /// Pins the data that only this dynamic method has: its name and its signature. The end of a dynamic method waits
    /// in cooperative mode, so a collection may wait for the pin in turn: use it for calls that have nothing to do with
    /// collections.
    pub(crate) fn pin_dynamic_method(
        &self,
        function: FunctionId,
        call: &'static str,
    ) -> Result<Pinned<'_, FunctionId>> {
        pinned(function, self.dynamic_method(function.as_raw()), call)
    }

    /// From now on the runtime does not report the ends of dynamic methods.
    pub(crate) fn stop_watching_dynamic_methods(&self) {
        self.watches_older_dynamic_methods.store(false, Ordering::SeqCst);
        self.dynamic_methods.iter().for_each(|entry| entry.set(State::Dead));
    }
}

/// The error for a dead identifier.
#[inline]
pub(crate) fn dead<I: Mortal>(call: &'static str) -> Error {
    Error::new(sys::COR_E_OBJECTDISPOSED, call).about(I::KIND, I::RULE)
}

#[inline]
fn pinned<'a, I: Mortal>(id: I, entry: Option<&'a Entry>, call: &'static str) -> Result<Pinned<'a, I>> {
    match entry {
        Some(entry) if !entry.begin_use(&[State::Dead, State::Doubtful]) => Err(dead::<I>(call)),
        entry => Ok(Pinned { id, entry }),
    }
}

/// Tells whether one module is still loaded: that very module, not the next one at its address.
#[derive(Clone)]
pub(crate) struct Lifeline(Option<(Arc<Liveness>, ModuleId, u32)>);

impl Lifeline {
    /// The lifeline of a pinned module.
    pub(crate) fn of(liveness: &Arc<Liveness>, module: &Pinned<'_, ModuleId>) -> Self {
        Self(module.entry.map(|entry| (Arc::clone(liveness), module.id, entry.life())))
    }

    /// The lifeline of a module.
    ///
    /// # Errors
    /// `COR_E_OBJECTDISPOSED` if it is gone.
    pub(crate) fn to(liveness: &Arc<Liveness>, module: ModuleId, call: &'static str) -> Result<Self> {
        Ok(Self::of(liveness, &liveness.pin(module, call)?))
    }

    /// Keeps the module loaded until the guard is dropped.
    ///
    /// # Errors
    /// `COR_E_OBJECTDISPOSED` if it is gone.
    #[inline]
    pub(crate) fn pin(&self, call: &'static str) -> Result<Option<Pinned<'_, ModuleId>>> {
        let Some((liveness, module, life)) = &self.0 else { return Ok(None) };
        // A value of that session may have come into another one.
        if liveness.is_over.load(Ordering::Relaxed) {
            return Err(dead::<ModuleId>(call));
        }
        let held = liveness.pin(*module, call)?;
        // No other life begins while this one is pinned.
        match held.entry {
            Some(entry) if entry.life() != *life => Err(dead::<ModuleId>(call)),
            _ => Ok(Some(held)),
        }
    }
}

/// Puts an entry into a state that refuses new uses, then waits until earlier uses are over.
fn end(entry: &Entry, state: State, what: &str) {
    entry.set(state);
    wait_while(|| entry.is_used(), what);
}

/// Waits, and returns whether it had to. It waits for calls to the runtime and for walks, which a watchdog ends: all of
/// these end.
fn wait_while(is_busy: impl Fn() -> bool, what: &str) -> bool {
    const PAUSE: Duration = Duration::from_micros(200);
    const PATIENCE: Duration = Duration::from_secs(2);
    if !is_busy() {
        return false;
    }
    let begin = Instant::now();
    let mut is_told = false;
    while is_busy() {
        std::thread::sleep(PAUSE);
        if !is_told && begin.elapsed() > PATIENCE {
            report::line(format_args!("{what} has lasted {PATIENCE:?}; the application waits for it"));
            is_told = true;
        }
    }
    true
}
