//! The smoke test: a profiler loads, receives callbacks, has its hooks called, and walks a stack.
//!
//! `cargo xtask test` runs it where it does not run the other live tests: on .NET 8, for Windows and for arm64. Only
//! its profiler, `tests/smoke/smoke.rs`, is built for these systems.

use anyhow::{Context, Result, ensure};
use corprof_tests::{Run, Runtime};

#[test]
fn a_profiler_loads_hears_hooks_and_walks() -> Result<()> {
    for runtime in Runtime::all()? {
        let alone = Run::new(&runtime, "Calls").args(["1"]).run()?;
        alone.exited_with(0)?;
        let outcome = Run::new(&runtime, "Calls").args(["1"]).profiler("smoke").run()?;
        outcome.exited_with(0)?;
        ensure!(outcome.stdout == alone.stdout, "the application prints something else: {outcome}");
        ensure!(outcome.stderr.contains("loaded Known\n"), "{outcome}");
        // Fib(15) makes 1,973 calls.
        ensure!(outcome.stderr.contains("hooks entered=1973 left=1973\n"), "{outcome}");
        let walk = outcome.stderr.lines().find_map(|line| line.strip_prefix("walked Ok(()): "));
        let frames: Vec<&str> = walk.with_context(|| outcome.to_string())?.split(" < ").collect();
        let place = |name: &str| frames.iter().position(|frame| frame.starts_with(name));
        let places = ["Known.Throw(", "Known.Inner(", "Known.Outer(", "Calls.Exceptions(", "Calls.Main("].map(place);
        ensure!(places.is_sorted() && places[0].is_some(), "{frames:?}");
    }
    Ok(())
}
