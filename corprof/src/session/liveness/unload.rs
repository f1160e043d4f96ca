//! What goes with a module: noted when the runtime first hands it out, marked when the module begins to go.
//!
//! The runtime unloads in batches, on its finalizer thread: for each module it tells of the beginning and the end, then it takes the
//! module's code out of its lists, and when that is done for all of the batch it frees the memory. Between the end that is told
//! of and the moment at which the code is off the lists, a look-up still finds functions that are dead: the module's **window**.
//! Nothing tells when a window closes, but looking up an address in the module's own code does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use corprof_sys as sys;

use super::neighbours;
use super::owners::{Owners, parts};
use super::table::{Entry, State, Table};
use super::{Liveness, end};
use crate::id::{AssemblyId, ClassId, FunctionId, ModuleId};
use crate::lock::unpoisoned;
use crate::session::Runtime;

/// What is known of collectible modules and of what goes with them. The lock is held for single changes, never across a call of the
/// runtime or a wait.
#[derive(Default)]
pub(super) struct Records {
    /// How many collectible modules have been loaded.
    loads: u64,
    /// Those that are loaded.
    modules: BTreeMap<usize, Loaded>,
    /// Those between the beginning and the end of their unloading.
    going: Vec<usize>,
    /// What may go with any module that was loaded before it was first seen.
    uncertain: Vec<Uncertain>,
    /// The code of functions in doubt.
    code_in_doubt: BTreeMap<usize, usize>,
    windows: Vec<Window>,
    /// By class that goes: what may be asked about once more as long as its callback lasts.
    revived: BTreeMap<usize, Vec<(Kind, usize)>>,
}

struct Loaded {
    /// Which of all loads it was.
    load: u64,
    dependents: Vec<Dependent>,
}

#[derive(Clone, Copy)]
pub(super) struct Dependent {
    kind: Kind,
    id: usize,
    life: u32,
}

struct Uncertain {
    dependent: Dependent,
    /// How many modules had been loaded when it was first seen.
    born: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Module,
    Class,
    Function,
}

/// The time in which the code of a module that goes can still be found.
#[derive(Clone, PartialEq)]
struct Window {
    module: usize,
    /// How many modules had been loaded when it opened: one that was loaded later goes in a later batch.
    opened: u64,
    /// When none of them is found any more, the window has closed.
    probes: Vec<Probe>,
    /// Whether the probe is of this module's own code, which goes all at once.
    is_exact: bool,
    /// Whether the probes do not prove that it has closed.
    is_blind: bool,
    since: Instant,
}

/// An address in a module's code, with the function.
#[derive(Clone, PartialEq)]
struct Probe {
    code: usize,
    function: usize,
    life: u32,
}

/// Begins a life in this state, and answers which one it is. Under the lock of the records.
///
/// Somebody may have the identifier from before, when nothing could be unloaded and nothing was noted. So a first entry is alive
/// from the moment at which it is there.
fn begin_life(table: &Table, id: usize, state: State) -> u32 {
    let is_known = table.get(id).is_some();
    let entry = table.insert(id, state);
    if is_known || !entry.is_alive() { entry.begin_life(state) } else { entry.life() }
}

