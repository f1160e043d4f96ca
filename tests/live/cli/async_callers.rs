//! `corprof record` shows who awaits a resumed method: where the runtime tells it (.NET 11), and by the profiler's own
//! probe elsewhere.

use anyhow::anyhow;
use corprof_diagnostics::{Level, Process, Provider, SessionConfig};
use corprof_export::STARTED_BY;
use corprof_tests::{ensure_or_longer, patiently, repetitions};
use serde_json::Value;

use super::*;
use crate::cli::recording::Recording;

/// The entry methods of tests/managed/modern/AsyncShares.cs, the innermost frames that tell whose a sample is, and the
/// shares of the processor time, in per cent.
const ENTRIES: [(&str, &str, f64); 4] = [
    ("Orders", "Witness.Of48(", 4800.0 / 101.0),
    ("Users", "Witness.Of29(", 2900.0 / 101.0),
    ("Reports", "Witness.Of19(", 1900.0 / 101.0),
    ("Stock", "Witness.Of5(", 500.0 / 101.0),
];

/// State machines, and where the runtime tells them the methods that it suspends itself, and both. The short form of a
/// test takes the one of this number, if there are several.
fn kinds(runtime: &Runtime, in_short: usize) -> &'static [&'static str] {
    let all: &[&str] =
        if runtime.has(Difference::AsyncOperations) { &["shop", "machines", "mixed"] } else { &["machines"] };
    let one = all.get(in_short..=in_short).unwrap_or(all);
    repetitions(one, all)
}

/// The source of async operations of .NET 11, and its keywords for stacks.
const OPERATIONS: (&str, u64) = ("System.Runtime.CompilerServices.AsyncProfilerEventSource", 0x2F65D);

/// So many samples are enough for shares.
const SAMPLES: u64 = 250;

/// How long the programs work that are recorded from their start, in milliseconds.
fn working(times: u64) -> String {
    (times * repetitions(2500, 4000)).to_string()
}

/// How long they are recorded, and others that are attached to, in seconds: the end of the recording comes first.
fn recording(times: u64) -> f64 {
    times as f64 * repetitions(2.0, 3.0)
}

/// What a folded profile has of the helper, in nanoseconds.
#[derive(Debug, Default)]
struct Helper {
    total: f64,
    /// Below each entry method, and by the witnesses.
    entries: [f64; 4],
    witnessed: [f64; 4],
    /// Below the entry method that the witness names, and no other.
    right: f64,
    /// Below a frame of the thread pool.
    in_pool: f64,
}

impl Helper {
    fn read(file: &Path) -> Result<Self> {
        let mut helper = Self::default();
        for line in fs::read_to_string(file)?.lines() {
            let (stack, weight) = line.rsplit_once(' ').with_context(|| format!("no weight: {line}"))?;
            let weight: f64 = weight.parse()?;
            let Some((callers, callees)) = stack.split_once("Helper.Burn(") else { continue };
            let Some(witness) = ENTRIES.iter().position(|(_, witness, _)| callees.contains(witness)) else { continue };
            helper.total += weight;
            helper.witnessed[witness] += weight;
            let is_in = |entry: &str| {
                callers.contains(&format!(".{entry}("))
                    || callers.contains(&format!(".{entry} (async)"))
                    || callers.contains(&format!(".<{entry}>"))
            };
            let found = (0..ENTRIES.len()).filter(|entry| is_in(ENTRIES[*entry].0)).collect::<Vec<_>>();
            found.iter().for_each(|entry| helper.entries[*entry] += weight);
            if found == [witness] {
                helper.right += weight;
            }
            if callers.contains("ThreadPoolWorkQueue.Dispatch") {
                helper.in_pool += weight;
            }
        }
        Ok(helper)
    }

    /// Whether nearly each sample has its entry method, and so each of these its share.
    fn check(&self) -> Result<()> {
        // On a full machine few samples stand for much time each.
        ensure_or_longer!(self.total > 0.0 && self.right >= 0.97 * self.total, "{self:?}");
        for (entry, (name, _, share)) in ENTRIES.into_iter().enumerate() {
            let percent = |time: f64| 100.0 * time / self.total;
            let found = percent(self.entries[entry]);
            ensure!((found - percent(self.witnessed[entry])).abs() <= 4.0, "{name}: {self:?}");
            // So much more by the chance of few samples, and of few requests where the program gets little of a processor.
            ensure_or_longer!((found - share).abs() <= 12.0, "{name} has {found:.1} % instead of {share:.1}: {self:?}");
        }
        Ok(())
    }
}

