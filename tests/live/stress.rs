//! A short session of `cargo xtask stress`, on every runtime: see `xtask/src/stress.rs`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use corprof_tests::{Run, Runtime, repetitions};
use xtask::stress::{Amount, Bed, LINES, any_number};
use xtask::target::System;

fn system(runtime: &Runtime) -> System {
    match (runtime.is_windows(), runtime.is_musl()) {
        (true, _) => System::Windows,
        (_, true) => System::Musl,
        _ => System::X64,
    }
}

/// A run takes as long as it takes each of its threads to do one more job while all of it is profiled. The quick tests have
/// `filters` with the same program, `sampling` and `signals` with a kilohertz on many threads, and `matrix` and `fire`.
mod long {
    use super::*;

    #[test]
    fn an_application_that_does_everything_at_once_outlives_a_sampler_of_a_kilohertz() -> Result<()> {
        let programs = std::env::var_os("CORPROF_APPS").map(PathBuf::from).context("CORPROF_APPS is not set")?;
        let amount = repetitions(Amount::Runs(1), Amount::Time(Duration::from_secs(12)));
        for runtime in Runtime::all()? {
            // On .NET 10 too few runs have been made under Wine to know how long one takes.
            if runtime.is_windows() && runtime.major != 8 {
                println!("SKIPPED on {runtime}: `cargo xtask stress --windows` has it");
                continue;
            }
            let bed = Bed {
                runtime: runtime.to_string(),
                system: system(&runtime),
                is_emulated: runtime.is_emulated(),
                command: Box::new(|is_profiled| {
                    let run = Run::new(&runtime, "Stress");
                    if is_profiled { run.profiler("stress").command() } else { run.command() }
                }),
                folder: programs.join("stress").join(&runtime.name),
                preloaded: None, // `Run` has it
                always: Vec::new(),
                exits: !runtime.is_windows() || runtime.major != 8,
                lines: repetitions(1, LINES),
            };
            let seed = any_number();
            let summary = bed.stress(seed, amount)?;
            println!("from run {seed} on: {summary}");
            ensure!(summary.is_good(), "again by `cargo xtask stress --seed {seed}`: {summary}");
        }
        Ok(())
    }
}
