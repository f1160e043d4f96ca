//! Hooks: what a call costs when it is counted as it begins and as it returns, each thread for itself.
//!
//! bench/Bench.cs calls a method that adds 1 in a tight loop, and times slices of it by itself. Beside the counting hooks of
//! both sides there are hooks in C that only return: what the runtime itself takes for calling them. Tiered compilation is
//! off: the loop runs fully compiled from the start. The hooks in C keep all registers that may matter; those of corprof know
//! from the method's signature that there is nothing in the vector registers. Each profiler says at Shutdown how many calls it
//! counted, and that has to fit.

use anyhow::{Result, ensure};

use crate::process::announce;

use super::bed::{Bed, Built, Pair, Side, output};
use super::samples::Samples;
use super::storm::numbers;
use super::table::Line;

const ROW: &str = "hooks";
/// The calls of one slice: well under a millisecond.
const SLICE: u64 = 20_000;
/// How many more calls than its own loop a program may make: start-up, and the printing of the slices.
const OTHERS: u64 = 4_000_000;
const TARGET: f64 = 1.0;

/// Measures the row.
///
/// # Errors
/// If a program fails, or a profiler has not counted what there was to count.
pub(super) fn measure(bed: &Bed, profilers: &Pair, rounds: u32, calls: u64) -> Result<Vec<Line>> {
    let slices = (calls / (u64::from(rounds) * SLICE)).max(1);
    announce(format_args!("Hooks: {rounds} rounds of {slices} times {SLICE} calls, under each of four"));
    let mut samples = Side::ALL.map(|_| Samples::default());
    let mut returning = Samples::default();
    for round in 0..rounds {
        for side in Side::in_turn(round) {
            samples[side as usize].push(run(bed, profilers.of(side), side != Side::Bare, slices)?);
        }
        returning.push(run(bed, bed.hooks_return.as_ref(), false, slices)?);
    }
    let line = |side: Side| Line::stated(ROW, side.name(), samples[side as usize].figure(), "ns/call");
    let [_, c, corprof] = &samples;
    Ok(vec![
        line(Side::Bare),
        Line::stated(ROW, "C, returning", returning.figure(), "ns/call"),
        line(Side::C),
        line(Side::Corprof).ratio(corprof.ratio(c)).target(TARGET),
    ])
}

/// One process; the nanoseconds per call of each of its slices.
fn run(bed: &Bed, profiler: Option<&Built>, counts: bool, slices: u64) -> Result<Vec<f64>> {
    let mut command = bed.command(&bed.bench, profiler);
    command.args(["call", &slices.to_string(), &SLICE.to_string()]);
    // .NET Core 3.1 knows the older of the two names only.
    command.envs([("DOTNET_TieredCompilation", "0"), ("COMPlus_TieredCompilation", "0")]);
    let (stdout, stderr) = output(&mut command)?;
    if counts {
        let made = numbers(&stdout, "calls=")?;
        for name in ["counted=", "left="] {
            let counted = numbers(&stderr, name)?;
            let fits = |made: u64, counted: u64| (made..=made + OTHERS).contains(&counted);
            ensure!(
                matches!((&made[..], &counted[..]), (&[made], &[counted]) if fits(made, counted)),
                "a profiler found {name}{counted:?} of {made:?} calls; it said: {stderr}"
            );
        }
    }
    Ok(numbers(&stdout, "slice_ns=")?.into_iter().map(|nanoseconds| nanoseconds as f64 / SLICE as f64).collect())
}