/// The runtimes that run the program.
fn modern() -> Result<Vec<Runtime>> {
    let all = Runtime::all_for_modern("AsyncShares")?;
    Ok(all.into_iter().filter(|runtime| !runtime.is_windows() && !runtime.is_emulated()).collect())
}

/// `corprof record` of this program, or of this process.
fn record(file: &Path, options: &[&str], seconds: f64) -> Result<Command> {
    let mut command = corprof()?;
    command.arg("record").arg("-o").arg(file).args(["--rate", "1000", "--duration", &seconds.to_string()]);
    command.args(options);
    Ok(command)
}

/// Records this process without callers, of which then nothing is said.
fn check_physical(file: &Path, pid: &str, times: u64) -> Result<()> {
    let output = record(file, &["--pid", pid, "--physical"], 0.6 * times as f64)?.output()?;
    let (_, stderr) = texts(&output);
    has_recorded(&output)?;
    ensure!(!is_said(&stderr), "{stderr}");
    let physical = Helper::read(file)?;
    ensure_or_longer!(physical.total > 0.0, "{stderr}");
    ensure!(physical.in_pool > 0.9 * physical.total, "{physical:?}: {stderr}");
    Ok(())
}

/// The number of samples that the command names.
fn samples(stderr: &str) -> Result<u64> {
    let before = stderr.split_once(" samples in ").or_else(|| stderr.split_once(" sample in "));
    let (before, _) = before.with_context(|| format!("no samples: {stderr}"))?;
    let number = before.rsplit(' ').next().unwrap_or_default();
    Ok(number.replace(',', "").parse()?)
}

fn is_said(stderr: &str) -> bool {
    stderr.contains("Async callers: known of ")
}

/// Records a run from its start, and returns what the command says.
fn record_from_the_start(runtime: &Runtime, kind: &str, file: &Path, times: u64) -> Result<String> {
    // .NET 10 asks for it.
    let mut command = record(file, &["--env", "DOTNET_RuntimeAsync=1"], recording(times))?;
    let program = application(runtime, "AsyncShares")?;
    let output = command.arg("--").args(program).args([kind, &working(times)]).output()?;
    let (_, stderr) = texts(&output);
    has_recorded(&output)?;
    ensure_or_longer!(samples(&stderr)? >= SAMPLES, "{runtime}, {kind}: {stderr}");
    Ok(stderr)
}

#[test]
fn callers_are_those_that_await_from_the_start() -> Result<()> {
    patiently(modern()?, |runtime, times| {
        let folder = tempfile::tempdir()?;
        for kind in kinds(runtime, 1) {
            let file = folder.path().join("p.folded");
            let stderr = record_from_the_start(runtime, kind, &file, times)?;
            Helper::read(&file)?.check().with_context(|| format!("{runtime}, {kind}: {stderr}"))?;
            ensure!(is_said(&stderr), "{runtime}, {kind}: {stderr}");
        }
        Ok(())
    })
}

/// Frames without an address have symbols of their own in a recording.
#[test]
fn callers_are_those_that_await_in_a_recording() -> Result<()> {
    patiently(modern()?, |runtime, times| {
        let folder = tempfile::tempdir()?;
        for kind in kinds(runtime, 0) {
            let file = folder.path().join("p.nettrace");
            let stderr = record_from_the_start(runtime, kind, &file, times)?;
            let folded = folder.path().join("p.folded");
            fs::write(&folded, Recording::read(&file)?.folded())?;
            Helper::read(&folded)?.check().with_context(|| format!("{runtime}, {kind}: {stderr}"))?;
            let viewed = folder.path().join("viewed.folded");
            let output = corprof()?.arg("view").arg(&file).args(["--raw-names", "-o"]).arg(&viewed).output()?;
            ensure!(output.status.success(), "{output:?}");
            let shown = Helper::read(&viewed)?;
            shown.check().with_context(|| format!("{runtime}, {kind}, viewed: {stderr}"))?;
        }
        Ok(())
    })
}

