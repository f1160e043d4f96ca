//! Methods with hot loops, which the runtime replaces while they run (on-stack replacement): the signal sampler finds
//! their callers.
//!
//! Linux only.

use anyhow::{Context, Result, ensure};
use corprof_tests::{Outcome, Run, Runtime, ensure_or_longer, patiently, repetitions};

/// What is results of one loop: samples, those with the right callers, and how often it was compiled.
struct LoopResult {
    name: String,
    samples: u64,
    right: u64,
    compiled: u64,
}

fn results(outcome: &Outcome) -> Result<Vec<LoopResult>> {
    let parse = |line: &str| {
        let (name, rest) = line.split_once(": ")?;
        let (right, rest) = rest.split_once(" of ")?;
        let (samples, rest) = rest.split_once(", compiled ")?;
        let compiled = rest.strip_suffix(" times")?;
        let [right, samples, compiled] = [right, samples, compiled].map(|number| number.parse().ok());
        Some(LoopResult { name: name.to_owned(), samples: samples?, right: right?, compiled: compiled? })
    };
    let results: Vec<_> = outcome.stderr.lines().filter_map(parse).collect();
    ensure!(!results.is_empty(), "nothing is results: {outcome}");
    Ok(results)
}

/// The runtimes on Linux that have the program.
fn runtimes(app: &str) -> Result<Vec<Runtime>> {
    let runtimes = Runtime::all_for_modern(app)?;
    Ok(runtimes.into_iter().filter(|runtime| !runtime.is_windows()).collect())
}

/// Runs a program for so many milliseconds, and returns what is results of its loops.
fn sample(runtime: &Runtime, app: &str, milliseconds: u64) -> Result<Outcome> {
    let outcome = Run::new(runtime, app).args([milliseconds.to_string()]).profiler("loops").run()?;
    outcome.exited_with(0)?;
    Ok(outcome)
}

#[test]
fn the_hot_loops_of_methods_keep_their_callers() -> Result<()> {
    patiently(runtimes("Loops")?, |runtime, times| {
        let longer = if runtime.is_emulated() { 10 } else { 1 };
        let outcome = sample(runtime, "Loops", times * longer * repetitions(100, 1000))?;
        let methods = outcome.stdout.strip_prefix("methods: ").and_then(|number| number.trim().parse::<u64>().ok());
        let methods = methods.with_context(|| outcome.to_string())?;
        let results = results(&outcome)?;
        let samples: u64 = results.iter().map(|result| result.samples).sum();
        let right: u64 = results.iter().map(|result| result.right).sum();
        // Each is called once, so what is compiled again is compiled for its loop.
        let replaced = results.iter().filter(|result| result.compiled >= 2).count() as u64;
        println!("{runtime}: {right} of {samples} samples right, {replaced} of {methods} methods replaced");
        ensure_or_longer!(replaced * 10 >= methods * 9, "{replaced} of {methods} methods replaced: {outcome}");
        ensure_or_longer!(samples >= repetitions(10, 50) * methods, "{samples} samples: {outcome}");
        ensure!(right * 100 >= samples * 99, "{right} of {samples} samples have the right callers: {outcome}");
        // Those that are of no loop are counted above: one in ten thousand samples has lost its caller.
        for LoopResult { name, samples, right, .. } in results.into_iter().filter(|result| result.name != "?") {
            // One of few samples is more than a twentieth.
            let is_right = right * 100 >= samples * 95;
            ensure_or_longer!(is_right || samples >= 50, "{name}: {right} of {samples}: {outcome}");
            ensure!(is_right, "{name}: {right} of {samples}: {outcome}");
        }
        Ok(())
    })
}

mod long {
    use super::*;

    #[test]
    fn the_hot_loops_of_a_web_application_keep_their_callers() -> Result<()> {
        // The archive for arm64 has no ASP.NET.
        let runtimes = runtimes("WebLoops")?.into_iter().filter(|runtime| !runtime.is_emulated()).collect();
        patiently(runtimes, |runtime, times| {
            let outcome = sample(runtime, "WebLoops", times * repetitions(1500, 6000))?;
            ensure!(outcome.stdout == "wrong: 0\n", "{outcome}");
            let results = results(&outcome)?;
            let request =
                results.iter().find(|result| result.name == "Request").with_context(|| outcome.to_string())?;
            let &LoopResult { samples, right, compiled, .. } = request;
            println!("{runtime}: {right} of {samples} samples right, compiled {compiled} times");
            ensure_or_longer!(samples >= repetitions(100, 1000) && compiled >= 2, "{outcome}");
            ensure!(right * 100 >= samples * 99, "{right} of {samples} samples have the right callers: {outcome}");
            Ok(())
        })
    }
}
