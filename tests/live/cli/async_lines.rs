//! The lines of awaits, in `corprof waits`, and the last ones before its end.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::documents::Schema;
use super::*;

/// Methods and lines.
type Lines = BTreeSet<(String, u64)>;

/// Those of tests/managed/modern/AwaitLines.cs at which operations wait.
fn marked(source: &str) -> Lines {
    let lines = source.lines().zip(1..);
    let marks = lines.filter_map(|(line, number)| Some((line.split_once(" // ")?.1.to_owned(), number)));
    marks.collect()
}

/// The places of a list of the application's own methods, as far as they have lines, and the methods of those without.
fn told(rows: &Value) -> Result<(Lines, BTreeSet<String>)> {
    let mut lines = Lines::new();
    let mut others = BTreeSet::new();
    for row in rows.as_array().context("no list")? {
        let name = row["method"].as_str().context("no method")?;
        // A state machine is marked, a method that the runtime suspends has its parameters.
        let bare = if name.starts_with("Machine.") {
            name.strip_suffix(" (async)")
        } else if name.starts_with("Suspended.") {
            name.strip_suffix(')').and_then(|name| name.split_once('(')).map(|(bare, _)| bare)
        } else {
            continue;
        };
        let bare = bare.with_context(|| format!("{name} is spelled differently"))?;
        // Without type arguments.
        let method = bare.split('<').next().unwrap_or_default().to_owned();
        match row["line"].as_u64() {
            Some(line) => {
                ensure!(row["file"].as_str().is_some_and(|file| file.ends_with("/AwaitLines.cs")), "{row}");
                lines.insert((method, line));
            }
            None => {
                others.insert(method);
            }
        }
    }
    Ok((lines, others))
}

#[test]
fn operations_wait_at_the_lines_of_their_awaits() -> Result<()> {
    let expected = marked(&fs::read_to_string(xtask::managed::modern_dir().join("AwaitLines.cs"))?);
    ensure!(expected.len() == 18, "{expected:?}");
    for runtime in Runtime::all_for_modern("AwaitLines")? {
        if runtime.is_windows() || runtime.is_emulated() {
            continue; // corprof is built for this system
        }
        let program = Program::start(Run::new(&runtime, "AwaitLines").command()?)?;
        program.expect("ready")?;
        let pid = program.child.id().to_string();
        let output = corprof()?.args(["waits", &pid, "--duration", "3", "--json"]).output()?;
        let (stdout, stderr) = texts(&output);
        ensure!(output.status.success(), "{runtime}: {stderr}");
        let report: Value = serde_json::from_str(&stdout)?;
        Schema::read()?.check("waits", &report)?;
        let (lines, others) = told(&report["places"])?;
        ensure!(lines == expected, "{runtime}: {lines:#?} instead of {expected:#?}");
        let without = ["Machine.Uses", "Suspended.Uses"].map(str::to_owned).into();
        ensure!(others == without, "{runtime}: {others:?} have no line");
        program.end()?;
    }
    Ok(())
}

/// What is told by the answers of threads alone, at the end. The process stands still while they are to answer, as those
/// of a busy machine may.
#[test]
fn the_last_waits_of_a_process_that_is_late_are_told() -> Result<()> {
    for runtime in Runtime::all_for_modern("LastWait")? {
        if !runtime.has(Difference::AsyncOperations) || runtime.is_windows() || runtime.is_emulated() {
            continue;
        }
        let mut program = Program::start(Run::new(&runtime, "LastWait").command()?)?;
        program.expect("ready")?;
        let mut corprof = corprof()?;
        corprof.args(["waits", &program.child.id().to_string(), "--json"]);
        let mut waits = Program::start(corprof)?;
        waits.stderr_line("listening to process")?;
        program.tell("First")?;
        program.tell("Last")?;
        waits.signal("-INT")?;
        for _ in 0..3 {
            thread::sleep(Duration::from_millis(300));
            program.stop()?;
            thread::sleep(Duration::from_millis(1000));
            program.signal("-CONT")?;
        }
        let (lines, code) = waits.rest()?;
        ensure!(code == Some(0), "{runtime}: {code:?}: {lines:?}");
        let report: Value = serde_json::from_str(lines.last().context("no answer")?)?;
        let places = report["places"].to_string();
        ensure!(["LastWait.First", "LastWait.Last"].iter().all(|place| places.contains(place)), "{runtime}: {report}");
        program.end()?;
    }
    Ok(())
}
