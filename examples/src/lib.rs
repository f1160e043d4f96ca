//! The examples that the command `corprof` has built in, as one library.
//!
//! Each example is a file of its own beside this folder, to read and to build alone (`cargo build --example sampler`). With
//! `--cfg corprof_bundle`, which the build script of corprof-cli passes, they are modules of this crate instead, and the
//! library exports all of them. Without it there is nothing here but where the sources are.

/// The folder of this package: what the build script of corprof-cli builds.
pub const FOLDER: &str = env!("CARGO_MANIFEST_DIR");

#[cfg(corprof_bundle)]
#[path = "../allocations.rs"]
pub mod allocations;
#[cfg(corprof_bundle)]
#[path = "../dumper.rs"]
pub mod dumper;
#[cfg(corprof_bundle)]
#[path = "../exceptions.rs"]
pub mod exceptions;
#[cfg(corprof_bundle)]
#[path = "../leaks.rs"]
pub mod leaks;
#[cfg(corprof_bundle)]
#[path = "../locks.rs"]
pub mod locks;
#[cfg(corprof_bundle)]
#[path = "../logger.rs"]
pub mod logger;
#[cfg(corprof_bundle)]
#[path = "../pauses.rs"]
pub mod pauses;
#[cfg(corprof_bundle)]
#[path = "../sampler.rs"]
pub mod sampler;
#[cfg(corprof_bundle)]
#[path = "../stacks.rs"]
pub mod stacks;
#[cfg(corprof_bundle)]
#[path = "../starvation.rs"]
pub mod starvation;
#[cfg(corprof_bundle)]
#[path = "../timer.rs"]
pub mod timer;
#[cfg(corprof_bundle)]
#[path = "../top.rs"]
pub mod top;
#[cfg(corprof_bundle)]
#[path = "../tracer.rs"]
pub mod tracer;

#[cfg(corprof_bundle)]
corprof::export!(
    allocations::Allocations,
    dumper::Dumper,
    exceptions::Exceptions,
    leaks::Leaks,
    locks::Locks,
    logger::Logger,
    pauses::Pauses,
    sampler::SamplerProfiler,
    stacks::Stacks,
    starvation::Starvation,
    timer::Timer,
    top::Top,
    tracer::Tracer,
);
