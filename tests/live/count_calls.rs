//! The built-in `count_calls`: exact numbers of calls, and nothing of methods that the filter leaves out.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use corprof_tests::{Outcome, Run, Runtime, repetitions};

use crate::hooks::FIRST_CALLS;
use crate::timer::KNOWN_CALLS;

/// The table: how often each method was called.
fn counts(outcome: &Outcome) -> BTreeMap<&str, u64> {
    let rows = outcome.stderr.lines().filter_map(|line| {
        let (calls, name) = line.strip_prefix("count_calls: ")?.trim_start().split_once("  ")?;
        Some((name, calls.parse().ok()?))
    });
    rows.collect()
}

#[test]
fn count_calls_counts_each_call() -> Result<()> {
    for runtime in Runtime::all()? {
        for tiered in ["0", "1"] {
            let run = |app| Run::new(&runtime, app).env("DOTNET_TieredCompilation", tiered).built_in("count_calls");
            let bare = Run::new(&runtime, "Calls").args(["2"]).env("DOTNET_TieredCompilation", tiered).run()?;
            let outcome = run("Calls").args(["2"]).env("COUNT_CALLS_FILTER", "Known.*").run()?;
            ensure!(outcome.status == bare.status && outcome.stdout == bare.stdout, "{bare}; counted: {outcome}");
            let counts_of = counts(&outcome);
            for (name, expected) in KNOWN_CALLS {
                let found = counts_of.iter().find(|(method, _)| method.starts_with(name)).map(|(_, calls)| *calls);
                ensure!(found == Some(expected), "{runtime}, tiered {tiered}: {name} {found:?}: {outcome}");
            }
            ensure!(counts_of.keys().all(|name| name.starts_with("Known.")), "the filter: {outcome}");

            // Without a filter: the program's methods, and those of the framework that are not precompiled.
            let bare = Run::new(&runtime, "Jumps").env("DOTNET_TieredCompilation", tiered).run()?;
            let outcome = run("Jumps").run()?;
            outcome.exited_with(0)?;
            ensure!(outcome.stdout == bare.stdout, "{bare}; counted: {outcome}");
            let counts = counts(&outcome);
            for (name, expected) in [
                ("Jumps.Main()", 1),
                ("Jumps.Jump(int)", 1),
                ("Jumps.Landed(int)", 2),
                ("Jumps.Down(int)", 1_000_001),
                ("Jumps.Say(int)", 4),
            ] {
                ensure!(counts.get(name) == Some(&expected), "{runtime}, tiered {tiered}: {name}: {outcome}");
            }
        }
        let refused =
            Run::new(&runtime, "Exit").args(["7", "1"]).built_in("count_calls").env("COUNT_CALLS_FILTER", "[");
        let outcome = refused.run()?;
        outcome.exited_with(7)?;
        ensure!(outcome.stderr.contains("the profiler CountCalls is not loaded"), "{outcome}");
        ensure!(outcome.stderr.contains("COUNT_CALLS_FILTER=[: "), "{outcome}");
    }
    Ok(())
}

/// Threads that call a method at the same time may count a call together, for a few calls here. A body that does not
/// count is run thirty times and more before another one replaces it.
const COUNTED_TOGETHER: u64 = 7;

#[test]
fn calls_that_threads_make_at_once_are_counted_from_the_first_on() -> Result<()> {
    for runtime in Runtime::all_for_modern("FirstCalls")? {
        for tiered in ["0", "1"].repeat(repetitions(1, 50)) {
            let run = Run::new(&runtime, "FirstCalls").env("DOTNET_TieredCompilation", tiered);
            let outcome = run.built_in("count_calls").env("COUNT_CALLS_FILTER", "[OF]*").run()?;
            outcome.exited_with(0)?;
            let counts = counts(&outcome);
            for (name, calls) in FIRST_CALLS {
                let rows = counts.iter().filter(|(method, _)| method.starts_with(name));
                let found: u64 = rows.map(|(_, calls)| *calls).sum();
                let expected = calls.saturating_sub(COUNTED_TOGETHER).max(1)..=calls;
                ensure!(expected.contains(&found), "{runtime}, tiered {tiered}: {found} calls of {name}: {outcome}");
            }
        }
    }
    Ok(())
}
