//! The shadow stack equals the runtime's walk of the stack, under all kinds of calls, throws and catches.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use corprof_tests::{Difference, Outcome, Run, Runtime, repetitions};

/// The numbers of the lines that begin with a word, by the text after it.
fn numbers<'o>(outcome: &'o Outcome, word: &str) -> BTreeMap<&'o str, BTreeMap<&'o str, u64>> {
    let lines = outcome.stderr.lines().filter_map(|line| line.strip_prefix(word)?.split_once(": "));
    lines
        .map(|(name, pairs)| {
            let pairs = pairs.split(' ').filter_map(|pair| pair.split_once('='));
            (name, pairs.filter_map(|(key, value)| Some((key, value.parse().ok()?))).collect())
        })
        .collect()
}

/// Runs `app` with and without the profiler, all methods hooked or all but a third, and compares all that was compared.
/// `least` has how often the stacks must at least have been the same, by event.
fn agrees(runtime: &Runtime, app: &str, leaves_out: Option<u32>, least: &[(&str, u64)]) -> Result<Outcome> {
    agrees_with(runtime, app, leaves_out, least, &[])
}

/// The same with these environment variables for the profiler.
fn agrees_with(
    runtime: &Runtime,
    app: &str,
    leaves_out: Option<u32>,
    least: &[(&str, u64)],
    env: &[(&str, &str)],
) -> Result<Outcome> {
    let bare = Run::new(runtime, app).run()?;
    bare.exited_with(0)?;
    let mut run = Run::new(runtime, app).profiler("shadow").timeout(Duration::from_secs(480));
    if let Some(remainder) = leaves_out {
        run = run.env("SHADOW_LEAVES_OUT", remainder.to_string());
    }
    for (name, value) in env {
        run = run.env(name, value);
    }
    let outcome = run.run()?;
    outcome.exited_with(0)?;
    ensure!(outcome.stdout == bare.stdout, "without: {bare}; with: {outcome}");

    let events = numbers(&outcome, "event ");
    for (event, counts) in &events {
        ensure!(counts.get("different") == Some(&0), "{event}: {outcome}");
        // The runtime walks no stack while it unwinds. There only the function of the running block is compared; calls
        // from the block have the whole stack compared.
        let unwinds = ["catch", "finally"].iter().any(|what| event.starts_with(what));
        ensure!(unwinds || counts.get("unwalkable") == Some(&0), "{event}: {outcome}");
        let count = |name| counts.get(name).copied().unwrap_or_default();
        // Where managed code unwinds it does, but when an exception comes out of native code, it shows frames that are
        // gone at the beginning and the end of the first finally block; in calls from the block the whole stack is
        // compared.
        let is_managed = runtime.has(Difference::ManagedUnwinding);
        ensure!(count("stale") == 0 || is_managed && event.starts_with("finally"), "{event}: {outcome}");
        // The one is the end of the block of the dynamic method, which managed code that unwinds reports; the others
        // are calls that the runtime makes between the exception of a static constructor and its own.
        let untold =
            if event.starts_with("slow ") { 100 } else { 2 * u64::from(is_managed && *event == "finally left") };
        ensure!(count("untold") <= untold, "{event}: {outcome}");
        ensure!(count("stale") + count("untold") <= count("same").max(count("unwalkable")) / 10, "{event}: {outcome}");
    }
    for (event, least) in least {
        let counts = events.get(event).with_context(|| format!("no {event}: {outcome}"))?;
        let compared: u64 = ["same", "unwalkable"].iter().filter_map(|count| counts.get(count)).sum();
        ensure!(compared >= *least, "{event} compared {compared} times only: {outcome}");
    }
    let hooks = numbers(&outcome, "hooks");
    let hooks = hooks.get("").with_context(|| format!("nothing of hooks: {outcome}"))?;
    for none in ["strays", "lost"] {
        ensure!(hooks.get(none) == Some(&0), "{none}: {outcome}");
    }
    let silent = numbers(&outcome, "silent");
    let silent = silent.get("").with_context(|| format!("nothing of left out functions: {outcome}"))?;
    ensure!(silent.get("walked") <= silent.get("left-out"), "functions run without their hooks: {outcome}");
    let count = |name| hooks.get(name).copied().unwrap_or_default();
    // Threads may still be inside of something in the end.
    ensure!(count("enters") == count("ends") + count("left") + count("remaining"), "{outcome}");
    Ok(outcome)
}

