//! The profilers that the command `corprof` has built in, as one library. `corprof_profilers::table` has their
//! settings.

/// `eprintln!` here is the one that never panics: the SDK turns a profiler off that does.
#[macro_use(eprintln)]
extern crate corprof_profilers;

#[macro_use]
mod sdk;
#[macro_use]
mod question;
mod async_callers;
mod class_assembly;
mod code_frames;
mod distortion;
mod hooked_by;
mod lease;
mod line_counts;
mod made_class;
mod own_frames;
mod report_files;
mod static_fields;
mod task_fields;
mod thread_name;

pub mod allocation_samples;
pub mod allocations;
pub mod count_calls;
pub mod dumper;
pub mod exceptions;
pub mod leaks;
pub mod locks;
pub mod logger;
pub mod pauses;
pub mod sampler;
pub mod stacks;
pub mod starvation;
pub mod timer;
pub mod top;
pub mod trace_values;
pub mod tracer;

corprof::export!(
    allocation_samples::AllocationSamples,
    allocations::Allocations,
    count_calls::CountCalls,
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
    trace_values::TraceValues,
    tracer::Tracer,
);
