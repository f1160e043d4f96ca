//! A profiler is a guest: under any misbehaviour of it, the application prints the same and ends with its own code.

use anyhow::{Result, ensure};
use corprof_tests::{Difference, Outcome, Run, Runtime, repetitions};

const LIBRARY: &str = "guest";

/// Runs Exit under a profiler of the library, and expects the application to behave as without one.
fn unharmed(runtime: &Runtime, profiler: &str, variables: &[(&str, &str)]) -> Result<Outcome> {
    let run = variables.iter().fold(Run::new(runtime, "Exit"), |run, (name, value)| run.env(name, value));
    let outcome = run.args(["7", "2"]).profiler_named(LIBRARY, profiler).run()?;
    outcome.exited_with(7)?;
    ensure!(outcome.stdout == "line 1 of 2\nline 2 of 2\n", "the application prints something else: {outcome}");
    Ok(outcome)
}

/// Expects these texts in standard error, each exactly once.
fn says(outcome: &Outcome, texts: &[&str]) -> Result<()> {
    for text in texts {
        let count = outcome.stderr.matches(text).count();
        ensure!(count == 1, "expected once, found {count} times: {text:?} in {outcome}");
    }
    Ok(())
}

/// Expects none of these texts in standard error.
fn says_nothing_of(outcome: &Outcome, texts: &[&str]) -> Result<()> {
    for text in texts {
        ensure!(!outcome.stderr.contains(text), "did not expect {text:?} in {outcome}");
    }
    Ok(())
}

#[test]
fn a_panic_in_a_callback_is_reported_once_and_ends_the_profiler_only() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = unharmed(&runtime, "PanicsInCallback", &[])?;
        says(
            &outcome,
            &["callback 100", "the profiler PanicsInCallback panicked in class_load_finished and is disabled"],
        )?;
        says_nothing_of(&outcome, &["callback 101", "shutdown of a quiet profiler"])?;
    }
    Ok(())
}

#[test]
fn a_panic_in_initialize_leaves_the_application_without_the_profiler() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = unharmed(&runtime, "PanicsInInitialize", &[])?;
        says(&outcome, &["in initialize\n", "the application runs without it: it panicked"])?;
    }
    Ok(())
}

#[test]
fn a_panic_in_drop_is_caught_at_the_end_and_after_a_refusal() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = unharmed(&runtime, "PanicsInDrop", &[])?;
        says(&outcome, &["in drop\n", "PanicsInDrop panicked in drop"])?;
        let outcome = unharmed(&runtime, "PanicsInDrop", &[("REFUSE", "1")])?;
        says(&outcome, &["in drop\n", "PanicsInDrop is not loaded; the application runs without it: it panicked"])?;
    }
    Ok(())
}

#[test]
fn a_panic_while_the_profiler_is_made_is_caught() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = unharmed(&runtime, "PanicsWhenMade", &[])?;
        says(
            &outcome,
            &["in default\n", "PanicsWhenMade is not loaded; the application runs without it: it panicked"],
        )?;
    }
    Ok(())
}

#[test]
fn an_error_of_initialize_is_told_and_no_callback_follows() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = unharmed(&runtime, "Refuses", &[])?;
        says(
            &outcome,
            &["the profiler Refuses is not loaded; the application runs without it: cannot read my settings: "],
        )?;
        says_nothing_of(&outcome, &["a callback after all"])?;
    }
    Ok(())
}

#[test]
fn no_callback_comes_after_shutdown_and_the_profiler_is_dropped() -> Result<()> {
    for runtime in Runtime::all()? {
        for _ in 0..repetitions(8, 20) {
            let outcome = Run::new(&runtime, "Abandon").profiler_named(LIBRARY, "WatchesTheOrder").run()?;
            outcome.exited_with(3)?;
            ensure!(outcome.stdout == "abandoned 4 threads\n", "{outcome}");
            says(&outcome, &["shutdown with 0 callbacks inside", "dropped with 0 callbacks inside"])?;
            says_nothing_of(&outcome, &["a late callback", "corprof:"])?;
        }
    }
    Ok(())
}