/// Another profiler is in the process, so the runtime itself takes the samples.
#[test]
fn callers_are_those_that_await_in_samples_of_the_runtime() -> Result<()> {
    patiently(modern()?, |runtime, times| {
        if !runtime.has(Difference::AsyncOperations) {
            return Ok(());
        }
        let folder = tempfile::tempdir()?;
        for kind in kinds(runtime, 2) {
            let command = Run::new(runtime, "AsyncShares").args([kind]).profiler("attached").command()?;
            let program = Program::start(command)?;
            program.expect("ready")?;
            let pid = program.child.id().to_string();
            let file = folder.path().join("p.folded");
            let output = record(&file, &["--pid", &pid], recording(times))?.output()?;
            let (_, stderr) = texts(&output);
            ensure!(output.status.success() && stderr.contains("by EventPipe"), "{runtime}: {output:?}");
            ensure_or_longer!(samples(&stderr)? >= SAMPLES, "{runtime}, {kind}: {stderr}");
            Helper::read(&file)?.check().with_context(|| format!("{runtime}, {kind}: {stderr}"))?;
            if repetitions(false, true) {
                check_physical(&file, &pid, times).with_context(|| format!("{runtime}, {kind}"))?;
            }
            program.end()?;
        }
        Ok(())
    })
}

#[test]
fn callers_are_those_that_await_after_an_attach_and_stacks_are_physical_on_request() -> Result<()> {
    patiently(modern()?, |runtime, times| {
        if !runtime.has(Difference::AsyncOperations) {
            return Ok(());
        }
        let folder = tempfile::tempdir()?;
        for kind in kinds(runtime, 2) {
            let program = Program::start(Run::new(runtime, "AsyncShares").args([kind]).command()?)?;
            program.expect("ready")?;
            let pid = program.child.id().to_string();
            let file = folder.path().join("p.folded");
            // There is no need for a probe, and the profiler leaves: the next one can come.
            for &probe in repetitions(&[None][..], &[None, Some("--async-probe")]) {
                let options: Vec<&str> = ["--pid", &pid].into_iter().chain(probe).collect();
                let output = record(&file, &options, recording(times))?.output()?;
                let (_, stderr) = texts(&output);
                has_recorded(&output)?;
                ensure!(!stderr.contains("at rest") && !stderr.contains("by EventPipe"), "{runtime}: {output:?}");
                ensure_or_longer!(samples(&stderr)? >= SAMPLES, "{runtime}, {kind}: {stderr}");
                ensure!(is_said(&stderr), "{runtime}, {kind}: {stderr}");
                Helper::read(&file)?.check().with_context(|| format!("{runtime}, {kind}: {stderr}"))?;
            }

            check_physical(&file, &pid, times).with_context(|| format!("{runtime}, {kind}"))?;
            program.end()?;
        }
        Ok(())
    })
}

/// The table of `corprof top` of this process.
fn top(pid: u32, options: &[&str], seconds: u64) -> Result<Value> {
    let mut command = corprof()?;
    command.args(["top", &pid.to_string(), "--json", "--budget", "50", "--rate", "500"]);
    let output = command.args(["--duration", &seconds.to_string()]).args(options).output()?;
    has_recorded(&output)?;
    serde_json::from_slice(&output.stdout).with_context(|| format!("no JSON: {output:?}"))
}

/// The sum of the total seconds of the methods with one of these in their names.
fn total(table: &Value, names: &[&str]) -> f64 {
    let rows = table["methods"].as_array().into_iter().flatten();
    let has =
        |row: &&Value| names.iter().any(|name| row["method"].as_str().is_some_and(|method| method.contains(name)));
    rows.filter(has).filter_map(|row| row["total_seconds"].as_f64()).sum()
}

