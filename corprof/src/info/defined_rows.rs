//! The metadata rows that edits of method bodies have defined, so that each is defined once.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard};

use crate::lock::unpoisoned;
use crate::session::{Info, Interests, Observer};
use crate::suspension;

/// The contents of a row, without those that every row of its table has.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Row {
    String(Box<str>),
    /// The type that suppresses the change of modes, which each module has or refers to at most once.
    Suppression,
    Signature(Box<[u8]>),
    TypeSpec(Box<[u8]>),
    /// Name.
    AssemblyRef(Box<str>),
    /// Scope and name.
    TypeRef(u32, Box<str>),
    /// Parent, name and signature.
    MemberRef(u32, Box<str>, Box<[u8]>),
    /// Method and arguments.
    MethodSpec(u32, Box<[u8]>),
}

/// By module; the rows of a module are dropped with it.
#[derive(Default)]
pub(crate) struct DefinedRows(Mutex<BTreeMap<usize, Rows>>);

#[derive(Default)]
struct Rows {
    known: HashMap<Row, u32>,
    /// How often a row was about to be defined.
    begun: u64,
    /// `begun` before the last `ApplyMetaData`: the runtime knows the rows of before.
    applied: u64,
}

impl Info {
    /// The metadata rows that edits of method bodies have defined.
    pub(crate) fn defined_rows(&self) -> &DefinedRows {
        self.extension()
    }
}

impl DefinedRows {
    fn rows(&self) -> MutexGuard<'_, BTreeMap<usize, Rows>> {
        suspension::forbid("the lock of the defined rows");
        unpoisoned(self.0.lock())
    }

    /// The token of a row that was defined before.
    pub(crate) fn of(&self, module: usize, row: &Row) -> Option<u32> {
        self.rows().get(&module)?.known.get(row).copied()
    }

    /// Keeps the token of a new row. If another thread was faster, its token stays, and is returned.
    pub(crate) fn keep(&self, module: usize, row: Row, token: u32) -> u32 {
        *self.rows().entry(module).or_default().known.entry(row).or_insert(token)
    }

    /// Call it before a row is defined.
    pub(crate) fn begin(&self, module: usize) {
        self.rows().entry(module).or_default().begun += 1;
    }

    /// Whether the module has rows that the runtime may not know yet. Another thread may have defined them, and be
    /// about to have them applied: a body that uses one must not be compiled before.
    pub(crate) fn is_pending(&self, module: usize) -> bool {
        self.rows().get(&module).is_some_and(|rows| rows.begun > rows.applied)
    }

    /// The mark for [`applied`](Self::applied): call it before `ApplyMetaData`.
    pub(crate) fn begun(&self, module: usize) -> u64 {
        self.rows().get(&module).map_or(0, |rows| rows.begun)
    }

    /// `ApplyMetaData` has succeeded.
    pub(crate) fn applied(&self, module: usize, begun: u64) {
        if let Some(rows) = self.rows().get_mut(&module) {
            rows.applied = rows.applied.max(begun);
        }
    }
}

impl Observer for DefinedRows {
    fn interests(&self) -> Interests {
        Interests::MODULES
    }

    fn module_gone(&self, module: usize) {
        self.rows().remove(&module);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_defined_once_until_its_module_goes() {
        let rows = DefinedRows::default();
        let row = Row::String("a".into());
        assert_eq!(rows.of(8, &row), None);
        assert_eq!(rows.keep(8, row.clone(), 1), 1);
        assert_eq!(rows.keep(8, row.clone(), 2), 1);
        assert_eq!(rows.keep(9, row.clone(), 3), 3);
        rows.module_gone(8);
        assert_eq!((rows.of(8, &row), rows.of(9, &row)), (None, Some(3)));
    }
    #[test]
    fn rows_are_pending_until_all_that_were_begun_are_applied() {
        let rows = DefinedRows::default();
        assert!(!rows.is_pending(8));
        rows.begin(8);
        let before = rows.begun(8);
        rows.begin(8);
        rows.applied(8, before);
        assert!(rows.is_pending(8), "the second may have been defined after the call");
        rows.applied(8, rows.begun(8));
        rows.applied(8, before);
        assert!(!rows.is_pending(8));
    }
}
