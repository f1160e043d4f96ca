//! `corprof doctor`.

use super::*;

/// The names of the findings, and the exit code.
fn findings(command: &mut Command) -> Result<(Vec<String>, Option<i32>)> {
    let output = command.output()?;
    let lines = texts(&output).0;
    // The application prints as well.
    let all = lines.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let names = all.filter_map(|finding| Some(finding["id"].as_str()?.to_owned())).collect();
    Ok((names, output.status.code()))
}

/// The findings about a process, with this time limit in seconds for its answer.
fn of(program: &Program, wait: &str) -> Result<(Vec<String>, Option<i32>)> {
    findings(corprof()?.args(["doctor", "--json", "--wait", wait, &program.child.id().to_string()]))
}

#[test]
fn a_process_is_diagnosed() -> Result<()> {
    for runtime in runtimes()? {
        ensure!(of(&diagnosed(&runtime, None)?, "120")? == (vec!["not-configured".into()], Some(1)), "{runtime}");
        ensure!(of(&diagnosed(&runtime, Some("attached"))?, "120")? == (Vec::new(), Some(0)), "{runtime}");
        let start = |name: &str, value: &str| {
            let mut command = Run::new(&runtime, "Diagnosed").profiler("attached").command()?;
            command.env(name, value);
            let program = Program::start(command)?;
            program.expect("ready")?;
            of(&program, "120")
        };
        let one = |name: &str| (vec![name.to_owned()], Some(1));
        ensure!(start("CORECLR_PROFILER_PATH", "/nowhere/gone.so")? == one("library-missing"), "{runtime}");
        ensure!(start("CORECLR_ENABLE_PROFILING", "true")?.0[0] == "switch-is-not-1", "{runtime}");
        ensure!(start("DOTNET_EnableDiagnostics", "0")? == one("port-disabled"), "{runtime}");
        ensure!(start("DOTNET_EnableDiagnostics_Profiler", "0")? == one("profilers-forbidden"), "{runtime}");
        let other = "{00000000-0000-0000-0000-000000000001}";
        ensure!(start("CORECLR_PROFILER", other)? == one("clsid-of-another-library"), "{runtime}");
        // An empty variable counts as unset.
        let (names, code) = if runtime.has(Difference::NewerVariables) {
            (["switch-is-not-1", "families-differ"].as_slice(), 1)
        } else {
            ([].as_slice(), 0)
        };
        let expected = (names.iter().map(|name| (*name).to_owned()).collect(), Some(code));
        ensure!(start("DOTNET_ENABLE_PROFILING", "0")? == expected, "{runtime}");
        for (name, value) in [("DOTNET_ENABLE_PROFILING", ""), ("CORECLR_ENABLE_PROFILING", "0x10")] {
            ensure!(start(name, value)? == (Vec::new(), Some(0)), "{runtime}: {name}={value}");
        }
    }
    Ok(())
}

#[test]
fn a_process_that_waits_at_its_start_is_named_and_goes_on_when_it_is_resumed() -> Result<()> {
    for runtime in runtimes()? {
        let mut command = Run::new(&runtime, "Diagnosed").command()?;
        command.env("DOTNET_DefaultDiagnosticPortSuspend", "1");
        let program = Program::start(command)?;
        let waits = || Ok(of(&program, "120")?.0.iter().any(|name| name == "waits-to-be-resumed"));
        until("the process waits", waits)?;
        let pid = program.child.id().to_string();
        for question in ["stacks", "heap", "exceptions"] {
            let output = corprof()?.args([question, &pid]).output()?;
            let text = texts(&output).1;
            let is_told = output.status.code() == Some(1) && text.contains(&format!("`corprof resume {pid}`"));
            ensure!(is_told, "{runtime}: {question}: {text}");
        }
        let resume = || -> Result<String> { Ok(texts(&corprof()?.args(["resume", &pid]).output()?).1) };
        let text = resume()?;
        ensure!(text.contains(&format!("process {pid} goes on")), "{runtime}: {text}");
        program.expect("ready")?;
        let text = resume()?;
        ensure!(text.contains("did not wait"), "{runtime}: {text}");
    }
    Ok(())
}