/// Whether a table with async callers has the entry methods with their shares, and not the thread pool.
fn check_top(table: &Value) -> Result<()> {
    let burnt = total(table, &["Helper.Burn("]);
    ensure_or_longer!(burnt > 0.5, "{table}");
    for (entry, witness, share) in ENTRIES {
        // Of a state machine that a method of runtime async awaits, both are on one stack.
        let names = [format!(".{entry}("), format!(".{entry} (async)")];
        let found = names.iter().map(|name| 100.0 * total(table, &[name]) / burnt).fold(0.0, f64::max);
        let witnessed = 100.0 * total(table, &[witness]) / burnt;
        // What was sampled last waits for its callers, and so does all on a busy machine. What the entry method itself
        // takes, and its compilation, is no time of its witness.
        ensure_or_longer!(
            found > 0.6 * witnessed - 3.0 && found < witnessed + 4.0,
            "{found:.1} % of {entry}, {witnessed:.1} % by its witness: {table}"
        );
        // On a busy machine a run has few requests, and few samples.
        ensure_or_longer!(
            witnessed > 0.6 * share - 3.0 && witnessed < share + 12.0,
            "{witnessed:.1} % by the witness of {entry}: {table}"
        );
    }
    ensure_or_longer!(in_pool(table) < 0.3 * burnt, "{table}");
    let iterators = total(table, &["(iterator)"]);
    ensure!(iterators == 0.0, "an async method is no iterator: {table}");
    Ok(())
}

/// The time below the thread pool.
fn in_pool(table: &Value) -> f64 {
    total(table, &["ThreadPoolWorkQueue.Dispatch("])
}

#[test]
fn top_counts_for_those_that_await() -> Result<()> {
    patiently(modern()?, |runtime, times| {
        for kind in kinds(runtime, 0) {
            // .NET 10 asks for it.
            let run = Run::new(runtime, "AsyncShares").env("DOTNET_RuntimeAsync", "1").args([kind]);
            let program = Program::start(run.command()?)?;
            program.expect("ready")?;
            let table = top(program.child.id(), &[], repetitions(3, 4) * times)?;
            let burnt = total(&table, &["Helper.Burn("]);
            ensure_or_longer!(burnt > 0.5, "{runtime}, {kind}: {table}");
            let note = table["async_callers"].as_str().unwrap_or_default();
            if runtime.has(Difference::AsyncOperations) {
                // On a busy machine the profiler may not have heard of any operation yet.
                ensure_or_longer!(!note.is_empty(), "{runtime}, {kind}: {table}");
                ensure!(note.starts_with("Async callers: known of "), "{runtime}, {kind}: {table}");
                check_top(&table).with_context(|| format!("{runtime}, {kind}"))?;
            } else {
                ensure!(note.contains("has to start with the profiler"), "{runtime}, {kind}: {table}");
                ensure!(in_pool(&table) > 0.9 * burnt, "{runtime}, {kind}: {table}");
            }
            let table = top(program.child.id(), &["--physical"], times)?;
            let burnt = total(&table, &["Helper.Burn("]);
            ensure_or_longer!(burnt > 0.2, "{runtime}, {kind}: {table}");
            ensure!(table["async_callers"].is_null(), "{runtime}, {kind}: {table}");
            ensure!(in_pool(&table) > 0.9 * burnt, "{runtime}, {kind}: {table}");
            let (code, stderr) = program.end()?;
            ensure!(code == Some(0) && !stderr.contains("panicked"), "{runtime}, {kind}: {code:?}: {stderr}");
        }
        Ok(())
    })
}

/// Where the runtime does not tell, a probe finds them.
#[test]
fn top_counts_for_those_that_await_by_a_probe() -> Result<()> {
    patiently(with_machines()?, |runtime, times| {
        let program = Program::start(Run::new(runtime, "AsyncMachines").args(["work"]).command()?)?;
        program.expect("ready")?;
        let table = top(program.child.id(), &["--async-probe"], repetitions(3, 4) * times)?;
        ensure!(table["by_event_pipe"] == false, "{runtime}: {table}");
        let note = table["async_callers"].as_str().unwrap_or_default();
        ensure!(note.starts_with("Async callers: known of "), "{runtime}: {table}");
        check_top(&table).with_context(|| format!("{runtime}"))?;
        let (code, stderr) = program.end()?;
        ensure!(code == Some(0) && !stderr.contains("panicked"), "{runtime}: {code:?}: {stderr}");
        Ok(())
    })
}

