//! Which identifiers may still be passed to the runtime.
//!
//! The runtime does not recognise a dead identifier: it reads the memory that was there. So each call that is given one asks
//! here first ([`Info::hold`]), and answers with an error if it is dead; while the call lasts, the callback that announces
//! the end waits for it (the same wait is what makes `thread_destroyed` wait for a walk of its thread: suspension rule 2).
//!
//! What can die:
//! - **threads**: between `ThreadCreated` and `ThreadDestroyed`;
//! - **what was loaded for unloading**: collectible modules, their assembly, classes and functions, and instantiations of
//!   others over their classes. Before the first collectible module is loaded nothing of this sort exists, and a call pays
//!   for one load and one branch. From then on the functions and classes that the runtime hands out are noted
//!   ([`Info::function`], [`Info::class`]), and when a module begins to go, those noted are looked into: which of them belong to it
//!   (`sweep.rs`);
//! - **dynamic methods**: until `DynamicMethodUnloaded`.

mod sweep;
mod table;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use corprof_sys as sys;

use crate::error::{Error, Result};
use crate::id::{AssemblyId, ClassId, FunctionId, ModuleId, ThreadId};
use crate::info::Info;
use crate::report;

use table::{Entry, Pages, State, Table};

/// The identifiers that can die, and those that have.
pub(crate) struct Alive {
    /// Whether something that can be unloaded was ever loaded.
    is_unloading_possible: AtomicBool,
    /// Where dynamic methods have been compiled: other functions are known from them without a look into the table.
    dynamic_pages: Pages,
    /// How many modules are between `ModuleUnloadStarted` and `ModuleUnloadFinished`.
    unloading: AtomicU32,
    /// Odd while the stacks of all threads are looked at ([`Looking`]), and another number each time.
    looking: AtomicU32,
    delayed: AtomicU64,
    /// How often a module has been loaded or has begun to go.
    changes: AtomicU64,
    assemblies: Table,
    modules: Table,
    classes: Table,
    functions: Table,
    dynamic_methods: Table,
    threads: Table,
}

/// An identifier that stays alive until this is dropped.
pub(crate) struct Held<'a, I> {
    id: I,
    /// None for what cannot die.
    entry: Option<&'a Entry>,
}

impl<I: Mortal> Held<'_, I> {
    /// What goes over the wire.
    #[inline]
    pub(crate) fn as_raw(&self) -> usize {
        self.id.as_wire()
    }

    /// The identifier itself.
    pub(crate) fn id(&self) -> I {
        self.id
    }
}

impl<I> Drop for Held<'_, I> {
    #[inline]
    fn drop(&mut self) {
        if let Some(entry) = self.entry {
            entry.end_use();
        }
    }
}

/// A kind of identifier that can die.
pub(crate) trait Mortal: Copy {
    /// What is said of a dead one.
    const RULE: &'static str;
    /// The kind, for messages.
    const KIND: &'static str;

    fn as_wire(self) -> usize;

    /// What is known of it, if it can die at all.
    fn entry(self, alive: &Alive) -> Option<&Entry>;

    /// Whether it has died in a way that nobody needs to wait for.
    fn has_ended(self, alive: &Alive) -> bool;
}

macro_rules! mortals {
    ($($id:ident $kind:literal $entry:expr, $has_ended:expr, $rule:literal;)*) => { $(
        impl Mortal for $id {
            const RULE: &'static str = $rule;
            const KIND: &'static str = $kind;

            #[inline]
            fn as_wire(self) -> usize {
                self.as_raw()
            }

            #[inline]
            fn entry(self, alive: &Alive) -> Option<&Entry> {
                let entry: fn(&Alive, usize) -> Option<&Entry> = $entry;
                entry(alive, self.as_raw())
            }

            #[inline]
            fn has_ended(self, alive: &Alive) -> bool {
                let has_ended: fn(&Alive, usize) -> bool = $has_ended;
                has_ended(alive, self.as_raw())
            }
        }
    )* };
}

