//! A short session of `cargo xtask torture`, on every runtime: see `xtask/src/torture.rs`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use corprof_tests::{Run, Runtime};
use xtask::torture::{Amount, Bed, any_number};

/// Runs are begun for so long on each runtime.
const TIME: Duration = Duration::from_secs(12);

#[test]
fn an_application_that_does_everything_at_once_outlives_a_sampler_of_a_kilohertz() -> Result<()> {
    let programs = std::env::var_os("CORPROF_APPS").map(PathBuf::from).context("CORPROF_APPS is not set")?;
    // On .NET Core 3.1 under Wine some runs hang that end by Main's return, which is not explained yet:
    // `cargo xtask torture --windows --runtime 3.1` has it.
    for runtime in Runtime::all()?.into_iter().filter(|runtime| !runtime.is_windows() || runtime.major == 8) {
        let bed = Bed {
            runtime: runtime.to_string(),
            is_windows: runtime.is_windows(),
            command: Box::new(|is_profiled| {
                let run = Run::new(&runtime, "Torture");
                if is_profiled { run.profiler("torture").command() } else { run.command() }
            }),
            folder: programs.join("torture").join(runtime.name),
            preloaded: runtime.preloaded()?,
            exits: !runtime.is_windows() || runtime.major != 8,
        };
        let seed = any_number();
        let summary = bed.torture(seed, Amount::Time(TIME))?;
        println!("from run {seed} on: {summary}");
        ensure!(summary.is_good(), "again by `cargo xtask torture --seed {seed}`: {summary}");
    }
    Ok(())
}
