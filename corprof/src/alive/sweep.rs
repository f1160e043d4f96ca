//! What goes with a module: looked into when it begins to go, while all that goes can still be asked about.

use std::sync::atomic::Ordering;

use corprof_sys as sys;

use super::table::{Entry, State, Table};
use super::{Alive, end};
use crate::context::InTriggers;
use crate::error::Result;
use crate::id::{AssemblyId, ClassId, FunctionId, ModuleId};
use crate::info::Info;

/// How deep type arguments and array elements are followed; what is deeper counts as going.
const DEPTH: u32 = 16;

/// What the end of a module means for something else. The greatest of all parts' is the whole's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    /// Stays for ever.
    Immortal,
    /// Goes with another module.
    Mortal,
    /// Goes with this one, or cannot be told.
    Goes,
}

impl Alive {
    /// A module has been loaded, or has got its assembly: can they be unloaded?
    pub(crate) fn module_loaded(&self, info: &Info, module: usize) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        let Some(id) = ModuleId::from_raw(module) else { return };
        let Ok((assembly, flags)) = info.ask_module(id) else { return };
        if flags.contains(sys::COR_PRF_MODULE_COLLECTIBLE) {
            // Before anything in it can be handed out.
            self.is_unloading_possible.store(true, Ordering::Relaxed);
            self.modules.insert(module, State::Mortal).set(State::Mortal);
            if let Some(assembly) = assembly {
                self.assemblies.insert(assembly.as_raw(), State::Mortal).set(State::Mortal);
            }
        } else {
            // Where something collectible may have been before.
            let revive = |entry: &Entry| entry.set(State::Immortal);
            self.modules.get(module).map(revive);
            assembly.and_then(|assembly| self.assemblies.get(assembly.as_raw())).map(revive);
        }
    }

    /// A module begins to go, and the profiler has heard of it.
    pub(crate) fn module_going(&self, info: &Info, module: usize) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.unloading.fetch_add(1, Ordering::AcqRel);
        let Some(id) = ModuleId::from_raw(module) else { return };
        self.wait_for_look();
        let assembly = info.ask_module(id).ok().and_then(|(assembly, _)| assembly);
        // First, so that nobody gets at something in it that the sweep has not seen.
        end(self.modules.insert(module, State::Dead), State::Dead, "a call about a module that is unloaded");
        if let Some(assembly) = assembly.map(AssemblyId::as_raw) {
            end(
                self.assemblies.insert(assembly, State::Dead),
                State::Dead,
                "a call about an assembly that is unloaded",
            );
        }
        // So that a look-up of an address finds them dead while the module's code is still there.
        let _ = InTriggers::new(info).jitted_functions();
        let fates = Fates { alive: self, info, module: Some(id) };
        // Functions lead to classes, and not the other way round.
        sweep(&self.functions, |raw| FunctionId::from_raw(raw).map(|function| fates.function(function)));
        sweep(&self.classes, |raw| ClassId::from_raw(raw).map(|class| fates.class(class, DEPTH)));
    }

    /// The runtime tells of a class that goes, after its module began to: for so long it can be asked about once more.
    pub(crate) fn class_going(&self, info: &Info, class: usize) {
        self.set_class(info, class, |entry| entry.set(State::Mortal));
    }

    /// The profiler has heard of it.
    pub(crate) fn class_gone(&self, info: &Info, class: usize) {
        self.set_class(info, class, |entry| end(entry, State::Dead, "a call about a class that is unloaded"));
    }

    fn set_class(&self, info: &Info, class: usize, set: impl Fn(&Entry)) {
        // Alive as long as the callback about it lasts.
        let Some(module) = ClassId::from_raw(class).and_then(|class| info.ask_class(class).ok()) else { return };
        set(self.classes.insert(class, State::Dead));
        // The module of an instantiation may stay, when the class of a type argument goes.
        if module.type_args.is_empty() {
            set(self.modules.insert(module.module.as_raw(), State::Dead));
        }
    }

    /// Whether it never goes.
    pub(crate) fn is_immortal_class(&self, info: &Info, class: ClassId) -> bool {
        Fates { alive: self, info, module: None }.class(class, DEPTH) == Fate::Immortal
    }

    /// Whether it never goes.
    pub(crate) fn is_immortal_function(&self, info: &Info, function: FunctionId) -> bool {
        Fates { alive: self, info, module: None }.function(function) == Fate::Immortal
    }

    /// It is gone.
    pub(crate) fn module_gone(&self) {
        // A module whose beginning to go was not heard of, as callbacks were turned on in between, must not be counted.
        let _ = self.unloading.fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| count.checked_sub(1));
    }
}

