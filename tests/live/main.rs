//! Tests on real runtimes. `cargo xtask test --live-only` prepares their inputs and runs them.

mod allocations;
mod attacks;
#[cfg(target_os = "linux")]
mod catch_up;
#[cfg(target_os = "linux")]
mod cli;
mod code;
#[path = "../contract.rs"]
mod contract;
mod count_calls;
#[cfg(target_os = "linux")]
mod decoded;
#[cfg(target_os = "linux")]
mod detach;
#[cfg(target_os = "linux")]
mod diagnostics;
mod edits;
mod event_pipe;
mod examples;
mod exceptions;
mod filters;
mod fire;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod frames;
#[cfg(target_os = "linux")]
mod generator;
mod heap_dump;
mod hooks;
mod hosts;
mod il;
mod inserts;
mod instrumentation;
mod keeps;
mod leaks;
mod liveness;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod loops;
mod manners;
mod matrix;
mod metadata;
mod outputs;
mod own_events;
mod probes;
mod programs;
#[cfg(target_os = "linux")]
mod questions;
mod reentry;
mod rejit;
mod runtime_async;
mod sampling;
mod seeded;
mod sequence;
mod shadow;
mod signals;
mod signatures;
mod smoke;
mod statics;
mod timer;
mod torture;
mod tracer;
mod unmanaged;
mod values;
mod walks;
#[cfg(target_os = "linux")]
mod wine;
mod world;
