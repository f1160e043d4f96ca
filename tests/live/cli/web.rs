//! What differs between runtimes, on a web application: on .NET 11 the runtime itself suspends the methods of ASP.NET.

use std::collections::BTreeMap;

use corprof_tests::{Outcome, ensure_or_longer, patiently};
use serde_json::Value;

use super::super::*;

const APP: &str = "WebWaits";

/// The runtimes of this system that have ASP.NET.
fn web_runtimes() -> Result<Vec<Runtime>> {
    let runtimes = Runtime::all_for_modern(APP)?.into_iter();
    Ok(runtimes.filter(|runtime| !runtime.is_windows() && !runtime.is_emulated()).collect())
}

/// The application, whose input ends at once: it answers each of its requests twice or more.
fn short_run(runtime: &Runtime) -> Run {
    Run::new(runtime, APP)
}

/// The application while it answers requests.
fn running(runtime: &Runtime, arguments: &[&str]) -> Result<Program> {
    let program = Program::start(Run::new(runtime, APP).args(arguments.iter().copied()).command()?)?;
    program.expect("ready")?;
    Ok(program)
}

/// What the timer tells of a method: calls, and nanoseconds that it ran and that it waited.
#[derive(Default)]
struct MethodTime {
    calls: u64,
    ran: u64,
    waited: u64,
}

