//! `corprof record --trace`: the slowest calls, each with its arguments and its own samples.

use std::collections::HashMap;

use corprof_tests::{ensure_or_longer, patiently};
use serde_json::Value;

use super::*;

/// `corprof record -o FILE --trace … -- SlowCalls ARGUMENTS`.
fn record(runtime: &Runtime, file: &Path, options: &[&str], arguments: &[&str]) -> Result<Command> {
    let mut command = corprof()?;
    command.arg("record").arg("-o").arg(file).args(["--rate", "200"]).args(options).arg("--");
    command.args(application(runtime, "SlowCalls")?).args(arguments);
    Ok(command)
}

/// The slow calls of a page, and its data.
fn slow_calls(page: &Path) -> Result<(Vec<Value>, Value)> {
    let page = fs::read_to_string(page)?;
    let (_, rest) = page.split_once(r#"<script type="application/json" id="data">"#).context("no page")?;
    let data: Value = serde_json::from_str(rest.split_once("</script>").context("no end")?.0)?;
    let calls = data["slow"]["calls"].as_array().context("no slow calls")?.clone();
    Ok((calls, data))
}

/// The share of a call's samples in whose stacks a method is.
fn share(data: &Value, call: &Value, method: &str) -> f64 {
    let number = |value: &Value| value.as_i64().unwrap_or(-1);
    let at = |column: &Value, index: i64| usize::try_from(index).ok().map_or(-1, |index| number(&column[index]));
    let has = |stack: &Value| {
        let mut stack = number(stack);
        while stack >= 0 {
            let name = at(&data["frames"]["name"], at(&data["stacks"]["frame"], stack));
            let name = usize::try_from(name).ok().and_then(|name| data["texts"][name].as_str());
            if name.is_some_and(|name| name.starts_with(method)) {
                return true;
            }
            stack = at(&data["stacks"]["caller"], stack);
        }
        false
    };
    let [stacks, weights] = ["stack", "weight"].map(|column| call[column].as_array().cloned().unwrap_or_default());
    let weighed = || stacks.iter().zip(&weights).map(|(stack, weight)| (stack, weight.as_f64().unwrap_or_default()));
    let all: f64 = weighed().map(|(_, weight)| weight).sum();
    weighed().filter(|(stack, _)| has(stack)).map(|(_, weight)| weight).sum::<f64>() / all
}

/// Milliseconds of a cell such as `1.50 s`.
fn milliseconds(cell: &Value) -> Result<f64> {
    let cell = cell.as_str().context("no text")?.trim_start_matches("> ");
    let (number, unit) = cell.split_once(' ').context("no unit")?;
    let factor = match unit {
        "s" => 1e3,
        "ms" => 1.0,
        _ => 1e-3,
    };
    Ok(number.parse::<f64>()? * factor)
}

#[test]
fn the_slowest_calls_have_their_times_arguments_and_samples() -> Result<()> {
    patiently(runtimes()?, |runtime, times| {
        let folder = tempfile::tempdir()?;
        let page = folder.path().join("page.html");
        let factor = 5 * times;
        let limit = format!("Slow.Orders.*:{}ms", 20 * factor);
        let output = record(runtime, &page, &["--trace", &limit], &[&factor.to_string()])?.output()?;
        let (stdout, stderr) = texts(&output);
        ensure!(output.status.success(), "{stderr}");
        println!("{runtime}:\n{stdout}\n{stderr}");
        // What the program has measured itself.
        let measured: HashMap<&str, f64> = stdout
            .lines()
            .filter_map(|line| line.split_once(' '))
            .filter_map(|(name, time)| Some((name, time.parse().ok()?)))
            .collect();
        let (calls, data) = slow_calls(&page)?;
        // 100,001 calls of `Quick`, fast ones of the others before and after, and the static constructor. The calls
        // within `Deep` are parts of it.
        let limit = 20 * factor;
        let limit = if limit < 1000 { format!("{limit} ms") } else { format!("{} s", limit as f64 / 1e3) };
        let summary = format!("slow calls: 5 of 100013 traced calls took at least {limit}");
        // A fast call that waits that long for a processor is slow as well.
        ensure_or_longer!(stderr.contains(&summary), "not {summary}: {stderr}");
        ensure!(data["slow"]["summary"].as_str().is_some_and(|text| text.starts_with(&summary)), "{data}");
        let expected = [
            ("Burn", format!("Orders.Burn({}, \"it's \\\"busy\\\"\")", 100 * factor), "Slow.Work.Spin("),
            ("Pause", format!("Orders.Pause({}, 1, null)", 70 * factor), "Slow.Work.Rest("),
            ("Fails", format!("Orders.Fails(\"too late\", {}) threw", 55 * factor), "Slow.Work.Rest("),
            ("Deep", format!("Orders.Deep(50, {})", 40 * factor), "Slow.Work.Rest("),
            ("Waits", format!("Orders.Waits({})", 30 * factor), "Slow.Work.Locks("),
        ];
        let titles: Vec<_> = calls.iter().filter_map(|call| call["call"].as_str()).collect();
        // The order is that of the times, which a busy machine may change.
        let mut by_time: Vec<_> = expected.iter().collect();
        by_time.sort_by(|(a, ..), (b, ..)| measured[b].total_cmp(&measured[a]));
        // Two of them may differ by less than what the program does around its calls.
        ensure_or_longer!(
            titles == by_time.iter().map(|(_, title, _)| title.as_str()).collect::<Vec<_>>(),
            "{titles:?}"
        );
        for (call, (name, title, method)) in calls.iter().zip(by_time) {
            let cells = &call["cells"];
            let [time, running, waiting] = [0, 1, 2].map(|column| milliseconds(&cells[column]));
            let [time, running, waiting] = [time?, running?, waiting?];
            let own = measured[name];
            // Three digits are shown; and what is around the call is the program's.
            ensure!(time <= own * 1.006, "{title}: {time} of {own}");
            ensure_or_longer!(time >= own * 0.9 - 2.0, "{title}: {time} of {own}");
            ensure!((running + waiting - time).abs() <= 0.02 * time, "{title}: {running} and {waiting} of {time}");
            // On a busy machine one that works waits most of its time for a processor; the others hardly run at all.
            ensure_or_longer!((name == &"Burn") == (running > time * 0.04), "{title}: {running} of {time}");
            let samples: u64 = cells[3].as_str().context("no number")?.parse()?;
            ensure_or_longer!(samples >= 3, "{title}: {samples} samples");
            let share = share(&data, call, method);
            ensure_or_longer!(share > 0.8, "{title}: {share} in {method}");
            let sampled: f64 = call["weight"].as_array().into_iter().flatten().filter_map(Value::as_f64).sum();
            // A thread that waits for a processor is not sampled.
            let seen = if *name == "Burn" { running } else { time };
            ensure_or_longer!((0.4..1.3).contains(&(sampled / 1e6 / seen)), "{title}: {sampled} ns of {seen} ms");
            let mostly = call["mostly"].as_str().unwrap_or_default();
            let place =
                if *name == "Waits" { "waits in" } else { method.trim_start_matches("Slow.").trim_end_matches('(') };
            ensure_or_longer!(mostly.contains(place), "{title}: {mostly}");
            ensure!(stderr.contains(title), "{title} is not in {stderr}");
            let thread = cells[5].as_str().unwrap_or_default();
            ensure!((*name == "Waits") == (thread == "waiter"), "{title}: {thread}");
        }
        // The waits are in the slow calls only: the profile is of processor time.
        let threads = data["threads"].as_array().context("no threads")?;
        let waits = threads.iter().map(|thread| share(&data, thread, "[waits]"));
        ensure!(waits.filter(|share| !share.is_nan()).all(|share| share == 0.0), "waits in the profile");
        Ok(())
    })
}

#[test]
fn a_call_that_still_runs_at_the_end_and_a_pattern_without_methods_are_said() -> Result<()> {
    patiently(runtimes()?, |runtime, times| {
        let folder = tempfile::tempdir()?;
        let page = folder.path().join("page.html");
        let limit = format!("Orders.Pause:{}ms", 50 * times);
        let options = ["--mode", "wall", "--trace", &limit, "--trace", "Shop.*", "--slowest", "1"];
        let factor = 10 * times;
        let output = record(runtime, &page, &options, &[&factor.to_string(), "stuck"])?.output()?;
        let (stdout, stderr) = texts(&output);
        ensure!(output.status.success() && stdout.contains("stuck"), "{stderr}");
        let none = "--trace 'Shop.*' has matched no method that was compiled";
        ensure!(stderr.contains(none), "{stderr}");
        ensure_or_longer!(
            stderr.contains("slow calls: 2 of 4 traced calls took at least their limit; the 1 slowest:"),
            "{stderr}"
        );
        let (calls, data) = slow_calls(&page)?;
        // The one that has ended was longer than the other one has run: on a busy machine that has run for as long.
        ensure_or_longer!(calls.len() == 1, "{calls:?}");
        let title = calls[0]["call"].as_str().unwrap_or_default();
        ensure_or_longer!(title == format!("Orders.Pause({}, 1, null)", 70 * factor), "{title}");
        ensure_or_longer!(share(&data, &calls[0], "[waits]") > 0.8, "{}", calls[0]);

        // Its methods are compiled after the first snapshot, for which the pattern has matched none yet.
        let options = ["--trace", &limit];
        let output = record(runtime, &page, &options, &[&factor.to_string(), "stuck", "1200"])?.output()?;
        ensure!(output.status.success(), "{output:?}");
        ensure!(!texts(&output).1.contains("has matched no method"), "{output:?}");
        let (calls, _) = slow_calls(&page)?;
        let still = calls.iter().filter(|call| call["call"] == "Orders.Pause(3600000, 1, object) still runs");
        let still: Vec<_> = still.collect();
        ensure!(still.len() == 1, "{calls:?}");
        ensure!(milliseconds(&still[0]["cells"][0])? >= 19.0 * factor as f64, "{still:?}");
        Ok(())
    })
}

/// Methods that run already are compiled again with hooks.
#[test]
fn a_running_process_is_traced_from_the_next_call_on() -> Result<()> {
    patiently(runtimes()?, |runtime, times| {
        let folder = tempfile::tempdir()?;
        let page = folder.path().join("page.html");
        let factor = 20 * times;
        let words = application(runtime, "SlowCalls")?;
        let (host, words) = words.split_first().context("no host")?;
        let mut command = Command::new(host);
        command.args(words).args([&factor.to_string(), "stuck"]);
        let program = Program::start(command)?;
        // It pauses, and has called all methods.
        program.expect("ready")?;
        let mut record = corprof()?;
        record.arg("record").arg("-o").arg(&page).args(["-p", &program.child.id().to_string()]);
        let output = record.args(["--trace", "Slow.Orders.*:100ms"]).output()?;
        let (_, stderr) = texts(&output);
        ensure!(output.status.success(), "{stderr}");
        ensure!(stderr.contains("--trace does: in the end it stays in the process"), "{stderr}");
        ensure!(!stderr.contains("has not detached"), "{stderr}");
        let (calls, data) = slow_calls(&page)?;
        let find =
            |name: &str| calls.iter().find(|call| call["call"].as_str().is_some_and(|text| text.starts_with(name)));
        let call = find("Orders.Fails(\"too late\", ");
        ensure_or_longer!(call.is_some(), "attached too late: {stderr}");
        let call = call.context("no call")?;
        ensure_or_longer!(share(&data, call, "Slow.Work.Rest(") > 0.8, "{call}");
        ensure!(find(&format!("Orders.Pause({}", 70 * factor)).is_none(), "it was under way before: {stderr}");
        Ok(())
    })
}

/// An async method is its first part, which is a call within that of the method, and the parts that go on. At the end
/// of such a part its caller goes on, which makes the next call: five calls, the first part of the first one, and five
/// that go on.
#[test]
fn the_parts_of_async_methods_are_calls_and_their_waits_are_not() -> Result<()> {
    for runtime in Runtime::all_for_modern("MachinePauses")?.iter().filter(|runtime| !runtime.is_windows()) {
        let folder = tempfile::tempdir()?;
        let page = folder.path().join("page.html");
        let mut command = corprof()?;
        command.arg("record").arg("-o").arg(&page).args(["--mode", "wall", "--trace", "MachinePauses.Pause:3ms", "--"]);
        let output = command.args(application(runtime, "MachinePauses")?).output()?;
        let (_, stderr) = texts(&output);
        ensure!(output.status.success(), "{runtime}: {output:?}");
        ensure!(stderr.contains("slow calls: 11 of 11 traced calls took at least 3 ms"), "{runtime}: {stderr}");
        let (calls, _) = slow_calls(&page)?;
        let count = |title: &str| calls.iter().filter(|call| call["call"] == title).count();
        let counts = [count("MachinePauses.Pause(100)"), count("MachinePauses.Pause (async)")];
        ensure!(counts == [5, 6], "{runtime}: {counts:?}: {stderr}");
        // Each works for 5 ms by its own clock.
        let shortest = calls.last().context("no call")?;
        ensure!(milliseconds(&shortest["cells"][0])? >= 4.9, "{runtime}: {shortest}");
    }
    Ok(())
}

#[test]
fn wrong_options_are_refused() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let page = folder.path().join("page.html");
    for (options, said) in
        [(&["--trace", "Shop.*:50"][..], "`50` is not a limit"), (&["--slowest", "5"], "--trace <METHODS[:LIMIT]>")]
    {
        let output = corprof()?.arg("record").arg("-o").arg(&page).args(options).args(["--", "true"]).output()?;
        ensure!(output.status.code() == Some(2), "{options:?}: {output:?}");
        ensure!(texts(&output).1.contains(said), "{options:?}: {output:?}");
    }
    let mut command = corprof()?;
    command.args(["record", "--push", "parca+http://localhost:1", "--trace", "Shop.*", "--", "true"]);
    let output = command.output()?;
    ensure!(output.status.code() == Some(2) && texts(&output).1.contains("--trace needs a file"), "{output:?}");
    Ok(())
}
