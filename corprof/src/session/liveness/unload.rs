//! The dependents of a module: recorded when the runtime first hands them out, marked dead when the module begins to
//! unload.
//!
//! The runtime unloads in batches, on its finalizer thread. For each module it reports the beginning and the end, then
//! it removes the module's code from its lists; when it has done so for the whole batch, it frees the memory. Between
//! the reported end and the removal from the lists, a look-up still finds dead functions: this is the module's
//! **window**. No callback reports the end of a window, but looking up an address in the module's own code shows it.

mod doubt;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;
use std::time::Instant;

use corprof_sys as sys;

use super::owners::{Owners, parts};
use super::table::{Entry, State, Table};
use super::{Liveness, MortalIds, Subject, end};
use crate::id::{AssemblyId, ClassId, CodeAddress, FunctionId, ModuleId};
use crate::lock::unpoisoned;
use crate::session::Runtime;

/// The records of collectible modules and their dependents. The lock is held for single changes, never across a call to
/// the runtime or a wait.
#[derive(Default)]
pub(super) struct Records {
    /// How many collectible modules have been loaded so far.
    loads: u64,
    /// The loaded ones.
    modules: BTreeMap<usize, Loaded>,
    /// By assembly: the module that the application emits into, until the assembly begins to unload.
    pub(super) emitted: BTreeMap<usize, usize>,
    /// The modules between the beginning and the end of their unloading.
    going: Vec<usize>,
    /// Identifiers that may depend on any module which was loaded before they were first seen.
    uncertain: Vec<Uncertain>,
    /// The code of functions in doubt.
    code_in_doubt: BTreeMap<usize, CodeAddress>,
    windows: Vec<Window>,
    /// By class being unloaded: the identifiers that are usable once more while its callback lasts.
    revived: BTreeMap<usize, Vec<(Kind, usize)>>,
}

struct Loaded {
    /// The number of its load.
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

/// The time in which the code of an unloading module can still be found.
#[derive(Clone, PartialEq)]
struct Window {
    module: usize,
    /// How many modules had been loaded when it opened: a module that was loaded later is unloaded in a later batch.
    opened: u64,
    /// The window has closed when a look-up finds none of these any more.
    canaries: Vec<Canary>,
    /// Whether the canary is in this module's own code, which is removed all at once.
    is_exact: bool,
    /// Whether the canaries cannot prove that it has closed.
    is_blind: bool,
    since: Instant,
}

/// An address in a module's code, and its function.
#[derive(Clone, PartialEq)]
struct Canary {
    code: CodeAddress,
    function: usize,
    life: u32,
}

/// Begins a life in this state and returns its number. Call it under the lock of the records.
///
/// A user may have the identifier from a time when nothing was collectible and nothing was recorded. So a first entry
/// is alive as soon as it exists.
pub(super) fn begin_life(table: &Table, id: usize, state: State) -> u32 {
    let is_known = table.get(id).is_some();
    let entry = table.insert(id, state);
    if is_known || !entry.is_alive() { entry.begin_life(state) } else { entry.life() }
}

impl Liveness {
    pub(super) fn records(&self) -> MutexGuard<'_, Records> {
        unpoisoned(self.records.lock())
    }

    fn table(&self, kind: Kind) -> &Table {
        match kind {
            Kind::Module => &self.modules,
            Kind::Class => &self.classes,
            Kind::Function => &self.functions,
        }
    }

