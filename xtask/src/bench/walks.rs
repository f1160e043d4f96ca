//! Walks: the cost of a frame of the thread's own stack, and how long threads are suspended in a round of the sampler.
//!
//! Both sides run in one process and take turns, in one callback or on one thread: tests/profilers/bench_walks.rs calls
//! the functions of bench/walks.c, and checks that both saw the same frames. The own walk is that of an exception at
//! the bottom of 40 calls. In a round 50 threads of 40 frames are suspended, walked and resumed; the compared time is
//! that from the call that suspends to the end of the call that resumes, which is all that the application notices.

use anyhow::Result;

use crate::process::announce;

use super::bed::{Bed, output};
use super::calls::timings;
use super::samples::Samples;
use super::table::Line;

const DEPTH: &str = "40";
const THREADS: &str = "50";
/// How long the threads sleep: longer than the profiler makes rounds, even if it takes seconds until all sleep.
const MILLISECONDS: &str = "3000";
/// Frames per second: 0.95 of C. The table has the time of one.
const MOST_FOR_A_FRAME: f64 = 1.0 / 0.95;
const MOST_FOR_A_ROUND: f64 = 1.05;

/// Measures the rows.
///
/// # Errors
/// If a program fails, or the two sides saw different stacks.
pub(super) fn measure(bed: &Bed, rounds: u32) -> Result<Vec<Line>> {
    announce(format_args!("Walks: {rounds} rounds of two processes, in which both sides take turns"));
    let (mut own, mut all) = <([Samples; 2], [Samples; 2])>::default();
    for _ in 0..rounds {
        let mut command = bed.command(&bed.bench, Some(&bed.walks))?;
        command.args(["throw", DEPTH]).env("BENCH_WALKS", &bed.walks_in_c);
        push(&mut own, &output(&mut command)?.1, "own walk")?;

        let mut command = bed.command(&bed.deep, Some(&bed.walks))?;
        command.args([THREADS, DEPTH, MILLISECONDS]).env("BENCH_WALKS", &bed.walks_in_c).env("BENCH_ROUNDS", THREADS);
        push(&mut all, &output(&mut command)?.1, "suspended round")?;
    }
    let lines = |row, [c, corprof]: &[Samples; 2], target| {
        let line = Line::stated(row, "corprof", corprof.figure(), "ns/frame").ratio(corprof.ratio(c)).target(target);
        [Line::stated(row, "C", c.figure(), "ns/frame"), line]
    };
    Ok([lines("own walk", &own, MOST_FOR_A_FRAME), lines("suspended round", &all, MOST_FOR_A_ROUND)].concat())
}

/// Adds one process's result for a row.
fn push([c, corprof]: &mut [Samples; 2], stderr: &str, row: &str) -> Result<()> {
    let row = timings(stderr, row)?;
    c.push(row.c);
    corprof.push(row.corprof);
    Ok(())
}
