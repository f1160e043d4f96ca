//! Commands on a process that has another maker's profiler: `record`, `stacks` and `top` by the runtime's own sampler,
//! `events` and `heap` by the diagnostics port as ever.

use std::fs;

use corprof_tests::{ensure_or_longer, patiently, repetitions};
use serde_json::Value;

use super::*;

/// What the commands print.
const LIMITS: &str = "by EventPipe: threads stop at safe points, waits are not told from work";

/// An application under another profiler, from its start on.
fn profiled(runtime: &Runtime, app: &str, arguments: &[&str]) -> Result<Program> {
    let mut command = Run::new(runtime, app).profiler("attached").command()?;
    command.args(arguments);
    let program = Program::start(command)?;
    program.expect("ready")?;
    Ok(program)
}

fn pool(runtime: &Runtime) -> Result<Program> {
    profiled(runtime, "Pool", &["3600000", "1", "100000", "ready"])
}

/// A command that looks at the process, which must succeed. Standard output and standard error.
fn looks(program: &Program, before: &[&str], after: &[&str]) -> Result<(String, String)> {
    let output = corprof()?.args(before).arg(program.child.id().to_string()).args(after).output()?;
    ensure!(output.status.success(), "{output:?}");
    Ok(texts(&output))
}

/// The application has noticed nothing, and its profiler neither.
fn runs_on(program: Program) -> Result<()> {
    let (code, stderr) = program.end()?;
    ensure!(code == Some(0) && stderr.contains("attached| exceptions: "), "{code:?}: {stderr}");
    Ok(())
}

/// The weight of the folded stacks that have this method.
fn weight(folded: &str, method: &str) -> f64 {
    let stacks = folded.lines().filter_map(|line| line.rsplit_once(' '));
    let of_method = stacks.filter(|(stack, _)| stack.split(';').any(|frame| frame.starts_with(method)));
    of_method.filter_map(|(_, weight)| weight.parse::<f64>().ok()).sum()
}

#[test]
fn all_formats_are_written_and_pictures_say_what_they_are() -> Result<()> {
    for runtime in runtimes()? {
        let folder = tempfile::tempdir()?;
        let program = profiled(&runtime, "Diagnosed", &[])?;
        let all = [
            ("p.html", &b"<!"[..], "Diagnosed (EventPipe)"),
            ("p.pb.gz", &[0x1f, 0x8b], ""),
            ("p.svg", b"<?xml", "Diagnosed (EventPipe)"),
            ("p.speedscope.json", b"{", "Diagnosed (EventPipe)"),
            ("p.json", b"{", "Diagnosed (EventPipe)"),
        ];
        for &(name, begin, title) in &all[..repetitions(2, all.len())] {
            let file = folder.path().join(name);
            let file_text = file.to_str().context("a path is text")?;
            // Its only thread waits for a line.
            let more = ["--duration", "0.2", "--mode", "wall", "-o", file_text];
            looks(&program, &["record", "-p"], &more)?;
            let bytes = fs::read(&file)?;
            ensure!(bytes.starts_with(begin), "{runtime}: {name}");
            let text = String::from_utf8_lossy(&bytes);
            ensure!(text.contains(title), "{runtime}: {name} has no title");
            let is_picture = name.ends_with(".html") || name.ends_with(".svg");
            ensure!(!is_picture || text.contains("By EventPipe: threads stop at safe points"), "{runtime}: {text}");
        }
        let pid = program.child.id().to_string();
        let output = corprof()?.args(["record", "-p", &pid, "--push", "parca+http://localhost:1"]).output()?;
        ensure!(output.status.code() == Some(1), "{runtime}: {output:?}");
        ensure!(texts(&output).1.contains("only the built-in sampler sends profiles"), "{runtime}: {output:?}");
        runs_on(program)?;
    }
    Ok(())
}

#[test]
fn an_interrupt_or_the_end_of_the_process_ends_the_recording() -> Result<()> {
    for runtime in runtimes()? {
        let folder = tempfile::tempdir()?;
        let mut program = Some(profiled(&runtime, "Diagnosed", &[])?);
        for name in ["interrupted.folded", "ended.folded"] {
            let file = folder.path().join(name);
            let pid = program.as_ref().map_or(0, |program| program.child.id());
            let mut command = corprof()?;
            command.args(["record", "-p", &pid.to_string(), "--mode", "wall", "-o"]).arg(&file);
            let mut recording = Program::start(command)?;
            recording.stderr_line("recording process")?;
            // Some rounds, on a busy machine too.
            thread::sleep(Duration::from_secs(1));
            if name == "ended.folded" {
                program.take().map(runs_on).transpose()?;
            } else {
                recording.signal("-INT")?;
            }
            let (code, stderr) = recording.end()?;
            ensure!(code == Some(0) && stderr.contains("is written"), "{runtime}: {name}: {code:?}: {stderr}");
            let profile = fs::read_to_string(&file)?;
            ensure!(profile.contains("Diagnosed.Main()"), "{runtime}: {name}: {profile}");
        }
    }
    Ok(())
}

