//! The command `corprof` on real runtimes, on Linux: it is a program of this system, and starts or asks programs of
//! this system. The command for musl starts programs for musl. The command for Windows: `wine.rs`.

mod any_process;
mod attach;
mod counters;
mod detach;
mod diff;
mod documents;
mod ends;
mod foreign_profiler;
mod heap_names;
mod il;
mod inlined;
mod lines;
mod names;
mod ps;
mod push;
mod questions;
mod quota;
mod record;
mod recording;
mod run;
mod sdk;
mod sdk_tool;
mod set_ups;
mod slow_calls;
mod stacks;
mod tasks;
mod top;
mod view;

/// Commands that ask or show what differs between .NET 10 and 11: see `main.rs`.
#[path = "."]
mod differs {
    use super::*;

    mod async_callers;
    mod async_lines;
    mod async_questions;
    mod async_queue;
    mod clinic;
    mod doctor;
    mod events;
    mod heap;
    mod labels;
    mod requests;
    mod web;
}

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use anyhow::{Context, Result, ensure};
use corprof_tests::{Difference, Run, Runtime};
use xtask::emulator::Emulator;

/// Long enough for any step on a busy machine.
const PATIENCE: Duration = Duration::from_secs(240);

fn runtimes() -> Result<Vec<Runtime>> {
    let (here, elsewhere): (Vec<_>, Vec<_>) =
        Runtime::all()?.into_iter().partition(|runtime| !runtime.is_windows() && !runtime.is_emulated());
    for runtime in elsewhere {
        println!("SKIPPED: corprof is built for this system, and {runtime} is for another one");
    }
    Ok(here)
}

/// The command, without the variables of the shell that runs the tests.
fn corprof() -> Result<Command> {
    let program = env::var_os("CORPROF_COMMAND");
    let mut command =
        Command::new(program.context("CORPROF_COMMAND is not set: start by `cargo xtask test --live-only`")?);
    command.env("CORPROF_CACHE", env!("CARGO_TARGET_TMPDIR"));
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if ["CORECLR_", "COR_", "COMPlus_", "DOTNET_"].iter().any(|prefix| text.starts_with(prefix)) {
            command.env_remove(&name);
        }
    }
    if let Some(Emulator::Musl(musl)) = Emulator::named() {
        command.envs(musl.environment());
    }
    Ok(command)
}

/// A command that `corprof run` is given: host, `exec`, program.
fn application(runtime: &Runtime, app: &str) -> Result<Vec<std::ffi::OsString>> {
    Ok(vec![runtime.host(), "exec".into(), runtime.app(app)?])
}

/// The built library of a test profiler or an example.
fn library(runtime: &Runtime, name: &str) -> Result<PathBuf> {
    library_of(&Run::new(runtime, "Hello").profiler(name))
}

/// The library that a run would load.
fn library_of(run: &Run) -> Result<PathBuf> {
    let command = run.command()?;
    let value = command.get_envs().find(|(other, _)| *other == "CORECLR_PROFILER_PATH").and_then(|(_, value)| value);
    Ok(value.context("no path")?.into())
}

/// A library `foreign.so` of another maker, which has no profiler for any CLSID.
fn refusing(folder: &Path) -> Result<PathBuf> {
    let source = folder.join("foreign.c");
    let library = folder.join("foreign.so");
    std::fs::write(&source, "int DllGetClassObject(void) { return 0x80040111; }")?;
    let cc = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status()?;
    ensure!(cc.success(), "cc failed");
    Ok(library)
}

/// The same command in a terminal of its own.
fn in_terminal(inner: &Command) -> Command {
    let words = std::iter::once(inner.get_program()).chain(inner.get_args());
    let quoted: Vec<_> = words.map(|word| format!("'{}'", word.to_string_lossy().replace('\'', r"'\''"))).collect();
    let mut command = Command::new("script");
    // Without `exec` some shells stay, and die of the interrupt themselves.
    command.args(["-qec", &format!("exec {}", quoted.join(" ")), "/dev/null"]);
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

fn signal(pid: u32, name: &str) -> Result<()> {
    ensure!(Command::new("kill").args([name, &pid.to_string()]).status()?.success(), "kill {name} {pid} failed");
    Ok(())
}

/// The first child of a process.
fn child_of(pid: u32) -> Result<Option<u32>> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    Ok(children.split_whitespace().next().map(str::parse).transpose()?)
}

fn texts(output: &Output) -> (String, String) {
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    (stdout, stderr)
}

