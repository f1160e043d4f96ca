//! Profilers that forbid `unsafe` and do what nobody should: for `live/attacks.rs`. The application must not notice.

#![allow(clippy::unwrap_used, reason = "that is how they fail")]
#![forbid(unsafe_code)]

mod nonsense;
mod outlives;
mod pipes;
mod recursion;

corprof::export!(
    nonsense::Nonsense,
    outlives::Leaves,
    outlives::Outlives,
    pipes::Pipes,
    recursion::Creates,
    recursion::Destroys,
    recursion::Loads,
    recursion::Provides,
);