mortals! {
    AssemblyId "assembly" |alive, id| alive.if_unloading(&alive.assemblies, id), |_, _| false,
        "the assembly has been unloaded: ask before `module_unload_started` of its module returns";
    ModuleId "module" |alive, id| alive.if_unloading(&alive.modules, id), |_, _| false,
        "the module has been unloaded: ask before its `module_unload_started` returns";
    ClassId "class" |alive, id| alive.if_unloading(&alive.classes, id), |_, _| false,
        "the class went with its module, or with that of a type argument: ask before `module_unload_started` returns";
    FunctionId "function" |alive, id| alive.if_unloading(&alive.functions, id),
        // What other calls read of a dynamic method stays, and is used for the next one.
        |alive, id| alive.dynamic_method(id).is_some_and(|entry| entry.state() == State::Dead),
        "the function went with its module, or is a dynamic method that has ended: ask before `module_unload_started`, or \
         `dynamic_method_unloaded`, returns";
    // One that was never handed out as a thread that runs may never have begun to, and then its end is not told of.
    ThreadId "thread" |alive, id| alive.threads.get(id), |alive, id| alive.threads.get(id).is_none(),
        "the thread has ended: ask before its `thread_destroyed` returns";
}

impl Info {
    /// Keeps `id` alive until the answer is dropped: its end waits for that, so it must be soon.
    ///
    /// # Errors
    /// `COR_E_OBJECTDISPOSED` if it is dead.
    #[inline]
    pub(crate) fn hold<I: Mortal>(&self, id: I, call: &'static str) -> Result<Held<'_, I>> {
        self.alive().hold(id, call)
    }
}

impl Info {
    /// [`hold`](Self::hold), for several.
    pub(crate) fn hold_all<I: Mortal>(&self, ids: &[I], call: &'static str) -> Result<Vec<Held<'_, I>>> {
        ids.iter().map(|&id| self.hold(id, call)).collect()
    }

    /// A class that the runtime hands out.
    #[inline]
    pub(crate) fn class(&self, raw: usize) -> Option<ClassId> {
        ClassId::from_raw(raw).inspect(|&class| self.note_class(class))
    }

    /// Takes note of a class that the runtime hands out.
    #[inline]
    pub(crate) fn note_class(&self, class: ClassId) {
        if self.alive().is_unloading_possible() {
            self.note_mortal_class(class);
        }
    }

    // Apart, so that nothing is made ready for it when there is nothing to take note of.
    #[cold]
    #[inline(never)]
    fn note_mortal_class(&self, class: ClassId) {
        let alive = self.alive();
        alive.note(&alive.classes, class.as_raw(), || alive.is_immortal_class(self, class));
    }

    /// A function that the runtime hands out.
    #[inline]
    pub(crate) fn function(&self, raw: usize) -> Option<FunctionId> {
        FunctionId::from_raw(raw).inspect(|&function| self.note_function(function))
    }

    /// A function that a look-up found, by address or by listing. Such a look-up also finds what has gone already, so it brings
    /// nothing back to life, and what is not known while a module goes is not handed out.
    #[inline]
    pub(crate) fn found_function(&self, raw: usize) -> Option<FunctionId> {
        let alive = self.alive();
        let is_alive = !alive.is_unloading_possible.load(Ordering::Relaxed) || alive.note_found(&alive.functions, raw);
        FunctionId::from_raw(raw).filter(|_| is_alive)
    }

    /// A thread that the runtime hands out: it runs, or has run.
    #[inline]
    pub(crate) fn thread(&self, raw: usize) -> Option<ThreadId> {
        ThreadId::from_raw(raw).inspect(|_| _ = self.alive().threads.insert(raw, State::Mortal))
    }

    /// Takes note of a function that the runtime hands out.
    #[inline]
    pub(crate) fn note_function(&self, function: FunctionId) {
        if self.alive().is_unloading_possible() {
            self.note_mortal_function(function);
        }
    }

    #[cold]
    #[inline(never)]
    fn note_mortal_function(&self, function: FunctionId) {
        let alive = self.alive();
        alive.note(&alive.functions, function.as_raw(), || alive.is_immortal_function(self, function));
    }
}

/// A thread that may be walked when its turn comes, unless it is at its end by then.
#[derive(Clone, Copy)]
pub(crate) struct Claim<'a> {
    thread: ThreadId,
    entry: &'a Entry,
}

impl<'a> Claim<'a> {
    /// Keeps the thread from its end, unless that has begun (suspension rule 2). It touches one word, so it may be called
    /// while threads are stopped.
    ///
    /// Not before they are: the runtime tells of the ends of some threads while it holds the lock that a suspension waits for,
    /// and such an end would wait for the hold in turn.
    pub(crate) fn hold(&self) -> Option<Held<'a, ThreadId>> {
        let is_alive = self.entry.begin_use(&[State::Ending, State::Dead]);
        // Not `then_some`: a `Held` that is made is dropped, and gives back a use that was not counted.
        is_alive.then(|| Held { id: self.thread, entry: Some(self.entry) })
    }
}

