//! The signal sampler finds the frames of compiled code as the runtime's own unwinder does, at each instruction.
//!
//! Linux only.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use corprof_tests::{Outcome, Run, Runtime, repetitions};

/// The parts of functions in which both must agree. On .NET 8 the first instructions of exception handlers are taken
/// for a part of the function before they have set its frame pointer.
const PARTS: [&str; 4] = ["Prologue", "Body", "Epilogue", "Handlers"];

/// The runtimes on Linux.
fn runtimes(app: Option<&str>) -> Result<Vec<Runtime>> {
    let runtimes = app.map_or_else(Runtime::all, Runtime::all_for_modern)?;
    Ok(runtimes.into_iter().filter(|runtime| !runtime.is_windows()).collect())
}

/// Expects both to agree on all instructions, on at least so many, and to have seen each of these parts.
fn agree(outcome: &Outcome, least: u64, parts: &[&str]) -> Result<()> {
    outcome.exited_with(0)?;
    let told = |part: &str| {
        let (right, all) =
            outcome.stderr.lines().find_map(|line| line.strip_prefix(part)?.strip_prefix(": ")?.split_once(" of "))?;
        Some((right.parse::<u64>().ok()?, all.parse::<u64>().ok()?))
    };
    let mut compared = 0;
    for part in PARTS {
        let Some((right, all)) = told(part) else {
            ensure!(!parts.contains(&part), "no {part}: {outcome}");
            continue;
        };
        ensure!(right == all, "{part}: {right} of {all} right: {outcome}");
        compared += all;
    }
    let (unknown, _) = told("unknown").with_context(|| outcome.to_string())?;
    ensure!(unknown * 1000 <= compared, "{unknown} instructions without an answer of the runtime's: {outcome}");
    ensure!(compared >= least, "{compared} instructions: {outcome}");
    println!("{compared} instructions");
    Ok(())
}

#[test]
fn loops_that_are_continued_have_the_frames_that_the_runtime_finds() -> Result<()> {
    for runtime in runtimes(Some("Loops"))? {
        let milliseconds = if runtime.is_emulated() { "400" } else { "40" };
        let outcome = Run::new(&runtime, "Loops").args([milliseconds]).profiler("frames").run()?;
        agree(&outcome, 10_000, &PARTS)?;
        ensure!(outcome.stdout.starts_with("methods: "), "{outcome}");
    }
    Ok(())
}

/// How long all methods of large assemblies may take.
const LIMIT: Duration = Duration::from_secs(1200);

/// How code comes about: its name, and the settings for it.
const WAYS: [(&str, &[(&str, &str)]); 3] = [
    ("precompiled", &[]),
    ("tier 0", &[("DOTNET_ReadyToRun", "0"), ("DOTNET_TieredCompilation", "1")]),
    ("optimized", &[("DOTNET_ReadyToRun", "0"), ("DOTNET_TieredCompilation", "0")]),
];

/// Compares in one of `every` methods of these assemblies.
fn compare(runtime: &Runtime, assemblies: &[&str], settings: &[(&str, &str)], every: usize) -> Result<Outcome> {
    let framework = runtime.framework()?.display().to_string();
    let run = Run::new(runtime, "Prepares").args([&framework]).args(assemblies).profiler("frames");
    let run = settings.iter().fold(run, |run, &(name, value)| run.env(name, value));
    run.env("FRAMES_EVERY", every.to_string()).timeout(LIMIT).run()
}

#[test]
fn precompiled_methods_have_the_frames_that_the_runtime_finds() -> Result<()> {
    for runtime in runtimes(None)? {
        let every = repetitions(4, 1);
        agree(&compare(&runtime, &["System.Linq"], &[], every)?, 10_000, &PARTS)?;
    }
    Ok(())
}

mod long {
    use super::*;

    /// Most kinds of code: vectors, buffers on the stack, asynchronous methods, generated code.
    const ASSEMBLIES: [&str; 7] = [
        "System.Private.CoreLib",
        "System.Text.Json",
        "System.Net.Http",
        "System.Private.Xml",
        "System.Linq.Expressions",
        "System.Collections.Immutable",
        "System.Net.Security",
    ];

    /// Of each kind some, where compiling takes ten times as long.
    const FEW: [&str; 2] = ["System.Linq", "System.Collections.Immutable"];

    #[test]
    fn methods_of_the_framework_have_the_frames_that_the_runtime_finds() -> Result<()> {
        let every = repetitions(20, 4);
        for runtime in runtimes(None)? {
            let (assemblies, least): (&[&str], _) =
                if runtime.is_emulated() { (&FEW, 200_000) } else { (&ASSEMBLIES, 2_000_000) };
            for (way, settings) in WAYS {
                let outcome = compare(&runtime, assemblies, settings, every)?;
                println!("{runtime}, {way}");
                agree(&outcome, least / every as u64, &PARTS)?;
            }
        }
        Ok(())
    }
}
