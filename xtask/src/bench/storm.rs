//! Callback storm: the cost of an allocation when ObjectAllocated is counted, and when objects and bytes are counted by
//! class, each thread by itself, like the built-in `allocations`.
//!
//! bench/Bench.cs allocates objects in a tight loop and times slices of it itself, after the first collection. A slice
//! is shorter than a scheduler's time slice, so that most slices are undisturbed even on a busy machine. Tiered
//! compilation is off: the loop runs fully compiled from the start. Each profiler reports at Shutdown how many objects
//! it counted, which must match.
//!
//! The C profiler that counts by class keeps its tables to the end, and nothing but Shutdown reads them. The example
//! also reads them when a module is unloaded, because its class ids may be reused; so each of its tables has a lock.

use anyhow::{Context, Result, ensure};

use crate::process::announce;

use super::bed::{Bed, Built, Pair, Side, output};
use super::samples::Samples;
use super::table::Line;

const ROW: &str = "callback storm";
/// The objects of one slice: well under a millisecond.
const SLICE: u64 = 20_000;
/// How many objects a program may allocate outside its loop: start-up, and printing the slices.
const OTHERS: u64 = 100_000;
const TARGET: f64 = 1.05;
const BY_CLASS: &str = "by class";
const TARGET_BY_CLASS: f64 = 1.15;

/// Measures the rows.
///
/// # Errors
/// If a program fails, or a profiler's count is wrong.
pub(super) fn measure(bed: &Bed, rounds: u32, allocations: u64) -> Result<Vec<Line>> {
    let mut lines = storm(bed, &bed.count, ROW, TARGET, rounds, allocations)?;
    lines.extend(storm(bed, &bed.classes, BY_CLASS, TARGET_BY_CLASS, rounds, allocations)?);
    Ok(lines)
}

fn storm(bed: &Bed, pair: &Pair, row: &'static str, target: f64, rounds: u32, allocations: u64) -> Result<Vec<Line>> {
    let slices = (allocations / (u64::from(rounds) * SLICE)).max(1);
    announce(format_args!(
        "Callback storm, {row}: {rounds} rounds of {slices} times {SLICE} allocations, under each of three"
    ));
    let mut samples = Side::ALL.map(|_| Samples::default());
    for round in 0..rounds {
        for side in Side::in_turn(round) {
            samples[side as usize].push(run(bed, side, pair.of(side), slices)?);
        }
    }
    let line = |side: Side| Line::stated(row, side.name(), samples[side as usize].figure(), "ns/allocation");
    let [_, c, corprof] = &samples;
    Ok(vec![line(Side::Bare), line(Side::C), line(Side::Corprof).ratio(corprof.ratio(c)).target(target)])
}

/// One process; returns the nanoseconds per allocation of each of its slices.
fn run(bed: &Bed, side: Side, profiler: Option<&Built>, slices: u64) -> Result<Vec<f64>> {
    let mut command = bed.command(&bed.bench, profiler)?;
    // A row for each class.
    command.env("ALLOCATIONS_TOP", "1000000");
    command.args(["alloc", &slices.to_string(), &SLICE.to_string()]);
    command.env("DOTNET_TieredCompilation", "0");
    let (stdout, stderr) = output(&mut command)?;
    if side != Side::Bare {
        let allocated = numbers(&stdout, "objects=")?;
        let mut counted = numbers(&stderr, "counted=")?;
        if counted.is_empty() {
            counted.push(stderr.lines().filter_map(objects).sum());
        }
        let fits = |allocated: u64, counted: u64| (allocated..=allocated + OTHERS).contains(&counted);
        ensure!(
            matches!((&allocated[..], &counted[..]), (&[allocated], &[counted]) if fits(allocated, counted)),
            "the profiler in {} counted {counted:?} of {allocated:?} objects; it said: {stderr}",
            side.name()
        );
    }
    Ok(numbers(&stdout, "slice_ns=")?.into_iter().map(|nanoseconds| nanoseconds as f64 / SLICE as f64).collect())
}

/// The objects of one class, in the table of the built-in `allocations`: bytes, objects, name.
fn objects(row: &str) -> Option<u64> {
    row.split_whitespace().nth(1)?.parse().ok()
}

/// The numbers on the lines that begin with `name`.
pub(super) fn numbers(text: &str, name: &str) -> Result<Vec<u64>> {
    let values = text.lines().filter_map(|line| line.strip_prefix(name));
    values.map(|value| value.trim().parse().with_context(|| format!("`{name}{value}` is not a number"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_says_how_many_objects_there_were() {
        let table = "         bytes      objects  class\n           240           10  Bench.Small\n";
        assert_eq!(table.lines().filter_map(objects).collect::<Vec<_>>(), [10]);
    }

    #[test]
    fn numbers_are_found_by_name() {
        assert_eq!(numbers("objects=3\nslice_ns=10\nslice_ns=20\n", "slice_ns=").unwrap(), [10, 20]);
        assert_eq!(numbers("other", "counted=").unwrap(), [0; 0]);
        assert!(numbers("counted=many", "counted=").is_err());
    }
}
