//! Identifiers that a profiler keeps for ever: corprof refuses dead ones, by name, and no others.

use anyhow::{Context, Result, ensure};
use corprof_tests::{Run, Runtime};

/// The profiler's count under `name`.
fn count(told: &str, name: &str) -> Result<u64> {
    let value = told.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    Ok(value.with_context(|| format!("no {name} in {told:?}"))?.parse()?)
}

#[test]
fn what_was_unloaded_is_refused_while_everything_is_asked_about_without_pause() -> Result<()> {
    let arguments: [&[&str]; 2] = [&["40"], &["40", "Plug.dll"]];
    for (runtime, arguments) in
        Runtime::all()?.iter().flat_map(|runtime| arguments.map(|arguments| (runtime, arguments)))
    {
        let outcome = Run::new(runtime, "Unloads").args(arguments).profiler_named("keeps", "Keeps").run()?;
        outcome.exited_with(0)?;
        ensure!(outcome.stdout == "unloaded 40 of 40\n", "{outcome}");
        let told =
            outcome.stderr.lines().find(|line| line.starts_with("kept=")).with_context(|| outcome.to_string())?;
        ensure!(count(told, "unexpected")? == 0, "{outcome}");
        ensure!(count(told, "good")? > 1_000, "what is alive is answered about: {outcome}");
        for kind in ["assemblies", "modules", "classes", "functions", "threads"] {
            ensure!(count(told, kind)? > 0, "{kind} that have died are refused: {outcome}");
        }
    }
    Ok(())
}
