//! `corprof waits` and `requests` tell the queue of the thread pool from what is awaited.

use corprof_tests::{ensure_or_longer, patiently};
use serde_json::Value;

use super::super::documents::Schema;
use super::*;

/// What a command tells of so many seconds of a run of tests/managed/modern/Queued.cs.
fn told(runtime: &Runtime, command: &str, arguments: &[&str], seconds: u64) -> Result<Value> {
    let program = Program::start(Run::new(runtime, "Queued").args(arguments.iter().copied()).command()?)?;
    program.expect("ready")?;
    let pid = program.child.id().to_string();
    let output = corprof()?.args([command, &pid, "--duration", &seconds.to_string(), "--json"]).output()?;
    let (stdout, stderr) = texts(&output);
    ensure!(output.status.success(), "{runtime}: {stderr}");
    let report: Value = serde_json::from_str(&stdout)?;
    Schema::read()?.check(command, &report)?;
    program.end()?;
    Ok(report)
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

/// The sums of waiting and of queueing at `Shop.Load`, in milliseconds.
fn sums(runtime: &Runtime, command: &str, report: &Value) -> Result<(f64, f64)> {
    let rows = if command == "waits" { &report["places"] } else { &report["endpoints"][0]["waits"] };
    let rows = rows.as_array().with_context(|| format!("{runtime}: no list: {report}"))?;
    let row = rows.iter().find(|row| row["method"] == "Shop.Load (async)");
    let row = row.with_context(|| format!("{runtime}: no Shop.Load: {report}"))?;
    let queued = number(&row["queued_ms"]);
    // `waits` has the whole.
    let waiting = if command == "waits" { number(&row["total_ms"]) - queued } else { number(&row["ms"]) };
    Ok((waiting, queued))
}

/// Checks the sums of a timer of 300 ms, when threads have nothing else to do, and of one of 20 ms, when they are busy
/// for 200 ms each time. Returns what is told of the latter.
fn check(runtime: &Runtime, command: &str, times: u64) -> Result<Value> {
    let (waiting, queued) = sums(runtime, command, &told(runtime, command, &["300"], 2 * times)?)?;
    ensure_or_longer!(waiting > 500.0, "{runtime}: {command}: {waiting} {queued}");
    ensure!(queued < 0.3 * waiting, "{runtime}: {command}: {waiting} {queued}");
    let busy = told(runtime, command, &["20", "200"], 2 * times)?;
    let (waiting, queued) = sums(runtime, command, &busy)?;
    ensure_or_longer!(queued > 250.0, "{runtime}: {command}: {waiting} {queued}");
    ensure!(waiting < 0.6 * queued && waiting > 0.02 * queued, "{runtime}: {command}: {waiting} {queued}");
    Ok(busy)
}

fn runtimes_for_queued() -> Result<Vec<Runtime>> {
    let all = Runtime::all_for_modern("Queued")?;
    // corprof is built for this system.
    Ok(all.into_iter().filter(|runtime| !runtime.is_windows() && !runtime.is_emulated()).collect())
}

#[test]
fn waits_tell_the_queue_of_a_starved_pool_from_a_long_wait() -> Result<()> {
    patiently(runtimes_for_queued()?, |runtime, times| check(runtime, "waits", times).map(drop))
}

#[test]
fn requests_tell_the_queue_of_a_starved_pool_from_a_long_wait() -> Result<()> {
    patiently(runtimes_for_queued()?, |runtime, times| {
        let report = check(runtime, "requests", times)?;
        let lines = report["slowest"][0]["timeline"].as_array().context("no timeline")?;
        let is = |does: &str| lines.iter().any(|line| line["does"] == does && line["method"] == "Shop.Load (async)");
        ensure!(is("waits") && is("queued"), "{runtime}: {report}");
        Ok(())
    })
}
