//! The calls about code: native code, method bodies, tokens. The profiler checks the answers itself; this test checks
//! that it made the calls, and that the application ran as without it.

use anyhow::{Context, Result, ensure};
use corprof_tests::{Outcome, Run, Runtime};

const LIBRARY: &str = "code";

/// Runs `app` with and without the profiler, and expects the same of it.
fn unharmed(runtime: &Runtime, app: &str, args: &[&str], profiler: &str) -> Result<Outcome> {
    let alone = Run::new(runtime, app).args(args).run()?;
    let outcome = Run::new(runtime, app).args(args).profiler_named(LIBRARY, profiler).env("CODE_APP", app).run()?;
    outcome.exited_with(0)?;
    ensure!(outcome.stdout == alone.stdout, "the application prints something else: {outcome}");
    ensure!(!outcome.stderr.contains("panicked"), "a check failed: {outcome}");
    Ok(outcome)
}

/// The number after `NAME=` in the profiler's summary.
fn count(outcome: &Outcome, name: &str) -> Result<usize> {
    let (_, rest) =
        outcome.stderr.split_once(&format!(" {name}=")).with_context(|| format!("no {name} in {outcome}"))?;
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
    Ok(digits.parse()?)
}

#[test]
fn answers_about_generic_functions_fit_together() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = unharmed(&runtime, "Generics", &[], "AsksAboutCode")?;
        ensure!(count(&outcome, "functions")? >= 12, "{outcome}");
        ensure!(count(&outcome, "generic")? >= 3, "{outcome}");
        ensure!(count(&outcome, "inliners")? > 0, "{outcome}");
    }
    Ok(())
}

#[test]
fn dynamic_methods_are_told_from_others() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = unharmed(&runtime, "Dynamic", &[], "AsksAboutCode")?;
        ensure!(count(&outcome, "dynamic")? > 0, "{outcome}");
    }
    Ok(())
}

#[test]
fn answers_in_callbacks_that_allow_no_collection_fit_together() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = unharmed(&runtime, "Sample", &[], "AsksAboutCode")?;
        ensure!(count(&outcome, "exceptions")? > 0 && count(&outcome, "collections")? > 0, "{outcome}");
    }
    Ok(())
}

#[test]
fn a_function_is_compiled_again_from_its_own_body() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = unharmed(&runtime, "Sample", &["--orders", "5000"], "CompilesAgain")?;
        ensure!(outcome.stderr.contains("compiled again") && outcome.stderr.contains("no complaint"), "{outcome}");
    }
    Ok(())
}
