//! Functions in doubt: shared code of which the runtime does not say over which types it is, while a module is
//! unloaded.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::super::Liveness;
use super::super::neighbours::ImmortalCode;
use super::super::table::State;
use super::{Dependent, Kind};
use crate::id::{CodeAddress, FunctionId};
use crate::lock::unpoisoned;
use crate::session::Runtime;

impl Liveness {
    /// Puts the identifiers in doubt that may depend on the module with load number `load`. Returns whether that
    /// includes code.
    pub(super) fn doubt(&self, runtime: &Runtime, load: u64) -> bool {
        let table = |dependent: Dependent| self.table(dependent.kind).get(dependent.id);
        let in_doubt: Vec<_> = {
            let mut records = self.records();
            records.uncertain.retain(|it| {
                table(it.dependent).is_some_and(|entry| entry.is_alive() && entry.life() == it.dependent.life)
            });
            records.uncertain.extract_if(.., |it| it.born >= load).map(|it| it.dependent).collect()
        };
        let code_of = |dependent: &Dependent| {
            let function = FunctionId::from_raw(dependent.id).filter(|_| dependent.kind == Kind::Function);
            function.map(|function| runtime.ask_code_ranges(function)).unwrap_or_default()
        };
        let in_doubt: Vec<_> = in_doubt.into_iter().map(|dependent| (dependent, code_of(&dependent))).collect();
        let is_any_code = in_doubt.iter().any(|(_, code)| !code.is_empty());
        // Listed later than the code was found: what has code and is not listed is precompiled, and the runtime uses no
        // precompiled code of collectible modules (`ReadyToRunInfo::Initialize` in vm/readytoruninfo.cpp).
        let jitted = is_any_code.then(|| runtime.ask_jitted_functions().ok()).flatten();
        let jitted: Option<BTreeSet<usize>> = jitted.map(BTreeSet::from_iter);
        let is_precompiled = |id| jitted.as_ref().is_some_and(|jitted| !jitted.contains(&id));
        let mut compiled = Vec::new();
        let mut lives = BTreeMap::new();
        for (dependent, code) in in_doubt {
            if code.is_empty() {
                self.end_life(dependent, State::Dead);
            } else if is_precompiled(dependent.id) {
                self.settle_as_immortal(dependent);
            } else {
                compiled.push((dependent.id, code));
                lives.insert(dependent.id, dependent);
            }
        }
        if compiled.is_empty() {
            return false;
        }
        let immortal = {
            let mut immortal_code = unpoisoned(self.immortal_code.lock());
            self.find_immortal_code(runtime, &mut immortal_code, jitted.unwrap_or_default());
            immortal_code.take(&mut compiled)
        };
        for id in immortal {
            self.settle_as_immortal(lives[&id]);
        }
        for (id, code) in &compiled {
            // SAFETY: the runtime has told that the function is compiled (fact: addresses).
            let start = unsafe { CodeAddress::from_raw(code[0].start) };
            self.records().code_in_doubt.insert(*id, start);
            self.end_life(lives[id], State::Doubtful);
        }
        !compiled.is_empty()
    }

    /// Finds out where the code of the functions lies that cannot die, of those that were compiled just in time. Call
    /// it on the unloading thread.
    ///
    /// An application may have compiled many thousands of them, and waits for this thread. So some are left to later
    /// unloads.
    fn find_immortal_code(&self, runtime: &Runtime, known: &mut ImmortalCode, jitted: BTreeSet<usize>) {
        const PATIENCE: Duration = Duration::from_millis(5);
        let is_immortal = |id: &usize| self.functions.get(*id).is_some_and(|entry| entry.state() == State::Immortal);
        let begin = Instant::now();
        for id in jitted.into_iter().filter(is_immortal) {
            if known.has(id) {
                continue;
            }
            if begin.elapsed() >= PATIENCE {
                return;
            }
            if let Some(function) = FunctionId::from_raw(id) {
                known.add(id, &runtime.ask_code_ranges(function));
            }
        }
    }

    fn settle_as_immortal(&self, dependent: Dependent) {
        let _records = self.records(); // no other life begins while this is held
        if let Some(entry) = self.table(dependent.kind).get(dependent.id)
            && entry.life() == dependent.life
            && entry.is_alive()
        {
            entry.set(State::Immortal);
        }
    }

    /// Finds out whether a function in doubt is alive: if it is, its code can still be found after the module is gone.
    ///
    /// That cannot be decided while the module is being unloaded. Unloading takes a millisecond, so this waits for it;
    /// only briefly, as the caller may be in a callback that the runtime waits for.
    #[cold]
    pub(in super::super) fn settle(&self, runtime: &Runtime, function: usize) -> bool {
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
        match code.map(|code| runtime.ask_function_that_was_at(code)) {
            Some(Ok(Some(found))) if found == function => self.note(runtime, Kind::Function, function),
            Some(Err(_)) => false, // look-ups are impossible right now
            _ => {
                let mut records = self.records();
                let Some(entry) = self.functions.get(function) else { return false };
                // Another thread may have found it alive meanwhile.
                if entry.state() == State::Doubtful {
                    records.code_in_doubt.remove(&function);
                    entry.set(State::Dead);
                }
                entry.is_alive()
            }
        }
    }
}
