//! Tests on real runtimes. `cargo xtask test --live-only` prepares what they need and runs them.

mod allocations;
mod code;
#[path = "../contract.rs"]
mod contract;
mod examples;
mod exceptions;
mod hooks;
mod keeps;
mod manners;
mod matrix;
mod metadata;
mod rejit;
mod sampling;
mod seeded;
mod sequence;
mod shadow;
mod signatures;
mod smoke;
mod timer;
mod torture;
mod tracer;
mod values;
mod walks;
mod world;
