//! Profilers that suspend the runtime from several threads at once: the application goes on.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use corprof_tests::{Outcome, Run, Runtime, repetitions};

use crate::attacks::{count, told_in};
use crate::diagnostics::{profiler_named, runtimes};

const LONGEST: Duration = Duration::from_secs(120);

/// What the threads of a profiler do.
const WAYS: [&str; 4] = ["sampler heap", "heap heap", "sampler heap heap lists", "sampler lists lists lists"];

/// The same of the main profiler, and of the one beside.
const WAYS_OF_TWO: [&str; 4] = ["sampler, sampler", "heap, sampler", "heap, heap", "lists lists, sampler"];

/// The first runtime with walks of the heap.
const WITH_WALKS: u32 = 9;

/// Those that a runtime can do.
fn kinds(runtime: &Runtime, all: &[&'static str]) -> Vec<&'static str> {
    let can = |does: &&str| runtime.major >= WITH_WALKS || !does.contains("heap");
    all.iter().copied().filter(can).collect()
}

/// Runs a program that starts threads and collects, under a main profiler that does this.
fn run(runtime: &Runtime, does: &str) -> Result<Run> {
    let threads = repetitions("1500", "20000");
    let run = Run::new(runtime, "Churn").args([threads, "300"]).timeout(LONGEST);
    Ok(run.env("ATTACKS_SUSPENDS", does).profiler_named("attacks", "Suspends"))
}

fn unharmed(runtime: &Runtime, outcome: &Outcome) -> Result<()> {
    outcome.exited_with(0)?;
    let bare = Run::new(runtime, "Churn").args([repetitions("1500", "20000"), "300"]).run()?;
    ensure!(outcome.stdout == bare.stdout, "the application prints something else: {outcome}");
    ensure!(!outcome.stderr.contains("panicked"), "{outcome}");
    let told = told_in(&outcome.stderr, "rounds=")?;
    eprintln!("{runtime}: {told}");
    ensure!(count(told, "rounds")? + count(told, "heaps")? > 20, "{outcome}");
    Ok(())
}

mod long {
    use super::*;

    #[test]
    fn walks_of_the_heap_and_samplers_suspend_in_turn() -> Result<()> {
        for runtime in &runtimes()? {
            for does in kinds(runtime, &WAYS) {
                for _ in 0..repetitions(1, 20) {
                    let outcome = run(runtime, does)?.run().map_err(|error| error.context(does))?;
                    unharmed(runtime, &outcome)?;
                }
            }
        }
        Ok(())
    }

    /// A copy of the library has statics of its own.
    #[test]
    fn two_libraries_suspend_in_turn() -> Result<()> {
        for runtime in &runtimes()? {
            let (clsid, library) = profiler_named(runtime, "attacks", "SuspendsBeside")?;
            let folder = tempfile::tempdir()?;
            let copy: PathBuf = folder.path().join("libcopy.so");
            fs::copy(&library, &copy)?;
            for ways in kinds(runtime, &WAYS_OF_TWO) {
                let (does, beside) = ways.split_once(", ").context("two libraries")?;
                for _ in 0..repetitions(1, 20) {
                    let run = run(runtime, does)?.env("ATTACKS_SUSPENDS_BESIDE", beside);
                    let run = run.env("CORECLR_ENABLE_NOTIFICATION_PROFILERS", "1");
                    let beside = format!("{}={{{clsid}}};", copy.display());
                    let outcome = run.env("CORECLR_NOTIFICATION_PROFILERS", beside).run();
                    let outcome = outcome.map_err(|error| error.context(format!("{runtime}, {does}")))?;
                    outcome.exited_with(0)?;
                    let told: Vec<_> =
                        outcome.stderr.lines().filter(|line| line.starts_with("attacks| rounds=")).collect();
                    eprintln!("{runtime}: {told:?}");
                    ensure!(told.len() == 2, "{outcome}");
                }
            }
        }
        Ok(())
    }
}
