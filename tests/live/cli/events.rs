//! `corprof events`.

use std::fs;

use serde_json::Value;

use super::*;

/// The command while it runs, with its lines.
fn started(pid: u32, arguments: &[&str]) -> Result<Program> {
    let mut command = corprof()?;
    command.arg("events").arg(pid.to_string()).args(arguments);
    Program::start(command)
}

/// Makes the application act until a line about it comes, because no line reports the begin of the session.
fn until_seen(program: &mut Program, events: &Program, command: &str, is_it: impl Fn(&str) -> bool) -> Result<String> {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        program.tell(command)?;
        while let Ok(line) = events.lines.recv_timeout(Duration::from_millis(500)) {
            if is_it(&line) {
                return Ok(line);
            }
        }
    }
    anyhow::bail!("no event after {PATIENCE:?}")
}

#[test]
fn events_are_printed_as_they_happen_until_ctrl_c() -> Result<()> {
    for runtime in runtimes()? {
        let mut program = diagnosed(&runtime, None)?;
        let events = started(program.child.id(), &["--set", "gc,exceptions", "--json"])?;
        let is = |name: &'static str| move |line: &str| line.contains(&format!("\"event\":\"{name}\""));
        let line = until_seen(&mut program, &events, "collect 1", is("GCStart"))?;
        let event: Value = serde_json::from_str(&line)?;
        ensure!(event["provider"] == "Microsoft-Windows-DotNETRuntime" && event["id"] == 1, "{runtime}: {event}");
        ensure!(event["fields"]["Depth"] == 2 && event["fields"]["Reason"] == 1, "{runtime}: {event}");
        let line = until_seen(&mut program, &events, "throw 1", is("ExceptionThrown"))?;
        let event: Value = serde_json::from_str(&line)?;
        ensure!(event["fields"]["ExceptionType"] == "System.InvalidOperationException", "{runtime}: {event}");
        ensure!(event["fields"]["ExceptionMessage"] == "asked for", "{runtime}: {event}");
        events.signal("-INT")?;
        let (code, stderr) = events.end()?;
        ensure!(code == Some(0) && stderr.contains("0 lost"), "{runtime}: {code:?} {stderr}");
        // The session has ended in the process, too: the next one is served.
        program.tell("collect 1")?;
    }
    Ok(())
}

/// As with `| head -1`, and with `> /dev/full`: with the first event the command ends, and so does its session.
#[test]
fn a_reader_that_has_seen_enough_ends_the_session_and_so_does_a_full_disk() -> Result<()> {
    for runtime in runtimes()? {
        let mut program = diagnosed(&runtime, None)?;
        let (reader, writer) = std::io::pipe()?;
        drop(reader);
        let full = fs::File::options().write(true).open("/dev/full")?;
        for (stdout, code, said) in
            [(Stdio::from(writer), 0, ""), (Stdio::from(full), 3, "cannot write to standard output: No space left")]
        {
            let mut command = corprof()?;
            command.args(["events", &program.child.id().to_string(), "--set", "exceptions"]);
            let mut child = command.stdout(stdout).stderr(Stdio::piped()).spawn()?;
            until("the command ends", || {
                program.tell("throw 1")?;
                Ok(child.try_wait()?.is_some())
            })?;
            let output = child.wait_with_output()?;
            let (_, stderr) = texts(&output);
            let is_calm = !stderr.contains("panicked") && stderr.contains("error") != said.is_empty();
            ensure!(output.status.code() == Some(code) && is_calm, "{runtime}: {output:?}");
            ensure!(stderr.contains(said), "{runtime}: {output:?}");
        }
        let (code, stderr) = program.end()?;
        ensure!(code == Some(0), "{runtime}: {code:?} {stderr}");
    }
    Ok(())
}

#[test]
fn events_of_a_profiler_are_printed() -> Result<()> {
    for runtime in runtimes()? {
        let mut program = diagnosed(&runtime, Some("own_event"))?;
        let events = started(program.child.id(), &["--provider", "Shop-Profiler"])?;
        let line = until_seen(&mut program, &events, "throw 1", |line| line.contains("Thrown"))?;
        ensure!(line.ends_with("Thrown  class=\"System.InvalidOperationException\""), "{runtime}: {line}");
        events.signal("-INT")?;
        events.end()?;
    }
    Ok(())
}

#[test]
fn events_are_chosen_by_name_and_end_with_the_process() -> Result<()> {
    for runtime in runtimes()? {
        let mut program = diagnosed(&runtime, None)?;
        let events = started(program.child.id(), &["--event", "GCEnd"])?;
        let line = until_seen(&mut program, &events, "collect 1", |_| true)?;
        ensure!(line.contains("GCEnd  Count=") && line.contains("Depth=2"), "{runtime}: {line}");
        let (code, stderr) = program.end()?;
        ensure!(code == Some(0), "{runtime}: {stderr}");
        let end = Instant::now() + PATIENCE;
        while let Ok(line) = events.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            ensure!(line.contains("GCEnd"), "{runtime}: {line}");
        }
        let (code, stderr) = events.end()?;
        ensure!(code == Some(0), "{runtime}: {code:?} {stderr}");
    }
    Ok(())
}

#[test]
fn a_session_ends_after_its_duration() -> Result<()> {
    for runtime in runtimes()? {
        let program = diagnosed(&runtime, None)?;
        let events = started(program.child.id(), &["--duration", "0.5", "--provider", "No-Such-Provider:0x3:verbose"])?;
        let end = Instant::now() + PATIENCE;
        let line = events.lines.recv_timeout(end.saturating_duration_since(Instant::now()));
        ensure!(line.is_err() && Instant::now() < end, "{runtime}: {line:?}");
        let (code, stderr) = events.end()?;
        ensure!(code == Some(0) && stderr.contains("0 events printed"), "{runtime}: {code:?} {stderr}");
    }
    Ok(())
}

#[test]
fn events_of_a_profiler_are_printed_with_their_fields() -> Result<()> {
    for runtime in runtimes()? {
        let run = Run::new(&runtime, "Diagnosed").profiler_named("own_events", "Tells");
        let mut program = Program::start(run.command()?)?;
        program.expect("ready")?;
        let events = started(program.child.id(), &["--provider", "Corprof-Orders:0x10:warning", "--json"])?;
        let line = until_seen(&mut program, &events, "throw 1", |line| line.contains("\"event\":\"Order\""))?;
        let event: Value = serde_json::from_str(&line)?;
        ensure!(event["provider"] == "Corprof-Orders" && event["id"] == 7, "{runtime}: {event}");
        let fields = &event["fields"];
        ensure!(fields["customerName"] == "System.InvalidOperationException", "{runtime}: {event}");
        ensure!(fields["Street"] == "Straße 1" && fields["letter"] == "ß", "{runtime}: {event}");
        ensure!(fields["price"] == 9.5 && fields["share"] == -0.25 && fields["isPaid"] == true, "{runtime}: {event}");
        ensure!(fields["total"] == -1_000_000_000_000_i64 && fields["small"] == -5, "{runtime}: {event}");
        ensure!(fields["counts"] == serde_json::json!([1, 2, 65_535]), "{runtime}: {event}");
        let (code, stderr) = program.end()?;
        ensure!(code == Some(0), "{runtime}: {stderr}");
        events.end()?;
    }
    Ok(())
}
