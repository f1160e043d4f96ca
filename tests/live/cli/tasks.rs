//! `corprof tasks`: pending async operations, in numbers that are known.

use std::process::Output;

use anyhow::{Context, Result, ensure};
use corprof_tests::{Run, Runtime};
use serde_json::Value;

use super::documents::Schema;
use super::{Program, corprof, runtimes, texts};

fn tasks(program: &Program, options: &[&str]) -> Result<Output> {
    Ok(corprof()?.arg("tasks").arg(program.child.id().to_string()).args(options).output()?)
}

/// What follows the name of a method that a compiler has made a state machine of, and of one that the runtime suspends.
const MACHINE: &str = " (async)";
const SUSPENDED: &str = "()";

/// The chains of a program that has said `ready`: number, what they await, methods from the innermost on, whether they
/// can never go on, whether a thread waits.
type Chains = Vec<(u64, String, Vec<String>, bool, bool)>;

fn chains(program: &Program, runtime: &Runtime) -> Result<Chains> {
    let output = tasks(program, &["--json"])?;
    ensure!(output.status.success(), "{runtime}: {output:?}");
    let json: Value = serde_json::from_slice(&output.stdout).context("no JSON")?;
    Schema::read()?.check("tasks", &json).with_context(|| runtime.to_string())?;
    ensure!(json["standstill_ms"].as_f64().is_some_and(|pause| pause > 0.0), "{runtime}: {json}");
    let mut all = Vec::new();
    for chain in json["chains"].as_array().context("no chains")? {
        let methods = chain["methods"].as_array().context("no methods")?;
        let methods: Vec<String> = methods.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        let count = chain["count"].as_u64().context("no count")?;
        let awaits = chain["awaits"].as_str().context("it awaits nothing")?.to_owned();
        if chain["is_mine"] == true {
            all.push((count, awaits, methods, chain["is_stuck"] == true, chain["blocks_thread"] == true));
        }
    }
    all.sort();
    Ok(all)
}

const PROMISE: &str = "a promise (TaskCompletionSource)";
const SEMAPHORE: &str = "SemaphoreSlim.WaitAsync";
const SUSPENDED_SEMAPHORE: &str = "System.Threading.SemaphoreSlim.WaitAsync()";

/// These chains. The names of the program's own methods end in `suffix`.
fn expected(chains: &[(u64, &str, &[&str], bool, bool)], suffix: &str) -> Chains {
    let mut all: Chains = Vec::new();
    let full =
        |method: &&str| if method.starts_with("Shop.") { format!("{method}{suffix}") } else { (*method).to_owned() };
    for &(count, awaits, methods, is_stuck, blocks_thread) in chains {
        let methods = methods.iter().map(full).collect();
        all.push((count, awaits.to_owned(), methods, is_stuck, blocks_thread));
    }
    all.sort();
    all
}

#[test]
fn pending_operations_are_counted_by_what_they_await() -> Result<()> {
    for runtime in runtimes()? {
        let program = Program::start(Run::new(&runtime, "Waiting").command()?)?;
        program.expect("ready")?;
        let expected = expected(
            &[
                (30, SEMAPHORE, &["Shop.Load", "Shop.Request"], false, false),
                (20, "Task.Delay", &["Shop.Poll"], false, false),
                (5, PROMISE, &["Shop.Answer", "Shop.Asks"], false, false),
                (3, PROMISE, &["Shop.Forgets"], true, false),
                (4, PROMISE, &["Shop.Part", "Task.WhenAll", "Shop.Whole"], false, false),
                (6, PROMISE, &["Shop.Shares"], false, false),
                (2, PROMISE, &["Task.WhenAny", "Shop.Any"], false, false),
                (1, PROMISE, &["Task.ContinueWith", "Shop.Continues"], false, false),
                (1, PROMISE, &["Shop.Blocks"], false, true),
                (1, "each other, in a circle", &["Shop.First", "Shop.Second"], true, false),
            ],
            MACHINE,
        );
        let found = chains(&program, &runtime)?;
        ensure!(found == expected, "{runtime}: {found:#?}");
        let (stdout, _) = texts(&tasks(&program, &[])?);
        let lines: Vec<&str> = stdout.lines().collect();
        let stuck = format!("3 × awaiting {PROMISE}: can never go on");
        ensure!(
            lines.starts_with(&[lines.first().copied().unwrap_or_default(), "", &stuck, "    Shop.Forgets (async)"]),
            "{stdout}"
        );
        ensure!(stdout.starts_with("73 chains of async methods are pending"), "{runtime}: {stdout}");
        ensure!(lines.contains(&"    a thread waits for it"), "{runtime}: {stdout}");
        let (code, stderr) = program.end()?;
        ensure!(code == Some(0) && stderr.is_empty(), "{runtime}: {code:?}: {stderr}");
    }
    Ok(())
}

