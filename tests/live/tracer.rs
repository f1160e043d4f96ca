//! The built-in `tracer`: every call once, in order, below its caller.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use corprof_tests::{Outcome, Run, Runtime, repetitions};
use serde_json::Value;

#[path = "../../corprof-export/tests/read_back/perfetto_reader.rs"]
pub(crate) mod perfetto_reader;

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
    let ways = |runtime: Runtime| ["runtime", "il", "il-all"].map(|by| (runtime.clone(), by));
    for (runtime, by) in Runtime::all()?.into_iter().flat_map(ways) {
        let run = Run::new(&runtime, "Calls").args(["1"]).built_in("tracer").env("TRACER_FILTER", "Known.*");
        let run = run.env("TRACER_BY", by);
        let outcome = run.run()?;
        outcome.exited_with(0)?;
        nothing_lost(&outcome)?;
        let tree = tree(&outcome)?;
        ensure!(tree.iter().all(|&(thread, _, _)| thread == tree[0].0), "one thread: {outcome}");

        // The program's calls: Fib(15), which begins with Fib(14) and so on, then Deep(10000), then the exceptions.
        let fib: Vec<_> = tree.iter().take_while(|call| call.2 == "Known.Fib(int)").map(|call| call.1).collect();
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
            name == "Known.Deep(int)" && depth == at.min(100) // as many dots as there are
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
        let run = Run::new(&runtime, "Churn").args(["200", "10"]).built_in("tracer").env("TRACER_FILTER", "Churn.*");
        let outcome = run.run()?;
        outcome.exited_with(0)?;
        let tree = tree(&outcome)?;
        let mut workers: Vec<_> = tree.iter().filter(|call| call.2 == "Churn.Work(int)").map(|call| call.0).collect();
        workers.sort_unstable();
        workers.dedup();
        ensure!(workers.len() == 200, "{} threads called Work: {outcome}", workers.len());

        let outcome = Run::new(&runtime, "Exit").args(["7", "1"]).built_in("tracer").env("TRACER_FILTER", "[").run()?;
        outcome.exited_with(7)?;
        ensure!(outcome.stderr.contains("the profiler Tracer is not loaded"), "{outcome}");
    }
    Ok(())
}

/// The tracer says that nothing was lost.
fn nothing_lost(outcome: &Outcome) -> Result<()> {
    let last = outcome.stderr.lines().last().unwrap_or_default();
    ensure!(last.starts_with("tracer: 0 beginnings and ends were lost; threads waited "), "{outcome}");
    Ok(())
}

/// A thread of a trace: names of calls in order with their depths, how many short ones besides, and how deep it is
/// at the end.
#[derive(Default, Debug)]
struct Lane {
    name: Option<String>,
    calls: Vec<(String, usize)>,
    short: u64,
    depth: usize,
}

impl Lane {
    /// Ends have a beginning.
    fn add(&mut self, phase: char, name: &str) -> Result<()> {
        match phase {
            'B' => {
                self.calls.push((name.to_owned(), self.depth));
                self.depth += 1;
            }
            'E' => self.depth = self.depth.checked_sub(1).context("an end without beginning")?,
            'i' => ensure!(name == "short calls", "what is {name}?"),
            phase => bail!("what is {phase:?}?"),
        }
        Ok(())
    }

    fn of(&self, name: &str) -> Vec<usize> {
        self.calls.iter().filter(|call| call.0.starts_with(name)).map(|call| call.1).collect()
    }
}

/// The threads of a trace by their system's numbers; times do not go back, and all is of one process, which has a name.
fn lanes(path: &Path) -> Result<BTreeMap<u64, Lane>> {
    let content = std::fs::read(path)?;
    if path.extension().is_some_and(|extension| extension == "json") {
        of_json(&content)
    } else {
        of_perfetto(&content)
    }
}

