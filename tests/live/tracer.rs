//! The example `tracer`: every call once, in order, below its caller.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use corprof_tests::{Outcome, Run, Runtime};
use serde_json::Value;

/// Thread, depth and name of each line of the tree.
fn tree(outcome: &Outcome) -> Result<Vec<(&str, usize, &str)>> {
    let lines = outcome.stderr.lines().filter(|line| !line.starts_with("tracer: "));
    lines
        .map(|line| {
            let (thread, call) = line.trim_start().split_once(' ').with_context(|| format!("no call: {line:?}"))?;
            let name = call.trim_start_matches('.');
            Ok((thread, call.len() - name.len(), name))
        })
        .collect()
}

#[test]
fn tracer_prints_each_call_below_its_caller() -> Result<()> {
    for runtime in Runtime::all()? {
        let run = Run::new(&runtime, "Calls").args(["1"]).profiler("tracer").env("TRACER_FILTER", "Known.*");
        let outcome = run.run()?;
        outcome.exited_with(0)?;
        ensure!(outcome.stderr.ends_with("tracer: 0 beginnings and ends of calls were dropped\n"), "{outcome}");
        let tree = tree(&outcome)?;
        ensure!(tree.iter().all(|&(thread, _, _)| thread == tree[0].0), "one thread: {outcome}");

        // What the program does: Fib(15), which begins with Fib(14) and so on, then Deep(10000), then the exceptions.
        let fib: Vec<_> = tree.iter().take_while(|call| call.2 == "Known.Fib(int32)").map(|call| call.1).collect();
        ensure!(fib.len() == 1973 && fib[..15].iter().copied().eq(0..15), "{outcome}");
        fn depths(n: u32, depth: usize, all: &mut Vec<usize>) {
            all.push(depth);
            if n >= 2 {
                depths(n - 1, depth + 1, all);
                depths(n - 2, depth + 1, all);
            }
        }
        let mut expected = Vec::new();
        depths(15, 0, &mut expected);
        ensure!(fib == expected, "the tree of Fib(15): {outcome}");

        let rest = &tree[fib.len()..];
        let (deep, rest) = rest.split_at(rest.len().min(10_001));
        let is_deep = |(at, &(_, depth, name)): (usize, &(_, usize, &str))| {
            name == "Known.Deep(int32)" && depth == at.min(100) // as many dots as there are
        };
        ensure!(deep.iter().enumerate().all(is_deep), "Deep: {outcome}");

        let named =
            |name: &str| rest.iter().filter(|call| call.2.starts_with(name)).map(|call| call.1).collect::<Vec<_>>();
        // An exception leaves functions without a word, and the next call is where it belongs all the same.
        ensure!(named("Known.Outer(") == [0; 100] && named("Known.Inner(") == [1; 100], "{outcome}");
        ensure!(named("Known.Throw(") == [2; 25] && named("Known.Cleanup(").len() == 100, "{outcome}");
    }
    Ok(())
}

#[test]
fn tracer_keeps_threads_apart_and_says_what_is_wrong_with_a_filter() -> Result<()> {
    for runtime in Runtime::all()? {
        let run = Run::new(&runtime, "Churn").args(["200", "10"]).profiler("tracer").env("TRACER_FILTER", "Churn.*");
        let outcome = run.run()?;
        outcome.exited_with(0)?;
        let tree = tree(&outcome)?;
        let mut workers: Vec<_> = tree.iter().filter(|call| call.2 == "Churn.Work(int32)").map(|call| call.0).collect();
        workers.sort_unstable();
        workers.dedup();
        ensure!(workers.len() == 200, "{} threads called Work: {outcome}", workers.len());

        let outcome = Run::new(&runtime, "Exit").args(["7", "1"]).profiler("tracer").env("TRACER_FILTER", "[").run()?;
        outcome.exited_with(7)?;
        ensure!(outcome.stderr.contains("the profiler Tracer is not loaded"), "{outcome}");
    }
    Ok(())
}