#[test]
fn a_deep_stack_is_said_to_be_cut() -> Result<()> {
    for runtime in runtimes()? {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("p.folded");
        let mut command = Run::new(&runtime, "Deep").profiler("attached").command()?;
        command.args(["1", "150", "600000"]);
        let program = Program::start(command)?;
        let end = Instant::now() + PATIENCE;
        let stack = loop {
            let pid = program.child.id().to_string();
            let options = ["--mode", "wall", "--duration", "0.2"];
            let output = corprof()?.args(["record", "-p", &pid]).args(options).arg("-o").arg(&file).output()?;
            let profile = fs::read_to_string(&file).unwrap_or_default();
            let deep = profile.lines().find(|line| line.matches("Deep.Down(int)").count() > 50).map(str::to_owned);
            match deep {
                Some(deep) => break deep,
                // It is only just starting.
                None => ensure!(Instant::now() < end, "{runtime}: {output:?}: {profile}"),
            }
        };
        ensure!(stack.starts_with("[outer frames are missing];Deep.Down(int);Deep.Down(int);"), "{runtime}: {stack}");
        let (stdout, _) = looks(&program, &["stacks"], &["--all-frames"])?;
        ensure!(stdout.contains("  > Deep.Down(int)\n    [outer frames are missing]\n"), "{runtime}: {stdout}");
        let (stdout, _) = looks(&program, &["stacks"], &[])?;
        ensure!(stdout.contains(")\n    [outer frames are missing]\n"), "{runtime}: {stdout}");
        ensure!(stdout.matches("Deep.Down(int)").count() == 1, "{runtime}: {stdout}");
    }
    Ok(())
}

/// Thread names and methods without parameters, the innermost first, of the threads whose name the application has
/// given.
fn stacks(program: &Program) -> Result<Vec<(String, Vec<String>)>> {
    let (stdout, stderr) = looks(program, &["stacks"], &["--json"])?;
    let stacks: Value = serde_json::from_str(&stdout).context("no JSON")?;
    let by_event_pipe = stderr.contains("the runtime samples the threads itself");
    ensure!(stacks["by_event_pipe"] == by_event_pipe && stacks["others"].is_null() == by_event_pipe, "{stacks}");
    let mut all = Vec::new();
    for thread in stacks["threads"].as_array().context("no threads")? {
        let Some(name) = thread["name"].as_str().filter(|name| ["waiter", "first", "second"].contains(name)) else {
            continue;
        };
        let frames =
            thread["frames"].as_array().context("no frames")?.iter().filter_map(|frame| frame["method"].as_str());
        // What was inlined has no frame that the runtime's own sampler would find.
        let frames = frames.filter(|frame| *frame != "[native]" && !frame.ends_with("(inlined)"));
        let methods = frames.filter_map(|frame| frame.split('(').next());
        all.push((name.to_owned(), methods.map(str::to_owned).collect()));
    }
    all.sort();
    Ok(all)
}

#[test]
fn stacks_are_those_that_a_profiler_sees() -> Result<()> {
    for runtime in runtimes()? {
        let alone = Program::start(Run::new(&runtime, "Standing").args(["calm"]).command()?)?;
        alone.expect("ready")?;
        let by_profiler = stacks(&alone)?;
        ensure!(by_profiler.len() == 3, "{runtime}: {by_profiler:?}");
        let another = library(&runtime, "attached")?;
        let output = corprof()?.args(["attach", &alone.child.id().to_string()]).arg(&another).output()?;
        ensure!(output.status.success(), "{runtime}: {output:?}");
        ensure!(stacks(&alone)? == by_profiler, "{runtime}: attached: {by_profiler:?} and {:?}", stacks(&alone)?);

        let started = profiled(&runtime, "Standing", &["calm"])?;
        ensure!(stacks(&started)? == by_profiler, "{runtime}: started: {by_profiler:?} and {:?}", stacks(&started)?);
        let (stdout, _) = looks(&started, &["stacks"], &[])?;
        ensure!(stdout.contains(LIMITS) && stdout.contains("\"first\" in native code\n"), "{runtime}: {stdout}");
        ensure!(stdout.contains("Only threads with managed methods are shown"), "{runtime}: {stdout}");
        runs_on(started)?;
    }
    Ok(())
}

/// `corprof run` has the runtime write its messages, by a session of its own.
#[test]
fn a_process_that_corprof_runs_tells_others_the_names_of_its_methods() -> Result<()> {
    for runtime in runtimes()? {
        let mut command = corprof()?;
        command.arg("run").arg(library(&runtime, "attached")?).arg("--").args(application(&runtime, "Standing")?);
        let launcher = Program::start(command)?;
        launcher.expect("ready")?;
        let application = child_of(launcher.child.id())?.context("no application")?;
        let output = corprof()?.args(["stacks", &application.to_string()]).output()?;
        let (stdout, _) = texts(&output);
        ensure!(stdout.contains("Standing.Naps("), "{runtime}: {stdout}");
        launcher.end()?;
    }
    Ok(())
}

