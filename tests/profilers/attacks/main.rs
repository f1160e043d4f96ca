//! Profilers that misuse corprof without `unsafe`: for `live/attacks.rs`. The application must run unchanged.

#![allow(clippy::unwrap_used, reason = "that is how they fail")]
#![forbid(unsafe_code)]

mod blobs;
mod calls;
mod edits;
mod failing;
mod made_up;
mod nonsense;
mod outlives;
mod pipes;
mod recursion;
mod rewriters;
mod searches;
mod sessions;

corprof::export!(
    blobs::Blobs,
    calls::Misuses,
    edits::KeepsBodies,
    failing::Failing,
    nonsense::Nonsense,
    outlives::Leaves,
    outlives::Outlives,
    pipes::Pipes,
    recursion::Creates,
    recursion::Destroys,
    recursion::Loads,
    recursion::Provides,
    rewriters::Rewriters,
    searches::Searches,
    sessions::Sessions,
);
