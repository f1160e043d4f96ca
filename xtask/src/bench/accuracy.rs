//! Accuracy: the sampler's error, in points, on a web service that keeps the processors busy.
//!
//! bench/Service.cs works in known shares, in plain methods and in an async method, a generic one and an iterator's.
//! The sampler sends signals, at its default rate and at 1,000 Hz. A run lasts until there are enough samples of the
//! work, because a share of few samples is wrong by chance; the row has the worst share of all runs. A second row has
//! the same after an attach to a service that is at work. A third one has no limits: it is what suspended walks are
//! known to be wrong by, where signals cannot be sent. They have no budget there: it would allow so few samples on a
//! full machine that chance would hide the rest. A run of these ends after a time as well.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::process::{announce, note};

use super::bed::Bed;
use super::service::Service;
use super::table::Line;

const MOST_POINTS: f64 = 3.0;
const SAMPLES: u64 = 4_000;
/// After this time a run by suspended walks ends, with however few samples.
const LONGEST_SUSPENDED: Duration = Duration::from_secs(30);
/// The requests that a service has answered before a profiler is attached: its threads and its code are older.
const BEFORE_ATTACH: u32 = 400;
const RATES: [&str; 2] = ["100", "1000"];
/// So many rounds in a hundred may be missed.
const MOST_MISSED: f64 = 10.0;

/// The requested path, the number of clients, and the methods' shares of the work.
struct Work {
    name: [&'static str; 2],
    path: &'static str,
    requests: u32,
    shares: [(&'static str, f64); 3],
}

const WORKS: [Work; 2] = [
    Work {
        name: ["plain, 100 Hz", "plain, 1 kHz"],
        path: "/shares",
        requests: 200,
        shares: [("Truth.Sixty()", 60.0), ("Truth.Thirty()", 30.0), ("Truth.Ten()", 10.0)],
    },
    Work {
        name: ["async mix, 100 Hz", "async mix, 1 kHz"],
        path: "/mix",
        requests: 200,
        shares: [("Truth.<Later>", 40.0), ("Truth.Generic<", 20.0), ("Truth.<>c.<Mix>", 40.0)],
    },
];

/// How the sampler comes, and by what it samples.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sampling {
    /// Signals, from the start.
    FromStart,
    /// Signals, after an attach.
    Attached,
    /// Suspended walks, after an attach.
    AttachedSuspended,
}

impl Sampling {
    fn row(self) -> &'static str {
        match self {
            Self::FromStart => "accuracy",
            Self::Attached => "accuracy, attached",
            Self::AttachedSuspended => "accuracy, suspended",
        }
    }

    fn strategy(self) -> &'static str {
        match self {
            Self::FromStart | Self::Attached => "signals",
            Self::AttachedSuspended => "suspended",
        }
    }

    fn is_limited(self) -> bool {
        self != Self::AttachedSuspended
    }
}

/// Measures the rows, in so many runs each.
///
/// # Errors
/// If a program fails, or the sampler does not report what it saw.
pub(super) fn measure(bed: &Bed, service: &Path, sampling: Sampling, runs: u32) -> Result<Vec<Line>> {
    let mut lines = Vec::new();
    let row = sampling.row();
    for work in &WORKS {
        for (hertz, name) in RATES.into_iter().zip(work.name) {
            announce(format_args!("{row}, {name}: {runs} runs of {SAMPLES} samples each"));
            let mut worst = Run { points: 0.0, missed: 0.0 };
            for _ in 0..runs {
                let run = run(bed, service, work, sampling, hertz)?;
                worst = Run { points: worst.points.max(run.points), missed: worst.missed.max(run.missed) };
            }
            let points = Line::stated(row, name, worst.points, "points off");
            let missed = Line::stated(row, name, worst.missed, "% of rounds missed");
            if sampling.is_limited() {
                lines.extend([points.target(MOST_POINTS), missed.target(MOST_MISSED)]);
            } else {
                lines.extend([points, missed]);
            }
        }
    }
    Ok(lines)
}

/// The result of one run.
struct Run {
    /// The error of its worst share, in points.
    points: f64,
    /// The share of missed rounds, in percent.
    missed: f64,
}