    fn table_of_all_sessions(&self, kind: Kind) -> &Table {
        match kind {
            Kind::Module => &self.of_all_sessions.modules,
            Kind::Class => &self.of_all_sessions.classes,
            Kind::Function => &self.of_all_sessions.functions,
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

    /// A module was loaded, or attached to its assembly: finds out whether it is collectible.
    pub(crate) fn module_loaded(&self, runtime: &Runtime, module: usize) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.note_module(runtime, module);
    }

    /// The runtime has listed these modules: it also lists a module whose callback it is about to make on another
    /// thread.
    pub(crate) fn modules_listed(&self, runtime: &Runtime, modules: &[ModuleId]) {
        // A module that is unknown here has not begun to unload, and does not before this is dropped.
        let _look_up = self.look_up();
        let is_new = |module: &usize| self.modules.get(*module).is_none();
        modules
            .iter()
            .map(|module| module.as_raw())
            .filter(is_new)
            .for_each(|module| self.note_module(runtime, module));
    }

    pub(super) fn note_module(&self, runtime: &Runtime, module: usize) {
        let Some(id) = ModuleId::from_raw(module) else { return };
        let Ok((assembly, flags)) = runtime.ask_module(id) else { return };
        if flags.contains(sys::COR_PRF_MODULE_COLLECTIBLE) {
            // Before the runtime can hand out anything in it.
            self.is_unloading_possible.store(true, Ordering::SeqCst);
            let is_emitted = flags.contains(sys::COR_PRF_MODULE_DYNAMIC);
            let mut records = self.records();
            // The module at this address before has been freed: its memory was reused.
            records.windows.retain(|window| window.module != module);
            let load = records.loads + 1;
            if let std::collections::btree_map::Entry::Vacant(place) = records.modules.entry(module) {
                place.insert(Loaded { load, dependents: Vec::new() });
                records.loads = load;
                begin_life(&self.modules, module, State::Mortal);
                self.begin_emitted(module, is_emitted);
                self.of_all_sessions.modules.insert(module, State::Mortal);
            }
            if let Some(assembly) = assembly {
                self.assemblies.insert(assembly.as_raw(), State::Mortal).set(State::Mortal);
                self.of_all_sessions.assemblies.insert(assembly.as_raw(), State::Mortal);
                // The assembly at this address before may have gone unannounced.
                if is_emitted {
                    records.emitted.insert(assembly.as_raw(), module);
                } else {
                    records.emitted.remove(&assembly.as_raw());
                }
            }
        } else {
            // This address may have held a collectible module before.
            let _records = self.records(); // one thread at a time begins lives
            let revive = |own: &Table, all: &Table, id: usize| {
                if let Some(entry) = own.get(id).filter(|entry| !entry.is_alive()) {
                    entry.begin_life(State::Immortal);
                } else if MortalIds::is_foreign(own, all, id) {
                    own.insert(id, State::Immortal);
                }
            };
            revive(&self.modules, &self.of_all_sessions.modules, module);
            self.begin_emitted(module, false);
            if let Some(assembly) = assembly {
                revive(&self.assemblies, &self.of_all_sessions.assemblies, assembly.as_raw());
            }
        }
    }

    /// Records an identifier that the runtime hands out: it is in memory until this returns, and alive unless its
    /// module is being unloaded. Returns whether it is alive.
    #[cold]
    #[inline(never)]
    pub(super) fn note(&self, runtime: &Runtime, kind: Kind, id: usize) -> bool {
        match self.table(kind).get(id) {
            Some(entry) if entry.is_alive() => true,
            _ => {
                if self.is_attaching() && Subject::is(id) {
                    self.note_modules_of_subject(runtime, id);
                }
                self.classify(&self.owners(runtime, kind, id), kind, id)
            }
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
        if is_immortal && self.is_attaching() {
            return true; // or its module is not known yet: it is recorded when it is asked for again
        }
        records.code_in_doubt.remove(&id);
        let life = begin_life(self.table(kind), id, if is_immortal { State::Immortal } else { State::Mortal });
        let dependent = Dependent { kind, id, life };
        if !owners.modules.is_empty() {
            self.table_of_all_sessions(kind).insert(id, State::Mortal);
        }
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

    /// A module begins to unload, and the profiler has handled the callback.
    pub(crate) fn module_going(&self, runtime: &Runtime, module: usize) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        let Some(id) = ModuleId::from_raw(module) else { return };
        let assembly = runtime.ask_module(id).ok().and_then(|(assembly, _)| assembly);
        // About the batches before, not about this one.
        let is_all_gone = self.is_all_gone(runtime);
        // This comes first: from here on new dependents count as dead, and functions in doubt are not found alive.
        let (loaded, mut window) = {
            let mut records = self.records();
            let loaded = records.modules.remove(&module).unwrap_or(Loaded { load: 0, dependents: Vec::new() });
            records.going.push(module);
            let window = Window {
                module,
                opened: records.loads,
                canaries: Vec::new(),
                is_exact: false,
                is_blind: true,
                since: Instant::now(),
            };
            records.windows.retain(|window| window.opened >= loaded.load && window.module != module);
            records.windows.push(window.clone());
            (loaded, window)
        };
        self.has_unloaded.store(true, Ordering::SeqCst);
        runtime.searches().code_goes();
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
        // With these recorded, a look-up by address finds them dead while the module's code still exists.
        let is_listed = self.note_code(runtime, &mut window, is_all_gone);
        let mut is_in_doubt = self.doubt(runtime, loaded.load);
        self.look_ups.wait();
        // A look-up that began earlier may have found a function in doubt alive.
        is_in_doubt |= self.doubt(runtime, loaded.load);
        window.is_blind = !is_listed || is_in_doubt && !window.is_exact;
        let mut records = self.records();
        records.windows.retain(|window| window.module != module);
        if window.is_blind || !window.canaries.is_empty() {
            records.windows.push(window);
        }
    }

    /// The modules that are recorded as loaded, to be compared with a later listing.
    pub(crate) fn recorded_modules(&self) -> Vec<usize> {
        self.records().modules.keys().copied().collect()
    }

    /// A recorded module turns out to be gone, and nothing announced it.
    pub(super) fn module_has_vanished(&self, module: usize) {
        let Some(loaded) = self.records().modules.remove(&module) else { return };
        end(self.modules.insert(module, State::Dead), State::Dead, "a call about a module that is gone");
        loaded.dependents.into_iter().for_each(|dependent| self.end_life(dependent, State::Dead));
    }

    fn end_life(&self, dependent: Dependent, state: State) {
        if let Some(entry) = self.table(dependent.kind).get(dependent.id)
            && entry.life() == dependent.life
            && entry.is_alive()
        {
            end(entry, state, "a call about something in a module that is unloaded");
        }
    }

    /// Records all compiled functions, including those of the unloading module. All are in memory, as this runs on the
    /// unloading thread. Returns whether the runtime could enumerate them.
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
            // Code over types of several modules may lie in the heap of another module.
            window.is_exact = owners.modules == [window.module] && !owners.is_uncertain;
            if window.is_exact {
                window.canaries.clear();
            }
            let life = self.functions.get(id).map_or(0, Entry::life);
            match FunctionId::from_raw(id).and_then(|function| runtime.ask_code(function)) {
                Some(code) => window.canaries.push(Canary { code, function: id, life }),
                None => window.is_exact = false,
            }
        }
        true
    }