#[test]
fn an_error_that_panics_when_it_is_told_is_caught() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = unharmed(&runtime, "FailsBadly", &[])?;
        says(&outcome, &["in display\n", "the application runs without it: it panicked"])?;
    }
    Ok(())
}

#[test]
fn a_failed_profiler_may_keep_its_info_on_a_thread() -> Result<()> {
    for runtime in Runtime::all()? {
        let run = Run::new(&runtime, "Abandon").args(["2", "200"]);
        let outcome = run.profiler_named(LIBRARY, "FailsWithAThread").run()?;
        outcome.exited_with(3)?;
        says(&outcome, &["FailsWithAThread is not loaded", "asked twenty times, and for events: false"])?;
        says_nothing_of(&outcome, &["a callback after all"])?;
    }
    Ok(())
}

#[test]
fn a_callback_that_does_not_end_holds_the_application_up_no_longer_than_it_must() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = Run::new(&runtime, "Named").profiler_named(LIBRARY, "HoldsOn").run()?;
        outcome.exited_with(5)?;
        says(&outcome, &["are still running 2s after Shutdown: its `shutdown` is not called"])?;
        says_nothing_of(&outcome, &["shutdown of one that holds on"])?;
    }
    Ok(())
}

#[test]
fn events_may_be_turned_on_and_off_until_the_very_end() -> Result<()> {
    for runtime in Runtime::all()? {
        for _ in 0..repetitions(8, 20) {
            unharmed(&runtime, "Toggles", &[])?;
        }
    }
    Ok(())
}

#[test]
fn a_callback_that_ends_the_process_does_not_hang_it() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = Run::new(&runtime, "Throw").args(["1"]).profiler_named(LIBRARY, "ExitsInCallback").run()?;
        outcome.exited_with(99)?;
    }
    Ok(())
}

#[test]
fn another_clsid_leaves_the_application_alone_and_says_what_to_mend() -> Result<()> {
    for runtime in Runtime::all()? {
        let other = "{7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E0FFF}";
        let run = Run::new(&runtime, "Exit").args(["7", "2"]).profiler_with_clsid(LIBRARY, other);
        let outcome = run.run()?;
        outcome.exited_with(7)?;
        says(&outcome, &["asked for the CLSID {7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E0FFF}", "correct CORECLR_PROFILER"])?;
    }
    Ok(())
}

/// See `main.rs`.
mod differs {
    use super::*;

    #[test]
    fn a_runtime_that_is_too_old_is_refused_by_name() -> Result<()> {
        // The others have all that there is.
        for runtime in Runtime::all()?.into_iter().filter(|runtime| !runtime.has(Difference::Info15)) {
            let outcome = unharmed(&runtime, "NeedsNewer", &[])?;
            let lacks =
                "it needs ICorProfilerInfo15 (.NET 9 or later), and this runtime offers ICorProfilerInfo14 (.NET 8)";
            says(&outcome, &[lacks])?;
        }
        Ok(())
    }

    #[test]
    fn an_immutable_flag_after_initialize_is_refused_with_the_rule() -> Result<()> {
        for runtime in Runtime::all()? {
            let outcome = unharmed(&runtime, "AsksTooLate", &[])?;
            says(&outcome, &["in time: Ok(())", "too late: SetEventMask2(COR_PRF_ENABLE_OBJECT_ALLOCATED): "])?;
            if !runtime.has(Difference::MutableOptimization) {
                let refused = "too late as well: SetEventMask2(COR_PRF_DISABLE_OPTIMIZATIONS): ";
                let mask = "mask: EventMask(MONITOR_MODULE_LOADS | MONITOR_ASSEMBLY_LOADS | MONITOR_THREADS | MONITOR_SUSPENDS | DISABLE_INLINING)";
                says(&outcome, &[refused, "up to .NET 9 this flag", mask])?;
            } else {
                // The flag has become mutable.
                let flags = "MONITOR_MODULE_LOADS | MONITOR_ASSEMBLY_LOADS | MONITOR_THREADS | MONITOR_SUSPENDS | DISABLE_INLINING | DISABLE_OPTIMIZATIONS";
                says(&outcome, &[&format!("mask: EventMask({flags})")])?;
                says_nothing_of(&outcome, &["too late as well"])?;
            }
        }
        Ok(())
    }
}