#[test]
fn the_busiest_methods_are_shown() -> Result<()> {
    patiently(runtimes()?, |runtime, longer| {
        let program = pool(runtime)?;
        let duration = longer.to_string();
        let (stdout, stderr) = looks(&program, &["top"], &["--json", "--duration", &duration])?;
        ensure!(stderr.contains(LIMITS), "{stderr}");
        let table: Value = serde_json::from_str(&stdout).context("no JSON")?;
        ensure!(table["by_event_pipe"] == true && table["suspended_seconds"].is_null(), "{table}");
        let seconds = |method: &str, column: &str| {
            let methods = table["methods"].as_array();
            let mut methods = methods.into_iter().flatten();
            let row = methods.find(|row| row["method"].as_str().is_some_and(|name| name.starts_with(method)));
            row.and_then(|row| row[column].as_f64()).unwrap_or_default()
        };
        let total = |method| seconds(method, "total_seconds");
        let all = total("Pool.Sixty(") + total("Pool.Thirty(") + total("Pool.Ten(");
        ensure_or_longer!(total("Pool.Sixty(") > 0.4 * all && all > 0.0, "{table}");
        ensure_or_longer!(seconds("Pool.Burn(", "own_seconds") > 0.8 * all, "{table}");
        ensure!(total("Pool.Serves(") >= all * 0.99, "{table}");
        ensure!(table["events_problem"].is_null(), "{table}");
        // Callers would be waited for, for some seconds.
        let (stdout, _) = looks(&program, &["top"], &["--once", "--physical", "--duration", "0.5"])?;
        ensure!(stdout.contains(LIMITS), "{stdout}");
        Ok(())
    })
}

#[test]
fn events_and_the_heap_come_over_the_port() -> Result<()> {
    for runtime in runtimes()? {
        let mut program = profiled(&runtime, "Diagnosed", &[])?;
        let mut command = corprof()?;
        let pid = program.child.id().to_string();
        command.args(["events", &pid, "--set", "gc", "--event", "GCStart", "--json"]);
        let events = Program::start(command)?;
        let end = Instant::now() + PATIENCE;
        let line = loop {
            program.tell("collect 1")?;
            match events.lines.recv_timeout(Duration::from_millis(200)) {
                Ok(line) => break line,
                Err(error) => ensure!(Instant::now() < end, "{runtime}: no event: {error}"),
            }
        };
        let event: Value = serde_json::from_str(&line)?;
        ensure!(event["event"] == "GCStart", "{runtime}: {event}");
        events.signal("-INT")?;
        let (code, stderr) = events.end()?;
        ensure!(code == Some(0), "{runtime}: {code:?}: {stderr}");
        runs_on(program)?;

        let program = profiled(&runtime, "Heap", &["5000"])?;
        let (report, stderr) = looks(&program, &["heap"], &[])?;
        ensure!(stderr.contains("no profiler can attach, so the runtime sends the heap over its port"), "{stderr}");
        ensure!(stderr.contains("libattached.so"), "{runtime}: {stderr}");
        ensure!(report.contains("Node"), "{runtime}: {report}");
    }
    Ok(())
}

/// See `main.rs`.
mod differs {
    use super::*;

    #[test]
    fn the_shares_of_methods_are_recorded() -> Result<()> {
        patiently(runtimes()?, |runtime, longer| {
            let folder = tempfile::tempdir()?;
            let file = folder.path().join("p.folded");
            let program = pool(runtime)?;
            let seconds = (2 * longer).to_string();
            let file_text = file.to_str().context("a path is text")?;
            let (_, stderr) = looks(&program, &["record", "-p"], &["--duration", &seconds, "-o", file_text])?;
            ensure!(stderr.contains("libattached.so") && stderr.contains(LIMITS), "{stderr}");
            ensure!(stderr.contains(" rounds and ") && stderr.contains("p.folded is written"), "{stderr}");
            let says_standstill = stderr.contains("; the application stood still for ");
            ensure!(says_standstill == runtime.has(Difference::FiltersOfEvents), "{stderr}");
            let profile = fs::read_to_string(&file)?;
            let shares = ["Pool.Sixty()", "Pool.Thirty()", "Pool.Ten()"].map(|method| weight(&profile, method));
            let all: f64 = shares.iter().sum();
            ensure_or_longer!(all > 0.0, "nothing was seen: {stderr}{profile}");
            for (share, expected) in shares.into_iter().zip([0.6, 0.3, 0.1]) {
                ensure_or_longer!((share / all - expected).abs() < 0.15, "{share} of {all}: {stderr}{profile}");
            }
            ensure_or_longer!(weight(&profile, "Pool.Burn(int)") > 0.9 * all, "{profile}");
            ensure!(weight(&profile, "Pool.Serves()") >= all, "{profile}");
            Ok(())
        })
    }
}
