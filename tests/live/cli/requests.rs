//! `corprof requests` and `corprof waits`: what only .NET 11 tells.

use serde_json::Value;

use super::*;

/// A run of tests/managed/modern/WebWaits.cs.
fn web(runtime: &Runtime) -> Result<Program> {
    let program = Program::start(Run::new(runtime, "WebWaits").command()?)?;
    program.expect("ready")?;
    Ok(program)
}

fn asked(program: &Program, arguments: &[&str]) -> Result<Output> {
    let (command, options) = arguments.split_first().context("no command")?;
    let mut corprof = corprof()?;
    corprof.arg(command).arg(program.child.id().to_string()).args(options);
    Ok(corprof.output()?)
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

#[test]
fn requests_tell_where_they_wait() -> Result<()> {
    for runtime in runtimes()? {
        if !runtime.has(Difference::AsyncOperations) {
            continue;
        }
        let program = web(&runtime)?;
        let output = asked(&program, &["requests", "--duration", "3", "--slowest", "2", "--json"])?;
        let (stdout, stderr) = texts(&output);
        ensure!(output.status.success(), "{runtime}: {stderr}");
        let report: Value = serde_json::from_str(&stdout)?;
        let endpoints = report["endpoints"].as_array().context("no endpoints")?;
        let endpoint = |path: &str| {
            let found = endpoints.iter().find(|endpoint| endpoint["endpoint"] == format!("GET {path}"));
            found.with_context(|| format!("{runtime}: no {path}: {report}"))
        };
        let reports = endpoint("/reports")?;
        let count = number(&reports["requests"]);
        // 220 ms of delays, and what the machine adds.
        ensure!(count >= 3.0 && number(&reports["mean_ms"]) >= 219.0, "{runtime}: {reports}");
        let first = &reports["waits"][0];
        ensure!(first["method"] == "Shop.Collect" && first["is_mine"] == true, "{runtime}: {reports}");
        // The timer starts before the method is suspended, on a busy machine some milliseconds before.
        ensure!(number(&first["ms"]) >= 150.0 * (count - 1.0), "{runtime}: {reports}");
        let orders = endpoint("/orders")?;
        ensure!(orders["waits"][0]["method"] == "Shop.Query", "{runtime}: {orders}");
        ensure!((19.0..=200.0).contains(&number(&orders["mean_ms"])), "{runtime}: {orders}");
        let all = number(&reports["total_ms"]);
        let told = number(&reports["running_ms"]) + number(&reports["waiting_ms"]);
        ensure!(told <= 1.001 * all && told >= 0.9 * all, "{runtime}: {reports}");
        let slowest = &report["slowest"][0];
        ensure!(slowest["endpoint"] == "GET /reports", "{runtime}: {slowest}");
        ensure!(slowest["trace_id"].as_str().is_some_and(|id| id.len() == 32), "{runtime}: {slowest}");
        let lines = slowest["timeline"].as_array().context("no timeline")?;
        let sum: f64 = lines.iter().map(|line| number(&line["ms"])).sum();
        ensure!((sum - number(&slowest["ms"])).abs() < 0.01, "{runtime}: {slowest}");
        let is_long = |line: &&Value| line["method"] == "Shop.Collect" && number(&line["ms"]) >= 150.0;
        ensure!(lines.iter().any(|line| is_long(&line) && line["does"] == "waits"), "{runtime}: {slowest}");
        program.end()?;
    }
    Ok(())
}

#[test]
fn waits_are_summed_up_and_drawn() -> Result<()> {
    for runtime in runtimes()? {
        if !runtime.has(Difference::AsyncOperations) {
            continue;
        }
        let program = web(&runtime)?;
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("waits.folded");
        let output = asked(&program, &["waits", "--duration", "3", "-o", &file.display().to_string()])?;
        let (stdout, stderr) = texts(&output);
        ensure!(output.status.success(), "{runtime}: {stderr}");
        let row = |place: &str| {
            let found = stdout.lines().find(|line| line.contains(&format!("  {place}")));
            found.with_context(|| format!("{runtime}: no {place}: {stdout}"))
        };
        let words: Vec<&str> = row("Shop.Collect")?.split_whitespace().collect();
        let mean: f64 = words.get(2).context("no mean")?.parse()?;
        ensure!((150.0..=500.0).contains(&mean), "{runtime}: {stdout}");
        row("Shop.Query")?;
        let folded = fs::read_to_string(&file)?;
        let chain = folded.lines().find(|line| line.contains("Collect")).context("no stack of Collect")?;
        // Who awaits comes first.
        let position = |name| chain.find(name).with_context(|| format!("{runtime}: {chain}"));
        ensure!(position("Reports")? < position("Collect")?, "{runtime}: {chain}");
        program.end()?;
    }
    Ok(())
}

#[test]
fn an_older_runtime_is_refused_at_once() -> Result<()> {
    for runtime in runtimes()? {
        if runtime.has(Difference::AsyncOperations) {
            continue;
        }
        let program = diagnosed(&runtime, None)?;
        for command in ["waits", "requests"] {
            let output = asked(&program, &[command])?;
            let (_, stderr) = texts(&output);
            ensure!(output.status.code() == Some(3), "{runtime}: {output:?}");
            ensure!(stderr.contains(".NET 11 is the first that tells of async operations"), "{runtime}: {stderr}");
        }
        program.end()?;
    }
    Ok(())
}
