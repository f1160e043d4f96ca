//! Calls: the cost of corprof's calls, against the call through the vtable in C; and the cost of names.
//!
//! Both sides run in one process and take turns, slice by slice, in one callback: tests/profilers/bench_calls.rs calls
//! the functions of bench/calls.c. It checks that the results are the same, and counts the allocations of names.
//!
//! A first look-up of a name is measured against C twice. In both, C makes exactly the raw calls that corprof makes:
//! GetFunctionInfo2, GetMethodProps, GetClassIDInfo2, GetTypeDefProps, into buffers on its stack.
//! - `name, a miss`: C also makes the same text of the results and keeps it for the next time. It converts the names
//!   from UTF-16, spells the parameters from the signature, and puts the text into a hash table under a mutex, because
//!   callbacks come on many threads, with one allocation. Before that it has missed in the table, and looked up the
//!   module's metadata in another. corprof also keeps the name of the class. There is no target: a user would feel 15
//!   µs, and this is under one.
//! - `name, its calls`: C does no more than the calls; the results stay in the buffers, and the metadata is at hand.
//!
//! About a thousand names are looked up, each of another class and each once. All calls have been made once before, so
//! that the metadata is in the processor's cache for both.

use anyhow::{Context, Result, bail, ensure};

use crate::process::announce;

use super::bed::{Bed, output};
use super::samples::Samples;
use super::table::Line;

/// The row's name, its name in the profiler's output, and the target if there is one: for the ratio, or for the
/// nanoseconds if C has no such call.
const ROWS: [(&str, &str, Option<f64>); 6] = [
    ("FunctionFromIP", "FunctionFromIP", Some(1.05)),
    ("FunctionInfo", "FunctionInfo", Some(1.05)),
    ("ClassFromObject", "ClassFromObject", Some(1.05)),
    ("name, a miss", "name that misses", None),
    ("name, its calls", "calls of a name that misses", None),
    ("name, a hit", "name that hits", Some(100.0)),
];

/// One process's result for one row: nanoseconds a call, by slice.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Timings {
    pub(super) c: Vec<f64>,
    pub(super) corprof: Vec<f64>,
}

/// Measures the rows.
///
/// # Errors
/// If a program fails, the two sides got different results, or a known name allocates.
pub(super) fn measure(bed: &Bed, rounds: u32) -> Result<Vec<Line>> {
    announce(format_args!("Calls: {rounds} rounds of one process, in which both sides take turns"));
    let mut a_miss_allocates = f64::NAN;
    let mut samples = ROWS.map(|_| (Samples::default(), Samples::default()));
    for _ in 0..rounds {
        let mut command = bed.command(&bed.bench, Some(&bed.calls))?;
        command.args(["load", "1", "1000"]).env("BENCH_CALLS", &bed.calls_in_c);
        let (_, stderr) = output(&mut command)?;
        ensure!(!stderr.contains("panicked"), "the profiler in Rust has panicked: {stderr}");
        let allocations = stderr.lines().find_map(|line| line.strip_prefix("allocations of hits "));
        ensure!(allocations == Some("0"), "names that are known allocate {allocations:?} times: {stderr}");
        let allocations = stderr.lines().find_map(|line| line.strip_prefix("allocations of misses "));
        let allocations = allocations.and_then(|line| line.split_once(' '));
        let (all, names) = allocations.context("the profiler does not report the allocations of unknown names")?;
        a_miss_allocates = all.parse::<f64>()? / names.parse::<f64>()?;
        for ((_, name, _), (c, corprof)) in ROWS.into_iter().zip(&mut samples) {
            let row = timings(&stderr, name)?;
            c.push(row.c);
            corprof.push(row.corprof);
        }
    }
    let mut lines = Vec::new();
    for ((row, _, target), (c, corprof)) in ROWS.into_iter().zip(&samples) {
        let mut line = Line::stated(row, "corprof", corprof.figure(), "ns");
        if !c.figure().is_nan() {
            lines.push(Line::stated(row, "C", c.figure(), "ns"));
            line = line.ratio(corprof.ratio(c));
        }
        lines.push(match target {
            Some(target) => line.target(target),
            None => line,
        });
    }
    lines.push(Line::stated("name, a miss", "corprof", a_miss_allocates, "allocations"));
    Ok(lines)
}

/// Parses the slices `NAME CALLS [NANOSECONDS-IN-C] NANOSECONDS`.
pub(super) fn timings(text: &str, name: &str) -> Result<Timings> {
    let mut timings = Timings::default();
    for line in text.lines().filter_map(|line| line.strip_prefix(name)) {
        let numbers: Result<Vec<f64>, _> = line.split_whitespace().map(str::parse).collect();
        match *numbers.with_context(|| format!("`{name}{line}` contains a word that is not a number"))? {
            [calls, c, corprof] => {
                timings.c.push(c / calls);
                timings.corprof.push(corprof / calls);
            }
            [calls, corprof] => timings.corprof.push(corprof / calls),
            _ => bail!("`{name}{line}` is not a slice"),
        }
    }
    ensure!(!timings.corprof.is_empty(), "no slice of `{name}` in the output of the profiler: {text}");
    Ok(timings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_read_by_name() {
        let text = "one 10 50 60\nother 10 20\none 10 70 80\n";
        assert_eq!(timings(text, "one").unwrap(), Timings { c: vec![5.0, 7.0], corprof: vec![6.0, 8.0] });
        assert_eq!(timings(text, "other").unwrap(), Timings { c: vec![], corprof: vec![2.0] });
        assert!(timings(text, "third").is_err());
        assert!(timings("one ten 50 60", "one").is_err());
    }
}
