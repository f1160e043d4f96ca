//! The contract table, for the tests of who may call what.
#![allow(dead_code, reason = "each test uses a part")]
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test that cannot read its tables fails")]

use std::path::Path;

use corprof_gen::contracts::{CallbackRow, Context, Contracts, Entry, InfoRow};

fn generator() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../corprof-sys/gen"))
}

/// The table.
pub(crate) fn contracts() -> Contracts {
    Contracts::read(&generator().join("contracts.toml")).unwrap()
}

/// The calls that corprof offers as methods of what callbacks and threads have: not those of `initialize`
/// (`live/hooks.rs`, `live/values.rs`), and not those that are part of something larger (`live/sampling.rs`,
/// `live/detach.rs`).
pub(crate) fn offered(contracts: &Contracts) -> Vec<&InfoRow> {
    let is_in_the_matrix = |row: &&InfoRow| !row.offered.is_empty() && row.context() != Context::InInitialize;
    contracts.info.iter().filter(is_in_the_matrix).collect()
}

/// The row of a method.
pub(crate) fn info<'c>(contracts: &'c Contracts, method: &str) -> &'c InfoRow {
    contracts.info.iter().find(|row| row.method == method).unwrap_or_else(|| panic!("no method {method}"))
}

/// The row of a callback, by its name in either spelling.
pub(crate) fn callback<'c>(contracts: &'c Contracts, name: &str) -> Option<&'c CallbackRow> {
    let name = name.replace('_', "").to_lowercase();
    contracts.callback.iter().find(|row| row.method.to_lowercase() == name)
}

/// Whether a runtime of this major version has the interface of the method.
pub(crate) fn has(row: &InfoRow, major: u32) -> bool {
    let since = row.since.as_ref().map(|since| since.split('.').next().unwrap().parse().unwrap());
    since.is_none_or(|since: u32| since <= major)
}

/// How the runtime of this major version checks a call: by which entry, and whether as one that may start a collection.
pub(crate) fn checks(row: &InfoRow, major: u32) -> (Entry, bool) {
    let earlier = row.versions.iter().filter(|version| major <= version.max).min_by_key(|version| version.max);
    let entry = earlier.and_then(|version| version.entry).unwrap_or(row.entry);
    (entry, earlier.and_then(|version| version.triggers).unwrap_or(row.triggers))
}
