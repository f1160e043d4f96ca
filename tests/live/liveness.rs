//! Liveness of identifiers while assemblies are loaded and unloaded: calls with live ones are answered, with dead ones
//! refused.

use anyhow::{Context, Result, ensure};
use corprof_tests::{Difference, Run, Runtime, ensure_or_longer, patiently};

/// The profiler's count under `name`.
fn count(told: &str, name: &str) -> Result<u64> {
    let value = told.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    Ok(value.with_context(|| format!("no {name} in {told:?}"))?.parse()?)
}

#[test]
fn everything_alive_is_answered_about_and_everything_dead_refused_while_assemblies_come_and_go() -> Result<()> {
    patiently(Runtime::all()?, |runtime, times| {
        let outcome = Run::new(runtime, "Passing")
            .args([(60 * times).to_string()])
            .profiler_named("liveness", "Liveness")
            .run()?;
        outcome.exited_with(0)?;
        ensure!(outcome.stdout == "unloaded all, made 441\n", "{outcome}");
        let told =
            outcome.stderr.lines().find(|line| line.starts_with("answered=")).with_context(|| outcome.to_string())?;
        eprintln!("{runtime}: {told}");
        let none = ["refused_alive", "answered_dead", "misnamed", "lost"];
        ensure!(none.iter().all(|name| count(told, name).is_ok_and(|count| count == 0)), "{outcome}");
        let many = ["answered", "refused_dead", "unloaded", "found", "versions"];
        ensure_or_longer!(many.iter().all(|name| count(told, name).is_ok_and(|count| count > 100)), "{outcome}");
        ensure_or_longer!(
            count(told, "anew")? > 0,
            "a method that was compiled anew is listed in both bodies: {outcome}"
        );
        if !runtime.has(Difference::ClassOfSharedCode) {
            // Over which types shared code was made, the runtime does not say; that of the assembly which stays is
            // alive.
            ensure_or_longer!(count(told, "shared")? > 5 && count(told, "shared_refused")? > 100, "{outcome}");
        }
        if runtime.has(Difference::ListOfFrozenObjects) {
            ensure!(count(told, "refused_frozen")? == 0, "{outcome}");
            ensure_or_longer!(count(told, "frozen")? > 100, "{outcome}");
        } else {
            ensure_or_longer!(
                count(told, "refused_frozen")? > 10,
                "the heap that is not collected cannot be listed: {outcome}"
            );
        }
        ensure_or_longer!(!runtime.has(Difference::UnloadsOfArrays) || count(told, "arrays")? > 10, "{outcome}");
        Ok(())
    })
}