/// Of the threads that burn in some looks by `corprof stacks`, those that have the right entry method, and others.
fn burning_threads(pid: u32, times: u64) -> Result<(u64, u64)> {
    let (mut right, mut others) = (0, 0);
    for _ in 0..3 * times {
        let output = corprof()?.args(["stacks", &pid.to_string(), "--json"]).output()?;
        ensure!(output.status.success(), "{output:?}");
        let document: Value = serde_json::from_slice(&output.stdout)?;
        for thread in document["threads"].as_array().into_iter().flatten() {
            let frames = thread["frames"].as_array().into_iter().flatten();
            let methods: Vec<&str> = frames.filter_map(|frame| frame["method"].as_str()).collect();
            let stack = methods.join(";");
            let Some((entry, ..)) = ENTRIES.into_iter().find(|(_, witness, _)| stack.contains(witness)) else {
                continue;
            };
            let is_it =
                |method: &&str| method.contains(&format!(".{entry}(")) || method.contains(&format!(".{entry} (async)"));
            if methods.iter().any(is_it) {
                right += 1;
            } else {
                others += 1;
            }
        }
    }
    Ok((right, others))
}

/// The samples in a method that an operation of AsyncStarted.cs calls, by their weights.
#[derive(Default)]
struct Called {
    total: f64,
    /// These methods have started the operation, and no others.
    started: f64,
    /// They await it.
    awaited: f64,
    /// Nobody is said to have started it.
    unstarted: f64,
}

impl Called {
    /// `callers` are parts of names, the outermost first.
    fn read(file: &Path, method: &str, callers: [&str; 2]) -> Result<Self> {
        let mut called = Self::default();
        for line in fs::read_to_string(file)?.lines() {
            let (stack, weight) = line.rsplit_once(' ').with_context(|| format!("no weight: {line}"))?;
            let weight: f64 = weight.parse()?;
            if !stack.contains(method) {
                continue;
            }
            called.total += weight;
            let found: Vec<&str> = stack.split(';').take_while(|frame| !frame.contains(".Compute")).collect();
            let is = |frames: &[&str]| frames.iter().zip(callers).all(|(frame, caller)| frame.contains(caller));
            match found[..] {
                [outer, inner, STARTED_BY] if is(&[outer, inner]) => called.started += weight,
                [outer, inner] if is(&[outer, inner]) => called.awaited += weight,
                _ => {}
            }
            if !stack.contains(STARTED_BY) {
                called.unstarted += weight;
            }
        }
        Ok(called)
    }
}

/// Nobody awaits these operations. The runtime tells who has called one without an `await`, and not who has called
/// `Task.Run`: the thread that begins the operation then runs none.
#[test]
fn creators_are_those_that_have_started_what_nobody_awaits() -> Result<()> {
    patiently(Runtime::all_for_modern("AsyncStarted")?, |runtime, times| {
        if !runtime.has(Difference::AsyncOperations) || runtime.is_windows() || runtime.is_emulated() {
            return Ok(());
        }
        let folder = tempfile::tempdir()?;
        for (kind, class) in [("shop", "Shop"), ("machines", "Machines")] {
            let program = Program::start(Run::new(runtime, "AsyncStarted").args([kind]).command()?)?;
            program.expect("ready")?;
            let pid = program.child.id().to_string();
            let file = folder.path().join("p.folded");
            let output = record(&file, &["--pid", &pid], 3.0 * times as f64)?.output()?;
            has_recorded(&output)?;
            program.end()?;
            let about = fs::read_to_string(&file)?;
            let work = format!("{class}.Work");
            let called = |helper, starter| Called::read(&file, helper, [&work, &format!("{class}.{starter}")]);
            // On a busy machine one goes on computing until its caller has begun to wait for it.
            for (helper, starter, is_awaited) in
                [("Helper.Forgotten(", "StartForgotten", false), ("Helper.Ahead(", "StartAhead", true)]
            {
                let Called { total, started, awaited, .. } = called(helper, starter)?;
                let right = if is_awaited { started + awaited } else { started };
                ensure_or_longer!(
                    total > 0.0 && right >= 0.93 * total,
                    "{runtime}, {kind}, {starter}: {right} of {total}: {about}"
                );
            }
            let Called { total, unstarted, .. } = called("Helper.Run(", "StartRun")?;
            ensure_or_longer!(total > 0.0, "{runtime}, {kind}: {about}");
            ensure!(unstarted >= total, "{runtime}, {kind}: the runtime tells who has called Task.Run: {about}");
        }
        Ok(())
    })
}

