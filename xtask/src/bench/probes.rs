//! Probes: the cost of a counter and of calls that are inserted into one method, beside hooks with values in the same
//! run.
//!
//! The program and its loop are those of `hooks.rs`. The figure of interest is what a call costs more than without a
//! profiler; the profilers report how many calls they counted, which must match.

use anyhow::{Result, ensure};

use crate::process::announce;

use super::bed::{Bed, Built, ProbeProfilers, output};
use super::samples::Samples;
use super::storm::numbers;
use super::table::Line;

const ROW: &str = "probes";
/// The calls of one slice: well under a millisecond, except with hooks.
const SLICE: u64 = 20_000;
/// The divisor of the number of calls under hooks with values.
const HOOKED: u64 = 20;

/// Measures the rows.
///
/// # Errors
/// If a program fails, or a profiler's count is wrong.
pub(super) fn measure(bed: &Bed, probes: &ProbeProfilers, rounds: u32, calls: u64) -> Result<Vec<Line>> {
    let slices = (calls / (u64::from(rounds) * SLICE)).max(1);
    let watchers = [
        (None, 1),
        (Some(&probes.counter), 1),
        (Some(&probes.enter), 1),
        (Some(&probes.empty), 1),
        (Some(&probes.values), 1),
        (Some(&probes.timed), 1),
        (Some(&probes.inserted), 1),
        (Some(&probes.hooks), HOOKED),
    ];
    let number = watchers.len();
    announce(format_args!("Probes: {rounds} rounds of {slices} times {SLICE} calls, under each of {number}"));
    let mut measured = watchers.map(|_| Samples::default());
    for round in 0..rounds as usize {
        // The first differs from round to round: a position may be an advantage.
        for place in 0..watchers.len() {
            let at = (place + round) % watchers.len();
            let (profiler, every) = watchers[at];
            run(bed, profiler, (slices / every).max(1), &mut measured[at])?;
        }
    }
    let [bare, counter, enter, empty, values, timed, inserted, hooks] = &measured;
    let over = |of, one: &Samples| Line::stated(ROW, of, one.figure() - bare.figure(), "ns/call");
    Ok(vec![
        Line::stated(ROW, "no profiler", bare.figure(), "ns/call"),
        over("a counter adds", counter).target(0.5),
        over("an empty probe adds", enter),
        over("empty, with argument and result", empty).target(4.0),
        over("reading argument and result", values).target(8.0),
        over("the same, and the clock twice", timed),
        over("hooks with both, inserted", inserted),
        over("hooks with both, of the runtime", hooks),
    ])
}

/// One process.
fn run(bed: &Bed, profiler: Option<&Built>, slices: u64, measured: &mut Samples) -> Result<()> {
    let mut command = bed.command(&bed.bench, profiler)?;
    command.args(["call", &slices.to_string(), &SLICE.to_string()]);
    command.env("DOTNET_TieredCompilation", "0");
    let (stdout, stderr) = output(&mut command)?;
    ensure!(!stderr.contains("not edited"), "{stderr}");
    let made = numbers(&stdout, "calls=")?;
    let counted: Vec<u64> = stderr.lines().filter_map(|line| line.strip_prefix("counted=")?.parse().ok()).collect();
    ensure!(counted.is_empty() || counted == made, "a profiler counted {counted:?} of {made:?} calls");
    let slices = numbers(&stdout, "slice_ns=")?;
    measured.push(slices.into_iter().map(|nanoseconds| nanoseconds as f64 / SLICE as f64).collect());
    Ok(())
}
