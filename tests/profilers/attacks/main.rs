//! Profilers that misuse corprof without `unsafe`: for `live/attacks.rs`. The application must run unchanged.

#![allow(clippy::unwrap_used, reason = "that is how they fail")]
#![forbid(unsafe_code)]

mod apart;
mod bloats;
mod blobs;
mod calls;
mod chains;
mod deep_types;
mod departs;
mod early;
mod edits;
mod emits;
mod ends_with_classes;
mod ends_with_providers;
mod everywhere;
mod failing;
mod farewells;
mod hoards;
mod hot;
mod idle;
mod late_edits;
mod links;
mod made_up;
mod nonsense;
mod outlives;
mod pipes;
mod recompiles;
mod recursion;
mod rewriters;
mod searches;
mod sessions;
mod suspends;
mod thread_statics;
mod watches;
mod yesterday;

corprof::export!(
    apart::LeavesProbes,
    bloats::Bloats,
    blobs::Blobs,
    calls::Misuses,
    chains::FollowsChains,
    deep_types::NestsTypes,
    departs::Departs,
    early::Early,
    edits::KeepsBodies,
    emits::Emits,
    ends_with_classes::EndsWithClasses,
    ends_with_providers::EndsWithProviders,
    everywhere::Everywhere,
    failing::Failing,
    farewells::Farewells,
    hoards::Hoards,
    hot::Hot,
    idle::Idle,
    late_edits::LateEdits,
    late_edits::UnheardEdits,
    links::FollowsLinks,
    nonsense::Nonsense,
    outlives::Leaves,
    outlives::Outlives,
    pipes::Pipes,
    recompiles::Recompiles,
    recursion::Creates,
    recursion::Destroys,
    recursion::Loads,
    recursion::Provides,
    rewriters::Rewriters,
    searches::Searches,
    sessions::Sessions,
    suspends::Suspends,
    suspends::SuspendsBeside,
    thread_statics::AsksForThreadStatics,
    watches::Watches,
    watches::WatchesBeside,
    yesterday::AsksBeside,
    yesterday::KeepsIds,
);
