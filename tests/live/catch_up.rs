//! The catch-up of attached profilers, on real runtimes: together with the events, each thing is reported once.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use corprof_diagnostics::{Error, HResult, Process};
use corprof_tests::{Run, Runtime, repetitions};

use crate::diagnostics::{PATIENCE, Program, profiler, runtimes};

/// Attaches to the program while it grows, or before.
fn attach(runtime: &Runtime, is_growing: bool, has_tiers: bool) -> Result<String> {
    let (clsid, library) = profiler(runtime, "catches_up")?;
    let mut command = Run::new(runtime, "Growing").command()?;
    command.env("DOTNET_TieredCompilation", if has_tiers { "1" } else { "0" });
    // What is precompiled is compiled again for a tier, or never.
    command.env("DOTNET_TC_BackgroundWorkerTimeoutMs", "0");
    let mut program = Program::ready(command)?;
    if is_growing {
        program.tell("grow")?;
        thread::sleep(Duration::from_millis(200));
    }
    let client = Process::open(program.pid())?.client().with_timeout(PATIENCE);
    client.attach_profiler(clsid, &library, if has_tiers { b"tiers" } else { b"" }, PATIENCE)?;
    if !is_growing {
        program.tell("grow")?;
    }
    thread::sleep(Duration::from_millis(500));
    program.tell("calm")?;
    program.end()
}

fn number(stderr: &str, before: &str, after: &str) -> Result<usize> {
    let line =
        stderr.lines().find_map(|line| line.strip_prefix("catches_up| ")?.strip_prefix(before)?.strip_suffix(after));
    Ok(line.with_context(|| format!("no line `{before}N{after}`: {stderr}"))?.parse()?)
}

#[test]
fn all_that_was_there_and_all_that_comes_is_reported_once() -> Result<()> {
    for runtime in runtimes()? {
        for (is_growing, has_tiers) in [(false, false), (true, false), (true, true)] {
            let stderr = attach(&runtime, is_growing, has_tiers)?;
            ensure!(!stderr.contains("WRONG") && !stderr.contains("panicked"), "{runtime}: {stderr}");
            ensure!(!stderr.contains("is not told"), "{runtime}: {stderr}");
            let [functions, modules, threads] =
                ["functions", "modules", "threads"].map(|what| number(&stderr, "", &format!(" {what} are listed")));
            let functions = functions?;
            let modules = modules?;
            let threads = threads?;
            // The eight levels of each of the 200 patterns that run before the attach share what their ends have in
            // common. At the end .NET 11 may list fewer threads than it has reported.
            ensure!(functions > 500 && modules > 5 && threads > 0, "{runtime}: {stderr}");
            ensure!(number(&stderr, "thread: ", "")? > 1, "{runtime}: {stderr}");
            ensure!(number(&stderr, "module: ", "")? == modules, "{runtime}: {stderr}");
            ensure!(number(&stderr, "attached: ", "")? == modules, "{runtime}: {stderr}");
            ensure!(number(&stderr, "domain: ", "")? == 1, "{runtime}: {stderr}");
            ensure!(number(&stderr, "threads at the attach: ", "")? > 1, "{runtime}: {stderr}");
            let reported = stderr.lines().find(|line| line.starts_with("catches_up| reported: ")).context("no sum")?;
            let caught_up =
                reported.split_once(": ").and_then(|(_, rest)| rest.split_once(' ')).context("no number")?.0;
            ensure!(caught_up.trim_start_matches("reported: ").parse::<usize>()? > 100, "{runtime}: {stderr}");
            println!("{runtime}: growing {is_growing}, tiers {has_tiers}: {reported}");
            ensure!(stderr.contains("catches_up| complete\n"), "{runtime}: {stderr}");
        }
    }
    Ok(())
}

#[test]
fn functions_of_assemblies_that_are_being_unloaded_crash_nothing() -> Result<()> {
    for runtime in runtimes()? {
        let (clsid, library) = profiler(&runtime, "hasty")?;
        let visits = std::env::var("HASTY_VISITS").map_or(Ok(repetitions(10, 40)), |visits| visits.parse())?;
        let mut program = Program::ready(Run::new(&runtime, "Growing").command()?)?;
        program.tell("churn")?;
        let client = Process::open(program.pid())?.client().with_timeout(PATIENCE);
        for visit in 0..visits {
            let deadline = Instant::now() + PATIENCE;
            loop {
                let answer = client.attach_profiler(clsid, &library, &[], PATIENCE);
                match answer.as_ref().err().and_then(Error::code) {
                    Some(HResult::PROFILER_ALREADY_ACTIVE) if Instant::now() < deadline => {
                        thread::sleep(Duration::from_millis(5));
                    }
                    _ => {
                        answer.with_context(|| format!("{runtime}: visit {visit}"))?;
                        break;
                    }
                }
            }
        }
        program.tell("calm")?;
        let stderr = program.end()?;
        let said = stderr.lines().filter(|line| line.starts_with("hasty| leaves: asked about ")).count();
        ensure!(said == visits, "{runtime}: {said} of {visits}: {stderr}");
        ensure!(!stderr.contains("panicked") && !stderr.contains("it stays"), "{runtime}: {stderr}");
        // A short visit may end before it has looked for any code.
        let found = stderr.lines().any(|line| line.ends_with(" found") && !line.ends_with(" 0 found"));
        ensure!(found, "{runtime}: no visit finds code by its address: {stderr}");
        println!("{runtime}: {}", stderr.lines().rfind(|line| line.starts_with("hasty|")).unwrap_or_default());
    }
    Ok(())
}
