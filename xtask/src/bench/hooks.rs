//! Hooks: the cost of a call that is counted, entered on a shadow stack, timed and traced, each thread for itself.
//!
//! bench/Bench.cs calls a method that adds 1 in a tight loop, and times slices of it itself. In addition to the hooks
//! of both sides there are hooks in C that only return: they show the runtime's own cost of calling hooks. Tiered
//! compilation is off: the loop runs fully compiled from the start. The hooks in C save all registers that may matter;
//! those of corprof know from the method's signature that the vector registers are unused. Each profiler reports at
//! Shutdown how many calls it counted, which must match.
//!
//! The built-in `timer` and `tracer` have no counterpart in C: they are compared with no profiler. `tracer` folds the
//! calls of this storm, because each is shorter than a microsecond; it reports lost calls, and there must be none.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::process::announce;

use super::bed::{Bed, Built, HookProfilers, output};
use super::samples::{Samples, quantile};
use super::storm::numbers;
use super::table::Line;

const COUNT: &str = "hooks";
const SHADOW: &str = "shadow stack";
const TIMER: &str = "timer";
const TRACER: &str = "tracer";

/// The calls of one slice: well under a millisecond, except with these two.
const SLICE: u64 = 20_000;
/// How many calls a program may make outside its loop: start-up, and printing the slices.
const OTHERS: u64 = 4_000_000;
/// The divisor of the number of calls under `tracer`.
const TRACED: u64 = 20;

/// A profiler with hooks, or none.
#[derive(Debug, Clone, Copy)]
struct Watcher<'b> {
    profiler: Option<&'b Built>,
    settings: &'static [(&'static str, &'static str)],
    /// Whether it reports how many calls it has seen begin and return.
    counts: bool,
    /// The divisor of the number of calls under it.
    every: u64,
}

/// The measurements under one of them.
#[derive(Debug, Default)]
struct Measured {
    nanoseconds: Samples,
    peaks: Vec<f64>,
    /// The dropped share of all events, in percent.
    dropped: Vec<f64>,
}

impl Measured {
    fn peak(&self) -> f64 {
        quantile(self.peaks.clone(), 0.5)
    }
}

/// Measures the rows.
///
/// # Errors
/// If a program fails, or a profiler's count is wrong.
pub(super) fn measure(bed: &Bed, hooks: &HookProfilers, rounds: u32, calls: u64) -> Result<Vec<Line>> {
    let slices = (calls / (u64::from(rounds) * SLICE)).max(1);
    announce(format_args!("Hooks: {rounds} rounds of {slices} times {SLICE} calls, under each of eight"));
    let bare = Watcher { profiler: None, settings: &[], counts: false, every: 1 };
    let quiet = |built| Watcher { profiler: Some(built), ..bare };
    let counting = |built| Watcher { counts: true, ..quiet(built) };
    let traced = &[("TRACER_FILTER", "Bench.Next(*")];
    let watchers = [
        bare,
        quiet(&hooks.returning),
        counting(&hooks.count.c),
        counting(&hooks.count.corprof),
        counting(&hooks.shadow.c),
        counting(&hooks.shadow.corprof),
        quiet(&hooks.timer),
        Watcher { settings: traced, every: TRACED, ..quiet(&hooks.tracer) },
    ];
    let directory = tempfile::tempdir().context("cannot make a folder for the trace")?;
    let mut measured = watchers.map(|_| Measured::default());
    for round in 0..rounds as usize {
        // The first differs from round to round: a position may be an advantage.
        for place in 0..watchers.len() {
            let at = (place + round) % watchers.len();
            run(bed, watchers[at], (slices / watchers[at].every).max(1), directory.path(), &mut measured[at])?;
        }
    }
    let [bare, returning, c, corprof, c_shadow, shadow, timer, tracer] = &measured;
    let stated = |row, of, measured: &Measured| Line::stated(row, of, measured.nanoseconds.figure(), "ns/call");
    let times = |row, of, one: &Measured, other: &Measured| {
        let ratio = one.nanoseconds.ratio(&other.nanoseconds);
        Line::stated(row, of, ratio.value, "times").spread(ratio.spread)
    };
    let against = |row, one: &Measured, other: &Measured, target| {
        stated(row, "corprof", one).ratio(one.nanoseconds.ratio(&other.nanoseconds)).target(target)
    };
    let mut lines = vec![
        stated(COUNT, "no profiler", bare),
        stated(COUNT, "C, returning", returning),
        stated(COUNT, "C", c),
        against(COUNT, corprof, c, 1.0),
        times(COUNT, "corprof to C, returning", corprof, returning),
        stated(SHADOW, "C", c_shadow),
        against(SHADOW, shadow, c_shadow, 1.05),
        times(SHADOW, "corprof to C, returning", shadow, returning),
    ];
    for (row, measured) in [(TIMER, timer), (TRACER, tracer)] {
        let figure = measured.nanoseconds.figure();
        lines.push(stated(row, "corprof", measured));
        lines.push(Line::stated(row, "of which is overhead", figure - bare.nanoseconds.figure(), "ns/call"));
        lines.push(times(row, "corprof to no profiler", measured, bare));
        lines.push(Line::stated(row, "corprof", 2e9 / figure, "events/s"));
        lines.push(Line::stated(row, "corprof adds", measured.peak() - bare.peak(), "KiB"));
    }
    lines.push(Line::stated(TRACER, "of which is lost", quantile(tracer.dropped.clone(), 0.5), "% of events"));
    Ok(lines)
}

/// One process.
fn run(bed: &Bed, watcher: Watcher<'_>, slices: u64, directory: &Path, measured: &mut Measured) -> Result<()> {
    let mut command = bed.command(&bed.bench, watcher.profiler)?;
    command.args(["call", &slices.to_string(), &SLICE.to_string()]);
    command.env("DOTNET_TieredCompilation", "0");
    command.envs(watcher.settings.iter().copied()).env("TRACER_OUT", directory.join("calls.pftrace"));
    let (stdout, stderr) = output(&mut command)?;
    let made = numbers(&stdout, "calls=")?;
    let &[made] = &made[..] else { anyhow::bail!("the program does not say how many calls it made: {stdout}") };
    if watcher.counts {
        for name in ["counted=", "left="] {
            let counted = numbers(&stderr, name)?;
            ensure!(
                matches!(counted[..], [counted] if (made..=made + OTHERS).contains(&counted)),
                "a profiler found {name}{counted:?} of {made} calls; it said: {stderr}"
            );
        }
    }
    if let Some(dropped) = stderr.lines().find_map(dropped) {
        measured.dropped.push(100.0 * dropped as f64 / (2 * made) as f64);
    }
    measured.peaks.extend(numbers(&stdout, "peak_kib=")?.into_iter().map(|kib| kib as f64));
    let slices = numbers(&stdout, "slice_ns=")?;
    measured.nanoseconds.push(slices.into_iter().map(|nanoseconds| nanoseconds as f64 / SLICE as f64).collect());
    Ok(())
}

/// Parses the last line of `tracer`.
fn dropped(line: &str) -> Option<u64> {
    line.strip_prefix("tracer: ")?.split_once(" beginnings and ends were lost")?.0.parse().ok()
}
