//! [`MortalIds`]: the identifiers that can die, of all sessions of one runtime.
//!
//! The profilers of a library share its memory, so an identifier may come from another session: from the attach before,
//! or from a profiler loaded beside this one. The tables of a session lack it, and what they lack counts as immortal,
//! since most of it is older than the first entry. So each session also records here what can die, and refuses what it
//! finds here and not in its own tables.
//!
//! Before .NET 10 it is not known of some shared code whether it can die. Another session may have had it before any
//! collectible module was loaded, and it is good there. So it is recorded here only when its session ends.
//!
//! Nothing is ever removed: if the runtime reuses an address for something that stays, the session that is told of it
//! has an entry of its own.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use super::table::{State, Table};
use crate::lock::unpoisoned;

/// Those of the runtimes of this process, by the runtimes' own numbers. Only tests have several.
static ALL: Mutex<BTreeMap<u16, Arc<MortalIds>>> = Mutex::new(BTreeMap::new());

/// Whether a runtime has had several sessions.
static HAS_SEVERAL: AtomicBool = AtomicBool::new(false);

pub(super) struct MortalIds {
    sessions: AtomicUsize,
    pub(super) assemblies: Table,
    pub(super) modules: Table,
    pub(super) classes: Table,
    pub(super) functions: Table,
}

impl MortalIds {
    pub(super) const fn new() -> Self {
        Self {
            sessions: AtomicUsize::new(0),
            assemblies: Table::new(),
            modules: Table::new(),
            classes: Table::new(),
            functions: Table::new(),
        }
    }

    /// Those of the runtime with this number, for another session of it.
    pub(super) fn of_runtime(number: u16) -> Arc<Self> {
        let mut all = unpoisoned(ALL.lock());
        let ids = Arc::clone(all.entry(number).or_insert_with(|| Arc::new(Self::new())));
        if ids.sessions.fetch_add(1, Relaxed) > 0 {
            HAS_SEVERAL.store(true, Relaxed);
        }
        ids
    }

    /// A session has ended. If it was the only one so far, and had nothing that can die, nothing is kept of it.
    pub(super) fn forget_if_empty(self: &Arc<Self>) {
        /// The list's reference and that of the session.
        const ONE_SESSION: usize = 2;
        let mut all = unpoisoned(ALL.lock());
        let tables = [&self.assemblies, &self.modules, &self.classes, &self.functions];
        if tables.into_iter().all(Table::is_empty) && Arc::strong_count(self) == ONE_SESSION {
            all.retain(|_, ids| !Arc::ptr_eq(ids, self));
        }
    }

    /// Whether `id` is in the table of all sessions, and not in that of the asking one.
    #[inline]
    pub(super) fn is_foreign(own: &Table, all: &Table, id: usize) -> bool {
        HAS_SEVERAL.load(Relaxed) && own.get(id).is_none() && all.get(id).is_some()
    }

    /// Records what is not known to be immortal in the table of a session that ends.
    pub(super) fn take(all: &Table, own: &Table) {
        own.iter()
            .filter(|entry| entry.state() != State::Immortal)
            .for_each(|entry| _ = all.insert(entry.id(), State::Mortal));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_session_has_recorded_is_foreign_until_it_is_ones_own() {
        const RUNTIME: u16 = u16::MAX;
        let first = MortalIds::of_runtime(RUNTIME);
        let second = MortalIds::of_runtime(RUNTIME);
        assert!(Arc::ptr_eq(&first, &second));
        let own = Table::new();
        first.classes.insert(8, State::Mortal);
        assert!(MortalIds::is_foreign(&own, &second.classes, 8));
        assert!(!MortalIds::is_foreign(&own, &second.classes, 16));
        assert!(!MortalIds::is_foreign(&own, &second.functions, 8));
        own.insert(8, State::Immortal);
        assert!(!MortalIds::is_foreign(&own, &second.classes, 8));
    }

    #[test]
    fn nothing_is_kept_of_a_session_without_anything_that_can_die() {
        const RUNTIME: u16 = u16::MAX - 2;
        let is_kept = || unpoisoned(ALL.lock()).contains_key(&RUNTIME);
        let only = MortalIds::of_runtime(RUNTIME);
        only.forget_if_empty();
        assert!(!is_kept());
        let first = MortalIds::of_runtime(RUNTIME);
        let second = MortalIds::of_runtime(RUNTIME);
        first.forget_if_empty();
        assert!(is_kept(), "another session has it");
        drop(second);
        first.modules.insert(8, State::Mortal);
        first.forget_if_empty();
        assert!(is_kept());
    }

    #[test]
    fn a_session_that_ends_leaves_what_could_die() {
        let own = Table::new();
        let all = Table::new();
        for (id, state) in [(8, State::Immortal), (16, State::Mortal), (24, State::Dead), (32, State::Doubtful)] {
            own.insert(id, state);
        }
        MortalIds::take(&all, &own);
        assert_eq!([8, 16, 24, 32].map(|id| all.get(id).is_some()), [false, true, true, true]);
    }
}