/// The sums over the methods in the timer's table that have one of these names in theirs and wait, by that. The method
/// that starts a state machine does not wait.
fn times(table: &str, names: &[&'static str]) -> Result<BTreeMap<&'static str, MethodTime>> {
    let mut sums: BTreeMap<_, MethodTime> = BTreeMap::new();
    for line in table.lines().skip(1) {
        let cells: Vec<&str> = line.rsplitn(6, ',').collect();
        let &[waited, _, _, inclusive, calls, method] = &cells[..] else { anyhow::bail!("no row: {line}") };
        let waits = waited != "0";
        for name in names.iter().filter(|name| waits && method.contains(*name)) {
            let sum = sums.entry(*name).or_default();
            sum.calls += calls.parse::<u64>()?;
            sum.ran += inclusive.parse::<u64>()?;
            sum.waited += waited.parse::<u64>()?;
        }
    }
    Ok(sums)
}

/// The framework waits for the answer in a method that the runtime itself suspends on .NET 11, and that is a state
/// machine on .NET 10.
#[test]
fn waits_for_answers_are_no_work_of_the_framework() -> Result<()> {
    const SENDS: &str = "SendWithVersionDetectionAndRetryAsync";
    const COLLECTS: &str = "<Collect>";
    for runtime in web_runtimes()? {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("times.csv");
        let filter = format!("{{Shop.*,*{SENDS}*}}");
        let run = short_run(&runtime).built_in("timer").env("TIMER_OUT", &file).env("TIMER_FILTER", filter);
        let outcome = run.run()?;
        outcome.exited_with(0)?;
        let times = times(&fs::read_to_string(&file)?, &[SENDS, COLLECTS])?;
        let all = outcome.duration.as_nanos() as u64;
        // Reports are asked for one after the other, and orders beside them.
        for (name, at_once) in [(SENDS, 2), (COLLECTS, 1)] {
            let &MethodTime { calls, ran, waited } =
                times.get(name).with_context(|| format!("no {name}: {outcome}"))?;
            println!("{runtime}: {name}: {calls} calls ran for {ran} ns and waited for {waited} ns");
            ensure!(calls >= 2, "{name}: {calls} calls: {outcome}");
            // Each report waits for 200 ms; a delay begins some time before its method is suspended.
            ensure!(waited >= 2 * 150_000_000, "{name} waited for {waited} ns: {outcome}");
            ensure!(ran + waited <= at_once * all, "{name} took {ran} and {waited} ns of {all}: {outcome}");
        }
    }
    Ok(())
}

/// The calls of a method that are told to begin and to end.
fn begins_and_ends(outcome: &Outcome, method: &str) -> (usize, usize) {
    let of = |ending: &str| {
        let start = format!("{method}{ending}");
        outcome.stderr.lines().filter(|line| line.starts_with(&start)).count()
    };
    (of("("), of(" returns"))
}

#[test]
fn values_of_requests_are_told_although_their_callers_are_suspended() -> Result<()> {
    for runtime in web_runtimes()? {
        for by in ["runtime", "il"] {
            let run = short_run(&runtime).built_in("trace_values");
            let run = run.env("TRACE_VALUES", "Shop.*").env("TRACE_VALUES_BY", by);
            let outcome = run.run()?;
            outcome.exited_with(0)?;
            for method in ["Shop.Orders", "Shop.Reports", "Shop.Query", "Shop.Collect"] {
                let (begun, ended) = begins_and_ends(&outcome, method);
                ensure!(begun >= 2 && begun == ended, "{by}: {method}: {begun} begun, {ended} ended: {outcome}");
            }
        }
    }
    Ok(())
}

#[test]
fn the_requests_that_hold_a_lock_are_named() -> Result<()> {
    patiently(web_runtimes()?, |runtime, longer| {
        let program = running(runtime, &["0", "stock"])?;
        let pid = program.child.id().to_string();
        let output = corprof()?.args(["locks", &pid, "--duration", &(3 * longer).to_string(), "--json"]).output()?;
        let (stdout, stderr) = texts(&output);
        ensure!(output.status.success(), "{runtime}: {stderr}");
        let answer: Value = serde_json::from_str(&stdout)?;
        let rows = |name: &str| answer[name].as_array().cloned().unwrap_or_default();
        let waiters = rows("waiters");
        let waits: u64 = waiters.iter().filter_map(|waiter| waiter["waits"].as_u64()).sum();
        ensure_or_longer!(waits >= 10, "{runtime}: {waits} waits: {answer}");
        // Two of three wait while one sleeps with the lock. On a busy machine nobody looks at some of the waits.
        let waited = answer["waited_ms"].as_f64().context("no time")?;
        let owners = rows("owners");
        let time_of = |is_it: fn(&str) -> bool| -> f64 {
            let owners = owners.iter().filter(|owner| owner["method"].as_str().is_some_and(is_it));
            owners.filter_map(|owner| owner["waited_for_ms"].as_f64()).sum()
        };
        let of_holders = time_of(|method| method.starts_with("Shop."));
        let of_others = time_of(|method| !method.starts_with("Shop.") && method != "[not seen]");
        println!("{runtime}: {waits} waits of {waited} ms, {of_holders} ms for holders, {of_others} ms for others");
        ensure!(of_others <= 0.05 * waited && of_holders <= 1.1 * waited + 1.0, "{runtime}: {answer}");
        ensure_or_longer!(of_holders >= 0.5 * waited, "{runtime}: {of_holders} of {waited} ms for holders: {answer}");
        let (code, stderr) = program.end()?;
        ensure!(code == Some(0) && stderr.is_empty(), "{runtime}: {code:?}: {stderr}");
        Ok(())
    })
}

#[test]
fn idle_threads_of_the_pool_wait() -> Result<()> {
    /// The method of a thread of the pool.
    const THREAD: &str = "PortableThreadPool.WorkerThread.WorkerThreadStart(";
    /// The methods in which it gives its processor away, after it has spun: of .NET 11, and of .NET 10.
    const BLOCKS: [&str; 2] = ["LowLevelLifoSemaphore.Block(", "LowLevelLifoSemaphore.WaitForSignal("];
    patiently(web_runtimes()?, |runtime, longer| {
        let program = running(runtime, &[])?;
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("p.folded");
        let mut command = corprof()?;
        command.args(["record", "--mode", "wall", "--duration", &(2 * longer).to_string()]);
        let output = command.arg("-o").arg(&file).args(["-p", &program.child.id().to_string()]).output()?;
        ensure!(output.status.success(), "{runtime}: {output:?}");
        let text = fs::read_to_string(&file)?;
        let stacks = text.lines().filter_map(|line| {
            let (stack, weight) = line.rsplit_once(' ')?;
            Some((stack, weight.parse::<u64>().ok()?))
        });
        let is_idle = |stack: &str| stack.contains(THREAD) && BLOCKS.iter().any(|method| stack.contains(method));
        let idle: Vec<_> = stacks.filter(|(stack, _)| is_idle(stack)).collect();
        let weight: u64 = idle.iter().map(|(_, weight)| weight).sum();
        let waits = idle.iter().filter(|(stack, _)| stack.starts_with("[waits];"));
        let waits: u64 = waits.map(|(_, weight)| weight).sum();
        println!("{runtime}: idle threads waited for {waits} of {weight} ns");
        ensure_or_longer!(weight > 0, "{runtime}: no thread of the pool is idle: {text}");
        // The rest: a thread that has been woken waits for a processor.
        ensure_or_longer!(waits * 10 >= weight * 8, "{runtime}: {waits} of {weight} ns are waits: {text}");
        program.end()?;
        Ok(())
    })
}
