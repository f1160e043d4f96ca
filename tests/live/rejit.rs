//! ReJIT: a program's output changes with the bodies that a profiler gives its methods, and changes back.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use corprof_tests::{Run, Runtime, repetitions};

const LIBRARY: &str = "rejit";

/// The program's output: a method without callers, one called directly, the same through the method it was inlined
/// into, and one that stays unchanged.
const REPLACED_AND_REVERTED: &str = "before: 41 51 51 61\n\
                                     answer: 42 51 51 61\n\
                                     inlined: 42 52 51 61\n\
                                     inliners: 42 52 52 61\n\
                                     reverted: 41 51 51 61\n";

#[test]
fn a_body_takes_effect_and_is_reverted() -> Result<()> {
    for runtime in Runtime::all()? {
        // So that inlining happens at once.
        let run = Run::new(&runtime, "ReJit").env("DOTNET_TieredCompilation", "0");
        let outcome = run.profiler_named(LIBRARY, "Replaces").run()?;
        outcome.exited_with(0)?;
        ensure!(outcome.stdout == REPLACED_AND_REVERTED, "{outcome}");
        let lines: Vec<_> = outcome.stderr.lines().filter_map(|line| line.strip_prefix("rejit| ")).collect();
        for expected in [
            "answer: Ok(())",
            "finished Answer: Ok(()) true",
            "finished Inlined: Ok(()) true",
            "finished Caller: Ok(()) true",
            "revert: Ok([Ok(()), Ok(()), Ok(()), Ok(())])",
            // The one that it was loaded with, one that was replaced and one that was not: none of them goes.
            "bodies of Answer: Some(3), then Some(3)",
        ] {
            ensure!(lines.contains(&expected), "not told: {expected}: {outcome}");
        }
        for refused in ["none: RequestReJIT: E_INVALIDARG", "revert none: RequestRevert: E_INVALIDARG"] {
            ensure!(lines.iter().any(|line| line.starts_with(refused)), "not refused: {refused}: {outcome}");
        }
        // A token that names nothing: once in a request, and once in a revert, whose status does not show it.
        let errors = lines.iter().filter(|line| line.starts_with("error 0x6ffffff: None "));
        ensure!(errors.clone().count() == 2, "{outcome}");
        ensure!(errors.clone().all(|line| line.contains("E_INVALIDARG")), "{outcome}");
        ensure!(lines.contains(&"revert no method: Ok([Ok(())])"), "{outcome}");
        ensure!(!outcome.stderr.contains("parameters of another method"), "asked for an inliner: {outcome}");
    }
    Ok(())
}

#[test]
fn without_the_flag_every_request_is_refused() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = Run::new(&runtime, "ReJit").args(["alone"]).profiler_named(LIBRARY, "LacksFlag").run()?;
        outcome.exited_with(0)?;
        for call in ["RequestReJIT", "RequestReJITWithInliners", "RequestRevert"] {
            let refused = format!("rejit| refused {call}: CORPROF_E_REJIT_NOT_ENABLED");
            ensure!(outcome.stderr.contains(&refused), "{call} was not refused: {outcome}");
        }
    }
    Ok(())
}

/// The program and the profiler give up after five minutes.
const LONGEST: Duration = Duration::from_secs(330);

/// What the book says of requests: their cost, tiers, and methods that can be unloaded.
#[test]
fn requests_suspend_nothing_and_bodies_go_through_the_tiers() -> Result<()> {
    for runtime in Runtime::all()? {
        let ways = [("1", 2), ("0", 1)];
        for (tiered, tiers) in ways.into_iter().take(repetitions(1, 2)) {
            let run = Run::new(&runtime, "Requests").env("DOTNET_TieredCompilation", tiered);
            let run = run.env("REQUESTS_TIERS", tiers.to_string());
            let outcome = run.profiler_named("requests", "Requests").timeout(LONGEST).run()?;
            outcome.exited_with(0)?;
            ensure!(outcome.stdout == "prepared True\nown 2, passing 1\n", "{outcome}");
            let lines: Vec<_> = outcome.stderr.lines().filter_map(|line| line.strip_prefix("requests| ")).collect();
            eprintln!("{runtime}, tiered {tiered}: {lines:#?}");
            // The request for a method that can be unloaded succeeds, has no effect, and causes no error.
            for expected in
                ["suspensions are seen: true", "request of a passing method: Ok(())", "errors: ", "request: Ok(())"]
            {
                ensure!(lines.contains(&expected), "not told: {expected}: {outcome}");
            }
            // The other method gets to its next tier by itself, on a busy machine after a while.
            let after = lines.iter().find_map(|line| line.strip_prefix("after it: ")).context("no events")?;
            let is_own = |event: &str| event.is_empty() || event.starts_with("own compiled");
            ensure!(after.split(", ").all(is_own), "not compiled by itself: {outcome}");
            let told = lines.iter().find_map(|line| line.strip_prefix("after the request: "));
            let told: Vec<_> = told.context("no events")?.split(", ").collect();
            let Some((&"asked", compiled)) = told.split_first() else { bail!("asked for later, or again: {outcome}") };
            ensure!(compiled.iter().all(|event| event == &compiled[0]), "another body, or an error: {outcome}");
            ensure!(compiled.len() >= tiers && (tiers > 1 || compiled.len() == 1), "tiered {tiered}: {outcome}");
            let costs: Vec<_> = lines.iter().filter(|line| line.starts_with("cost of ")).collect();
            ensure!(costs.len() == 26, "{outcome}");
            for cost in costs {
                ensure!(cost.contains("suspended 0 times"), "{cost}: {outcome}");
            }
        }
    }
    Ok(())
}