/// Everything in `table` that goes, goes. All of it can be asked about: what went earlier is marked.
///
/// A call that began before may still hand out something else that goes. It notes that before it lets go of what it was
/// asked about, for which the end of that waits; so what was made meanwhile is looked at, too, until there is nothing new.
fn sweep(table: &Table, fate: impl Fn(usize) -> Option<Fate>) {
    loop {
        let made = table.made();
        for entry in table.iter().filter(|entry| matches!(entry.state(), State::Fresh | State::Mortal)) {
            match fate(entry.id()) {
                Some(Fate::Goes) => end(entry, State::Dead, "a call about something in a module that is unloaded"),
                Some(Fate::Mortal) => entry.set(State::Mortal),
                Some(Fate::Immortal) => entry.set(State::Immortal),
                None => {}
            }
        }
        if table.made() == made {
            break;
        }
    }
}

/// Finds out about identifiers when a module goes.
struct Fates<'a> {
    alive: &'a Alive,
    info: &'a Info,
    /// The one that goes; none if it is only asked what can go at all.
    module: Option<ModuleId>,
}

impl Fates<'_> {
    fn module(&self, module: ModuleId) -> Fate {
        if Some(module) == self.module {
            return Fate::Goes;
        }
        match self.alive.modules.get(module.as_raw()).map(Entry::state) {
            None | Some(State::Immortal) => Fate::Immortal,
            Some(_) => Fate::Mortal,
        }
    }

    fn function(&self, function: FunctionId) -> Fate {
        let Ok(function) = self.info.ask_function(function) else { return Fate::Goes };
        if function.class.is_none() {
            return Fate::Goes; // code that instantiations of a generic class share: over what, the runtime does not say
        }
        let classes = function.class.iter().chain(&function.type_args).map(|&class| self.class(class, DEPTH));
        classes.fold(self.module(function.module), Fate::max)
    }

    fn class(&self, class: ClassId, depth: u32) -> Fate {
        self.parts(class, depth).unwrap_or(Fate::Goes)
    }

    fn parts(&self, class: ClassId, depth: u32) -> Result<Fate> {
        let Some(depth) = depth.checked_sub(1) else { return Ok(Fate::Goes) };
        if let Some(array) = self.info.ask_array(class)? {
            return Ok(array.element.map_or(Fate::Goes, |element| self.class(element, depth)));
        }
        let Ok(class) = self.info.ask_class(class) else { return Ok(Fate::Goes) };
        let args = class.type_args.iter().map(|&arg| self.class(arg, depth));
        Ok(args.fold(self.module(class.module), Fate::max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_handed_out_during_a_sweep_goes_as_well() {
        let table = Table::new();
        table.insert(8, State::Fresh);
        table.insert(16, State::Fresh);
        // Asked about before the sweep, answered in the middle of it: each answer leads to one more.
        sweep(&table, |id| {
            if id < 4000 && id != 16 {
                table.insert(id + 40, State::Fresh);
            }
            Some(if id == 16 { Fate::Immortal } else { Fate::Goes })
        });
        assert_eq!(table.get(16).map(Entry::state), Some(State::Immortal));
        assert_eq!(table.iter().count(), 102);
        assert!(table.iter().all(|entry| entry.id() == 16 || entry.state() == State::Dead));
    }

    #[test]
    fn what_goes_with_another_module_stays() {
        let table = Table::new();
        table.insert(8, State::Fresh);
        sweep(&table, |_| Some(Fate::Mortal));
        assert_eq!(table.get(8).map(Entry::state), Some(State::Mortal));
        sweep(&table, |_| Some(Fate::Goes));
        assert_eq!(table.get(8).map(Entry::state), Some(State::Dead));
    }
}
