//! The command `corprof` for Windows, under Wine: it attaches profilers to runtimes there, and has them detach, over
//! named pipes. Other tests of the command start it on this system, which has no view of Wine's processes.

use std::env;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use corprof_tests::{Run, Runtime};
use xtask::emulator::Emulator;

use crate::diagnostics::{Program, profiler};

/// The runtimes for Windows, each with the Wine that runs it.
fn runtimes() -> Result<Vec<(Runtime, Emulator)>> {
    let wine = Emulator::named().filter(Emulator::is_windows);
    let all = Runtime::all()?.into_iter().map(|runtime| {
        let wine = wine.clone().filter(|_| runtime.is_windows());
        if wine.is_none() {
            println!("SKIPPED: {runtime}: the command for Windows is tested by `cargo xtask test --windows`");
        }
        wine.map(|wine| (runtime, wine))
    });
    Ok(all.flatten().collect())
}

/// The command `corprof` for Windows.
fn corprof(wine: &Emulator) -> Result<Command> {
    let program = env::var_os("CORPROF_COMMAND").context("CORPROF_COMMAND is not set: start by `cargo xtask test`")?;
    let Emulator::Wine(wine) = wine else { anyhow::bail!("not Wine") };
    let mut command = wine.command(Path::new(&program));
    command.env("CORPROF_CACHE", wine_path(env!("CARGO_TARGET_TMPDIR")));
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if ["CORECLR_", "COR_", "COMPlus_", "DOTNET_"].iter().any(|prefix| text.starts_with(prefix)) {
            command.env_remove(&name);
        }
    }
    Ok(command)
}

fn wine_path(path: &str) -> std::ffi::OsString {
    xtask::windows::Wine::path(Path::new(path))
}

fn texts(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn a_profiler_is_attached_and_detaches_on_command() -> Result<()> {
    for (runtime, wine) in runtimes()? {
        let mut program = Program::ready(Run::new(&runtime, "Diagnosed").command()?)?;
        let pid = program.own_pid()?.to_string();
        let (_, library) = profiler(&runtime, "leaver")?;
        for round in 0..3 {
            let mut command = corprof(&wine)?;
            command.args(["attach", &pid]).arg(&library).args(["--data", "listens", "--timeout", "240"]);
            let output = command.output()?;
            ensure!(output.status.success(), "{runtime}, {round}: {output:?}");
            ensure!(texts(&output).contains("is attached to process"), "{runtime}, {round}: {output:?}");
            // A second one is refused.
            let mut command = corprof(&wine)?;
            let output = command.args(["attach", &pid]).arg(&library).args(["--timeout", "240"]).output()?;
            ensure!(texts(&output).contains("CORPROF_E_PROFILER_ALREADY_ACTIVE"), "{runtime}, {round}: {output:?}");
            program.tell("collect 1")?;
            let output = corprof(&wine)?.args(["detach", &pid, "--timeout", "240"]).output()?;
            ensure!(output.status.success(), "{runtime}, {round}: {output:?}");
            ensure!(texts(&output).contains("has detached"), "{runtime}, {round}: {output:?}");
            program.tell("throw 1")?;
        }
        let output = corprof(&wine)?.args(["detach", &pid]).output()?;
        ensure!(!output.status.success(), "{runtime}: nobody listens: {output:?}");
        let stderr = program.end()?;
        ensure!(stderr.matches("leaver| last word: 0 inside, modules seen: true").count() == 3, "{runtime}: {stderr}");
        ensure!(stderr.matches("leaver| dropped").count() == 3 && !stderr.contains("panicked"), "{runtime}: {stderr}");
    }
    Ok(())
}

#[test]
fn an_application_runs_under_a_profiler_and_processes_are_listed() -> Result<()> {
    for (runtime, wine) in runtimes()? {
        let (_, library) = profiler(&runtime, "attached")?;
        // What a user would type: Wine's own program for `dotnet.exe`, and its arguments.
        let application = Run::new(&runtime, "Hello").command()?;
        let mut command = corprof(&wine)?;
        command.arg("run").arg(&library).arg("--").args(application.get_args()).arg("you");
        let output = command.output()?;
        let said = texts(&output);
        ensure!(output.status.code() == Some(42) && said.contains("Hello, you!"), "{runtime}: {output:?}");
        ensure!(said.contains("attached| loaded at start-up"), "{runtime}: {output:?}");
        ensure!(said.contains("Attached was loaded in process "), "{runtime}: {output:?}");

        let mut program = Program::ready(Run::new(&runtime, "Diagnosed").command()?)?;
        let pid = program.own_pid()?;
        let output = corprof(&wine)?.args(["ps", "--json"]).output()?;
        let stdout = String::from_utf8_lossy(&output.stdout);
        let line = stdout.lines().find(|line| line.contains(&format!("\"pid\":{pid},")));
        let line = line.with_context(|| format!("{runtime}: {pid} is not listed: {output:?}"))?;
        ensure!(line.contains("Diagnosed.dll") && line.contains("x64"), "{runtime}: {line}");
        program.end()?;
    }
    Ok(())
}
