//! Exceptions that meet filters while collections move objects. .NET 9 and 10 lose them under a profiler that hears of
//! exceptions, unless they are pinned, as corprof does: corprof/src/adapter/exception_pins.
//!
//! A test of that says something only where applications die without pins on the same machine at the same time, so each
//! counts both. `CORPROF_FILTER_RUNS=200` has it count 200 runs of each program with pins, and a fifth of that without:
//! `CORPROF_FILTER_RUNS=200 cargo xtask test --live-only --runtime 10 -- filters --nocapture`.

use std::time::Duration;
use std::{env, fmt};

use anyhow::{Context, Result, bail, ensure};
use corprof_tests::{Difference, Outcome, Run, Runtime, repetitions};

const RUNS: &str = "CORPROF_FILTER_RUNS";
const SWITCH: &str = "CORPROF_PIN_EXCEPTIONS";

/// What Filters says if no filter has got a wrong exception.
const RIGHT: &str = "wrong=0 kept=0 right=";

/// The default number of runs with pins.
const FEW: usize = 8;
/// Runs without pins go on until so many have died.
const DEAD: usize = 2;
/// But not for longer than this.
const MOST: usize = 40;
/// A run takes a second, without a fault.
const LONGEST: Duration = Duration::from_secs(60);

/// How many runs to count with pins, if that has been said.
fn wanted_runs() -> Result<Option<usize>> {
    let parse = |runs: std::ffi::OsString| runs.to_str().and_then(|runs| runs.parse().ok());
    env::var_os(RUNS).map(|runs| parse(runs).with_context(|| format!("{RUNS} is not a number of runs"))).transpose()
}

fn has_fault(runtime: &Runtime) -> bool {
    runtime.has(Difference::FaultInFilters)
}

/// A program that throws through filters while it collects.
struct Program {
    name: &'static str,
    args: &'static [&'static str],
}

const FILTERS: Program = Program { name: "Filters", args: &["all", "1000"] };
/// The quickest to die, also where an emulator makes everything slow.
const WHEN: Program = Program { name: "Filters", args: &["when", "3000"] };
const STRESS: Program = Program { name: "Stress", args: &["1", "12", "whole"] };
const SHORT_STRESS: Program = Program { name: "Stress", args: &["1", "5", "whole"] };
/// Under Wine 12 rounds take four minutes on a busy machine, and half of one without a profiler that prints each
/// exception.
const STRESS_OF_FEW: Program = Program { name: "Stress", args: &["1", "2", "whole"] };

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.args.join(" "))
    }
}

impl Program {
    fn under(&self, runtime: &Runtime, switch: &str) -> Run {
        Run::new(runtime, self.name)
            .args(self.args)
            .built_in("exceptions")
            .env("EXCEPTIONS_SHOW", "tree")
            .env(SWITCH, switch)
    }

    /// The fault of a run, if it has one.
    fn judge(&self, outcome: &Outcome) -> Result<()> {
        outcome.exited_with(0)?;
        let is_right = match self.name {
            "Filters" => outcome.stdout.starts_with(RIGHT),
            // A line for each round.
            _ => outcome.stdout.lines().count().to_string() == self.args[1],
        };
        ensure!(is_right, "{outcome}");
        ensure!(outcome.stderr.contains("thrown "), "the profiler has heard of no exception: {outcome}");
        Ok(())
    }

    /// All of `runs` runs with pins are right.
    fn lives_with_pins(&self, runtime: &Runtime, runs: usize) -> Result<()> {
        for run in 1..=runs {
            let outcome = self.under(runtime, "1").run()?;
            self.judge(&outcome).with_context(|| format!("run {run} of {runs}"))?;
        }
        println!("{runtime}: {self} with pins: 0 of {runs} runs died");
        Ok(())
    }

    /// Without pins some die: `runs`, if that is said, else as many as it takes to know.
    fn dies_without(&self, runtime: &Runtime, runs: Option<usize>) -> Result<()> {
        let mut died = 0;
        let mut run = 0;
        while run < runs.unwrap_or(MOST) && (runs.is_some() || died < DEAD) {
            // Instead of dying it may hang.
            let outcome = self.under(runtime, "0").timeout(LONGEST).run();
            died += usize::from(outcome.and_then(|outcome| self.judge(&outcome)).is_err());
            run += 1;
        }
        println!("{runtime}: {self} without pins: {died} of {run} runs died");
        if died < DEAD {
            bail!(
                "{died} of {run} runs died without pins, so it says nothing that none died with them. If this runtime has been \
                 mended, pins are no longer needed on it"
            );
        }
        Ok(())
    }
}