#[test]
fn a_command_is_diagnosed_in_the_runtimes_own_words() -> Result<()> {
    for runtime in runtimes()? {
        let start = |name: &str, value: &str| {
            let prepared = Run::new(&runtime, "Hello").profiler("attached").command()?;
            let mut command = corprof()?;
            command.envs(prepared.get_envs().filter_map(|(name, value)| Some((name, value?)))).env(name, value);
            command.args(["doctor", "--json", "--wait", "120", "--"]).args(application(&runtime, "Hello")?);
            findings(&mut command)
        };
        ensure!(start("CORPROF_NOTHING", "1")? == (Vec::new(), Some(0)), "{runtime}");
        let expected = |name: &str| (vec![name.to_owned(), "runtime-says".into()], Some(1));
        ensure!(start("CORECLR_PROFILER", "notaguid")? == expected("clsid-is-malformed"), "{runtime}");
        ensure!(start("CORECLR_PROFILER_PATH", "/nowhere/gone.so")? == expected("library-missing"), "{runtime}");
        let mut command = corprof()?;
        command.args(["doctor", "--json", "--", "true"]);
        let expected = vec!["not-configured".to_owned(), "no-runtime".into()];
        ensure!(findings(&mut command)? == (expected, Some(1)), "{runtime}");
    }
    Ok(())
}

#[test]
fn a_process_that_is_stopped_is_said_not_to_answer() -> Result<()> {
    for runtime in runtimes()?.into_iter().take(1) {
        let program = diagnosed(&runtime, None)?;
        program.stop()?;
        let found = of(&program, "1")?;
        program.signal("-CONT")?;
        // Its variables are read another way.
        let expected = ["runtime-does-not-answer", "not-configured"].map(str::to_owned);
        ensure!(found == (expected.to_vec(), Some(1)), "{found:?}");
    }
    Ok(())
}

#[test]
fn a_library_that_the_runtime_has_let_go_of_is_missed() -> Result<()> {
    for runtime in runtimes()? {
        let folder = tempfile::tempdir()?;
        let mut command = Run::new(&runtime, "Diagnosed").command()?;
        command.env("CORECLR_ENABLE_PROFILING", "1").env("CORECLR_PROFILER_PATH", refusing(folder.path())?);
        command.env("CORECLR_PROFILER", "{BDD57A0C-D4F7-486D-A8CA-86070DC12FA0}");
        let program = Program::start(command)?;
        program.expect("ready")?;
        let found = of(&program, "120")?;
        ensure!(found == (vec!["configured-but-not-mapped".to_owned()], Some(1)), "{runtime}: {found:?}");
    }
    Ok(())
}

/// Namespaces stand for containers: one with a read-only file system, and one beside the application's.
#[test]
fn containers_are_diagnosed() -> Result<()> {
    if !Command::new("unshare").args(["-rmpf", "true"]).status().is_ok_and(|status| status.success()) {
        println!("SKIPPED: this system lets nobody make namespaces (unshare -rmpf true)");
        return Ok(());
    }
    for runtime in runtimes()? {
        let plain = Run::new(&runtime, "Diagnosed").command()?;
        let mut command = Command::new("unshare");
        command.args(["-rm", "sh", "-c", r#"mount -t tmpfs -o ro none "$TMPDIR" && exec "$@""#, "sh"]);
        command.arg(plain.get_program()).args(plain.get_args());
        command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let folder = tempfile::tempdir()?;
        command.env("TMPDIR", folder.path());
        let program = Program::start(command)?;
        program.expect("ready")?;
        let found = of(&program, "120")?;
        ensure!(found == (vec!["read-only-port-folder".to_owned()], Some(1)), "{runtime}: {found:?}");

        let mut sidecar = Command::new("unshare");
        sidecar.args(["-rpf", "--mount-proc"]).arg(corprof()?.get_program());
        let pid = program.child.id().to_string();
        let found = findings(sidecar.args(["doctor", "--json", &pid]))?;
        ensure!(found == (vec!["other-pid-namespace".to_owned()], Some(1)), "{runtime}: {found:?}");
    }
    Ok(())
}
