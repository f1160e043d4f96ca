//! The matrix under fire: every call from every context that has it, while other threads work against it. See
//! `xtask/src/stress/fire.rs`.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use corprof_tests::{Run, Runtime, repetitions};
use xtask::stress::{Condition, Fire, FireBed, any_number};

fn every_call_from_every_context(condition: Condition) -> Result<()> {
    let programs = std::env::var_os("CORPROF_APPS").map(PathBuf::from).context("CORPROF_APPS is not set")?;
    for runtime in Runtime::all()? {
        if runtime.is_windows() || runtime.is_emulated() {
            println!("SKIPPED on {runtime}: so many calls take hours there; `cargo xtask stress --matrix` has it");
            continue;
        }
        let bed = FireBed {
            runtime: runtime.to_string(),
            major: runtime.major,
            is_windows: runtime.is_windows(),
            command: Box::new(|| Run::new(&runtime, "Fire").profiler("matrix").command()),
            folder: programs.join("fire").join(format!("{condition:?} on {runtime}")),
            preloaded: None, // `Run` has it
        };
        let seed = any_number();
        let amount = repetitions(Fire::Fill(condition, 50), Fire::FillBySettings(condition, 1000));
        let summary = bed.fire(seed, amount)?;
        println!("from run {seed} on: {summary}");
        ensure!(summary.is_good(), "from run {seed} on: {summary}");
    }
    Ok(())
}

#[test]
fn every_call_from_every_context_while_another_thread_collects() -> Result<()> {
    every_call_from_every_context(Condition::Collect)
}

#[test]
fn every_call_from_every_context_under_a_lock_that_all_callbacks_want() -> Result<()> {
    every_call_from_every_context(Condition::Lock)
}

#[test]
fn every_call_from_every_context_while_assemblies_unload() -> Result<()> {
    every_call_from_every_context(Condition::Unload)
}
