//! The questions take their callers from where `corprof record` does: `allocations` by stack, `exceptions` and `locks`
//! show who awaits a resumed method, from the start and after an attach.

use std::collections::BTreeSet;

use corprof_tests::{ensure_or_longer, patiently, repetitions};
use serde_json::Value;

use super::*;

/// State machines, on every runtime.
const MACHINES: &str = "AsyncWitnessMachines";
/// Methods that the runtime suspends itself.
const SHOP: &str = "AsyncWitness";

/// The entry methods of these programs.
const ENTRIES: [&str; 2] = ["Orders", "Users"];

/// The runtimes that run state machines.
fn modern() -> Result<Vec<Runtime>> {
    let all = Runtime::all_for_modern(MACHINES)?;
    Ok(all.into_iter().filter(|runtime| !runtime.is_windows() && !runtime.is_emulated()).collect())
}

/// The programs: what the runtime suspends itself is known only where it tells that. The short
/// form of a test takes the one of this number, if there are several.
fn kinds(runtime: &Runtime, in_short: usize) -> &'static [&'static str] {
    let all: &[&str] = if runtime.has(Difference::AsyncOperations) { &[SHOP, MACHINES] } else { &[MACHINES] };
    let one = all.get(in_short..=in_short).unwrap_or(all);
    repetitions(one, all)
}

/// Whether an entry method is among these frames: `Shop.Orders()`, `Shop.Orders (async)` or `Shop.<Orders>d__1`.
fn has(frames: &str, entry: &str) -> bool {
    let is_whole = |rest: &str| !rest.starts_with(char::is_alphanumeric);
    [".", ".<"].iter().any(|before| frames.split(&format!("{before}{entry}")).skip(1).any(is_whole))
}

/// Asks about a run of the program from its start.
fn ask_from_the_start(runtime: &Runtime, kind: &str, what: &str, asked: &[&str], times: u64) -> Result<Output> {
    let mut command = corprof()?;
    // What threads have held back when a process ends is not told.
    command.args(asked).args(["--duration", &times.to_string()]);
    command.arg("--").args(application(runtime, kind)?);
    let output = command.args([what, &(2500 * times).to_string()]).output()?;
    ensure!(output.status.success(), "{runtime}, {kind}: {output:?}");
    Ok(output)
}

/// The options by which callers are known after an attach.
fn with_callers(runtime: &Runtime) -> &'static [&'static str] {
    if runtime.has(Difference::AsyncOperations) { &[] } else { &["--async-probe"] }
}

/// Asks about a running program.
fn ask_after_an_attach(runtime: &Runtime, kind: &str, what: &str, asked: &[&str], times: u64) -> Result<Output> {
    let program = Program::start(Run::new(runtime, kind).args([what]).command()?)?;
    program.expect("ready")?;
    let pid = program.child.id().to_string();
    let mut command = corprof()?;
    let output = command.args(asked).args([&pid, "--duration", &times.to_string()]).output()?;
    let (code, stderr) = program.end()?;
    ensure!(code == Some(0) && !stderr.contains("panicked"), "{runtime}, {kind}: {code:?}: {stderr}");
    let (_, told) = texts(&output);
    ensure_or_longer!(!told.contains("nothing was seen"), "{runtime}, {kind}: {output:?}");
    ensure!(output.status.success(), "{runtime}, {kind}: {output:?}");
    ensure!(told.contains("as --async-probe does") == asked.contains(&"--async-probe"), "{runtime}, {kind}: {told}");
    Ok(output)
}

/// The document that the command has printed, behind what the program has.
fn parsed(output: &Output) -> Result<Value> {
    let (stdout, _) = texts(output);
    let last = stdout.lines().last().with_context(|| format!("no document: {output:?}"))?;
    serde_json::from_str(last).with_context(|| format!("no document: {output:?}"))
}

/// The method of the thread pool that is on each stack as its thread has it, and on none with those that await.
const OF_THE_POOL: &str = "WorkerThread.WorkerThreadStart(";

