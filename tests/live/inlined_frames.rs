//! Methods that were inlined into their callers, as the IL tells: they are those that a program is known to have, and
//! those that the compiler has asked the profiler about.
//!
//! Linux only.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use corprof_tests::{Outcome, Run, Runtime, ensure_or_longer, patiently, repetitions};

/// How the code of a program comes about: its name, and the settings for it. Precompiled code is inlined as well, but
/// the compiler has said nothing of it.
const WAYS: [(&str, &[(&str, &str)]); 3] = [
    ("tiered", &[("DOTNET_ReadyToRun", "0"), ("DOTNET_TieredPGO", "0")]),
    ("by profile", &[("DOTNET_ReadyToRun", "0"), ("DOTNET_TieredPGO", "1")]),
    ("at once", &[("DOTNET_ReadyToRun", "0"), ("DOTNET_TieredCompilation", "0")]),
];

/// What is called in the end by each method of the program.
const LEAF: &str = "Work.Spin(int)";

/// The runtimes on Linux that have the program.
fn runtimes(app: &str) -> Result<Vec<Runtime>> {
    let runtimes = Runtime::all_for_modern(app)?;
    Ok(runtimes.into_iter().filter(|runtime| !runtime.is_windows()).collect())
}

/// The samples in which a method has called the leaf: the methods between them, by the name of the caller.
type Samples = BTreeMap<String, BTreeMap<String, u64>>;

fn samples(outcome: &Outcome) -> Samples {
    let parse = |line: &str| {
        let (count, path) = line.split_once(' ')?;
        let path: Vec<&str> = path.strip_suffix(LEAF)?.strip_suffix(" > ")?.split(" > ").collect();
        let (caller, between) = path.split_first()?;
        let name = |method: &&str| method.split('(').next().unwrap_or_default().to_owned();
        let between: Vec<String> = between.iter().map(name).collect();
        Some((name(caller), between.join(" > "), count.parse().ok()?))
    };
    let mut samples = Samples::new();
    for (caller, between, count) in outcome.stderr.lines().filter_map(parse) {
        samples.entry(caller).or_default().insert(between, count);
    }
    samples
}

/// What is between each method of the program and the leaf; empty where the IL does not tell.
fn truth(outcome: &Outcome) -> BTreeMap<&str, &str> {
    outcome.stdout.lines().filter_map(|line| line.split_once(':')).map(|(name, path)| (name, path.trim())).collect()
}

/// The compiler has asked about each method that was found.
fn ensure_told(outcome: &Outcome, least: u64) -> Result<()> {
    let refuted: Vec<&str> = outcome.stderr.lines().filter(|line| line.starts_with("refuted: ")).collect();
    ensure!(refuted.is_empty(), "the compiler has not inlined these:\n{}", refuted.join("\n"));
    let found = outcome.stderr.lines().find_map(|line| line.strip_prefix("found: ")?.split(',').next()?.parse().ok());
    let found: u64 = found.with_context(|| outcome.to_string())?;
    ensure!(found >= least, "{found} samples: {outcome}");
    Ok(())
}

#[test]
fn inlined_methods_of_a_known_program_are_found_and_no_others() -> Result<()> {
    for (way, settings) in WAYS.into_iter().take(repetitions(1, WAYS.len())) {
        patiently(runtimes("InlinedCalls")?, |runtime, times| {
            let milliseconds = (times * repetitions(3500, 6000)).to_string();
            let run = Run::new(runtime, "InlinedCalls").args([milliseconds.as_str()]).profiler("inlined_frames");
            let run = settings.iter().fold(run, |run, &(name, value)| run.env(name, value));
            let outcome = run.env("INLINED_OF", "").run()?;
            outcome.exited_with(0)?;
            let samples = samples(&outcome);
            let (mut right, mut all) = (0, 0);
            for (method, between) in truth(&outcome) {
                let of_method = samples.iter().filter(|(caller, _)| caller.contains(&format!("Program.{method}")));
                let mut seen = 0;
                for (path, count) in of_method.flat_map(|(_, paths)| paths) {
                    // What is found is a beginning of the truth, and never anything else.
                    ensure!(path.is_empty() || path == between, "{runtime}, {way}: {method} > {path}: {outcome}");
                    seen += count;
                    if !between.is_empty() {
                        all += count;
                        right += if path == between { *count } else { 0 };
                    }
                }
                ensure_or_longer!(seen >= 5, "{runtime}, {way}: {seen} samples of {method}: {outcome}");
            }
            let twin = samples.iter().filter(|(caller, _)| caller.starts_with("Twin.")).flat_map(|(_, paths)| paths);
            ensure!(twin.clone().all(|(path, _)| path.is_empty()), "{runtime}, {way}: {outcome}");
            println!("{runtime}, {way}: {right} of {all} samples");
            ensure_or_longer!(all >= 100, "{runtime}, {way}: {all} samples: {outcome}");
            ensure!(right * 100 >= all * 95, "{runtime}, {way}: {right} of {all} samples: {outcome}");
            ensure_told(&outcome, right)
        })?;
    }
    Ok(())
}
