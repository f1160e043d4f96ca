//! `corprof counters`.

use serde_json::Value;

use super::*;

/// A run of tests/managed/modern/Meters.cs.
fn meters(runtime: &Runtime) -> Result<Program> {
    let program = Program::start(Run::new(runtime, "Meters").command()?)?;
    program.expect("ready")?;
    Ok(program)
}

fn counters(program: &Program, options: &[&str]) -> Result<Output> {
    let mut command = corprof()?;
    command.arg("counters").arg(program.child.id().to_string()).args(options);
    Ok(command.output()?)
}

/// The lines of JSON, parsed.
fn lines(output: &Output) -> Result<Vec<Value>> {
    let (stdout, stderr) = texts(output);
    ensure!(output.status.success(), "{stderr}");
    stdout.lines().map(|line| serde_json::from_str(line).with_context(|| line.to_owned())).collect()
}

fn of<'a>(lines: &'a [Value], source: &str, counter: &str, tags: &str) -> Result<Vec<&'a Value>> {
    let found: Vec<&Value> = lines
        .iter()
        .filter(|line| line["source"] == source && line["counter"] == counter && line["tags"] == tags)
        .collect();
    ensure!(!found.is_empty(), "no {source} {counter} {{{tags}}}: {lines:?}");
    Ok(found)
}

#[test]
fn meters_and_event_counters_have_their_values() -> Result<()> {
    for runtime in runtimes()? {
        let program = meters(&runtime)?;
        let output = counters(&program, &["Corprof.Meters", "Corprof-Meters", "--json", "--duration", "4"])?;
        let lines = lines(&output)?;
        let last = |counter, tags| Ok::<_, anyhow::Error>(of(&lines, "Corprof.Meters", counter, tags)?.last().copied());
        let [tea, coffee] = [last("sold", "kind=tea")?, last("sold", "kind=coffee")?].map(Option::unwrap_or_default);
        let per_second = |line: &Value| line["per_second"].as_f64().unwrap_or_default();
        ensure!(per_second(tea) > 0.0, "{runtime}: {tea}");
        // A value may be added between the looks at the two series.
        let ratio = tea["value"].as_f64().unwrap_or_default() / coffee["value"].as_f64().unwrap_or(1.0);
        ensure!((2.5..=3.5).contains(&ratio), "{runtime}: {tea} {coffee}");
        ensure!(tea["unit"] == "{order}" && tea["histogram"].is_null(), "{runtime}: {tea}");
        let waits = last("waits", "")?.unwrap_or_default();
        let [half, most] = ["0.5", "0.99"].map(|at| waits["histogram"]["quantiles"][at].as_f64().unwrap_or_default());
        ensure!(half > 0.0 && half <= most && most <= 101.0, "{runtime}: {waits}");
        ensure!(waits["histogram"]["count"].as_u64().is_some_and(|count| count > 0), "{runtime}: {waits}");
        ensure!(last("temperature", "")?.is_some_and(|line| line["value"] == -42.25), "{runtime}");
        // What goes up and down is told from when the session has begun.
        ensure!(
            last("open", "").is_err() || last("open", "")?.is_some_and(|line| line["value"].is_number()),
            "{runtime}"
        );
        let size = of(&lines, "Corprof-Meters", "size", "")?;
        ensure!(size.iter().any(|line| line["value"] == 7.5 && line["unit"] == "kg"), "{runtime}: {size:?}");
        let sold = of(&lines, "Corprof-Meters", "sold", "")?;
        ensure!(sold.iter().any(|line| per_second(line) > 0.0), "{runtime}: {sold:?}");
        program.end()?;
    }
    Ok(())
}

#[test]
fn the_runtimes_own_counters_are_shown_once() -> Result<()> {
    for runtime in runtimes()? {
        let program = meters(&runtime)?;
        let (stdout, stderr) = texts(&counters(&program, &["--duration", "3"])?);
        let sources = stdout.lines().filter(|line| *line == "System.Runtime").count();
        ensure!(sources == 1, "{runtime}: {stdout} {stderr}");
        let [old, new] = ["working-set", "dotnet.process.memory.working_set"].map(|name| stdout.contains(name));
        // Where the runtime has a meter of its own, its event counters are the same again.
        ensure!(old != new, "{runtime}: {stdout}");
        program.end()?;
    }
    Ok(())
}

#[test]
fn instruments_are_listed_and_chosen() -> Result<()> {
    for runtime in runtimes()? {
        let program = meters(&runtime)?;
        let (stdout, stderr) = texts(&counters(&program, &["--list"])?);
        ensure!(
            stdout.contains("\nCorprof.Meters\n") || stdout.starts_with("Corprof.Meters\n"),
            "{runtime}: {stdout} {stderr}"
        );
        ensure!(stdout.contains("    sold (Counter, {order}): Sold orders\n"), "{runtime}: {stdout}");
        let chosen = ["Corprof.Meters\\temperature", "--csv", "--interval", "0.5", "--duration", "1"];
        let (stdout, stderr) = texts(&counters(&program, &chosen)?);
        ensure!(stdout.starts_with("time,source,counter,tags,"), "{runtime}: {stdout} {stderr}");
        let values: Vec<&str> = stdout.lines().skip(1).collect();
        let is_right = |line: &&str| line.contains(",Corprof.Meters,temperature,,Cel,,-42.25,");
        ensure!(!values.is_empty() && values.iter().all(is_right), "{runtime}: {stdout}");
        program.end()?;
    }
    Ok(())
}

#[test]
fn readers_share_the_meters_or_are_told_why_not() -> Result<()> {
    for runtime in runtimes()? {
        let program = meters(&runtime)?;
        let mut first = corprof()?;
        first.arg("counters").arg(program.child.id().to_string());
        first.args(["Corprof.Meters\\sold", "--json", "--interval", "0.5"]);
        let first = Program::start(first)?;
        first.lines.recv_timeout(PATIENCE).context("no value")?;
        let same = ["Corprof.Meters\\temperature", "--csv", "--interval", "0.5", "--duration", "2"];
        let (stdout, stderr) = texts(&counters(&program, &same)?);
        ensure!(stdout.contains("temperature") && !stdout.contains("sold"), "{runtime}: {stdout} {stderr}");
        let other = ["Corprof.Meters\\waits", "Corprof-Meters", "--csv", "--max-series", "7", "--duration", "2"];
        let (stdout, stderr) = texts(&counters(&program, &other)?);
        ensure!(stdout.contains("Corprof-Meters") && !stdout.contains("Corprof.Meters"), "{runtime}: {stdout}");
        ensure!(stderr.contains("another tool reads the meters of this process, each 0.5 s"), "{runtime}: {stderr}");
        first.signal("-INT")?;
        let (code, stderr) = first.end()?;
        ensure!(code == Some(0), "{runtime}: {stderr}");
        program.end()?;
    }
    Ok(())
}