/// The bytes of a folded profile in arrays that tell whose they are: all, those below the right entry method, and those
/// that the other one is said to await. On a stack as its thread has it, the other one may go on with the next call.
fn bytes(file: &Path) -> Result<[f64; 3]> {
    let [mut all, mut right, mut wrong] = [0.0; 3];
    for line in fs::read_to_string(file)?.lines() {
        let (stack, weight) = line.rsplit_once(' ').with_context(|| format!("no weight: {line}"))?;
        let weight: f64 = weight.parse()?;
        for (entry, other) in [(ENTRIES[0], ENTRIES[1]), (ENTRIES[1], ENTRIES[0])] {
            let Some((callers, _)) = stack.split_once(&format!("new Of{entry}[]")) else { continue };
            all += weight;
            right += if has(callers, entry) { weight } else { 0.0 };
            wrong += if has(callers, other) && !callers.contains(OF_THE_POOL) { weight } else { 0.0 };
        }
    }
    Ok([all, right, wrong])
}

fn check_bytes(file: &Path, output: &Output) -> Result<()> {
    let [all, right, wrong] = bytes(file)?;
    ensure_or_longer!(all > 10e6, "{all} bytes: {output:?}");
    ensure!(wrong == 0.0, "{wrong} of {all} bytes: {output:?}");
    // A busy machine is late with the session, and with what threads tell.
    ensure_or_longer!(right >= 0.9 * all, "{right} of {all} bytes: {output:?}");
    Ok(())
}

#[test]
fn allocations_have_those_that_await_from_the_start() -> Result<()> {
    patiently(modern()?, |runtime, times| {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("a.folded");
        let asked = ["allocations", "--by", "stack", "-o", &file.to_string_lossy()];
        for kind in kinds(runtime, 1) {
            let output = ask_from_the_start(runtime, kind, "allocate", &asked, times)?;
            check_bytes(&file, &output).with_context(|| format!("{runtime}, {kind}"))?;
        }
        Ok(())
    })
}

#[test]
fn allocations_have_those_that_await_after_an_attach_and_physical_stacks_on_request() -> Result<()> {
    patiently(modern()?, |runtime, times| {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("a.folded");
        let asked = ["allocations", "--by", "stack", "-o", &file.to_string_lossy()];
        for kind in kinds(runtime, 0) {
            let found = [&asked[..], with_callers(runtime)].concat();
            let output = ask_after_an_attach(runtime, kind, "allocate", &found, times)?;
            check_bytes(&file, &output).with_context(|| format!("{runtime}, {kind}"))?;

            let asked = [&asked[..], &["--physical"]].concat();
            let output = ask_after_an_attach(runtime, kind, "allocate", &asked, times)?;
            let [all, right, _] = bytes(&file)?;
            ensure_or_longer!(all > 10e6, "{runtime}, {kind}: {all} bytes: {output:?}");
            ensure!(right < 0.5 * all, "{runtime}, {kind}: {right} of {all} bytes without async callers");
        }
        Ok(())
    })
}

/// Before .NET 11 a profiler that finds callers changes code, and so cannot detach: after an attach it has to be asked
/// for.
#[test]
fn answers_say_where_callers_are_not_known_after_an_attach() -> Result<()> {
    patiently(modern()?, |runtime, times| {
        if runtime.has(Difference::AsyncOperations) {
            return Ok(());
        }
        for (what, asked) in [
            ("allocate", &["allocations", "--by", "stack", "--json"][..]),
            ("throw", &["exceptions", "--json"]),
            ("lock", &["locks", "--json"]),
        ] {
            let is_said = |output: &Output| {
                let notes = parsed(output)?["notes"].to_string();
                anyhow::Ok(notes.contains("the application has to start with the profiler"))
            };
            let output = ask_after_an_attach(runtime, MACHINES, what, asked, times)?;
            ensure_or_longer!(is_said(&output)?, "{runtime}, {what}: {output:?}");
            let physical = [asked, &["--physical"]].concat();
            let output = ask_after_an_attach(runtime, MACHINES, what, &physical, times)?;
            ensure!(!is_said(&output)?, "{runtime}, {what}: {output:?}");
        }
        Ok(())
    })
}