/// What a trace file says of one thread: names of calls in order with their depths, and how deep it is at the end.
#[derive(Default)]
struct Lane {
    calls: Vec<(String, usize)>,
    depth: usize,
    last: f64,
}

/// The threads of a trace file, which must be strict JSON, with ends that have a beginning and times that do not go back.
fn lanes(path: &Path) -> Result<BTreeMap<u64, Lane>> {
    let events: Vec<Value> = serde_json::from_slice(&std::fs::read(path)?).context("the file is no JSON")?;
    let mut lanes = BTreeMap::<u64, Lane>::new();
    for event in &events {
        let text = |key: &str| event[key].as_str().with_context(|| format!("no {key} in {event}"));
        let lane = lanes.entry(event["tid"].as_u64().with_context(|| format!("no thread in {event}"))?).or_default();
        match text("ph")? {
            "M" => continue,
            "B" => {
                lane.calls.push((text("name")?.to_owned(), lane.depth));
                lane.depth += 1;
            }
            "E" => {
                lane.depth = lane.depth.checked_sub(1).with_context(|| format!("an end without beginning: {event}"))?
            }
            phase => bail!("what is {phase:?}?"),
        }
        let at = event["ts"].as_f64().with_context(|| format!("no time in {event}"))?;
        ensure!(at >= lane.last, "time goes back from {} in {event}", lane.last);
        lane.last = at;
    }
    Ok(lanes)
}

#[test]
fn tracer_writes_calls_that_nest_and_end_for_perfetto() -> Result<()> {
    for runtime in Runtime::all()? {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("calls.trace.json");
        let run = Run::new(&runtime, "Calls").args(["1"]).profiler("tracer").env("TRACER_FILTER", "Known.*");
        let outcome = run.env("TRACER_OUT", &path).run()?;
        outcome.exited_with(0)?;
        ensure!(outcome.stderr == "tracer: 0 beginnings and ends of calls were dropped\n", "{outcome}");
        let lanes = lanes(&path)?;
        ensure!(lanes.values().all(|lane| lane.depth == 0), "all calls end: {outcome}");
        let calls = &lanes.values().find(|lane| !lane.calls.is_empty()).context("no calls")?.calls;
        let of =
            |name: &str| calls.iter().filter(|call| call.0.starts_with(name)).map(|call| call.1).collect::<Vec<_>>();
        ensure!(of("Known.Fib(").len() == 1973, "{} calls of Fib", of("Known.Fib(").len());
        ensure!(of("Known.Deep(").into_iter().eq(0..10_001), "Deep calls itself");
        ensure!(of("Known.Outer(") == [0; 100] && of("Known.Inner(") == [1; 100], "after exceptions");
        ensure!(of("Known.Throw(") == [2; 25] && of("Known.Cleanup(").len() == 100, "in exceptions");
    }
    Ok(())
}

#[test]
fn tracer_counts_what_it_cannot_write_in_time_and_what_it_writes_still_nests() -> Result<()> {
    for runtime in Runtime::all()? {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("calls.trace.json");
        // Calls of everything: far more than is written meanwhile.
        let run = Run::new(&runtime, "Calls").args(["60"]).profiler("tracer").env("TRACER_OUT", &path);
        let outcome = run.run()?;
        outcome.exited_with(0)?;
        let dropped = outcome.stderr.lines().find_map(|line| {
            line.strip_prefix("tracer: ")?
                .strip_suffix(" beginnings and ends of calls were dropped")?
                .parse::<u64>()
                .ok()
        });
        println!("{runtime}: {dropped:?} dropped");
        ensure!(dropped.with_context(|| format!("nothing said of drops: {outcome}"))? > 0, "none dropped: {outcome}");
        ensure!(lanes(&path)?.values().all(|lane| lane.depth == 0), "all calls end: {outcome}");

        let outcome =
            Run::new(&runtime, "Exit").args(["7", "1"]).profiler("tracer").env("TRACER_OUT", "/no/such/x.json");
        let outcome = outcome.run()?;
        outcome.exited_with(7)?;
        ensure!(outcome.stderr.contains("the profiler Tracer is not loaded"), "{outcome}");
    }
    Ok(())
}