/// While one lives, a module that begins to go waits: what the threads' stacks have shown is not yet taken note of. There is one
/// at a time, the sampler's.
pub(crate) struct Looking<'a>(&'a AtomicU32);

impl Drop for Looking<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

impl Alive {
    /// The thread, unless its end has been told of.
    pub(crate) fn claim(&self, thread: ThreadId) -> Option<Claim<'_>> {
        let entry = self.threads.insert(thread.as_raw(), State::Mortal);
        (!matches!(entry.state(), State::Ending | State::Dead)).then_some(Claim { thread, entry })
    }

    /// To be called before threads are stopped, whose stacks will show functions. A function on a stack is alive as long as it
    /// is there; from this on it is until the answer is dropped.
    pub(crate) fn look(&self) -> Looking<'_> {
        self.looking.fetch_add(1, Ordering::AcqRel);
        Looking(&self.looking)
    }

    /// Waits for the end of the look that there is, if any, but not of those that begin meanwhile: a sampler that is short of
    /// time looks nearly always. They cannot show functions of a module that has begun to go, for nobody runs them any more.
    fn wait_for_look(&self) {
        let at = self.looking.load(Ordering::Acquire);
        let is_looking = at % 2 == 1;
        wait_while(|| is_looking && self.looking.load(Ordering::Acquire) == at, "a look at all stacks");
    }

    /// How many threads have waited at their end for a walk or a call.
    pub(crate) fn delayed(&self) -> u64 {
        self.delayed.load(Ordering::Relaxed)
    }

    pub(crate) const fn new() -> Self {
        Self {
            is_unloading_possible: AtomicBool::new(false),
            dynamic_pages: Pages::new(),
            unloading: AtomicU32::new(0),
            looking: AtomicU32::new(0),
            delayed: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            assemblies: Table::new(),
            modules: Table::new(),
            classes: Table::new(),
            functions: Table::new(),
            dynamic_methods: Table::new(),
            threads: Table::new(),
        }
    }

    #[inline]
    fn hold<I: Mortal>(&self, id: I, call: &'static str) -> Result<Held<'_, I>> {
        if id.has_ended(self) {
            return Err(dead::<I>(call));
        }
        held(id, id.entry(self), call)
    }

    #[inline]
    fn if_unloading<'a>(&'a self, table: &'a Table, id: usize) -> Option<&'a Entry> {
        if self.is_unloading_possible.load(Ordering::Relaxed) { table.get(id) } else { None }
    }

    #[inline]
    fn dynamic_method(&self, id: usize) -> Option<&Entry> {
        if self.dynamic_pages.may_have(id) { self.dynamic_methods.get(id) } else { None }
    }

    /// Whether there is anything to take note of.
    #[inline]
    pub(crate) fn is_unloading_possible(&self) -> bool {
        self.is_unloading_possible.load(Ordering::Relaxed)
    }

    /// Whether a function can certainly not die, nor what it is made of: it is no dynamic method, and nothing was ever loaded
    /// that can be unloaded. If something is from now on, this function was there before.
    #[inline]
    pub(crate) fn is_sure_to_stay(&self, function: FunctionId) -> bool {
        !self.is_unloading_possible() && !self.dynamic_pages.may_have(function.as_raw())
    }

    /// How often the set of loaded modules has changed.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Takes note of what the runtime hands out, once it can die.
    ///
    /// It is alive, also if something else at its address has died; unless it is handed out while it goes. What is seen for the
    /// first time then is behind the sweep: it counts as dead, if it is not immortal.
    fn note(&self, table: &Table, id: usize, is_immortal: impl FnOnce() -> bool) {
        if self.unloading.load(Ordering::Acquire) != 0 {
            if table.get(id).is_none() {
                table.insert(id, if is_immortal() { State::Immortal } else { State::Dead });
            }
            return;
        }
        let entry = table.insert(id, State::Fresh);
        if entry.state() == State::Dead {
            entry.set(State::Fresh);
        }
    }

    /// Whether what was found is alive.
    #[cold]
    fn note_found(&self, table: &Table, id: usize) -> bool {
        match table.get(id) {
            Some(entry) => entry.state() != State::Dead,
            None if self.unloading.load(Ordering::Acquire) != 0 => false,
            None => table.insert(id, State::Fresh).state() != State::Dead,
        }
    }

    pub(crate) fn thread_created(&self, thread: usize) {
        self.threads.insert(thread, State::Mortal).set(State::Mortal);
    }

    /// Before anybody hears of the end: from now on the thread is not walked any more.
    pub(crate) fn thread_ending(&self, thread: usize) {
        let entry = self.threads.insert(thread, State::Ending);
        entry.set(State::Ending);
        if wait_while(|| entry.is_used(), "a walk of a thread that ends") {
            self.delayed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// When everybody has heard of it.
    pub(crate) fn thread_ended(&self, thread: usize) {
        end(self.threads.insert(thread, State::Dead), State::Dead, "a call about a thread that ends");
    }

    pub(crate) fn dynamic_method_compiled(&self, function: usize) {
        self.dynamic_pages.add(function);
        self.dynamic_methods.insert(function, State::Mortal).set(State::Mortal);
    }

    pub(crate) fn dynamic_method_unloaded(&self, function: usize) {
        end(self.dynamic_methods.insert(function, State::Dead), State::Dead, "a call about a dynamic method that ends");
    }

    /// Whether the end of a dynamic method will be heard of.
    pub(crate) fn is_watched(&self, function: FunctionId) -> bool {
        self.dynamic_method(function.as_raw()).is_some()
    }

    /// Keeps what only a dynamic method has, its name and signature. Its end waits in cooperative mode, so a collection may
    /// wait for it in turn: this is for calls that have nothing to do with collections.
    pub(crate) fn hold_dynamic_method(&self, function: FunctionId, call: &'static str) -> Result<Held<'_, FunctionId>> {
        held(function, self.dynamic_method(function.as_raw()), call)
    }

    /// From now on nobody hears of their ends.
    pub(crate) fn stop_watching_dynamic_methods(&self) {
        self.dynamic_methods.iter().for_each(|entry| entry.set(State::Dead));
    }
}

/// Whoever is asked about has died.
#[inline]
pub(crate) fn dead<I: Mortal>(call: &'static str) -> Error {
    Error::new(sys::COR_E_OBJECTDISPOSED, call).about(I::KIND, I::RULE)
}

#[inline]
fn held<'a, I: Mortal>(id: I, entry: Option<&'a Entry>, call: &'static str) -> Result<Held<'a, I>> {
    match entry {
        Some(entry) if !entry.begin_use(&[State::Dead]) => Err(dead::<I>(call)),
        entry => Ok(Held { id, entry }),
    }
}

/// Says of one module's metadata whether the module is still there.
#[derive(Clone)]
pub(crate) struct Lifeline(Option<(Arc<Alive>, ModuleId)>);

impl Lifeline {
    pub(crate) fn of(info: &Info, module: ModuleId) -> Self {
        Self(module.entry(info.alive()).map(|_| (Arc::clone(info.alive()), module)))
    }

    /// Whether the module cannot go.
    pub(crate) fn is_sure_to_stay(&self) -> bool {
        self.0.is_none()
    }

    /// Keeps the module loaded until the answer is dropped.
    ///
    /// # Errors
    /// `COR_E_OBJECTDISPOSED` if it is gone.
    #[inline]
    pub(crate) fn hold(&self, call: &'static str) -> Result<Option<Held<'_, ModuleId>>> {
        self.0.as_ref().map(|(alive, module)| alive.hold(*module, call)).transpose()
    }
}

/// Puts an entry into a state that refuses new uses, and waits until those that began before are over.
fn end(entry: &Entry, state: State, what: &str) {
    entry.set(state);
    wait_while(|| entry.is_used(), what);
}

/// Waits, and says whether it had to. What is waited for are calls to the runtime, and walks that a watchdog sees to: they end.
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