/// Calls are closed then, and nothing can be pinned. In `initialize` the runtime, which has hooks, refuses a mask without
/// their flags.
#[test]
fn applications_outlive_a_profiler_with_hooks_that_has_failed_or_retired() -> Result<()> {
    for runtime in Runtime::all()? {
        // Without the mend the first died in the first run on .NET 10, and the second never.
        for end in ["clone fails", "retires"].into_iter().take(repetitions(1, 2)) {
            for run in 1..=wanted_runs()?.unwrap_or(repetitions(1, FEW)) {
                let failing = Run::new(&runtime, WHEN.name).args(WHEN.args);
                let failing = failing.env("ATTACKS_FAILING", format!("exceptions hooks {end}"));
                let outcome = failing.profiler_named("attacks", "Failing").run()?;
                outcome.exited_with(0).with_context(|| format!("{end}, run {run}"))?;
                let are_events_off = !outcome.stderr.contains("stay on");
                ensure!(are_events_off && outcome.stdout.starts_with(RIGHT), "{end}, run {run}: {outcome}");
            }
        }
    }
    Ok(())
}

#[test]
fn an_exception_that_meets_a_filter_is_the_one_that_was_thrown() -> Result<()> {
    let runs = wanted_runs()?;
    for runtime in Runtime::all()? {
        FILTERS.lives_with_pins(&runtime, runs.unwrap_or(repetitions(1, FEW)))?;
    }
    Ok(())
}

#[test]
fn an_application_that_does_everything_at_once_outlives_a_profiler_of_exceptions() -> Result<()> {
    let runs = wanted_runs()?;
    for runtime in Runtime::all()? {
        if runtime.is_emulated() {
            println!("SKIPPED on {runtime}: the emulator crashed in 2 of 24 runs of the program without any profiler");
            continue;
        }
        if runtime.is_windows() && !has_fault(&runtime) {
            println!("SKIPPED on {runtime}: it has no fault to be mended, and stress takes minutes under Wine");
            continue;
        }
        let stress = if runtime.is_windows() { STRESS_OF_FEW } else { repetitions(SHORT_STRESS, STRESS) };
        stress.lives_with_pins(&runtime, runs.unwrap_or(repetitions(1, 2)))?;
        if let (true, Some(runs)) = (has_fault(&runtime), runs) {
            stress.dies_without(&runtime, Some(runs.div_ceil(5)))?;
        }
    }
    Ok(())
}

/// The counts of the profiler `handles`, under a program that throws 2,000 exceptions on one thread.
fn handles(runtime: &Runtime, switch: &str) -> Result<[usize; 3]> {
    let outcome = Run::new(runtime, "Throw").args(["500"]).profiler("handles").env(SWITCH, switch).run()?;
    outcome.exited_with(0)?;
    let line = outcome.stderr.lines().find(|line| line.starts_with("thrown=")).with_context(|| outcome.to_string())?;
    let mut counts = line.split(' ').filter_map(|count| count.split_once('=')?.1.parse().ok());
    let mut count = || counts.next().context("three counts");
    Ok([count()?, count()?, count()?])
}

#[test]
fn a_profiler_does_not_see_the_handles_that_pin_exceptions() -> Result<()> {
    for runtime in Runtime::all()? {
        let with = handles(&runtime, "1")?;
        let without = handles(&runtime, "0")?;
        println!("{runtime}: thrown, created, destroyed: {with:?} with pins, {without:?} without");
        let [thrown, ..] = with;
        ensure!(thrown >= 2000 && thrown == without[0], "{runtime}: {with:?} {without:?}");
        // The runtime's own handles differ a little from run to run.
        for (with, without) in with.into_iter().zip(without) {
            ensure!(with.abs_diff(without) < 200, "{runtime}: {with} with pins, {without} without");
        }
    }
    Ok(())
}

mod long {
    use super::*;

    /// How many runs it takes until some have died depends on the machine: on a busy one they are many.
    #[test]
    fn an_exception_that_meets_a_filter_is_another_one_without_pins() -> Result<()> {
        let runs = wanted_runs()?;
        for runtime in Runtime::all()?.into_iter().filter(has_fault) {
            WHEN.dies_without(&runtime, runs.map(|runs| runs.div_ceil(5)))?;
            WHEN.lives_with_pins(&runtime, runs.unwrap_or(3))?;
        }
        Ok(())
    }
}
