//! The matrix under fire, on every runtime: see `xtask/src/torture/fire.rs`.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use corprof_tests::{Run, Runtime};
use xtask::torture::{Fire, FireBed, any_number};

#[test]
fn every_call_from_every_context_a_thousand_times_under_fire() -> Result<()> {
    let programs = std::env::var_os("CORPROF_APPS").map(PathBuf::from).context("CORPROF_APPS is not set")?;
    for runtime in Runtime::all()? {
        if runtime.is_windows() || runtime.is_emulated() {
            println!(
                "SKIPPED on {runtime}: a thousand of each take hours there; `cargo xtask torture --matrix` has it"
            );
            continue;
        }
        let bed = FireBed {
            runtime: runtime.to_string(),
            major: runtime.major,
            is_windows: runtime.is_windows(),
            command: Box::new(|| Run::new(&runtime, "Fire").profiler("matrix").command()),
            folder: programs.join("fire").join(&runtime.name),
            preloaded: None, // `Run` has it
        };
        let seed = any_number();
        let summary = bed.fire(seed, Fire::Each)?;
        println!("from run {seed} on: {summary}");
        ensure!(summary.is_good() && summary.is_complete(), "from run {seed} on: {summary}");
    }
    Ok(())
}
