//! Profilers that instrument methods: for `live/instrumentation.rs`.

#![allow(clippy::unwrap_used, reason = "that is how they fail")]

mod compiled;
mod outcomes;
mod selected;
mod suspended;
mod whole;

corprof::export!(compiled::Compiled, outcomes::Outcomes, selected::Selected, suspended::Suspended, whole::Whole);
