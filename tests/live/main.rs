//! Tests on real runtimes. `cargo xtask test --live-only` prepares what they need and runs them.

mod com;
mod examples;
mod manners;
mod metadata;
mod smoke;
