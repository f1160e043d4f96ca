//! Where the runtime's calls write: facts that corprof's `unsafe` blocks rest on (corprof-sys/gen/safety.toml).

use anyhow::{Context, Result, ensure};
use corprof_tests::{Outcome, Run, Runtime};

const LIBRARY: &str = "outputs";

/// The number after `NAME=` in the line of the profiler that has it.
fn count(outcome: &Outcome, name: &str) -> Result<u64> {
    let words =
        outcome.stderr.lines().filter_map(|line| line.strip_prefix("outputs| ")).flat_map(str::split_whitespace);
    let mut values = words.filter_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    Ok(values.next().with_context(|| format!("no {name} in {outcome}"))?.parse()?)
}

fn run(runtime: &Runtime, profiler: &str, app: &str) -> Result<Outcome> {
    let outcome = Run::new(runtime, app).profiler_named(LIBRARY, profiler).run()?;
    outcome.exited_with(0)?;
    ensure!(!outcome.stderr.contains("WRONG") && !outcome.stderr.contains("panicked"), "{outcome}");
    ensure!(count(&outcome, "wrong")? == 0, "{outcome}");
    Ok(outcome)
}

#[test]
fn calls_write_as_much_as_they_count_and_no_more() -> Result<()> {
    for runtime in Runtime::all()? {
        // The calls about metadata, and those about objects.
        for (app, calls, answers) in [("Facts", 75, 370), ("World", 75, 370)] {
            let outcome = run(&runtime, "Outputs", app)?;
            let asked = outcome.stderr.lines().filter(|line| line.starts_with("outputs| asked ")).count();
            println!("{runtime}, {app}: {asked} calls, {} answers", count(&outcome, "answers")?);
            ensure!(asked >= calls && count(&outcome, "answers")? >= answers, "{asked} calls: {outcome}");
        }
    }
    Ok(())
}

#[test]
fn blobs_stay_as_they_are_while_other_threads_add_to_the_metadata() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = run(&runtime, "Emits", "Facts")?;
        ensure!(count(&outcome, "added")? == 4000 && count(&outcome, "compared")? > 1000, "{outcome}");
    }
    Ok(())
}
