//! What a profiler keeps for ever: corprof refuses dead identifiers, by name, and no others, and nothing does harm.

use anyhow::{Context, Result, ensure};
use corprof_diagnostics::Process;
use corprof_tests::{Run, Runtime, repetitions};

use crate::attacks::told_in;
use crate::detach::attach;
use crate::diagnostics::{PATIENCE, Program, command, profiler_named, runtimes};

/// The profiler's count under `name`.
fn count(told: &str, name: &str) -> Result<u64> {
    let value = told.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    Ok(value.with_context(|| format!("no {name} in {told:?}"))?.parse()?)
}

/// Runs a program that loads and unloads 40 times, and returns what the profiler tells.
fn told_by_keeps(run: Run) -> Result<String> {
    let outcome = run.profiler_named("keeps", "Keeps").run()?;
    outcome.exited_with(0)?;
    ensure!(outcome.stdout == "unloaded 40 of 40\n", "{outcome}");
    let told = outcome.stderr.lines().find(|line| line.starts_with("kept=")).with_context(|| outcome.to_string())?;
    ensure!(count(told, "unexpected")? == 0, "{outcome}");
    ensure!(count(told, "good")? > 1_000, "what is alive is answered about: {outcome}");
    for kind in ["assemblies", "modules", "classes", "functions"] {
        ensure!(count(told, kind)? > 0, "{kind} that have died are refused: {outcome}");
    }
    Ok(told.to_owned())
}

#[test]
fn what_was_unloaded_is_refused_while_everything_is_asked_about_without_pause() -> Result<()> {
    let arguments: [&[&str]; 2] = [&["40"], &["40", "Plug.dll"]];
    for (runtime, arguments) in
        Runtime::all()?.iter().flat_map(|runtime| arguments.map(|arguments| (runtime, arguments)))
    {
        let told = told_by_keeps(Run::new(runtime, "Unloads").args(arguments))?;
        ensure!(count(&told, "threads")? > 0, "threads that have died are refused: {told}");
    }
    Ok(())
}

#[test]
fn what_was_emitted_is_refused_before_the_runtime_frees_it() -> Result<()> {
    for runtime in &Runtime::all()? {
        let emitted = || Run::new(runtime, "Emitted").args(["40"]);
        for (profiler, alive, dead) in [("InTime", 80, 0), ("TooLate", 0, 80)] {
            let outcome = emitted().profiler_named("emitted", profiler).run()?;
            outcome.exited_with(0)?;
            let expected = format!("emitted: alive={alive} dead={dead} unexpected=0");
            ensure!(outcome.stderr.lines().any(|line| line == expected), "{profiler}: {outcome}");
        }
        told_by_keeps(emitted())?;
    }
    Ok(())
}

/// Each attach uses what those before have left, also on a thread that stays, and when threads of the application end:
/// a part of what the runtime keeps for a thread has gone then.
#[test]
fn whatever_is_kept_from_one_attach_to_the_next_does_no_harm() -> Result<()> {
    for runtime in &runtimes()? {
        let (clsid, library) = profiler_named(runtime, "attacks", "Hoards")?;
        let mut program = Program::ready(command(runtime)?)?;
        let client = Process::open(program.pid())?.client().with_timeout(PATIENCE);
        for _ in 0..repetitions(2, 40) {
            attach(&client, clsid, &library, &[])?;
            for command in ["load 2", "churn", "collect 2", "pool 1", "contend 1", "unload", "throw 25", "calm"] {
                program.tell(command)?;
            }
        }
        let stderr = program.end()?;
        ensure!(!stderr.contains("panicked"), "{runtime}: {stderr}");
        let told = told_in(&stderr, "hoard: ")?;
        eprintln!("{runtime}: {told}");
        ensure!(count(told, "answers")? > 1000 && count(told, "at-ends")? > 0, "{runtime}: {stderr}");
    }
    Ok(())
}
