//! Tests on real runtimes. `cargo xtask test --live-only` prepares their inputs and runs them.

mod allocations;
#[cfg(target_os = "linux")]
mod apart;
mod attacks;
#[cfg(target_os = "linux")]
mod catch_up;
#[cfg(target_os = "linux")]
mod cli;
#[path = "../contract.rs"]
mod contract;
mod count_calls;
#[cfg(target_os = "linux")]
mod decoded;
#[cfg(target_os = "linux")]
mod detach;
mod edits;
mod event_pipe;
mod examples;
mod fire;
#[cfg(target_os = "linux")]
mod generator;
mod guest;
mod hooks;
mod hosts;
mod il;
mod inserts;
mod instrumentation;
mod keeps;
mod leaks;
mod liveness;
mod metadata;
#[cfg(target_os = "linux")]
mod notification;
mod objects;
mod outputs;
mod own_events;
mod probes;
mod programs;
#[cfg(target_os = "linux")]
mod questions;
mod reentry;
mod sampling;
mod seeded;
mod shadow;
mod signals;
mod signatures;
mod slides;
mod smoke;
mod statics;
mod stress;
#[cfg(target_os = "linux")]
mod suspending;
mod timer;
mod tracer;
mod unmanaged;
mod values;
#[cfg(target_os = "linux")]
mod wine;
mod world;

#[cfg(target_os = "linux")]
use differs::diagnostics;

/// Tests that depend on what differs between .NET 10 and 11: what the one tells, makes of code, or lacks. Each check
/// of a change runs them on .NET 10 as well, and the others on the newest runtime only.
#[path = "."]
mod differs {
    mod async_stack;
    mod code;
    #[cfg(target_os = "linux")]
    pub(crate) mod diagnostics;
    mod exceptions;
    mod filters;
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    mod frames;
    mod heap_dump;
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    mod inlined_frames;
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    mod loops;
    mod matrix;
    mod rejit;
    mod runtime_async;
    mod sequence;
    mod walks;
}
