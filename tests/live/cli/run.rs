//! `corprof run`: applications under profilers.

use corprof_tests::repetitions;

use super::*;
use crate::hosts::apphost;

#[test]
fn an_application_runs_as_without_it_and_the_profiler_is_said_to_be_loaded() -> Result<()> {
    for runtime in runtimes()? {
        let mut command = corprof()?;
        // Variables of another profiler, which `run` must clear.
        command.env("CORECLR_PROFILER_PATH_64", "/nowhere/other.so").env("CORECLR_PROFILER", "{other}");
        command.env("CORECLR_NOTIFICATION_PROFILERS", "/nowhere/other.so={BDD57A0C-D4F7-486D-A8CA-86070DC12FA0}");
        command.args(["run", "--require-load"]).arg(library(&runtime, "attached")?).arg("--");
        let output = command.args(application(&runtime, "Hello")?).arg("you").output()?;
        let (stdout, stderr) = texts(&output);
        ensure!(output.status.code() == Some(42), "{runtime}: {output:?}");
        ensure!(stdout == "Hello, you!\n", "{runtime}: {stdout}");
        ensure!(stderr.contains("attached| loaded at start-up"), "{runtime}: {stderr}");
        ensure!(stderr.contains("corprof: Attached was loaded in process"), "{runtime}: {stderr}");
    }
    Ok(())
}

#[test]
fn a_profiler_that_prints_because_no_file_was_named_says_how_to_name_one() -> Result<()> {
    for runtime in runtimes()? {
        for (name, hint, variable) in
            [("tracer", "TRACER_OUT=calls.pftrace", "TRACER_OUT"), ("logger", "LOGGER_DIR=events", "LOGGER_DIR")]
        {
            let folder = tempfile::tempdir()?;
            for &is_named in repetitions(&[false][..], &[false, true]) {
                let mut command = corprof()?;
                let file = folder.path().join("calls.pftrace");
                let setting = format!("{variable}={}", if name == "logger" { folder.path() } else { &file }.display());
                command.args(["run"]).args(is_named.then_some(format!("--env={setting}"))).arg(name).arg("--");
                let output = command.args(application(&runtime, "Hello")?).output()?;
                let (stdout, stderr) = texts(&output);
                ensure!(stdout.contains("Hello"), "{runtime}: {name}: {output:?}");
                ensure!(stderr.contains(hint) != is_named, "{runtime}: {name}, named: {is_named}: {stderr}");
            }
        }
    }
    Ok(())
}

#[test]
fn three_children_each_tell_of_themselves_and_none_hangs() -> Result<()> {
    for runtime in runtimes()? {
        let mut command = corprof()?;
        command.arg("run").arg(library(&runtime, "attached")?).args(["--env", "CORPROF_MARK=1", "--"]);
        command.args(application(&runtime, "Family")?).arg("3").args(application(&runtime, "Hello")?).arg("child");
        let output = command.output()?;
        let (stdout, stderr) = texts(&output);
        ensure!(output.status.success(), "{runtime}: {output:?}");
        ensure!(stdout.matches("Hello, child!\n").count() == 3, "{runtime}: {stdout}");
        ensure!(stderr.contains("corprof: Attached was loaded in 4 processes: "), "{runtime}: {stderr}");
        ensure!(stderr.matches("attached| loaded at start-up").count() == 4, "{runtime}: {stderr}");
    }
    Ok(())
}

#[test]
fn a_profiler_that_refuses_is_said_not_to_be_loaded_with_the_runtimes_reason() -> Result<()> {
    for runtime in runtimes()? {
        let mut command = corprof()?;
        // A CLSID that a library of another maker could have: this one does not have it.
        let folder = tempfile::tempdir()?;
        let foreign = refusing(folder.path())?;
        command.args(["run", "--require-load", "--clsid", "{BDD57A0C-D4F7-486D-A8CA-86070DC12FA0}"]).arg(&foreign);
        let output = command.arg("--").args(application(&runtime, "Hello")?).output()?;
        let (stdout, stderr) = texts(&output);
        ensure!(output.status.code() == Some(124), "{runtime}: {output:?}");
        ensure!(stdout == "Hello, world!\n", "{runtime}: {stdout}");
        ensure!(stderr.contains("corprof: foreign.so was NOT loaded in process"), "{runtime}: {stderr}");
        ensure!(stderr.contains("0x80040111") && stderr.contains("CLSID"), "{runtime}: {stderr}");
    }
    Ok(())
}

#[test]
fn a_second_main_profiler_is_told_from_a_notification_profiler() -> Result<()> {
    for runtime in runtimes()? {
        let mut command = corprof()?;
        command.args(["run", "--require-load"]).arg(library(&runtime, "attached")?);
        command.arg("--notification").arg(library(&runtime, "beeper")?);
        let output = command.arg("--").args(application(&runtime, "Hello")?).output()?;
        let (_, stderr) = texts(&output);
        ensure!(output.status.code() == Some(124), "{runtime}: {output:?}");
        ensure!(stderr.contains("corprof: Attached was loaded in process"), "{runtime}: {stderr}");
        ensure!(stderr.contains("corprof: Beeper was NOT loaded in process"), "{runtime}: {stderr}");
        ensure!(stderr.contains("`notification_only`"), "{runtime}: {stderr}");
    }
    Ok(())
}

