//! The metadata rows that edits of method bodies have defined, so that each is defined once.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard};

use crate::lock::unpoisoned;
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
pub(crate) struct DefinedRows(Mutex<BTreeMap<usize, HashMap<Row, u32>>>);

impl DefinedRows {
    fn rows(&self) -> MutexGuard<'_, BTreeMap<usize, HashMap<Row, u32>>> {
        suspension::forbid("the lock of the defined rows");
        unpoisoned(self.0.lock())
    }

    /// The token of a row that was defined before.
    pub(crate) fn of(&self, module: usize, row: &Row) -> Option<u32> {
        self.rows().get(&module)?.get(row).copied()
    }

    /// Keeps the token of a new row. If another thread was faster, its token stays, and is returned.
    pub(crate) fn keep(&self, module: usize, row: Row, token: u32) -> u32 {
        *self.rows().entry(module).or_default().entry(row).or_insert(token)
    }

    /// The next module with this id is another module.
    pub(crate) fn module_gone(&self, module: usize) {
        self.rows().remove(&module);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_defined_once_until_its_module_goes() {
        let (rows, row) = (DefinedRows::default(), Row::String("a".into()));
        assert_eq!(rows.of(8, &row), None);
        assert_eq!(rows.keep(8, row.clone(), 1), 1);
        assert_eq!(rows.keep(8, row.clone(), 2), 1);
        assert_eq!(rows.keep(9, row.clone(), 3), 3);
        rows.module_gone(8);
        assert_eq!((rows.of(8, &row), rows.of(9, &row)), (None, Some(3)));
    }
}