/// The exceptions of a class whose name tells whose they are: all, those that the right entry method has called for,
/// and those of the other one.
fn exceptions(document: &Value, entry: &str, other: &str) -> Result<[u64; 3]> {
    let number = |value: &Value| value.as_u64().context("no number");
    let [mut all, mut right, mut wrong] = [0; 3];
    for row in document["kinds"].as_array().context("no kinds")? {
        if row["class"] != format!("{entry}Exception") {
            continue;
        }
        all += number(&row["count"])?;
        for callers in row["callers"].as_array().context("no callers")? {
            let frames = callers["frames"].to_string();
            // The method below the one that throws is on the stack, too.
            ensure!(frames.contains("Helper.Do("), "{frames}");
            right += if has(&frames, entry) { number(&callers["count"])? } else { 0 };
            wrong += if has(&frames, other) { number(&callers["count"])? } else { 0 };
        }
    }
    Ok([all, right, wrong])
}

fn check_exceptions(output: &Output) -> Result<()> {
    let document = parsed(output)?;
    let rows = document["kinds"].as_array().context("no kinds")?;
    // Each tier of a method has places of its own.
    let shown = |row: &Value| ["class", "thrower", "framework", "catcher", "is_open"].map(|what| row[what].to_string());
    let different: BTreeSet<_> = rows.iter().map(shown).collect();
    ensure!(different.len() == rows.len(), "rows that are alike: {document}");
    for (entry, other) in [(ENTRIES[0], ENTRIES[1]), (ENTRIES[1], ENTRIES[0])] {
        let [all, right, wrong] = exceptions(&document, entry, other)?;
        ensure_or_longer!(all > 100, "{all} exceptions: {document}");
        ensure!(wrong == 0, "{right} of {all}, {wrong} wrong: {document}");
        ensure_or_longer!(right as f64 >= 0.9 * all as f64, "{right} of {all}: {document}");
    }
    Ok(())
}

#[test]
fn exceptions_have_those_that_await_the_thrower() -> Result<()> {
    patiently(modern()?, |runtime, times| {
        let asked = ["exceptions", "--json"];
        for kind in kinds(runtime, 1) {
            let output = ask_from_the_start(runtime, kind, "throw", &asked, times)?;
            check_exceptions(&output).with_context(|| format!("{runtime}, {kind}, from the start"))?;
            let asked = [&asked[..], with_callers(runtime)].concat();
            let output = ask_after_an_attach(runtime, kind, "throw", &asked, times)?;
            check_exceptions(&output).with_context(|| format!("{runtime}, {kind}, after an attach"))?;
        }
        Ok(())
    })
}

/// The methods of the application stand in the text.
#[test]
fn exceptions_say_who_awaits_the_thrower() -> Result<()> {
    patiently(modern()?, |runtime, times| {
        let output = ask_from_the_start(runtime, MACHINES, "throw", &["exceptions"], times)?;
        let (_, stderr) = texts(&output);
        // On a busy machine the time may be over before the program has begun.
        ensure_or_longer!(stderr.contains("OrdersException"), "{runtime}: {stderr}");
        let callers = "called by Helper.Do(bool) < Shop.Query (async) < Shop.Load (async)";
        let is_right = stderr.lines().any(|line| line.contains(callers) && has(line, "Work"));
        // The first exceptions meet classes of which nothing is known yet, and on a busy machine there are few others.
        ensure_or_longer!(is_right, "{runtime}: {stderr}");
        let physical = ask_from_the_start(runtime, MACHINES, "throw", &["exceptions", "--physical"], times)?;
        let (_, stderr) = texts(&physical);
        ensure_or_longer!(stderr.contains("OrdersException"), "{runtime}: {stderr}");
        ensure!(!stderr.contains("called by"), "{runtime}: {stderr}");
        Ok(())
    })
}