#[test]
fn a_notification_profiler_is_loaded_beside() -> Result<()> {
    for runtime in runtimes()? {
        let mut command = corprof()?;
        command.args(["run", "--require-load"]).arg(library(&runtime, "attached")?);
        command.arg("--notification").arg(library(&runtime, "beside")?);
        let output = command.arg("--").args(application(&runtime, "Hello")?).output()?;
        let (_, stderr) = texts(&output);
        ensure!(output.status.success(), "{runtime}: {output:?}");
        for name in ["Attached", "Beside"] {
            ensure!(stderr.contains(&format!("corprof: {name} was loaded in process")), "{runtime}: {stderr}");
        }
        for refused in ["ENABLE_REJIT", "MONITOR_GC", "MONITOR_ENTERLEAVE"] {
            let text =
                format!("COR_PRF_{refused}): E_INVALIDARG (0x80070057): this flag is not allowed for a notification");
            ensure!(stderr.contains(&text), "{runtime}: {refused}: {stderr}");
        }
    }
    Ok(())
}

#[test]
fn several_profilers_observe_one_process() -> Result<()> {
    for runtime in runtimes()? {
        let multi = library_of(&Run::new(&runtime, "Hello").profiler_named("multi", "Throws"))?;
        let mut command = corprof()?;
        command.args(["run", "--require-load"]).arg(library(&runtime, "attached")?);
        for name in ["Throws", "Collections"] {
            command.arg("--notification").arg(format!("{}={name}", multi.display()));
        }
        let mut program = Program::start({
            command.arg("--").args(application(&runtime, "Diagnosed")?);
            command
        })?;
        program.expect("ready")?;
        program.tell("throw 3")?;
        program.tell("collect 2")?;
        let (code, stderr) = program.end()?;
        ensure!(code == Some(0), "{runtime}: {stderr}");
        for said in ["attached| exceptions: 3", "throws: 3 System.InvalidOperationException", "collections: "] {
            ensure!(stderr.contains(said), "{runtime}: no `{said}`: {stderr}");
        }
    }
    Ok(())
}

#[test]
fn signals_and_death_are_passed_on() -> Result<()> {
    for runtime in runtimes()? {
        for (signal, code) in [("-TERM", 143), ("-INT", 130)] {
            let mut command = corprof()?;
            command.arg("run").arg(library(&runtime, "attached")?).arg("--");
            command.args(application(&runtime, "Diagnosed")?);
            let mut program = Program::start(command)?;
            program.expect("ready")?;
            program.tell("throw 1")?;
            program.signal(signal)?;
            // The input stays open, so that nothing else ends it.
            let input = program.input.take();
            let (ended, stderr) = program.end()?;
            drop(input);
            // .NET makes an orderly end of SIGTERM, with 143, and dies of SIGINT or ends with 130.
            ensure!(ended == Some(code), "{runtime}: {signal}: {ended:?}: {stderr}");
            ensure!(stderr.contains("corprof: Attached was loaded"), "{runtime}: {signal}: {stderr}");
        }
    }
    Ok(())
}

/// As a person presses Ctrl-C: the terminal interrupts the application as well, which must not receive a second signal.
#[test]
fn a_terminal_interrupts_the_application_and_corprof_still_reports() -> Result<()> {
    if !Command::new("script").arg("--version").output().is_ok_and(|output| output.status.success()) {
        println!("SKIPPED: there is no `script`, which makes a terminal");
        return Ok(());
    }
    for runtime in runtimes()? {
        let mut inner = corprof()?;
        inner.arg("run").arg(library(&runtime, "attached")?).arg("--").args(application(&runtime, "Diagnosed")?);
        let command = in_terminal(&inner);
        let mut program = Program::start(command)?;
        program.expect("ready")?;
        program.input.as_mut().context("no input")?.write_all(b"\x03")?;
        let end = Instant::now() + PATIENCE;
        let mut said = Vec::new();
        while !said.iter().any(|line: &String| line.contains("corprof: Attached was loaded in process")) {
            let line = program.lines.recv_timeout(end.saturating_duration_since(Instant::now()));
            said.push(line.with_context(|| format!("{runtime}: {said:?}"))?);
        }
        ensure!(program.child.wait()?.code() == Some(130), "{runtime}: {said:?}");
    }
    Ok(())
}

