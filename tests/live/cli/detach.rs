//! `corprof detach`, profilers that listen for it, and profilers that come late: `run --delay`, `attach --wait`.

use corprof_tests::{ensure_or_longer, patiently};

use super::*;

fn detach(pid: &str) -> Result<(Option<i32>, String)> {
    let output = corprof()?.args(["detach", pid, "--timeout", "240"]).output()?;
    Ok((output.status.code(), texts(&output).1))
}

#[test]
fn the_example_counts_and_detaches_on_command_again_and_again() -> Result<()> {
    for runtime in runtimes()? {
        let mut program = diagnosed(&runtime, None)?;
        let pid = program.child.id().to_string();
        let socket = env::temp_dir().join(format!("corprof-detach-{pid}"));
        let (code, stderr) = detach(&pid)?;
        ensure!(code == Some(1) && stderr.contains("no profiler in process"), "{runtime}: {stderr}");
        for round in 0..3 {
            let mut command = corprof()?;
            command.args(["attach", &pid]).arg(library(&runtime, "detacher")?).args(["--timeout", "240"]);
            let output = command.output()?;
            ensure!(output.status.success(), "{runtime}: {output:?}");
            ensure!(socket.exists(), "{runtime}: it does not listen");
            program.tell("throw 3")?;
            let (code, stderr) = detach(&pid)?;
            ensure!(code == Some(0) && stderr.contains("has detached"), "{runtime}: {stderr}");
            ensure!(!socket.exists(), "{runtime}: round {round}");
        }
        let (code, stderr) = detach(&pid)?;
        ensure!(code == Some(1) && stderr.contains("libdetacher"), "{runtime}: {stderr}");
        let (code, stderr) = program.end()?;
        ensure!(code == Some(0), "{runtime}: {stderr}");
        ensure!(stderr.matches("detacher: 3 exceptions\n").count() == 3, "{runtime}: {stderr}");
    }
    Ok(())
}

#[test]
fn a_profiler_that_cannot_detach_says_why_and_listens_on() -> Result<()> {
    for runtime in runtimes()? {
        let mut program = diagnosed(&runtime, None)?;
        let pid = program.child.id().to_string();
        // A process that was killed has left its socket, and then its id was given to this one.
        let socket = env::temp_dir().join(format!("corprof-detach-{pid}"));
        drop(std::os::unix::net::UnixListener::bind(&socket)?);
        let (code, stderr) = detach(&pid)?;
        ensure!(code == Some(1) && stderr.contains("no profiler in process"), "{runtime}: {stderr}");

        let mut command = corprof()?;
        command.args(["attach", &pid]).arg(library(&runtime, "leaver")?).args(["--timeout", "240"]);
        let output = command.args(["--data", "stays listens"]).output()?;
        ensure!(output.status.success(), "{runtime}: {output:?}");
        // Who connects and asks for nothing, or for something else, changes nothing.
        drop(std::os::unix::net::UnixStream::connect(&socket)?);
        std::os::unix::net::UnixStream::connect(&socket)?.write_all(b"attack\n")?;
        for _ in 0..2 {
            let (code, stderr) = detach(&pid)?;
            ensure!(code == Some(1) && stderr.contains("stays: RequestProfilerDetach"), "{runtime}: {stderr}");
            ensure!(stderr.contains("COR_PRF_ENABLE_REJIT"), "{runtime}: {stderr}");
        }
        program.tell("throw 1")?;
        let (code, stderr) = program.end()?;
        ensure!(code == Some(0) && stderr.contains("leaver| it stays"), "{runtime}: {stderr}");
        ensure!(!socket.exists(), "{runtime}: the socket is left");
    }
    Ok(())
}

#[test]
fn a_profiler_comes_late_and_leaves_early() -> Result<()> {
    patiently(runtimes()?, |runtime, times| {
        let folder = tempfile::tempdir()?;
        let out = folder.path().join("late.folded");
        let mut command = corprof()?;
        let seconds = times.to_string();
        command.args(["run", "sampler", "--delay", "0.5", "--duration", &seconds, "--require-load", "--env"]);
        command.arg(format!("SAMPLER_OUT={}", out.display())).arg("--").args(application(runtime, "Diagnosed")?);
        let mut program = Program::start(command)?;
        program.expect("ready")?;
        program.tell("storm")?;
        let said = program.stderr_line("has detached from process")?;
        ensure!(said.contains("is attached to process"), "{runtime}: {said}");
        ensure_or_longer!(out.is_file(), "{runtime}: {said}");
        program.tell("calm")?;
        let (code, stderr) = program.end()?;
        ensure!(code == Some(0) && stderr.contains("late.folded is written"), "{runtime}: {stderr}");

        // The application may end before the runtime is asked; it does so with its own code.
        let mut command = corprof()?;
        command.args(["run", "sampler", "--delay", "3600", "--require-load", "--"]);
        let output = command.args(application(runtime, "Hello")?).output()?;
        let (_, stderr) = texts(&output);
        ensure!(output.status.code() == Some(124) && stderr.contains("NOT attached"), "{runtime}: {output:?}");
        Ok(())
    })
}

#[test]
fn a_profiler_waits_for_the_runtime() -> Result<()> {
    for runtime in runtimes()? {
        let mut command = corprof()?;
        command.args(["attach", "--wait", "--data", "ab"]).arg(library(&runtime, "attached")?).arg("--");
        // A launcher in between. The one here is for glibc, and a profiler for musl is refused for it.
        let launcher: &[&str] = if runtime.is_musl() { &[] } else { &["sh", "-c", "\"$@\"; exit $?", "sh"] };
        command.args(launcher).args(application(&runtime, "Diagnosed")?);
        let mut program = Program::start(command)?;
        program.expect("ready")?;
        // The profiler says at the end what it was given; until it is there, exceptions are not counted.
        let error = program.stderr_line("is attached to process")?;
        program.tell("throw 3")?;
        let (code, stderr) = program.end()?;
        ensure!(code == Some(0), "{runtime}: {error}{stderr}");
        ensure!(stderr.contains("attached| exceptions: 3\n"), "{runtime}: {error}{stderr}");

        let output = corprof()?.args(["attach", "--wait", "--", "true"]).output()?;
        ensure!(output.status.code() == Some(2), "{output:?}");
        let output = corprof()?.args(["attach", "4711"]).output()?;
        ensure!(output.status.code() == Some(2) && texts(&output).1.contains("give a process id"), "{output:?}");
    }
    Ok(())
}
