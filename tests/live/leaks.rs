//! The built-in `leaks` on tests/managed/Leaky.cs, which leaks in known ways.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use corprof_tests::{Run, Runtime, ensure_or_longer, patiently};

/// Long enough for any step on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What has grown: of each group the way from the root.
fn groups(answer: &str) -> Result<Vec<Vec<String>>> {
    let mut groups: Vec<Vec<String>> = Vec::new();
    for line in answer.lines() {
        if let Some((growth, _)) = line.split_once(" kB: ") {
            ensure!(growth.starts_with('+'), "{line}");
            groups.push(Vec::new());
        } else if let Some(step) = line.strip_prefix("    ") {
            groups.last_mut().context("a way without a group")?.push(step.to_owned());
        }
    }
    Ok(groups)
}

/// Whether it is the step of this class, with a number of objects that have been added.
fn has_grown(step: &str, class: &str) -> bool {
    let name = step.strip_prefix("-> ").and_then(|step| step.split([' ', ',']).next());
    name == Some(class) && step.contains("  +")
}

/// Starts a program that runs until it is dropped, and reads its standard error.
fn started(run: &Run) -> Result<(Ends, Receiver<String>)> {
    let mut command = run.command()?;
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = Ends(command.spawn()?);
    let (sender, lines) = channel();
    let errors = child.0.stderr.take().context("no errors")?;
    thread::spawn(move || {
        for line in BufReader::new(errors).lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    Ok((child, lines))
}

/// The answer of `leaks`, with this many seconds between the snapshots, and what it wrote before.
fn answer(runtime: &Runtime, seconds: u64) -> Result<String> {
    let mut run = Run::new(runtime, "Leaky").built_in("leaks").env("LEAKS_TOP", "20");
    run = run.env("LEAKS_FIRST", (seconds / 3).to_string()).env("LEAKS_SECONDS", seconds.to_string());
    let (_child, lines) = started(&run)?;
    let mut text = String::new();
    loop {
        let line = lines.recv_timeout(PATIENCE + Duration::from_secs(seconds)).with_context(|| text.clone())?;
        text += &format!("{line}\n");
        if line.starts_with("leaks: objects that grow") {
            return Ok(text);
        }
        ensure!(!text.contains("no answer"), "{text}");
    }
}

#[test]
fn leaks_finds_what_grows_and_what_keeps_it() -> Result<()> {
    patiently(Runtime::all()?, |runtime, times| {
        let text = answer(runtime, 3 * times)?;
        println!("{runtime}: {text}");
        ensure!(text.matches("leaks: a snapshot of").count() == 2, "{text}");
        let groups = groups(&text)?;
        // The leaks of tests/managed/Leaky.cs: by whom the object is kept.
        for (class, keeper) in [
            ("View", "static field Bus.Changed"),
            ("Report", "static field Cache.Reports"),
            ("Job", "-> System.Threading.TimerQueueTimer"),
            ("Node", "stack"),
        ] {
            let is_it = |way: &Vec<String>| {
                way.iter().any(|step| has_grown(step, class)) && way.iter().any(|step| step.contains(keeper))
            };
            ensure_or_longer!(groups.iter().any(is_it), "{class} has not grown, kept by {keeper}: {text}");
        }
        // What is refilled does not grow, once it is full. One more may be on the stack.
        let is_refilled = |way: &Vec<String>| way.first().is_some_and(|root| root == "static field Leaky.ring");
        ensure_or_longer!(!groups.iter().any(is_refilled), "the ring has grown: {text}");
        Ok(())
    })
}

mod long {
    use super::*;

    /// The example waits for ten seconds.
    #[test]
    fn the_example_prints_what_has_grown() -> Result<()> {
        for runtime in Runtime::all()? {
            let (_child, lines) = started(&Run::new(&runtime, "Leaky").profiler("leaks"))?;
            let mut missing = vec!["View", "Report", "Job", "Node"];
            while !missing.is_empty() {
                let line = lines.recv_timeout(PATIENCE).with_context(|| format!("{runtime}: no {missing:?}"))?;
                ensure!(line.starts_with('+') && line.contains(" objects of "), "{runtime}: {line}");
                missing.retain(|class| !line.ends_with(&format!(" objects of {class}")));
            }
        }
        Ok(())
    }
}
