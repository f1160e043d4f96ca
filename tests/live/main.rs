//! Tests on real runtimes. `cargo xtask test --live-only` prepares what they need and runs them.

mod code;
mod com;
mod examples;
mod manners;
mod metadata;
mod smoke;
mod world;