/// All methods, and the three ways to leave a third of them out.
const SELECTIONS: [Option<u32>; 4] = [None, Some(0), Some(1), Some(2)];

#[test]
fn the_shadow_stack_is_the_stack_through_exceptions_threads_and_native_frames() -> Result<()> {
    for runtime in Runtime::all()? {
        for selection in SELECTIONS.into_iter().take(repetitions(1, SELECTIONS.len())) {
            let least = [
                ("probe", 1800),
                ("thrown", 400),
                ("search", 1200),
                ("filter", 20),
                ("filter left", 20),
                ("found", 400),
                ("finally", 100),
                ("catch", 400),
            ];
            let outcome = agrees(&runtime, "Stacks", selection, &least)?;
            // Each probe was compared.
            let markers = outcome.stderr.lines().find_map(|line| line.strip_prefix("markers ")?.parse::<u64>().ok());
            let probes = numbers(&outcome, "event ").get("probe").and_then(|probe| probe.get("same").copied());
            ensure!(markers.is_some() && markers == probes, "{markers:?} and {probes:?}: {outcome}");
            ensure!(outcome.stdout.contains("aborted\n"), "{outcome}");
            if selection.is_none() {
                let deepest = numbers(&outcome, "event ").get("probe").and_then(|probe| probe.get("deepest").copied());
                ensure!(deepest.is_some_and(|deepest| deepest > 10_000), "a recursion 10,000 deep: {outcome}");
            }
        }
    }
    Ok(())
}

#[test]
fn the_shadow_stack_is_the_stack_through_tail_calls_faults_and_filters_in_il() -> Result<()> {
    for runtime in Runtime::all()? {
        for selection in SELECTIONS {
            let least = [("probe", 100), ("thrown", 17), ("search", 50), ("filter", 3), ("finally", 13), ("catch", 5)];
            agrees(&runtime, "Tails", selection, &least)?;
        }
    }
    Ok(())
}

/// Hooks by inserted code. A walk shows two kinds of frames more: of a method whose class constructor runs before its
/// own code, and of one that has ended in a tail call which the runtime makes through a helper.
#[test]
fn the_shadow_stack_of_inserted_hooks_is_the_stack() -> Result<()> {
    for runtime in Runtime::all()? {
        for (app, probes, most) in [("Tails", 70, 30), ("Stacks", 1800, 10)].into_iter().take(repetitions(1, 2)) {
            let bare = Run::new(&runtime, app).run()?;
            for by in ["il-all", "il"] {
                let run = Run::new(&runtime, app).profiler("shadow").env("SHADOW_BY", by);
                let outcome = run.timeout(Duration::from_secs(480)).run()?;
                outcome.exited_with(0)?;
                ensure!(outcome.stdout == bare.stdout, "{by}: without: {bare}; with: {outcome}");
                let events = numbers(&outcome, "event ");
                let hooks = numbers(&outcome, "hooks");
                let probe = events.get("probe").context("no probes")?;
                let hooks = hooks.get("").context("no hooks")?;
                let count = |of: &BTreeMap<&str, u64>, name: &str| of.get(name).copied().unwrap_or_default();
                ensure!(count(probe, "different") + count(probe, "unwalkable") == 0, "{by}: {outcome}");
                ensure!(count(probe, "same") >= probes && count(probe, "untold") <= most, "{by}: {outcome}");
                ensure!(count(hooks, "strays") + count(hooks, "lost") == 0, "{by}: {outcome}");
                let ended = count(hooks, "ends") + count(hooks, "left") + count(hooks, "remaining");
                ensure!(count(hooks, "enters") == ended && count(hooks, "left") > 10, "{by}: {outcome}");
                ensure!(by == "il" || !outcome.stderr.contains("breaks rules"), "{by}: {outcome}");
            }
        }
    }
    Ok(())
}