/// The process name of a program; under Wine, that of its starter.
fn is_application(name: &str) -> bool {
    matches!(name, "Calls" | "Churn" | "corprof-dotnet")
}

fn of_perfetto(content: &[u8]) -> Result<BTreeMap<u64, Lane>> {
    let read = perfetto_reader::read(content);
    ensure!(is_application(&read.process), "the process is {}", read.process);
    let mut lanes = BTreeMap::<u64, Lane>::new();
    for track in read.lanes.values() {
        let lane = lanes.entry(track.thread).or_default();
        lane.name = track.name.clone();
        ensure!(track.events.is_sorted_by_key(|event| event.at), "time goes back");
        for event in &track.events {
            lane.add(event.phase, &event.name)?;
            lane.short += event.arguments.get("short_calls").copied().unwrap_or_default();
        }
    }
    Ok(lanes)
}

/// Strict JSON.
fn of_json(content: &[u8]) -> Result<BTreeMap<u64, Lane>> {
    let events: Vec<Value> = serde_json::from_slice(content).context("the file is not JSON")?;
    ensure!(events[0]["args"]["name"].as_str().is_some_and(is_application), "the process: {}", events[0]);
    let mut lanes = BTreeMap::<u64, Lane>::new();
    let mut last = BTreeMap::new();
    for event in &events[1..] {
        let text = |key: &str| event[key].as_str().with_context(|| format!("no {key} in {event}"));
        let thread = event["tid"].as_u64().with_context(|| format!("no thread in {event}"))?;
        let lane = lanes.entry(thread).or_default();
        if text("ph")? == "M" {
            ensure!(text("name")? == "thread_name", "{event}");
            lane.name = event["args"]["name"].as_str().map(str::to_owned);
            continue;
        }
        lane.add(text("ph")?.chars().next().unwrap_or(' '), text("name")?).with_context(|| event.to_string())?;
        lane.short += event["args"]["short_calls"].as_u64().unwrap_or_default();
        let at = event["ts"].as_f64().with_context(|| format!("no time in {event}"))?;
        ensure!(at >= last.insert(thread, at).unwrap_or_default(), "time goes back in {event}");
    }
    Ok(lanes)
}

#[test]
fn tracer_writes_calls_that_nest_and_end() -> Result<()> {
    for runtime in Runtime::all()? {
        for name in ["calls.pftrace", "calls.trace.json"] {
            let directory = tempfile::tempdir()?;
            let path = directory.path().join(name);
            let run = Run::new(&runtime, "Calls").args(["1"]).built_in("tracer").env("TRACER_FILTER", "Known.*");
            let outcome = run.env("TRACER_OUT", &path).env("TRACER_MIN", "0").run()?;
            outcome.exited_with(0)?;
            nothing_lost(&outcome)?;
            let lanes = lanes(&path)?;
            ensure!(lanes.values().all(|lane| lane.depth == 0 && lane.short == 0), "all calls end: {outcome}");
            let lane = lanes.values().find(|lane| !lane.calls.is_empty()).context("no calls")?;
            ensure!(lane.of("Known.Fib(").len() == 1973, "{} calls of Fib", lane.of("Known.Fib(").len());
            ensure!(lane.of("Known.Deep(").into_iter().eq(0..10_001), "Deep calls itself");
            ensure!(lane.of("Known.Outer(") == [0; 100] && lane.of("Known.Inner(") == [1; 100], "after exceptions");
            ensure!(lane.of("Known.Throw(") == [2; 25] && lane.of("Known.Cleanup(").len() == 100, "in exceptions");
        }
    }
    Ok(())
}

#[test]
fn tracer_names_threads_and_loses_none_of_many() -> Result<()> {
    for runtime in Runtime::all()? {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("calls.pftrace");
        let run = Run::new(&runtime, "Churn").args(["200", "10"]).built_in("tracer").env("TRACER_FILTER", "Churn.*");
        let outcome = run.env("TRACER_OUT", &path).env("TRACER_MIN", "0").run()?;
        outcome.exited_with(0)?;
        nothing_lost(&outcome)?;
        let lanes = lanes(&path)?;
        let workers: usize = lanes.values().map(|lane| lane.of("Churn.Work(").len()).sum();
        ensure!(workers == 200, "{workers} threads called Work: {outcome}");
    }
    Ok(())
}

