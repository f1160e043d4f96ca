//! The matrix of `live/matrix.rs` is complete: every call that corprof offers is in it, as a method of the context that the
//! contract table asks for. Needs no .NET.
#![allow(clippy::panic, clippy::unwrap_used, reason = "that is how it fails")]

use std::collections::BTreeMap;

use corprof_gen::contracts::Entry;

mod contract;
#[allow(dead_code, reason = "the profiler uses the rest")]
#[path = "profilers/matrix/facts.rs"]
mod facts;
#[path = "profilers/matrix/rows.rs"]
mod rows;

/// Why a call is offered by less than the table allows.
const ASKS_MORE: &[(&str, &str, &str)] = &[
    ("CreateHandle", "ObjectId", "it takes an object"),
    ("DoStackSnapshot", "InCallback", "it walks the stack that led to a callback; other stacks are the sampler's"),
    ("EnumerateObjectReferences", "ObjectId", "it takes an object"),
    ("ForceGC", "ProfilerThread", "it is refused in callbacks, and marks the thread that calls it"),
    ("GetArrayObjectInfo", "ObjectId", "it takes an object"),
    ("GetClassFromObject", "ObjectId", "it takes an object"),
    ("GetObjectGeneration", "ObjectId", "it takes an object"),
    ("GetObjectIDFromHandle", "ObjectId", "its answer is an object, good where none moves"),
    ("GetObjectSize2", "ObjectId", "it takes an object"),
    ("IsFrozenObject", "ObjectId", "it takes an object"),
    ("RequestReJIT", "ProfilerThread", "it marks the thread that calls it"),
    ("RequestReJITWithInliners", "ProfilerThread", "it marks the thread that calls it"),
    ("RequestRevert", "ProfilerThread", "it marks the thread that calls it"),
];

/// The rows, by method.
fn levels() -> BTreeMap<&'static str, &'static str> {
    let levels = [
        ("Info", rows::ANYWHERE.iter().map(|row| row.0).collect::<Vec<_>>()),
        ("InCallback", rows::IN_CALLBACK.iter().map(|row| row.0).collect()),
        ("ObjectId", rows::OF_OBJECTS.iter().map(|row| row.0).collect()),
        ("InTriggers", rows::IN_TRIGGERS.iter().map(|row| row.0).collect()),
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
        let row = contract::info(&contracts, method);
        let expected = match row.entry {
            // What older runtimes take for a triggering call is one on all.
            _ if contract::may_move_objects(row) => "InTriggers",
            Entry::Async | Entry::None => "Info",
            Entry::Sync => "InCallback",
            Entry::InitOnly => "InInitialize",
        };
        let asks_more = ASKS_MORE.iter().find(|(name, ..)| *name == method).map(|(_, level, _)| *level);
        assert_eq!(level, asks_more.unwrap_or(expected), "{method}");
    }
    for (method, level, _) in ASKS_MORE {
        assert_eq!(levels().get(method), Some(level), "{method} asks no more than the table");
    }
}