/// The sampler got a processor at all.
fn has_rounds(output: &Output) -> Result<()> {
    corprof_tests::ensure_or_longer!(!texts(output).1.contains("no samples: no round of the sampler"), "{output:?}");
    Ok(())
}

/// Whether a command that records has succeeded. On a busy machine a short one may not have had a single round.
fn has_recorded(output: &Output) -> Result<()> {
    has_rounds(output)?;
    ensure!(output.status.success(), "{output:?}");
    Ok(())
}

/// Microsoft's dotnet-trace, of which `cargo xtask test --all` tells; none without it.
fn dotnet_trace() -> Result<Option<Command>> {
    let Some(programs) = env::var_os("CORPROF_DOTNET_TRACE") else {
        println!("SKIPPED: there is no dotnet-trace in CORPROF_DOTNET_TRACE");
        return Ok(None);
    };
    let programs: Vec<_> = env::split_paths(&programs).collect();
    let [host, tool] = &programs[..] else { anyhow::bail!("not a host and a tool: {programs:?}") };
    let mut command = Command::new(host);
    command.arg("exec").arg(tool).env("DOTNET_SYSTEM_GLOBALIZATION_INVARIANT", "1");
    Ok(Some(command))
}

/// A program that has been started, whose lines of standard output come one by one.
struct Program {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Program {
    fn start(mut command: Command) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        let input = child.stdin.take();
        let output = child.stdout.take().context("no output")?;
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Ok(Self { child, input, lines })
    }

    /// Waits for a line that ends so: on a terminal .NET begins with control sequences.
    fn expect(&self, expected: &str) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        loop {
            let line = self.lines.recv_timeout(end.saturating_duration_since(Instant::now()));
            if line.with_context(|| format!("no line `{expected}`"))?.ends_with(expected) {
                return Ok(());
            }
        }
    }

    fn tell(&mut self, command: &str) -> Result<()> {
        writeln!(self.input.as_mut().context("its input is closed")?, "{command}")?;
        self.expect(&format!("done {command}"))
    }

    /// Reads standard error up to the line that contains this. `corprof` says NOT when it will not come.
    fn stderr_line(&mut self, wanted: &str) -> Result<String> {
        let mut stderr = self.child.stderr.take().context("no standard error")?;
        let mut seen = Vec::new();
        let mut byte = [0];
        loop {
            let read = stderr.read(&mut byte)?;
            seen.extend_from_slice(byte.get(..read).unwrap_or_default());
            let text = String::from_utf8_lossy(&seen);
            ensure!(read != 0 && !text.contains(" NOT "), "no line `{wanted}`: {text}");
            if byte == *b"\n" && text.contains(wanted) {
                self.child.stderr = Some(stderr);
                return Ok(text.into_owned());
            }
        }
    }

    /// Sends it a signal, such as `-INT`.
    fn signal(&self, name: &str) -> Result<()> {
        signal(self.child.id(), name)
    }

    /// Stops it, and waits until all its threads stand: on a busy machine one may still answer after the signal.
    fn stop(&self) -> Result<()> {
        self.signal("-STOP")?;
        let start = Instant::now();
        while !self.stands()? {
            ensure!(start.elapsed() < PATIENCE, "not stopped after {PATIENCE:?}");
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn stands(&self) -> Result<bool> {
        for thread in fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let status = fs::read_to_string(thread?.path().join("status"))?;
            if !status.contains("State:\tT") {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Lets it end, and answers with exit code and standard error.
    fn end(mut self) -> Result<(Option<i32>, String)> {
        drop(self.input.take());
        let output = std::mem::replace(&mut self.child, Command::new("true").spawn()?).wait_with_output()?;
        Ok((output.status.code(), texts(&output).1))
    }
}

impl Program {
    /// Closes its input, and returns the lines that it still prints, and its exit code.
    fn rest(mut self) -> Result<(Vec<String>, Option<i32>)> {
        drop(self.input.take());
        let lines = self.lines.iter().collect();
        Ok((lines, self.child.wait()?.code()))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until this is so.
fn until(what: &str, mut is_met: impl FnMut() -> Result<bool>) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    while !is_met()? {
        ensure!(Instant::now() < end, "never: {what}");
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// A run of tests/managed/Diagnosed.cs that is up, without a profiler or under one.
fn diagnosed(runtime: &Runtime, profiler: Option<&str>) -> Result<Program> {
    let run = Run::new(runtime, "Diagnosed");
    let run = if let Some(library) = profiler { run.profiler(library) } else { run };
    let program = Program::start(run.command()?)?;
    program.expect("ready")?;
    Ok(program)
}
