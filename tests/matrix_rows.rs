//! The matrix of `live/matrix.rs` is complete: every call that corprof offers is in it, as a method of the context that
//! the contract table asks for. Needs no .NET.
#![allow(clippy::panic, clippy::unwrap_used, reason = "that is how it fails")]

use std::collections::{BTreeMap, BTreeSet};

use corprof_gen::contracts::{Entry, InfoRow};

mod contract;
#[allow(dead_code, reason = "the profiler uses the rest")]
#[path = "profilers/matrix/facts.rs"]
mod facts;
#[path = "profilers/matrix/raw.rs"]
mod raw;
#[path = "profilers/matrix/rows.rs"]
mod rows;

/// The rows, by method.
fn levels() -> BTreeMap<&'static str, &'static str> {
    let levels = [
        ("Info", rows::ANYWHERE.iter().map(|row| row.0).collect::<Vec<_>>()),
        ("InNoGc", rows::IN_NO_GC.iter().map(|row| row.0).collect()),
        ("InNoGc", rows::OF_OBJECTS.iter().map(|row| row.0).collect()),
        ("InCallback", rows::IN_CALLBACK.iter().map(|row| row.0).collect()),
        ("ProfilerThread", rows::ON_PROFILER_THREAD.iter().map(|row| row.0).collect()),
    ];
    let mut found = BTreeMap::new();
    for (level, methods) in levels {
        for method in methods {
            assert!(found.insert(method, level).is_none(), "{method} has two rows");
        }
    }
    found
}

#[test]
fn every_call_that_is_offered_has_a_row() {
    let contracts = contract::contracts();
    let mut levels = levels();
    for row in contract::offered(&contracts) {
        let level = levels.remove(row.method.as_str());
        assert!(level.is_some(), "{} is offered: give it a row in tests/profilers/matrix/rows.rs", row.method);
    }
    assert!(levels.is_empty(), "there are rows of calls that are not offered: {levels:?}");
}

#[test]
fn every_call_is_offered_where_the_table_says() {
    let contracts = contract::contracts();
    for (method, level) in levels() {
        assert_eq!(level, format!("{:?}", contract::info(&contracts, method).context()), "{method}");
    }
}

/// Whether the runtime refuses the call outside of callbacks: then it has a raw row, which is made there.
fn is_refused(row: &InfoRow) -> bool {
    match row.entry {
        Entry::Sync | Entry::InitOnly => true,
        Entry::Async | Entry::None => false,
    }
}

#[test]
fn every_call_that_the_runtime_refuses_somewhere_has_a_raw_row() {
    let contracts = contract::contracts();
    let raw = [raw::SYNC, raw::TRIGGERING, raw::INSPECTING, raw::AT_START_UP, raw::MARKING];
    let raw: BTreeSet<&str> = raw.into_iter().flatten().map(|row| row.0).collect();
    for row in contracts.info.iter().filter(|row| is_refused(row) && !row.offered.is_empty()) {
        assert!(raw.contains(row.method.as_str()), "{} is refused: give it a raw row in raw.rs", row.method);
    }
    for method in raw {
        let row = contract::info(&contracts, method);
        assert!(is_refused(row) || method == "ForceGC", "the runtime refuses {method} nowhere");
    }
}