    /// Whether all code of unloading modules has been removed, so that whatever a look-up finds **from now on** is
    /// alive.
    pub(crate) fn is_all_gone(&self, runtime: &Runtime) -> bool {
        if self.is_attaching() {
            return false;
        }
        let windows = {
            let records = self.records();
            if records.windows.is_empty() {
                return true;
            }
            records.windows.clone()
        };
        let is_there = |canary: &Canary| {
            // A function that has begun another life since is not the one of the canary.
            let is_another = self.functions.get(canary.function).is_some_and(|entry| entry.life() != canary.life);
            // While the runtime removes code it cannot be asked.
            !is_another
                && runtime.ask_function_that_was_at(canary.code).map_or(true, |found| found == Some(canary.function))
        };
        let is_open = |window: &Window| window.is_blind || window.canaries.iter().any(is_there);
        let (open, closed): (Vec<_>, Vec<_>) = windows.into_iter().partition(is_open);
        self.records().windows.retain(|window| !closed.contains(window));
        open.is_empty()
    }

    /// The runtime reports the end of a class, after its module began to unload. While the callback lasts, calls may
    /// use the class once more, and its parts, as far as they are unloaded with the same module.
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

    /// Collects the dead parts of a class that is in memory, except those whose module is already gone. Skips classes
    /// in `seen`.
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

    /// The profiler has handled the callback.
    pub(crate) fn class_gone(&self, class: usize) {
        let revived = self.records().revived.remove(&class);
        for (kind, id) in revived.unwrap_or_default() {
            end(self.table(kind).insert(id, State::Dead), State::Dead, "a call about a class that is unloaded");
        }
    }

    /// The module is gone.
    pub(crate) fn module_gone(&self, module: usize) {
        self.records().going.retain(|&going| going != module);
    }
}
