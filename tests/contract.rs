//! The contract table, and the ledger of calls that corprof does not offer, for the tests of who may call what.
#![allow(dead_code, reason = "each test uses a part")]
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test that cannot read its tables fails")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use corprof_gen::contracts::{CallbackRow, Contracts, Entry, InfoRow};

fn generator() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../corprof-sys/gen"))
}

/// The table.
pub(crate) fn contracts() -> Contracts {
    Contracts::read(&generator().join("contracts.toml")).unwrap()
}

/// Calls that are no methods: the sampler makes them on its own thread (`live/sampling.rs`), or `hook_functions` and the hooks
/// themselves do (`live/hooks.rs`, `live/values.rs`), or a `Detacher` (`live/detach.rs`).
const NO_METHODS: &[&str] = &[
    "GetFunctionEnter3Info",
    "GetFunctionLeave3Info",
    "GetFunctionTailcall3Info",
    "RequestProfilerDetach",
    "ResumeRuntime",
    "SetEnterLeaveFunctionHooks3",
    "SetEnterLeaveFunctionHooks3WithInfo",
    "SetFunctionIDMapper2",
    "SuspendRuntime",
];

/// The calls that corprof offers as methods: all but those in the ledger and those that are part of something larger.
pub(crate) fn offered(contracts: &Contracts) -> Vec<&InfoRow> {
    let ledger: toml::Table = toml::from_str(&fs::read_to_string(generator().join("unmapped.toml")).unwrap()).unwrap();
    let left_out: BTreeSet<&String> = ledger.values().flat_map(|part| part.as_table().unwrap().keys()).collect();
    let is_method = |row: &&InfoRow| !left_out.contains(&row.method) && !NO_METHODS.contains(&row.method.as_str());
    contracts.info.iter().filter(is_method).collect()
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

/// Whether a runtime of this version has the interface of the method.
pub(crate) fn has(row: &InfoRow, version: (u32, u32)) -> bool {
    let (major, minor) = row.since.split_once('.').unwrap();
    (major.parse().unwrap(), minor.parse().unwrap()) <= version
}

/// How the runtime of this major version checks a call: by which entry, and whether as one that may start a collection.
pub(crate) fn checks(row: &InfoRow, major: u32) -> (Entry, bool) {
    let earlier = row.versions.iter().filter(|version| major <= version.max).min_by_key(|version| version.max);
    let entry = earlier.and_then(|version| version.entry).unwrap_or(row.entry);
    (entry, earlier.and_then(|version| version.triggers).unwrap_or(row.triggers))
}

/// Whether a collection may move objects during the call, on some runtime: it starts one, or lets one in.
pub(crate) fn may_move_objects(row: &InfoRow) -> bool {
    ever_triggers(row) || row.lets_gc_in == Some(true)
}

/// Whether any runtime takes the call for one that may start a collection.
pub(crate) fn ever_triggers(row: &InfoRow) -> bool {
    row.triggers || row.versions.iter().any(|version| version.triggers == Some(true))
}
