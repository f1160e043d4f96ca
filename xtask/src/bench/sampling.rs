//! Sampling: the slow-down of a sampled application, and the accuracy of the samples.
//!
//! The slow-down is measured with the built-in `sampler`, at two rates, under an application that only computes: on one
//! thread, and on as many as there are processors, where the sampler's own work takes time from the application. A
//! slice lasts many rounds, so that every slice contains some. The accuracy is measured with a program that works in
//! three chains of calls, 60, 30 and 10 % of the time (tests/managed/Shares.cs), at 1 kHz by the wall clock, until
//! there are enough samples; and with a pool of threads that does the same in short pieces (tests/managed/Pool.cs), by
//! processor time, while twice as many threads as there are processors compute beside it.
//!
//! The sampler's thread looks at every thread of the application, so its own processor time is measured with 200
//! threads, of which four work and the others wait. The handlers come on top: half a percent of the time of the threads
//! that work, by `perf`.

use std::collections::BTreeMap;
use std::hint;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use anyhow::{Context, Result, ensure};

use crate::process::{announce, note};

use super::bed::{Bed, output};
use super::samples::{Samples, middle_half, quantile};
use super::storm::numbers;
use super::table::Line;

const SLOW_DOWN: &str = "slow-down";
/// The rates, their names in the table, and the target in percent.
const RATES: [(&str, [&str; 2], Option<f64>); 2] = [
    ("100", ["sampler, 100 Hz, 1 thread", "sampler, 100 Hz, all processors"], Some(2.0)),
    ("1000", ["sampler, 1 kHz, 1 thread", "sampler, 1 kHz, all processors"], None),
];
/// The calls of one slice: some 0.15 seconds.
const SLICE: &str = "100000000";
const SLICES: &str = "8";

const SHARES: [(&str, f64); 3] = [("Sixty", 60.0), ("Thirty", 30.0), ("Ten", 10.0)];
const SAMPLES: u64 = 20_000;
/// The milliseconds of one process.
const WORK: &str = "8000";
const MOST_POINTS: f64 = 3.0;
/// On a full machine there are fewer samples in the same time, and threads reach their safepoints later.
const POOL_SAMPLES: u64 = 4_000;
const MOST_OF_POOL: f64 = 6.0;

const CROWD: &str = "sampler's thread";
/// The rates, and the most percent of a processor.
const CROWD_RATES: [(&str, &str, f64); 2] =
    [("100", "sampler, 100 Hz, 200 threads", 1.5), ("1000", "sampler, 1 kHz, 200 threads", 6.0)];
/// Milliseconds, threads, and those that work.
const CROWD_ARGUMENTS: [&str; 4] = ["crowd", "5000", "200", "4"];

/// Measures the rows.
///
/// # Errors
/// If a program fails, or has no output.
pub(super) fn measure(bed: &Bed, rounds: u32) -> Result<Vec<Line>> {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    announce(format_args!(
        "Sampling: {rounds} rounds without a profiler and at two rates, on 1 and on {processors} threads"
    ));
    let mut lines = Vec::new();
    for (number, threads) in [1, processors].into_iter().enumerate() {
        let mut sides = [None, Some(RATES[0].0), Some(RATES[1].0)].map(|rate| (rate, Samples::default()));
        for _ in 0..rounds {
            for (rate, samples) in &mut sides {
                samples.push(run(bed, *rate, threads)?);
            }
            // The first differs from round to round.
            sides.rotate_left(1);
        }
        let of = |rate| sides.iter().find(|side| side.0 == rate).map(|side| &side.1);
        for (rate, names, target) in RATES {
            let (Some(sampled), Some(bare)) = (of(Some(rate)), of(None)) else { continue };
            let slower = sampled.compared_by_round(bare, |sampled, bare| 100.0 * (sampled / bare - 1.0));
            let line = Line::stated(SLOW_DOWN, names[number], slower.value, "%").spread(slower.spread);
            lines.push(target.into_iter().fold(line, Line::target));
        }
    }
    if cfg!(target_os = "linux") {
        lines.extend(crowd(bed, rounds)?);
    }
    lines.push(shares(bed)?);
    lines.push(shares_on_a_full_machine(bed)?);
    Ok(lines)
}

/// One process, with or without sampling; returns the nanoseconds of its slices.
fn run(bed: &Bed, rate: Option<&str>, threads: usize) -> Result<Vec<f64>> {
    let out = tempfile::Builder::new().suffix(".folded").tempfile().context("cannot make a file for the samples")?;
    let mut command = bed.command(&bed.bench, rate.map(|_| &bed.sampler))?;
    command.args(["spin", SLICES, SLICE, &threads.to_string()]);
    command.envs(rate.map(|rate| ("SAMPLER_HZ", rate))).env("SAMPLER_OUT", out.path());
    command.env("DOTNET_TieredCompilation", "0");
    let (stdout, stderr) = output(&mut command)?;
    ensure!(rate.is_none() || stderr.contains(" samples written to "), "the sampler wrote nothing: {stderr}");
    Ok(numbers(&stdout, "slice_ns=")?.into_iter().map(|nanoseconds| nanoseconds as f64).collect())
}

