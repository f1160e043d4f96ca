//! The example `tracer`: every call once, in order, below its caller.

use anyhow::{Context, Result, ensure};
use corprof_tests::{Outcome, Run, Runtime};

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