#[test]
fn tracer_refuses_a_file_that_cannot_be_made() -> Result<()> {
    for runtime in Runtime::all()? {
        let run = Run::new(&runtime, "Exit").args(["7", "1"]).built_in("tracer");
        let outcome = run.env("TRACER_OUT", "/no/such/x.pftrace").run()?;
        outcome.exited_with(7)?;
        ensure!(outcome.stderr.contains("the profiler Tracer is not loaded"), "{outcome}");
    }
    Ok(())
}

/// See `main.rs`.
mod differs {
    use super::*;

    #[test]
    fn tracer_ends_a_call_where_it_waits_and_tells_where_it_goes_on() -> Result<()> {
        let programs = [
            ("AsyncPauses", "AsyncPauses.Pause(int)", "AsyncPauses.Outer()"),
            ("MachinePauses", "MachinePauses.<Pause>d__1.MoveNext()", "MachinePauses.<Outer>d__2.MoveNext()"),
        ];
        for (program, pause, outer) in programs {
            for runtime in Runtime::all_for_modern(program)? {
                let run = Run::new(&runtime, program).env("DOTNET_RuntimeAsync", "1").built_in("tracer");
                let outcome = run.env("TRACER_FILTER", format!("{program}*")).run()?;
                outcome.exited_with(0)?;
                nothing_lost(&outcome)?;
                let lines: Vec<_> = outcome.stderr.lines().map(|line| line.trim_start()).collect();
                let count = |end: &str| lines.iter().filter(|line| line.ends_with(end)).count();
                // Each waits once, and what calls it waits with it, each time that it does.
                for (name, calls, rests) in [(pause, 5, 5), (outer, 1, 5)] {
                    let told = (count(name), count(&format!("{name} (goes on)")));
                    ensure!(told == (calls, rests), "{name}: {told:?}: {outcome}");
                }
            }
        }
        Ok(())
    }

    /// Every call is there, one by one or in a count, under any load: more calls than buffers have room for.
    #[test]
    fn tracer_loses_nothing() -> Result<()> {
        let rounds = repetitions(1, 8);
        for runtime in Runtime::all()? {
            let mut all = Vec::new();
            // In an emulator no call is shorter than the default of a microsecond.
            for minimum in ["0", if runtime.is_emulated() { "100000" } else { "1" }] {
                let directory = tempfile::tempdir()?;
                let path = directory.path().join("calls.pftrace");
                let run = Run::new(&runtime, "Calls")
                    .args([rounds.to_string()])
                    .built_in("tracer")
                    .env("TRACER_FILTER", "Known.*");
                let outcome = run.env("TRACER_OUT", &path).env("TRACER_MIN", minimum).run()?;
                outcome.exited_with(0)?;
                nothing_lost(&outcome)?;
                let lanes = lanes(&path)?;
                ensure!(lanes.values().all(|lane| lane.depth == 0), "all calls end: {outcome}");
                let told: u64 = lanes.values().map(|lane| lane.calls.len() as u64).sum();
                let short: u64 = lanes.values().map(|lane| lane.short).sum();
                let size = std::fs::metadata(&path)?.len();
                println!(
                    "{runtime}: TRACER_MIN={minimum}: {told} told of, {short} short, {size} bytes; {}",
                    outcome.stderr
                );
                ensure!((minimum == "0") == (short == 0), "{short} short calls");
                all.push(told + short);
            }
            ensure!(all[0] == all[1] && all[0] > rounds * 6_000, "{all:?} calls");
        }
        Ok(())
    }
}
