//! Sampling: how much slower an application becomes that is sampled, and how right what it is told is.
//!
//! The first is the example `sampler`, at two rates, under an application that computes and does nothing else: on one thread,
//! and on as many as there are processors, where what the sampler itself computes is taken from the application. A slice lasts
//! many rounds, so that none is without them. The second is a program that works in three chains of calls, 60, 30 and 10 % of
//! the time (tests/managed/Shares.cs), at 1 kHz by the wall clock, until there are enough samples.

use std::collections::BTreeMap;
use std::thread;

use anyhow::{Context, Result, ensure};

use crate::process::{announce, note};

use super::bed::{Bed, output};
use super::samples::Samples;
use super::storm::numbers;
use super::table::Line;

const SLOW_DOWN: &str = "slow-down";
/// The rates, what the table calls them, and the target in per cent.
const RATES: [(&str, [&str; 2], Option<f64>); 2] = [
    ("100", ["sampler, 100 Hz, 1 thread", "sampler, 100 Hz, all processors"], Some(2.0)),
    ("1000", ["sampler, 1 kHz, 1 thread", "sampler, 1 kHz, all processors"], None),
];
/// The calls of one slice: some 0.15 seconds.
const SLICE: &str = "100000000";
const SLICES: &str = "8";

const SHARES: [(&str, f64); 3] =
    [("chain Shares.Sixty()", 60.0), ("chain Shares.Thirty()", 30.0), ("chain Shares.Ten()", 10.0)];
const SAMPLES: u64 = 20_000;
/// The milliseconds of one process.
const WORK: &str = "8000";
const MOST_POINTS: f64 = 3.0;

/// Measures the rows.
///
/// # Errors
/// If a program fails, or tells nothing.
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
            // Who goes first differs from round to round.
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
    lines.push(shares(bed)?);
    Ok(lines)
}

/// One process, sampled at a rate or not; the nanoseconds of its slices.
fn run(bed: &Bed, rate: Option<&str>, threads: usize) -> Result<Vec<f64>> {
    let out = tempfile::Builder::new().suffix(".folded").tempfile().context("cannot make a file for the samples")?;
    let mut command = bed.command(&bed.bench, rate.map(|_| &bed.sampler))?;
    command.args(["spin", SLICES, SLICE, &threads.to_string()]);
    command.envs(rate.map(|rate| ("SAMPLER_HZ", rate))).env("SAMPLER_OUT", out.path());
    // .NET Core 3.1 knows the older of the two names only.
    command.envs([("DOTNET_TieredCompilation", "0"), ("COMPlus_TieredCompilation", "0")]);
    let (stdout, stderr) = output(&mut command)?;
    ensure!(rate.is_none() || stderr.contains(" samples written to "), "the sampler wrote nothing: {stderr}");
    Ok(numbers(&stdout, "slice_ns=")?.into_iter().map(|nanoseconds| nanoseconds as f64).collect())
}

/// By how many points the share is wrong that is worst.
fn shares(bed: &Bed) -> Result<Line> {
    announce(format_args!(
        "Shares: {SAMPLES} samples of a program that works 60, 30 and 10 % of the time in three chains"
    ));
    let mut counts = BTreeMap::new();
    let total = |counts: &BTreeMap<&str, u64>| counts.values().sum::<u64>();
    while total(&counts) < SAMPLES {
        let before = total(&counts);
        let mut command = bed.command(&bed.shares, Some(&bed.counts))?;
        command.arg(WORK).env("EVERY_US", "1000");
        let (_, stderr) = output(&mut command)?;
        for (chain, _) in SHARES {
            *counts.entry(chain).or_default() += numbers(&stderr, &format!("{chain}: "))?.into_iter().sum::<u64>();
        }
        ensure!(total(&counts) > before, "no sample of the work: {stderr}");
    }
    let all = total(&counts) as f64;
    let shares = SHARES.map(|(chain, expected)| (100.0 * counts[chain] as f64 / all, expected));
    let shown = shares.map(|(share, expected)| format!("{share:.2} % ({expected} % expected)"));
    note(format_args!("{all} samples: {}", shown.join(", ")));
    let worst = shares.into_iter().map(|(share, expected)| (share - expected).abs()).fold(0.0, f64::max);
    Ok(Line::stated("shares of work", "sampler, 1 kHz", worst, "points off").target(MOST_POINTS))
}
