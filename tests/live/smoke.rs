//! The smoke tests: that a profiler loads, receives callbacks, has its hooks called and walks stacks.
//!
//! `cargo xtask test` runs them where it does not run the other live tests: on .NET 8, for Windows and for arm64. They use the
//! examples in `SMOKE_PROFILERS` (xtask/src/test/live.rs), so that few profilers are built for those systems.

use std::fs;

use anyhow::{Context, Result, ensure};
use corprof_tests::{Run, Runtime, ensure_or_longer, patiently};

use crate::timer::{KNOWN_CALLS, time};

#[test]
fn a_profiler_loads_and_receives_callbacks() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = Run::new(&runtime, "Hello").args(["you"]).profiler("logger").run()?;
        outcome.exited_with(42)?;
        ensure!(outcome.stdout == "Hello, you!\n", "{outcome}");
        for line in ["assembly: load Hello", "class: load Hello", "jit: Hello.Main(string[])"] {
            ensure!(outcome.stderr.contains(line), "{line:?} expected: {outcome}");
        }
    }
    Ok(())
}

#[test]
fn hooks_see_each_call() -> Result<()> {
    for runtime in Runtime::all()? {
        let times = time(Run::new(&runtime, "Calls").args(["2"]).env("TIMER_FILTER", "Known.*"))?;
        times.outcome.exited_with(0)?;
        times.calls_are(&KNOWN_CALLS)?;
    }
    Ok(())
}

#[test]
fn other_threads_are_walked() -> Result<()> {
    patiently(Runtime::all()?, |runtime, times| {
        let folder = tempfile::tempdir()?;
        let stacks = folder.path().join("stacks.folded");
        let run = Run::new(runtime, "Shares").args([(times * 1000).to_string()]).profiler("sampler");
        let outcome = run.env("SAMPLER_STRATEGY", "suspended").env("SAMPLER_OUT", &stacks).run()?;
        outcome.exited_with(0)?;
        let text = fs::read_to_string(&stacks).with_context(|| format!("no stacks: {outcome}"))?;
        let is_expected = |line: &str| line.contains("Shares.Works(") && line.contains(";Shares.Sixty(");
        ensure_or_longer!(text.lines().any(is_expected), "{text}: {outcome}");
        Ok(())
    })
}