/// What the runtime suspends itself is known only where it tells it. Elsewhere all is as with `--physical`, and nothing
/// is said of it.
#[test]
fn stacks_are_physical_where_the_runtime_suspends_methods_and_does_not_tell() -> Result<()> {
    patiently(modern()?, |runtime, times| {
        if runtime.has(Difference::AsyncOperations) {
            return Ok(());
        }
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("p.folded");
        let mut command = record(&file, &["--env", "DOTNET_RuntimeAsync=1"], times as f64)?;
        let output = command.arg("--").args(application(runtime, "AsyncShares")?).args(["shop", "2000"]).output()?;
        let (_, stderr) = texts(&output);
        has_recorded(&output)?;
        ensure!(!is_said(&stderr), "{runtime}: {output:?}");
        let physical = Helper::read(&file)?;
        ensure_or_longer!(physical.total > 0.0, "{runtime}: {stderr}");
        ensure!(physical.in_pool > 0.9 * physical.total, "{runtime}: {physical:?}");
        Ok(())
    })
}

/// The runtimes that run the program with state machines only, and do not tell of them.
fn with_machines() -> Result<Vec<Runtime>> {
    let all = Runtime::all_for_modern("AsyncMachines")?.into_iter();
    let all = all.filter(|runtime| !runtime.is_windows() && !runtime.is_emulated());
    Ok(all.filter(|runtime| !runtime.has(Difference::AsyncOperations)).collect())
}

/// Records a run of the program with state machines from its start. What it does, the profile, and what is said of it.
fn record_machines(runtime: &Runtime, kind: &str, env: &[&str], times: u64) -> Result<(Helper, String)> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("p.folded");
    let mut command = record(&file, env, recording(times))?;
    let program = application(runtime, "AsyncMachines")?;
    let output = command.arg("--").args(program).args([kind, &working(times)]).output()?;
    let (_, stderr) = texts(&output);
    has_recorded(&output)?;
    ensure_or_longer!(samples(&stderr)? >= SAMPLES, "{runtime}, {kind}: {stderr}");
    ensure!(is_said(&stderr), "{runtime}, {kind}: {stderr}");
    Ok((Helper::read(&file)?, stderr))
}

/// The profiler finds out where a pooled `ValueTask` leads when the next method is compiled: before the first sample.
const AFTER_THE_START: [&str; 2] = ["--delay", "0.5"];

/// Generic methods, pooled `ValueTask`s, iterators, `ConfigureAwait(false)`, `WhenAll`, exceptions, methods that resume
/// others.
#[test]
fn callers_of_state_machines_of_all_kinds_are_those_that_await() -> Result<()> {
    patiently(with_machines()?, |runtime, times| {
        let (helper, stderr) = record_machines(runtime, "work", &AFTER_THE_START, times)?;
        ensure_or_longer!(helper.right >= 0.97 * helper.total, "{runtime}: {helper:?}, {stderr}");
        helper.check().with_context(|| format!("{runtime}: {stderr}"))
    })
}

/// Where the runtime does not tell, a probe in the code does: its profiler stays, at rest.
#[test]
fn callers_are_those_that_await_after_an_attach_with_a_probe() -> Result<()> {
    patiently(modern()?, |runtime, times| {
        if runtime.has(Difference::AsyncOperations) {
            return Ok(());
        }
        let run = Run::new(runtime, "AsyncShares").env("DOTNET_RuntimeAsync", "1").args(["machines"]);
        let (helper, stderr) = record_with_probe(runtime, run, times)?;
        ensure_or_longer!(helper.right >= 0.99 * helper.total, "{runtime}: {helper:?}, {stderr}");
        helper.check().with_context(|| format!("{runtime}: {stderr}"))
    })
}

/// Where iterators and pooled `ValueTask`s lead is found out when another method is compiled, which may never come after
/// an attach. Until then callers end there, and none is another's.
#[test]
fn callers_with_a_probe_end_at_iterators_and_are_not_those_of_others() -> Result<()> {
    patiently(with_machines()?, |runtime, times| {
        let run = Run::new(runtime, "AsyncMachines").args(["work"]);
        let (helper, stderr) = record_with_probe(runtime, run, times)?;
        let found: f64 = helper.entries.iter().sum();
        ensure!(found <= 1.01 * helper.right, "{runtime}: {helper:?}, {stderr}");
        // These two have neither on their ways.
        for entry in [0, 3] {
            let (found, all) = (helper.entries[entry], helper.witnessed[entry]);
            ensure_or_longer!(found >= 0.97 * all, "{runtime}: {helper:?}, {stderr}");
        }
        Ok(())
    })
}