#[test]
fn methods_that_the_runtime_suspends_are_chains_as_well() -> Result<()> {
    for runtime in Runtime::all_for_modern("WaitingRuntimeAsync")? {
        if runtime.is_windows() || runtime.is_emulated() {
            continue; // corprof is built for this system
        }
        let program = Program::start(Run::new(&runtime, "WaitingRuntimeAsync").command()?)?;
        program.expect("ready")?;
        let found = chains(&program, &runtime)?;
        let expected = expected(
            &[
                // The framework's method is one of these itself.
                (30, SEMAPHORE, &[SUSPENDED_SEMAPHORE, "Shop.Load", "Shop.Request"], false, false),
                (20, "Task.Delay", &["Shop.Poll"], false, false),
                (3, PROMISE, &["Shop.Forgets"], true, false),
                (7, "BlockedReadAsyncOperation<int>", &["Shop.Next", "Shop.Reads"], false, false),
                (4, PROMISE, &["Shop.Part", "Task.WhenAll", "Shop.Whole"], false, false),
            ],
            SUSPENDED,
        );
        ensure!(found == expected, "{runtime}: {found:#?}");
        // The lines of the awaits, by the text of the source.
        let source = std::fs::read_to_string(xtask::managed::modern_dir().join("WaitingRuntimeAsync.cs"))?;
        let (stdout, _) = texts(&tasks(&program, &[])?);
        for method in ["Load", "Request", "Poll", "Forgets", "Part", "Whole", "Next", "Reads"] {
            let declared = source.lines().position(|line| line.contains(&format!(" {method}() {{")));
            let line = declared.with_context(|| format!("no {method}"))? + 1;
            let expected = format!("    Shop.{method}()  WaitingRuntimeAsync.cs:{line}");
            ensure!(stdout.lines().any(|line| line == expected), "{runtime}: no `{expected}`: {stdout}");
        }
        let (code, stderr) = program.end()?;
        ensure!(code == Some(0) && stderr.is_empty(), "{runtime}: {code:?}: {stderr}");
    }
    Ok(())
}

/// Of state machines the lines are those of the awaits that their states number: structs, as in a release, and classes.
#[test]
fn state_machines_have_the_lines_of_their_awaits() -> Result<()> {
    for name in ["WaitingMachines", "WaitingDebugMachines"] {
        // A state machine that is an object may do anything with what it awaits.
        let is_struct = name == "WaitingMachines";
        let source = std::fs::read_to_string(xtask::managed::modern_dir().join("WaitingMachines.cs"))?;
        let line = |text: &str| source.lines().position(|line| line.contains(text)).map(|line| line + 1);
        for runtime in Runtime::all_for_modern(name)? {
            if runtime.is_windows() || runtime.is_emulated() {
                continue; // corprof is built for this system
            }
            let program = Program::start(Run::new(&runtime, name).command()?)?;
            program.expect("ready")?;
            let found = chains(&program, &runtime)?;
            let expected = expected(
                &[
                    (30, SEMAPHORE, &["Shop.Load", "Shop.Request"], false, false),
                    (20, "Task.Delay", &["Shop.Poll"], false, false),
                    (3, PROMISE, &["Shop.Forgets"], is_struct, false),
                    (2, PROMISE, &["Shop.Third<int>"], false, false),
                    (2, PROMISE, &["Shop.Third<string>"], false, false),
                ],
                MACHINE,
            );
            ensure!(found == expected, "{runtime}, {name}: {found:#?}");
            let (stdout, _) = texts(&tasks(&program, &[])?);
            for (method, text) in [
                ("Load", " Load() {"),
                ("Request", " Request() {"),
                ("Poll", " Poll() {"),
                ("Forgets", " Forgets() {"),
                ("Third<int>", "// Third waits here"),
                ("Third<string>", "// Third waits here"),
            ] {
                let line = line(text).with_context(|| format!("no {method}"))?;
                let expected = format!("    Shop.{method} (async)  WaitingMachines.cs:{line}");
                ensure!(stdout.lines().any(|line| line == expected), "{runtime}: no `{expected}`: {stdout}");
            }
            let (code, stderr) = program.end()?;
            ensure!(code == Some(0) && stderr.is_empty(), "{runtime}: {code:?}: {stderr}");
        }
    }
    Ok(())
}

#[test]
fn a_process_that_collects_and_allocates_goes_on() -> Result<()> {
    for runtime in runtimes()? {
        let mut command = Run::new(&runtime, "Deadlocks").command()?;
        command.arg("busy");
        let program = Program::start(command)?;
        program.expect("ready")?;
        for _ in 0..3 {
            let output = tasks(&program, &["--all"])?;
            ensure!(output.status.success(), "{runtime}: {output:?}");
        }
        let (code, stderr) = program.end()?;
        ensure!(code == Some(0) && stderr.is_empty(), "{runtime}: {code:?}: {stderr}");
    }
    Ok(())
}