impl Liveness {
    fn records(&self) -> MutexGuard<'_, Records> {
        unpoisoned(self.records.lock())
    }

    fn table(&self, kind: Kind) -> &Table {
        match kind {
            Kind::Module => &self.modules,
            Kind::Class => &self.classes,
            Kind::Function => &self.functions,
        }
    }

    fn owners(&self, runtime: &Runtime, kind: Kind, id: usize) -> Owners {
        let owners = match kind {
            Kind::Module => None,
            Kind::Class => ClassId::from_raw(id).map(|class| Owners::of_class(self, runtime, class)),
            Kind::Function => FunctionId::from_raw(id).map(|function| Owners::of_function(self, runtime, function)),
        };
        owners.unwrap_or_default()
    }

    /// A module has been loaded, or has got its assembly: can they be unloaded?
    pub(crate) fn module_loaded(&self, runtime: &Runtime, module: usize) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.note_module(runtime, module);
    }

    /// Modules that the runtime has listed: it lists one that it is just about to tell another thread's callback of.
    pub(crate) fn modules_listed(&self, runtime: &Runtime, modules: &[ModuleId]) {
        // What is not known yet has not begun to go, and does not before this is dropped.
        let _look_up = self.look_up();
        let is_new = |module: &usize| self.modules.get(*module).is_none();
        modules
            .iter()
            .map(|module| module.as_raw())
            .filter(is_new)
            .for_each(|module| self.note_module(runtime, module));
    }

    fn note_module(&self, runtime: &Runtime, module: usize) {
        let Some(id) = ModuleId::from_raw(module) else { return };
        let Ok((assembly, flags)) = runtime.ask_module(id) else { return };
        if flags.contains(sys::COR_PRF_MODULE_COLLECTIBLE) {
            // Before anything in it can be handed out.
            self.is_unloading_possible.store(true, Ordering::SeqCst);
            let mut records = self.records();
            // The memory of what was there before has been used again.
            records.windows.retain(|window| window.module != module);
            let load = records.loads + 1;
            if let std::collections::btree_map::Entry::Vacant(place) = records.modules.entry(module) {
                place.insert(Loaded { load, dependents: Vec::new() });
                records.loads = load;
                begin_life(&self.modules, module, State::Mortal);
            }
            if let Some(assembly) = assembly {
                self.assemblies.insert(assembly.as_raw(), State::Mortal).set(State::Mortal);
            }
        } else {
            // Where something collectible may have been before.
            let _records = self.records(); // one thread at a time
            let revive = |entry: &Entry| {
                if !entry.is_alive() {
                    entry.begin_life(State::Immortal);
                }
            };
            self.modules.get(module).map(revive);
            assembly.and_then(|assembly| self.assemblies.get(assembly.as_raw())).map(revive);
        }
    }

    /// Takes note of what the runtime hands out: it is in memory until this returns, and alive unless its module goes.
    ///
    /// Answers whether it is alive.
    #[cold]
    #[inline(never)]
    pub(super) fn note(&self, runtime: &Runtime, kind: Kind, id: usize) -> bool {
        match self.table(kind).get(id) {
            Some(entry) if entry.is_alive() => true,
            _ => self.classify(&self.owners(runtime, kind, id), kind, id),
        }
    }

    /// Begins a life, unless an owner is dead.
    fn classify(&self, owners: &Owners, kind: Kind, id: usize) -> bool {
        let mut records = self.records();
        if self.table(kind).get(id).is_some_and(Entry::is_alive) {
            return true; // another thread was first
        }
        if !owners.modules.iter().all(|module| records.modules.contains_key(module)) {
            self.table(kind).insert(id, State::Dead);
            return false;
        }
        let is_immortal = owners.modules.is_empty() && !owners.is_uncertain;
        records.code_in_doubt.remove(&id);
        let life = begin_life(self.table(kind), id, if is_immortal { State::Immortal } else { State::Mortal });
        let dependent = Dependent { kind, id, life };
        for module in &owners.modules {
            if let Some(module) = records.modules.get_mut(module) {
                module.dependents.push(dependent);
            }
        }
        if owners.is_uncertain {
            let born = records.loads;
            records.uncertain.push(Uncertain { dependent, born });
        }
        true
    }

    /// A module begins to go, and the profiler has heard of it.
    pub(crate) fn module_going(&self, runtime: &Runtime, module: usize) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        let Some(id) = ModuleId::from_raw(module) else { return };
        let assembly = runtime.ask_module(id).ok().and_then(|(assembly, _)| assembly);
        // Of the batches before, not of this one.
        let is_all_gone = self.is_all_gone(runtime);
        // First, so that what is noted from here on counts as dead, and nothing in doubt as alive.
        let (loaded, mut window) = {
            let mut records = self.records();
            let loaded = records.modules.remove(&module).unwrap_or(Loaded { load: 0, dependents: Vec::new() });
            records.going.push(module);
            let window = Window {
                module,
                opened: records.loads,
                probes: Vec::new(),
                is_exact: false,
                is_blind: true,
                since: Instant::now(),
            };
            records.windows.retain(|window| window.opened >= loaded.load && window.module != module);
            records.windows.push(window.clone());
            (loaded, window)
        };
        self.has_unloaded.store(true, Ordering::SeqCst);
        end(self.modules.insert(module, State::Dead), State::Dead, "a call about a module that is unloaded");
        if let Some(assembly) = assembly.map(AssemblyId::as_raw) {
            end(
                self.assemblies.insert(assembly, State::Dead),
                State::Dead,
                "a call about an assembly that is unloaded",
            );
        }
        for dependent in loaded.dependents {
            self.end_life(dependent, State::Dead);
        }
        // So that a look-up of an address finds them dead while the module's code is still there.
        let is_listed = self.note_code(runtime, &mut window, is_all_gone);
        let mut is_in_doubt = self.doubt(runtime, loaded.load);
        self.look_ups.wait();
        // A look-up that had begun before may have found something in doubt alive.
        is_in_doubt |= self.doubt(runtime, loaded.load);
        window.is_blind = !is_listed || is_in_doubt && !window.is_exact;
        let mut records = self.records();
        records.windows.retain(|window| window.module != module);
        if window.is_blind || !window.probes.is_empty() {
            records.windows.push(window);
        }
    }

    fn end_life(&self, dependent: Dependent, state: State) {
        if let Some(entry) = self.table(dependent.kind).get(dependent.id)
            && entry.life() == dependent.life
            && entry.is_alive()
        {
            end(entry, state, "a call about something in a module that is unloaded");
        }
    }

    /// Takes note of all functions that have been compiled, those of the module that goes among them. All are in memory, as it is
    /// the thread that unloads that asks. Answers whether the runtime could list them.
    fn note_code(&self, runtime: &Runtime, window: &mut Window, is_all_gone: bool) -> bool {
        let Ok(functions) = runtime.ask_jitted_functions() else {
            self.is_code_unlisted.store(true, Ordering::SeqCst);
            return false;
        };
        for id in functions {
            match self.functions.get(id).map(Entry::state) {
                Some(State::Dead) | None => {}
                Some(State::Doubtful) if is_all_gone => {}
                Some(_) => continue,
            }
            let owners = self.owners(runtime, Kind::Function, id);
            self.classify(&owners, Kind::Function, id);
            if window.is_exact || !owners.modules.contains(&window.module) {
                continue;
            }
            // Code over types of several modules may lie with another's.
            window.is_exact = owners.modules == [window.module] && !owners.is_uncertain;
            if window.is_exact {
                window.probes.clear();
            }
            let life = self.functions.get(id).map_or(0, Entry::life);
            match FunctionId::from_raw(id).and_then(|function| runtime.ask_code(function)) {
                Some(code) => window.probes.push(Probe { code, function: id, life }),
                None => window.is_exact = false,
            }
        }
        true
    }

    /// What may go with a module that was the `load`th, and may not, is in doubt. Answers whether there is any such code.
    fn doubt(&self, runtime: &Runtime, load: u64) -> bool {
        let table = |dependent: Dependent| self.table(dependent.kind).get(dependent.id);
        let in_doubt: Vec<_> = {
            let mut records = self.records();
            records.uncertain.retain(|it| {
                table(it.dependent).is_some_and(|entry| entry.is_alive() && entry.life() == it.dependent.life)
            });
            records.uncertain.extract_if(.., |it| it.born >= load).map(|it| it.dependent).collect()
        };
        let mut is_code_in_doubt = false;
        for dependent in in_doubt {
            let function = FunctionId::from_raw(dependent.id).filter(|_| dependent.kind == Kind::Function);
            let code = function.and_then(|function| runtime.ask_code(function));
            if code.is_some_and(|code| self.is_in_immortal_heap(runtime, code)) {
                self.settle_as_immortal(dependent);
                continue;
            }
            if let Some(code) = code {
                self.records().code_in_doubt.insert(dependent.id, code);
            }
            self.end_life(dependent, if code.is_some() { State::Doubtful } else { State::Dead });
            is_code_in_doubt |= code.is_some();
        }
        is_code_in_doubt
    }

    /// Whether code lies among that of functions which cannot die. To be called on the thread that unloads.
    ///
    /// Among precompiled code it may look in vain at thousands of addresses, for a third of a second (seen on .NET 8), while the
    /// application waits for the finalizer thread. So it gives up, and the function stays in doubt.
    fn is_in_immortal_heap(&self, runtime: &Runtime, code: usize) -> bool {
        const PATIENCE: Duration = Duration::from_millis(5);
        let begin = Instant::now();
        let function_at = |at| {
            let may_ask = begin.elapsed() < PATIENCE;
            may_ask.then(|| runtime.ask_function_at(at).ok().flatten()).flatten()
        };
        let is_immortal = |function| self.functions.get(function).is_some_and(|entry| entry.state() == State::Immortal);
        neighbours::are_immortal(code, function_at, is_immortal)
    }

    fn settle_as_immortal(&self, dependent: Dependent) {
        let _records = self.records(); // no other life begins meanwhile
        if let Some(entry) = self.table(dependent.kind).get(dependent.id)
            && entry.life() == dependent.life
            && entry.is_alive()
        {
            entry.set(State::Immortal);
        }
    }

    /// Whether all code of modules that were going has gone, so that what a look-up finds **from now on** is alive.
    pub(crate) fn is_all_gone(&self, runtime: &Runtime) -> bool {
        let windows = {
            let records = self.records();
            if records.windows.is_empty() {
                return true;
            }
            records.windows.clone()
        };
        let is_there = |probe: &Probe| {
            // If it has begun to live again, the function is another one.
            let is_another = self.functions.get(probe.function).is_some_and(|entry| entry.life() != probe.life);
            !is_another && runtime.ask_function_at(probe.code).is_ok_and(|found| found == Some(probe.function))
        };
        let is_open = |window: &Window| window.is_blind || window.probes.iter().any(is_there);
        let (open, closed): (Vec<_>, Vec<_>) = windows.into_iter().partition(is_open);
        self.records().windows.retain(|window| !closed.contains(window));
        open.is_empty()
    }

    /// Finds out whether a function in doubt is alive: after the module has gone, its code is still there.
    ///
    /// As long as the module is going, that cannot be told. It takes a millisecond, so it is waited for; not for long, as the
    /// caller may be in a callback that the runtime has to wait for.
    #[cold]
    pub(super) fn settle(&self, runtime: &Runtime, function: usize) -> bool {
        const PATIENCE: Duration = Duration::from_millis(50);
        let Some(entry) = self.functions.get(function) else { return true };
        loop {
            let look_up = self.look_ups.begin();
            if self.is_all_gone(runtime) {
                return self.is_code_there(runtime, function);
            }
            drop(look_up);
            let is_recent = self.records().windows.iter().any(|window| window.since.elapsed() < PATIENCE);
            if !is_recent || entry.state() != State::Doubtful {
                return entry.is_alive();
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    fn is_code_there(&self, runtime: &Runtime, function: usize) -> bool {
        let code = self.records().code_in_doubt.get(&function).copied();
        match code.map(|code| runtime.ask_function_at(code)) {
            Some(Ok(Some(found))) if found == function => self.note(runtime, Kind::Function, function),
            Some(Err(_)) => false, // cannot be looked up just now
            _ => {
                let mut records = self.records();
                let Some(entry) = self.functions.get(function) else { return false };
                // Unless another thread has found it alive.
                if entry.state() == State::Doubtful {
                    records.code_in_doubt.remove(&function);
                    entry.set(State::Dead);
                }
                entry.is_alive()
            }
        }
    }

    /// The runtime tells of a class that goes, after its module began to: for so long it can be asked about once more, and what it is
    /// made of, as far as that goes with the same module.
    pub(crate) fn class_going(&self, runtime: &Runtime, class: usize) {
        let Some(id) = ClassId::from_raw(class) else { return };
        let mut revived = Vec::new();
        self.revive(runtime, id, &mut revived, &mut BTreeSet::new());
        if !revived.contains(&(Kind::Class, class)) {
            revived.push((Kind::Class, class));
        }
        for &(kind, id) in &revived {
            self.table(kind).insert(id, State::Mortal).set(State::Mortal);
        }
        self.records().revived.insert(class, revived);
    }

    /// Collects what is dead of a class that is in memory, unless it went with a module that is no longer there. Of what has been
    /// `seen` there is no more to collect.
    fn revive(
        &self,
        runtime: &Runtime,
        class: ClassId,
        revived: &mut Vec<(Kind, usize)>,
        seen: &mut BTreeSet<ClassId>,
    ) {
        if !seen.insert(class) {
            return;
        }
        let Ok((module, args)) = parts(runtime, class) else { return };
        let is_dead = |kind, id| self.table(kind).get(id).is_none_or(|entry| !entry.is_alive());
        let owners = Owners::of_class(self, runtime, class);
        let mut going: Vec<_> = {
            let records = self.records();
            if !owners.modules.iter().all(|id| records.modules.contains_key(id) || records.going.contains(id)) {
                return;
            }
            let module = module.map(ModuleId::as_raw).filter(|module| records.going.contains(module));
            module.map(|module| (Kind::Module, module)).into_iter().collect()
        };
        if !owners.modules.is_empty() {
            going.push((Kind::Class, class.as_raw()));
        }
        revived.extend(going.into_iter().filter(|&(kind, id)| is_dead(kind, id)));
        for arg in args {
            self.revive(runtime, arg, revived, seen);
        }
    }

    /// The profiler has heard of it.
    pub(crate) fn class_gone(&self, class: usize) {
        let revived = self.records().revived.remove(&class);
        for (kind, id) in revived.unwrap_or_default() {
            end(self.table(kind).insert(id, State::Dead), State::Dead, "a call about a class that is unloaded");
        }
    }

    /// It is gone.
    pub(crate) fn module_gone(&self, module: usize) {
        self.records().going.retain(|&going| going != module);
    }
}