/// Both threads of the longest waits have the entry method that their innermost method names, as far as callers are
/// known.
fn check_locks(document: &Value, folded: &Path) -> Result<()> {
    let longest = document["longest"].as_array().context("no waits")?;
    ensure_or_longer!(!longest.is_empty(), "no waits: {document}");
    let [mut seen, mut right] = [0; 2];
    for wait in longest {
        for stack in [&wait["waiter"], &wait["owner"]] {
            let frames = stack["frames"].to_string();
            // What runs within the end of another method has that on its stack, as long as a class is new to the probe.
            let frames = frames.split("AsyncStateMachineBox<").next().unwrap_or_default();
            for (entry, other) in [(ENTRIES[0], ENTRIES[1]), (ENTRIES[1], ENTRIES[0])] {
                if frames.contains(&format!("Helper.WaitOf{entry}(")) {
                    seen += 1;
                    ensure!(!has(frames, other), "{entry}: {frames}");
                    right += i32::from(has(frames, entry));
                }
            }
        }
    }
    ensure_or_longer!(seen >= 2 && 2 * right >= seen, "{document}");
    let [mut all, mut right] = [0.0; 2];
    for line in fs::read_to_string(folded)?.lines() {
        let (stack, weight) = line.rsplit_once(' ').with_context(|| format!("no weight: {line}"))?;
        let weight: f64 = weight.parse()?;
        for entry in ENTRIES.iter().filter(|entry| stack.contains(&format!("Helper.WaitOf{entry}("))) {
            all += weight;
            right += if has(stack, entry) { weight } else { 0.0 };
        }
    }
    ensure_or_longer!(all > 0.0, "{document}");
    ensure_or_longer!(right >= 0.9 * all, "{right} of {all} ns of owners: {document}");
    Ok(())
}

#[test]
fn waiters_and_owners_of_locks_have_those_that_await_them() -> Result<()> {
    patiently(modern()?, |runtime, times| {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("l.folded");
        let asked = ["locks", "--json", "--depth", "100", "-o", &file.to_string_lossy()];
        for kind in kinds(runtime, 0) {
            let output = ask_from_the_start(runtime, kind, "lock", &asked, times)?;
            let document = parsed(&output)?;
            check_locks(&document, &file).with_context(|| format!("{runtime}, {kind}, from the start"))?;
            let asked = [&asked[..], with_callers(runtime)].concat();
            let output = ask_after_an_attach(runtime, kind, "lock", &asked, times)?;
            let document = parsed(&output)?;
            check_locks(&document, &file).with_context(|| format!("{runtime}, {kind}, after an attach"))?;
        }
        Ok(())
    })
}

/// Where a probe stays in the code, the next question says why it cannot be asked, and `top` has the runtime sample. On
/// .NET 11 there is no need for a probe, and the profiler leaves.
#[test]
fn a_question_after_one_with_a_probe_says_what_holds() -> Result<()> {
    patiently(modern()?, |runtime, times| {
        let program = Program::start(Run::new(runtime, MACHINES).args(["lock"]).command()?)?;
        program.expect("ready")?;
        let pid = program.child.id().to_string();
        let seconds = times.to_string();
        let ask = |asked: &[&str]| anyhow::Ok(corprof()?.args(asked).args([&pid, "--duration", &seconds]).output()?);
        let first = ask(&["locks", "--json", "--async-probe"])?;
        ensure!(first.status.success() && parsed(&first)?["question"] == "locks", "{runtime}: {first:?}");
        let second = ask(&["exceptions", "--json"])?;
        let (_, stderr) = texts(&second);
        if runtime.has(Difference::AsyncOperations) {
            ensure!(second.status.success(), "{runtime}: {second:?}");
        } else {
            ensure!(second.status.code() == Some(1), "{runtime}: {second:?}");
            ensure!(stderr.contains("and --async-probe, which change code"), "{runtime}: {stderr}");
            let table = ask(&["top", "--json"])?;
            let document: Value = serde_json::from_slice(&table.stdout)?;
            ensure!(document["by_event_pipe"] == true, "{runtime}: {table:?}");
        }
        let (code, stderr) = program.end()?;
        ensure!(code == Some(0), "{runtime}: {code:?}: {stderr}");
        Ok(())
    })
}

mod long {
    use super::*;

    /// A thread that rests in a resumed method has not told yet that it has resumed another one before that, while others go
    /// on.
    #[test]
    fn exceptions_of_a_thread_that_rests_have_those_that_await_it() -> Result<()> {
        patiently(modern()?, |runtime, times| {
            for kind in kinds(runtime, 0) {
                let output = ask_from_the_start(runtime, kind, "rest", &["exceptions", "--json"], 5 * times)?;
                check_exceptions(&output).with_context(|| format!("{runtime}, {kind}"))?;
            }
            Ok(())
        })
    }
}