fn run(bed: &Bed, dll: &Path, work: &Work, sampling: Sampling, hertz: &str) -> Result<Run> {
    let out = tempfile::Builder::new().suffix(".folded").tempfile().context("cannot make a file for the samples")?;
    let settings = [("SAMPLER_STRATEGY", sampling.strategy()), ("SAMPLER_HZ", hertz), ("SAMPLER_NAMES", "raw")];
    let mut settings = settings.map(|(name, value)| (name, value.to_owned())).to_vec();
    settings.push(("SAMPLER_OUT", out.path().to_string_lossy().into_owned()));
    if sampling == Sampling::AttachedSuspended {
        settings.push(("SAMPLER_BUDGET", "100".to_owned()));
    }
    let service = if sampling == Sampling::FromStart {
        Service::start(bed, dll, Some(&bed.sampler), &settings, work.path)?
    } else {
        let service = Service::start(bed, dll, None, &[], work.path)?;
        service.load(work.path, BEFORE_ATTACH)?;
        service.attach(&bed.sampler, &settings)?;
        service
    };
    let begin = Instant::now();
    let is_over = || !sampling.is_limited() && begin.elapsed() > LONGEST_SUSPENDED;
    // The process does other work as well, which takes some of its samples.
    while service.said()?.lines().filter_map(samples).next_back().unwrap_or(0) < SAMPLES * 5 / 4 && !is_over() {
        service.load(work.path, work.requests)?;
    }
    let said = service.end()?;
    let all = said.lines().filter_map(samples).next_back().unwrap_or(0);
    let folded = fs::read_to_string(out.path()).context("the sampler wrote nothing")?;
    let mut weights = BTreeMap::new();
    let mut total = 0;
    let mut burned = 0;
    for line in folded.lines() {
        let (stack, weight) = line.rsplit_once(' ').with_context(|| format!("no weight: {line}"))?;
        let weight: u64 = weight.parse().with_context(|| format!("no weight: {line}"))?;
        total += weight;
        if !stack.contains(";Truth.Burn(") {
            continue;
        }
        burned += weight;
        // The innermost known function is the one that works.
        let frames = stack.rsplit(';');
        let known = |frame: &str| work.shares.iter().find(|(name, _)| frame.starts_with(name)).map(|(name, _)| *name);
        *weights.entry(frames.into_iter().find_map(known).unwrap_or("others")).or_insert(0) += weight;
    }
    let of_work = all as f64 * burned as f64 / total.max(1) as f64;
    let share = |name| 100.0 * weights.get(name).copied().unwrap_or(0) as f64 / burned.max(1) as f64;
    let shown = work.shares.map(|(name, expected)| format!("{name} {:.2} % ({expected} %)", share(name)));
    let report = said.lines().rfind(|line| missed(line).is_some()).context("the sampler does not report")?;
    note(format_args!("{of_work:.0} samples of the work: {}; {report}", shown.join(", ")));
    ensure!(of_work >= SAMPLES as f64 || !sampling.is_limited(), "{of_work:.0} of {all} samples are of the work");
    let is_known = |(name, _): &(&str, f64)| weights.contains_key(name);
    ensure!(work.shares.iter().all(is_known), "methods of known shares have no samples, or other names: {folded}");
    let points = work.shares.into_iter().map(|(name, expected)| (share(name) - expected).abs()).fold(0.0, f64::max);
    Ok(Run { points, missed: missed(report).unwrap_or(100.0) })
}

/// The count in the sampler's line of each second: `sampler: cpu: 153 samples in 37 rounds, ...`.
fn samples(line: &str) -> Option<u64> {
    line.strip_prefix("sampler: ")?.split_once(" samples in ")?.0.rsplit(' ').next()?.parse().ok()
}

/// The share of requested rounds that were not made, in percent: `... rounds, 37 a second of 100 asked for ...`.
fn missed(line: &str) -> Option<f64> {
    let (reached, rest) = line.split_once(" rounds, ")?.1.split_once(" a second of ")?;
    let [reached, asked] = [reached, rest.split_once(" asked for")?.0].map(|rate| rate.parse::<f64>().ok());
    Some(100.0 * (1.0 - reached? / asked?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_samplers_report_is_read() {
        let line =
            "sampler: cpu: 3120 samples in 6393 rounds, 158 a second of 1000 asked for (33946 skipped: 33946 late)";
        assert_eq!((samples(line), missed(line).map(f64::round)), (Some(3120), Some(84.0)));
        assert_eq!((samples("sampler: written"), missed("sampler: written")), (None, None));
    }
}