#[test]
fn an_application_without_a_runtime_is_said_to_have_none() -> Result<()> {
    for runtime in runtimes()?.into_iter().take(1) {
        let mut command = corprof()?;
        command.args(["run", "--require-load"]).arg(library(&runtime, "attached")?);
        let output = command.args(["--", "sh", "-c", "exit 7"]).output()?;
        let (_, stderr) = texts(&output);
        ensure!(output.status.code() == Some(124) && stderr.contains("no .NET runtime"), "{output:?}");
        let mut command = corprof()?;
        command.arg("run").arg(library(&runtime, "attached")?).args(["--", "sh", "-c", "kill -9 $$"]);
        ensure!(command.output()?.status.code() == Some(137), "the signal is told");
        let mut command = corprof()?;
        command.arg("run").arg("no-such.so").args(["--", "sh", "-c", "echo ran"]);
        let output = command.output()?;
        ensure!(output.status.code() == Some(125) && output.stdout.is_empty(), "{output:?}");
        ensure!(texts(&output).1.contains("library-missing"), "{output:?}");
        let output = corprof()?.args(["run", "samplr", "--", "sh", "-c", "echo ran"]).output()?;
        ensure!(output.status.code() == Some(125) && output.stdout.is_empty(), "{output:?}");
        ensure!(texts(&output).1.contains("did you mean `sampler`?"), "{output:?}");
        let mut command = corprof()?;
        command.arg("run").arg(library(&runtime, "attached")?).args(["--", "sh", "-c", "echo ran"]);
        let output = command.env("DOTNET_EnableDiagnostics_Profiler", "0").output()?;
        ensure!(output.status.code() == Some(125) && texts(&output).1.contains("profilers-forbidden"), "{output:?}");
    }
    Ok(())
}

#[test]
fn an_executable_of_the_applications_own_runs_under_a_profiler() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let host = folder.path().join("Hello");
    apphost::compile(&host)?;
    for runtime in runtimes()? {
        let app = PathBuf::from(runtime.app("Hello")?);
        for extension in ["dll", "runtimeconfig.json"] {
            std::fs::copy(app.with_extension(extension), host.with_extension(extension))?;
        }
        let dotnet = PathBuf::from(runtime.host());
        let root = dotnet.parent().context("dotnet lies in no folder")?;
        let mut command = corprof()?;
        command.env("APPHOST_HOSTFXR", apphost::host_resolver(root)?).env("DOTNET_ROOT", root);
        command.args(["run", "--require-load"]).arg(library(&runtime, "attached")?).arg("--").arg(&host).arg("you");
        let output = command.output()?;
        let (stdout, stderr) = texts(&output);
        ensure!(output.status.code() == Some(42) && stdout == "Hello, you!\n", "{runtime}: {output:?}");
        ensure!(stderr.contains("corprof: Attached was loaded in process"), "{runtime}: {stderr}");
    }
    Ok(())
}

/// The file shows it, so that nothing is started in vain. The program has the mark that those of NativeAOT have.
#[test]
fn an_application_compiled_ahead_of_time_is_refused_at_once() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let source = folder.path().join("app.c");
    let program = folder.path().join("app");
    std::fs::write(&source, "int DotNetRuntimeDebugHeader[4];\nint main(void) { return 0; }\n")?;
    let compiled = Command::new("cc").args(["-Wl,--export-dynamic", "-o"]).arg(&program).arg(&source).status();
    ensure!(compiled.context("cannot start cc")?.success(), "cc failed");
    for runtime in runtimes()?.into_iter().take(1) {
        for late in [&[][..], &["--delay", "1"]] {
            let mut command = corprof()?;
            command.arg("run").arg(library(&runtime, "attached")?).args(late).arg("--").arg(&program);
            let output = command.output()?;
            let (_, stderr) = texts(&output);
            ensure!(output.status.code() == Some(125) && stderr.contains("compiled-ahead"), "{late:?}: {output:?}");
        }
        let output = corprof()?.args(["doctor", "--"]).arg(&program).output()?;
        let (stdout, _) = texts(&output);
        ensure!(output.status.code() == Some(1) && stdout.starts_with("compiled-ahead: "), "{output:?}");
    }
    Ok(())
}

/// See `main.rs`.
mod differs {
    use super::*;

    #[test]
    fn a_crash_is_named_with_the_setting_by_which_the_runtime_tells_where() -> Result<()> {
        for runtime in runtimes()? {
            let crash = |env: &str| -> Result<String> {
                let mut command = corprof()?;
                command.arg("run").arg(library(&runtime, "attached")?).args(["--env", env, "--"]);
                let output = command.args(application(&runtime, "Exit")?).arg("-1").output()?;
                let (_, stderr) = texts(&output);
                ensure!(output.status.code() == Some(134), "{runtime}: {output:?}");
                Ok(stderr)
            };
            let hint = "corprof: SIGABRT has ended the application. With --env DOTNET_EnableCrashReport=1";
            let stderr = crash("DOTNET_EnableCrashReport=0")?;
            ensure!(stderr.contains(hint) && !stderr.contains(".NET Crash Report"), "{runtime}: {stderr}");
            let stderr = crash("DOTNET_EnableCrashReport=1")?;
            let is_reported = stderr.contains(".NET Crash Report") && stderr.contains("Exit.Main");
            ensure!(is_reported == runtime.has(Difference::ReportsOfCrashes), "{runtime}: {stderr}");
            ensure!(!stderr.contains(hint), "{runtime}: {stderr}");
        }
        Ok(())
    }
}