/// On the slow path the stack pointers of hooks come another way, with the same results. And hooks
/// that walk the stack themselves.
#[test]
fn the_shadow_stack_is_the_stack_on_the_slow_path_too() -> Result<()> {
    for runtime in Runtime::all()? {
        for (app, probes) in [("Tails", 100), ("Stacks", 1800)].into_iter().take(repetitions(1, 2)) {
            let least = [("probe", probes), ("thrown", 17), ("slow enter", 2000), ("slow leave", 1000)];
            agrees_with(&runtime, app, None, &least, &[("SHADOW_VALUES", "1")])?;
        }
    }
    Ok(())
}

/// Makes calls of Balance, so many rounds on each of two threads, and compares the shadow stack's counts with their
/// number.
fn balances(runtime: &Runtime, rounds: u64) -> Result<Outcome> {
    const THREADS: u64 = 2;
    let args = [rounds.to_string(), THREADS.to_string()];
    let timeout = Duration::from_secs(240 + rounds / 1000);
    let run = || Run::new(runtime, "Balance").args(&args).timeout(timeout);
    let bare = run().run()?;
    let outcome = run().profiler("shadow").env("SHADOW_SELECT", "Known.").run()?;
    outcome.exited_with(0)?;
    ensure!(outcome.stdout == bare.stdout, "without: {bare}; with: {outcome}");
    let hooks = numbers(&outcome, "hooks");
    let hooks = hooks.get("").with_context(|| format!("nothing of hooks: {outcome}"))?;
    let thrown = THREADS * (rounds / 1000);
    let calls = THREADS * (1 + 9 * rounds);
    for (name, expected) in [
        ("enters", calls + 5 * thrown),
        // Catcher returns; three times Middle, and Thrower, do not.
        ("ends", calls + thrown),
        ("left", 4 * thrown),
        ("remaining", 0),
        ("strays", 0),
        ("lost", 0),
        ("deepest", 6),
    ] {
        ensure!(hooks.get(name) == Some(&expected), "{name} should be {expected}: {outcome}");
    }
    Ok(outcome)
}

#[test]
fn what_is_entered_is_left_a_million_times() -> Result<()> {
    for runtime in Runtime::all()? {
        balances(&runtime, 60_000)?;
    }
    Ok(())
}

mod long {
    use super::*;

    /// Threads that call a method for the first time at the same time all ask about it: it has hooks for all of them.
    #[test]
    fn methods_that_threads_compile_at_the_same_time_have_hooks() -> Result<()> {
        for runtime in Runtime::all()? {
            let run = Run::new(&runtime, "Stacks").profiler("shadow").env("SHADOW_BY", "il-all");
            let outcome = run.env("SHADOW_DELAY_MS", "3").timeout(Duration::from_secs(480)).run()?;
            outcome.exited_with(0)?;
            ensure!(!outcome.stderr.contains("replaced the body by itself"), "{outcome}");
            let events = numbers(&outcome, "event ");
            let untold = events.get("probe").and_then(|probe| probe.get("untold"));
            ensure!(untold.is_some_and(|untold| *untold <= 10), "{outcome}");
        }
        Ok(())
    }

    #[test]
    #[ignore = "takes a minute: cargo xtask test --live-only --release -- --ignored hundred_million"]
    fn what_is_entered_is_left_a_hundred_million_times() -> Result<()> {
        for runtime in Runtime::all()? {
            let outcome = balances(&runtime, 5_600_000)?;
            println!("{runtime}: {:.1?}", outcome.duration);
        }
        Ok(())
    }
}