/// The processor time of the sampler's thread, among many threads that wait.
fn crowd(bed: &Bed, rounds: u32) -> Result<Vec<Line>> {
    announce(format_args!("Many threads: {rounds} rounds at two rates, with 200 threads of which four work"));
    let mut shares = CROWD_RATES.map(|_| Vec::new());
    for _ in 0..rounds {
        for ((rate, ..), shares) in CROWD_RATES.into_iter().zip(&mut shares) {
            let out =
                tempfile::Builder::new().suffix(".folded").tempfile().context("cannot make a file for samples")?;
            let mut command = bed.command(&bed.bench, Some(&bed.sampler))?;
            command.args(CROWD_ARGUMENTS).env("SAMPLER_STRATEGY", "signals").env("SAMPLER_HZ", rate);
            let (stdout, stderr) = output(command.env("SAMPLER_OUT", out.path()))?;
            let sum = |name| anyhow::Ok(numbers(&stdout, name)?.into_iter().sum::<u64>() as f64);
            let used = sum("sampler_ns=")?;
            let wall = sum("wall_ns=")?;
            ensure!(used > 0.0 && wall > 0.0, "the sampler has no thread: {stderr}");
            shares.push(100.0 * used / wall);
        }
    }
    let line = |(shares, (_, name, most)): (Vec<f64>, (_, _, _))| {
        let middle = quantile(shares.clone(), 0.5);
        Line::stated(CROWD, name, middle, "% of a processor").spread(middle_half(shares)).target(most)
    };
    Ok(shares.into_iter().zip(CROWD_RATES).map(line).collect())
}

/// The error of the worst share in points, by the wall clock.
fn shares(bed: &Bed) -> Result<Line> {
    announce(format_args!(
        "Shares: {SAMPLES} samples of a program that works 60, 30 and 10 % of the time in three chains"
    ));
    let worst = worst(bed, &bed.shares, SAMPLES, ("chain Shares", "chain Shares"), &[])?;
    Ok(Line::stated("shares of work", "sampler, 1 kHz", worst, "points off").target(MOST_POINTS))
}

/// The same by processor time, for a pool of threads that wait between pieces of work while other threads want the
/// processors too.
fn shares_on_a_full_machine(bed: &Bed) -> Result<Line> {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    announce(format_args!(
        "Shares on a full machine: {POOL_SAMPLES} samples of a pool of threads, beside {} that compute",
        2 * processors
    ));
    let is_over = AtomicBool::new(false);
    let worst = thread::scope(|scope| {
        for _ in 0..2 * processors {
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    hint::spin_loop();
                }
            });
        }
        let worst = worst(bed, &bed.pool, POOL_SAMPLES, ("chain Pool", "weight-us Pool"), &[("CPU", "1")]);
        is_over.store(true, Relaxed);
        worst
    })?;
    Ok(Line::stated("shares of work", "sampler, cpu, 1 kHz, full machine", worst, "points off").target(MOST_OF_POOL))
}

/// Samples a program until there are `SAMPLES` samples, and compares the measured shares of its three chains of calls
/// with the true ones: returns the error of the worst in points. `keys` begin the lines that count samples, and those
/// that weigh them.
fn worst(
    bed: &Bed,
    program: &Path,
    samples: u64,
    (counted, weighed): (&str, &str),
    settings: &[(&str, &str)],
) -> Result<f64> {
    let mut count = 0;
    let mut weights = BTreeMap::new();
    while count < samples {
        let before = count;
        let mut command = bed.command(program, Some(&bed.counts))?;
        command.arg(WORK).env("EVERY_US", "1000").envs(settings.iter().copied());
        let (_, stderr) = output(&mut command)?;
        let sum = |key: &str, chain: &str| -> Result<u64> {
            Ok(numbers(&stderr, &format!("{key}.{chain}(): "))?.into_iter().sum())
        };
        for (chain, _) in SHARES {
            count += sum(counted, chain)?;
            *weights.entry(chain).or_default() += sum(weighed, chain)?;
        }
        ensure!(count > before, "no sample of the work: {stderr}");
    }
    let all = weights.values().sum::<u64>() as f64;
    let shares = SHARES.map(|(chain, expected)| (100.0 * weights[chain] as f64 / all, expected));
    let shown = shares.map(|(share, expected)| format!("{share:.2} % ({expected} % expected)"));
    note(format_args!("{count} samples: {}", shown.join(", ")));
    Ok(shares.into_iter().map(|(share, expected)| (share - expected).abs()).fold(0.0, f64::max))
}
