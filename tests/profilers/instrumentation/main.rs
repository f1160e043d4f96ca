//! Profilers that instrument methods: for `live/instrumentation.rs`.

#![allow(clippy::unwrap_used, reason = "that is how they fail")]

mod outcomes;
mod whole;

corprof::export!(outcomes::Outcomes, whole::Whole);
