//! Start-up: the wall time of a whole process that prints a line, under a profiler without events.

use std::time::Instant;

use anyhow::Result;

use crate::process::{self, announce};

use super::bed::{Bed, Side};
use super::memory;
use super::samples::Samples;
use super::table::Line;

const ROW: &str = "start-up";
/// How many processes a round starts under each profiler.
const STARTS: u32 = 20;
const TARGET: f64 = 1.05;

/// Measures the row.
///
/// # Errors
/// If a program fails.
pub(super) fn measure(bed: &Bed, rounds: u32) -> Result<Vec<Line>> {
    announce(format_args!("Start-up: {rounds} rounds of {STARTS} processes, under each of three"));
    if cfg!(target_os = "linux") {
        // The runtime prints nothing when it does not load a profiler, and these profilers print nothing when it does.
        for side in Side::ALL {
            memory::observe(bed, side)?;
        }
    }
    let mut samples = Side::ALL.map(|_| Samples::default());
    for _ in 0..rounds {
        let mut times = Side::ALL.map(|_| Vec::new());
        for start in 0..STARTS {
            for side in Side::in_turn(start) {
                times[side as usize].push(run(bed, side)?);
            }
        }
        for (samples, times) in samples.iter_mut().zip(times) {
            samples.push(times);
        }
    }
    let line = |side: Side| Line::stated(ROW, side.name(), samples[side as usize].figure(), "ms");
    let [_, c, corprof] = &samples;
    Ok(vec![line(Side::Bare), line(Side::C), line(Side::Corprof).ratio(corprof.ratio(c)).target(TARGET)])
}

/// The milliseconds of one process.
fn run(bed: &Bed, side: Side) -> Result<f64> {
    let mut command = bed.command(&bed.hello, bed.nothing.of(side))?;
    let start = Instant::now();
    process::run(&mut command)?;
    Ok(start.elapsed().as_secs_f64() * 1e3)
}