/// Records a running program with a probe.
fn record_with_probe(runtime: &Runtime, run: Run, times: u64) -> Result<(Helper, String)> {
    let folder = tempfile::tempdir()?;
    let program = Program::start(run.command()?)?;
    program.expect("ready")?;
    let pid = program.child.id().to_string();
    let file = folder.path().join("p.folded");
    // Classes are met first.
    let options = ["--pid", &pid, "--async-probe", "--delay", &times.to_string()];
    let output = record(&file, &options, recording(times))?.output()?;
    let (_, stderr) = texts(&output);
    has_recorded(&output)?;
    ensure_or_longer!(samples(&stderr)? >= SAMPLES, "{runtime}: {stderr}");
    ensure!(is_said(&stderr) && stderr.contains("as --async-probe does"), "{runtime}: {stderr}");
    let (code, of_program) = program.end()?;
    ensure!(code == Some(0) && !of_program.contains("panicked"), "{runtime}: {code:?}: {of_program}");
    Ok((Helper::read(&file)?, stderr))
}

/// While all objects move without a pause, the chains are still those.
#[test]
fn callers_are_those_that_await_while_collections_run() -> Result<()> {
    patiently(with_machines()?, |runtime, times| {
        let options = [&AFTER_THE_START[..], &["--env", "DOTNET_GCgen0size=20000"]].concat();
        // Collections take most of the time.
        let (helper, stderr) = record_machines(runtime, "collect", &options, 2 * times)?;
        ensure_or_longer!(helper.right >= 0.9 * helper.total, "{runtime}: {helper:?}, {stderr}");
        Ok(())
    })
}

/// Classes of state machines come and go, and the next ones get their numbers. No sample has another's caller.
#[test]
fn callers_are_not_those_of_others_while_assemblies_are_unloaded() -> Result<()> {
    patiently(with_machines()?, |runtime, times| {
        let (helper, stderr) = record_machines(runtime, "unload", &[], times)?;
        let found: f64 = helper.entries.iter().sum();
        ensure_or_longer!(helper.right > 0.5 * helper.total, "{runtime}: {helper:?}, {stderr}");
        ensure!(found <= helper.right, "{runtime}: {helper:?}, {stderr}");
        Ok(())
    })
}

mod long {
    use super::*;

    /// The runtimes that run the web service.
    fn with_web() -> Result<Vec<Runtime>> {
        let all = Runtime::all_for_modern("WebShares")?.into_iter();
        Ok(all.filter(|runtime| !runtime.is_windows() && !runtime.is_emulated()).collect())
    }

    /// Whether nearly each sample of the web service has its endpoint.
    fn check_web(runtime: &Runtime, helper: &Helper, stderr: &str) -> Result<()> {
        let least = if runtime.has(Difference::AsyncOperations) { 0.97 } else { 0.99 };
        ensure_or_longer!(helper.right >= least * helper.total, "{runtime}: {helper:?}, {stderr}");
        helper.check().with_context(|| format!("{runtime}: {stderr}"))
    }

    /// On a web service, whose endpoints the framework calls: from its start, where the first requests compile all.
    #[test]
    fn samples_in_shared_code_of_a_web_service_have_their_endpoints() -> Result<()> {
        patiently(with_web()?, |runtime, times| {
            let folder = tempfile::tempdir()?;
            let file = folder.path().join("p.folded");
            // The longer the run, the more it may compile before: a busy machine takes its time for the first requests.
            let delay = times as f64 * 0.5;
            let mut command = record(&file, &["--delay", &delay.to_string()], recording(times))?;
            let program = application(runtime, "WebShares")?;
            let output = command.arg("--").args(program).arg((4000 * times).to_string()).output()?;
            has_recorded(&output)?;
            let (_, stderr) = texts(&output);
            ensure_or_longer!(samples(&stderr)? >= SAMPLES, "{runtime}: {stderr}");
            check_web(runtime, &Helper::read(&file)?, &stderr)
        })
    }

