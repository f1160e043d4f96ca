//! Unloading: the time of an application that loads and unloads collectible assemblies, under a profiler that receives
//! events about unloaded modules, and about loaded classes and code.
//!
//! bench/Bench.cs loads itself over and over and times slices of that itself. Each profiler reports its counts at
//! Shutdown; the count of modules must be exact.

use anyhow::{Result, ensure};

use crate::process::announce;

use super::bed::{Bed, Side, output};
use super::samples::Samples;
use super::storm::numbers;
use super::table::Line;

const ROW: &str = "unloading";
/// The assemblies of one slice.
const CONTEXTS: u32 = 50;
/// So many that a cost which grows with each of them would show.
const SLICES: u32 = 60;
const TARGET: f64 = 1.2;

/// Measures the row.
///
/// # Errors
/// If a program fails, or a profiler's count of modules is wrong.
pub(super) fn measure(bed: &Bed, rounds: u32) -> Result<Vec<Line>> {
    announce(format_args!("Unloading: {rounds} rounds of {SLICES} times {CONTEXTS} assemblies, under each of three"));
    let mut samples = Side::ALL.map(|_| Samples::default());
    for round in 0..rounds {
        for side in Side::in_turn(round) {
            samples[side as usize].push(run(bed, side)?);
        }
    }
    let line = |side: Side| Line::stated(ROW, side.name(), samples[side as usize].figure(), "ms/assembly");
    let [_, c, corprof] = &samples;
    Ok(vec![line(Side::Bare), line(Side::C), line(Side::Corprof).ratio(corprof.ratio(c)).target(TARGET)])
}

/// One process; returns the milliseconds per assembly of each of its slices.
fn run(bed: &Bed, side: Side) -> Result<Vec<f64>> {
    let mut command = bed.command(&bed.bench, bed.loads.of(side))?;
    command.args(["unload", &SLICES.to_string(), &CONTEXTS.to_string()]);
    let (stdout, stderr) = output(&mut command)?;
    if side != Side::Bare {
        let contexts = numbers(&stdout, "contexts=")?;
        let modules = numbers(&stderr, "modules=")?;
        ensure!(
            contexts == modules && modules.len() == 1,
            "the profiler in {} saw {modules:?} of {contexts:?} modules go; it said: {stderr}",
            side.name()
        );
    }
    let slices = numbers(&stdout, "slice_ns=")?;
    Ok(slices.into_iter().map(|nanoseconds| nanoseconds as f64 / 1e6 / f64::from(CONTEXTS)).collect())
}