    #[test]
    fn samples_of_a_web_service_have_their_endpoints_after_an_attach() -> Result<()> {
        patiently(with_web()?, |runtime, times| {
            if !runtime.has(Difference::AsyncOperations) {
                let (helper, stderr) = record_with_probe(runtime, Run::new(runtime, "WebShares"), times)?;
                return check_web(runtime, &helper, &stderr);
            }
            let folder = tempfile::tempdir()?;
            let file = folder.path().join("p.folded");
            let program = Program::start(Run::new(runtime, "WebShares").command()?)?;
            program.expect("ready")?;
            let pid = program.child.id().to_string();
            let output = record(&file, &["--pid", &pid], recording(times))?.output()?;
            let (_, stderr) = texts(&output);
            ensure!(output.status.success() && program.end()?.0 == Some(0), "{runtime}: {output:?}");
            check_web(runtime, &Helper::read(&file)?, &stderr)
        })
    }

    /// Another profiler is in the process, so the runtime itself takes the samples.
    #[test]
    fn top_and_stacks_have_those_that_await_beside_another_profiler() -> Result<()> {
        patiently(modern()?, |runtime, times| {
            if !runtime.has(Difference::AsyncOperations) {
                return Ok(());
            }
            for kind in kinds(runtime, 0) {
                let program =
                    Program::start(Run::new(runtime, "AsyncShares").args([kind]).profiler("attached").command()?)?;
                program.expect("ready")?;
                let pid = program.child.id();
                let table = top(pid, &[], 3 * times)?;
                ensure!(table["by_event_pipe"] == true, "{runtime}, {kind}: {table}");
                check_top(&table).with_context(|| format!("{runtime}, {kind}"))?;
                let note = table["async_callers"].as_str().unwrap_or_default();
                ensure!(note.starts_with("Async callers: known of "), "{runtime}, {kind}: {table}");
                let table = top(pid, &["--physical"], times)?;
                let burnt = total(&table, &["Helper.Burn("]);
                ensure_or_longer!(burnt > 0.2, "{runtime}, {kind}: {table}");
                ensure!(in_pool(&table) > 0.9 * burnt, "{runtime}, {kind}: {table}");

                let (found, without) = burning_threads(pid, times)?;
                ensure_or_longer!(found > 0 && without <= found / 4, "{runtime}, {kind}: {found} and {without}");
                program.end()?;
            }
            Ok(())
        })
    }

    /// The runtime itself has written the file, as for dotnet-trace.
    #[test]
    fn callers_are_those_that_await_in_a_trace_of_the_runtime() -> Result<()> {
        patiently(modern()?, |runtime, times| {
            if !runtime.has(Difference::AsyncOperations) {
                return Ok(());
            }
            let folder = tempfile::tempdir()?;
            for kind in kinds(runtime, 1) {
                let program = Program::start(Run::new(runtime, "AsyncShares").args([kind]).command()?)?;
                program.expect("ready")?;
                let pid = program.child.id();
                let file = folder.path().join("p.nettrace");
                let operations = || Provider::new(OPERATIONS.0, OPERATIONS.1, Level::Informational);
                let seconds = 2 * times;
                let flush = thread::spawn(move || -> Result<()> {
                    thread::sleep(Duration::from_secs(seconds));
                    // Its start has all threads write what they hold.
                    let _second = Process::open(pid)?.client().start_session(&SessionConfig::new([operations()]))?;
                    thread::sleep(Duration::from_secs(times));
                    Ok(())
                });
                crate::cli::view::record_with(
                    pid,
                    &file,
                    Duration::from_secs(seconds + 2 * times),
                    Some(operations()),
                )?;
                flush.join().map_err(|_| anyhow!("panicked"))??;
                program.end()?;
                let folded = folder.path().join("p.folded");
                let view = |options: &[&str]| -> Result<Helper> {
                    let mut command = corprof()?;
                    command
                        .arg("view")
                        .arg(&file)
                        .args(["--raw-names", "--to", &seconds.to_string(), "-o"])
                        .arg(&folded);
                    let output = command.args(options).output()?;
                    ensure!(output.status.success(), "{output:?}");
                    Helper::read(&folded)
                };
                view(&[])?.check().with_context(|| format!("{runtime}, {kind}"))?;
                let physical = view(&["--physical"])?;
                ensure!(physical.in_pool > 0.9 * physical.total, "{runtime}, {kind}: {physical:?}");
                let output = corprof()?.arg("view").arg(&file).output()?;
                ensure!(is_said(&texts(&output).0), "{runtime}, {kind}: {output:?}");
            }
            Ok(())
        })
    }
}
