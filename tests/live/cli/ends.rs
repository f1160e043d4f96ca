//! What becomes of a profile when it has few samples, or when the application or the command ends before its time.

use std::ffi::OsString;
use std::fs;

use corprof_tests::{ensure_or_longer, patiently};

use super::*;

/// `corprof record -o FILE OPTIONS -- Ends MILLISECONDS END`, tests/managed/Ends.cs.
fn record(runtime: &Runtime, file: &Path, options: &[&str], milliseconds: &str, end: &str) -> Result<Command> {
    let mut command = corprof()?;
    command.arg("record").arg("-o").arg(file).args(options).arg("--").args(application(runtime, "Ends")?);
    command.args([milliseconds, end]);
    // A dump of the core is no part of the tests.
    command.env("DOTNET_DbgEnableMiniDump", "0");
    Ok(command)
}

#[test]
fn rounds_samples_and_rates_are_told_on_the_terminal_and_in_every_format() -> Result<()> {
    for runtime in runtimes()? {
        let folder = tempfile::tempdir()?;
        for name in ["p.html", "p.svg", "p.speedscope.json", "p.firefox.json", "p.pprof"] {
            let file = folder.path().join(name);
            let output = record(&runtime, &file, &["--rate", "200"], "300", "return")?.output()?;
            let (_, stderr) = texts(&output);
            ensure!(output.status.success(), "{runtime}: {output:?}");
            let facts = stderr.lines().find(|line| line.contains(" Hz reached"));
            let facts = facts.with_context(|| format!("{runtime}: no facts: {stderr}"))?;
            let facts = facts.trim_start_matches("corprof:   ");
            ensure!(facts.contains(" in ") && facts.contains(" rounds · 200 Hz asked, "), "{runtime}: {facts}");
            ensure!(stderr.contains("shares may be off by"), "{runtime}: few samples are not told of: {stderr}");
            let shares: Vec<f64> = stderr.lines().filter_map(share).collect();
            let sum: f64 = shares.iter().sum();
            ensure!((1..=5).contains(&shares.len()) && sum <= 100.5, "{runtime}: {stderr}");
            ensure!(shares.is_sorted_by(|a, b| a >= b), "{runtime}: {stderr}");
            let counted = facts.split(" · ").find(|fact| fact.contains(" rounds")).context("no rounds")?;
            let profile = fs::read(&file)?;
            let text = if profile.starts_with(&[0x1f, 0x8b]) { unpacked(&file)? } else { profile };
            let text = String::from_utf8_lossy(&text);
            ensure!(text.contains(counted), "{runtime}: {name} lacks `{counted}`");
        }
    }
    Ok(())
}

/// The share of a line that names a busy method: `corprof:    58.3 %  Shop.Search`.
fn share(line: &str) -> Option<f64> {
    let (share, method) = line.strip_prefix("corprof:   ")?.split_once(" %  ")?;
    (!method.is_empty()).then(|| share.trim().parse().ok()).flatten()
}

fn unpacked(file: &Path) -> Result<Vec<u8>> {
    Ok(Command::new("gzip").arg("-dc").stdin(fs::File::open(file)?).output()?.stdout)
}

#[test]
fn a_profile_without_samples_is_an_error_that_says_why() -> Result<()> {
    for runtime in runtimes()? {
        let folder = tempfile::tempdir()?;
        // Nothing is compiled again in the background, and the first line has been read, for which methods are
        // compiled: on a busy machine a sample may meet either.
        let run = Run::new(&runtime, "Diagnosed").env("DOTNET_TieredCompilation", "0");
        let mut program = Program::start(run.command()?)?;
        program.tell("sleep")?;
        let pid = program.child.id().to_string();
        let file = folder.path().join("p.folded");
        let mut command = corprof()?;
        command.args(["record", "-p", &pid, "--duration", "0.5", "-o"]).arg(&file);
        let output = command.output()?;
        let (_, stderr) = texts(&output);
        ensure!(output.status.code() == Some(124), "{runtime}: {output:?}");
        ensure!(stderr.contains("no samples: ") && stderr.contains(" in 0."), "{runtime}: {stderr}");
        ensure!(!stderr.contains("is written"), "{runtime}: {stderr}");
        ensure!(fs::read_dir(folder.path())?.count() == 0, "{runtime}: a file without samples");

        let output = record(&runtime, &file, &["--delay", "3600"], "1", "return")?.output()?;
        let (_, stderr) = texts(&output);
        ensure!(output.status.code() == Some(124) && stderr.contains("no samples: "), "{runtime}: {output:?}");
        ensure!(stderr.contains("ended before sampling began"), "{runtime}: {stderr}");
        ensure!(fs::read_dir(folder.path())?.count() == 0, "{runtime}: a file without samples");
        drop(program);
    }
    Ok(())
}

/// The application says when it dies; until then it works for two seconds, of which all but the last are in the
/// profile.
#[test]
fn an_application_that_dies_leaves_a_profile_and_its_exit_code() -> Result<()> {
    patiently(runtimes()?, |runtime, times| {
        let milliseconds = (1500 * times).to_string();
        let folder = tempfile::tempdir()?;
        // All at once: they work for a time, not for an amount.
        let started = [
            ("abort", 134, "SIGABRT has ended the application"),
            ("throw", 134, "SIGABRT has ended the application"),
            ("overflow", 134, "SIGABRT has ended the application"),
            ("kill", 137, "SIGKILL has ended the application"),
            ("exit", 3, ""),
        ]
        .map(|(end, code, named)| -> Result<_> {
            let file = folder.path().join(format!("{end}.folded"));
            let mut command = record(runtime, &file, &["--rate", "500"], &milliseconds, end)?;
            let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
            Ok((end, code, named, file, child))
        });
        for started in started {
            let (end, code, named, file, child) = started?;
            let output = child.wait_with_output()?;
            let (_, stderr) = texts(&output);
            let what = format!("{runtime}: {end}: {output:?}");
            ensure!(output.status.code() == Some(code) && stderr.contains(named), "{what}");
            // On a full machine there may be no sample yet.
            ensure_or_longer!(stderr.contains(".folded is written"), "{what}");
            ensure!(stderr.contains("the process died, so the samples since"), "{what}");
            ensure!(!stderr.contains("wrote no file"), "{what}");
            ensure_or_longer!(fs::read_to_string(&file)?.contains("Ends.Work"), "{what}");
        }
        Ok(())
    })
}

/// Nobody could say then that the answer is missing, and it is the application that has an exit code.
#[test]
fn an_answer_that_cannot_be_written_leaves_the_exit_code() -> Result<()> {
    for runtime in runtimes()? {
        for question in ["timer", "exceptions"] {
            let full = fs::File::options().write(true).open("/dev/full")?;
            let mut command = corprof()?;
            command.args(["run", question, "--"]).args(application(&runtime, "Hello")?);
            let output = command.stderr(full).output()?;
            ensure!(output.status.code() == Some(0), "{runtime}, {question}: {output:?}");
        }
    }
    Ok(())
}

/// A signal to the application, not to the command, ends it as it does without corprof: .NET 8 makes an orderly end of
/// SIGTERM, and later releases have no handler.
#[test]
fn a_signal_to_the_application_ends_it_as_without_the_command() -> Result<()> {
    use std::os::unix::process::ExitStatusExt;

    patiently(runtimes()?, |runtime, times| {
        let milliseconds = (1500 * times).to_string();
        let folder = tempfile::tempdir()?;
        for (end, signal, name) in [("terminate", 15, "SIGTERM"), ("interrupt", 2, "SIGINT")] {
            let alone = application(runtime, "Ends")?;
            let (program, args) = alone.split_first().context("no program")?;
            let alone = Command::new(program).args(args).args(["1", end]).output()?.status;
            ensure!(alone.code() == Some(128 + signal) || alone.signal() == Some(signal), "{runtime}: {end}: {alone}");

            let file = folder.path().join(format!("{end}.folded"));
            let output = record(runtime, &file, &["--rate", "500"], &milliseconds, end)?.output()?;
            let (_, stderr) = texts(&output);
            let what = format!("{runtime}: {end}: {output:?}");
            ensure!(output.status.code() == Some(128 + signal), "{what}");
            let is_named = stderr.contains(&format!("{name} has ended the application"));
            ensure!(is_named == alone.signal().is_some(), "{what}");
            // On a full machine there may be no sample yet.
            ensure_or_longer!(stderr.contains(".folded is written"), "{what}");
            ensure!(stderr.contains("the process died, so the samples since") == alone.signal().is_some(), "{what}");
            ensure_or_longer!(fs::read_to_string(&file)?.contains("Ends.Work"), "{what}");
        }
        Ok(())
    })
}

/// The same while the command records a process that ran already.
#[test]
fn a_signal_to_a_recorded_process_ends_it_and_leaves_a_profile() -> Result<()> {
    use std::os::unix::process::ExitStatusExt;

    for runtime in runtimes()? {
        let folder = tempfile::tempdir()?;
        for (sent, signal) in [("-TERM", 15), ("-INT", 2)] {
            let file = folder.path().join(format!("signal{signal}.folded"));
            let mut program = diagnosed(&runtime, None)?;
            let (mut command, mut says) = recording(program.child.id(), &file)?;
            program.signal(sent)?;
            let mut said = String::new();
            says.read_to_string(&mut said)?;
            let what = format!("{runtime}: {sent}: {said}");
            ensure!(command.wait()?.success() && said.contains(".folded is written"), "{what}");
            ensure!(fs::read_to_string(&file)?.contains("Diagnosed.Main"), "{what}");
            // Its input is open, so that nothing but the signal has ended it.
            let status = program.child.wait()?;
            ensure!(status.code() == Some(128 + signal) || status.signal() == Some(signal), "{what}: {status}");
        }
        let files = fs::read_dir(folder.path())?.count();
        ensure!(files == 2, "{runtime}: {files} files");
    }
    Ok(())
}

/// `timeout` asks the command to end, and then the whole group of processes.
#[test]
fn the_answer_comes_before_the_end_when_the_group_is_ended() -> Result<()> {
    for runtime in runtimes()? {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("p.folded");
        let program = diagnosed(&runtime, None)?;
        let pid = program.child.id().to_string();
        let name = file.to_str().context("no text")?;
        let ends = [application(&runtime, "Ends")?, vec!["60000".into(), "return".into()]].concat();
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        let of_ends = |question: &str| [words(question), vec!["--".into()], ends.clone()].concat();
        let timed = |words: &[OsString]| -> Result<String> {
            let corprof = corprof()?;
            let mut timeout = Command::new("timeout");
            timeout.arg("2.5").arg(corprof.get_program()).args(words);
            let output = timeout.output()?;
            // `timeout` tells nothing of the command by its code.
            let (_, stderr) = texts(&output);
            ensure!(
                !stderr.contains("interrupted again") && !stderr.contains("there is no answer"),
                "{runtime}: {output:?}"
            );
            Ok(stderr)
        };
        let stderr = timed(&of_ends("exceptions"))?;
        ensure!(stderr.contains("exceptions"), "{runtime}: {stderr}");
        for words in [of_ends(&format!("record -o {name}")), words(&format!("record -o {name} --mode wall -p {pid}"))] {
            let stderr = timed(&words)?;
            ensure!(
                stderr.contains(".folded is written") && !stderr.contains("the process died"),
                "{runtime}: {stderr}"
            );
            ensure!(file.is_file(), "{runtime}: {stderr}");
            fs::remove_file(&file)?;
        }
        is_left_alone(program.child.id())?;
        runs_on(program)?;
    }
    Ok(())
}

/// Between `fork` and `exec` a child is its parent, with its command line and its mapped files.
#[test]
fn a_child_has_its_own_command_line() -> Result<()> {
    for runtime in runtimes()? {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("p.svg");
        let mut command = corprof()?;
        command.args(["record", "--mode", "wall", "-o"]).arg(&file).arg("--").args(application(&runtime, "Family")?);
        let output = command.arg("12").args(application(&runtime, "Hello")?).arg("child").output()?;
        let (_, stderr) = texts(&output);
        ensure!(output.status.success(), "{runtime}: {output:?}");
        // A child that ends soon may have no samples.
        let named = |line: &&str| line.contains(" is of ") || line.contains("wrote no file");
        let of: Vec<_> = stderr.lines().filter(named).collect();
        let (of, missing): (Vec<_>, Vec<_>) = of.into_iter().partition(|line| line.contains(" is of "));
        ensure!(of.first().is_some_and(|first| first.contains("Family.dll")), "{runtime}: {stderr}");
        ensure!(of.len() + missing.len() > 6, "{runtime}: few have a command line: {stderr}");
        for child in of.iter().skip(1).chain(&missing) {
            ensure!(child.contains("Hello.dll child") && !child.contains("Family.dll"), "{runtime}: {stderr}");
        }
    }
    Ok(())
}

/// `corprof record -p PID -o FILE`, which has written its first snapshot.
fn recording(pid: u32, file: &Path) -> Result<(Child, BufReader<std::process::ChildStderr>)> {
    let mut child = recorder(pid, file)?.stderr(Stdio::piped()).spawn()?;
    let mut stderr = BufReader::new(child.stderr.take().context("no stderr")?);
    // The command knows that the sampler is attached: until then it needs answers of the process.
    let mut line = String::new();
    while !line.contains("recording process") {
        line.clear();
        ensure!(stderr.read_line(&mut line)? > 0, "it does not record");
    }
    snapshot(file)?;
    Ok((child, stderr))
}

fn recorder(pid: u32, file: &Path) -> Result<Command> {
    let mut command = corprof()?;
    command.args(["record", "-p", &pid.to_string(), "--mode", "wall", "-o"]).arg(file);
    Ok(command)
}

/// Waits for the file that the sampler writes beside the one that was asked for, and answers its path.
fn snapshot(file: &Path) -> Result<PathBuf> {
    let folder = file.parent().context("no folder")?;
    let stem = format!("{}-", file.file_stem().context("no name")?.to_string_lossy());
    let mut found = None;
    until("a snapshot", || {
        let names = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
        // At first the sampler tries whether it may write there, and an empty file comes and goes.
        let is_it = |path: &&PathBuf| {
            let is_named = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&stem));
            is_named && fs::metadata(path).is_ok_and(|found| found.len() > 0)
        };
        found = names.iter().find(is_it).cloned();
        Ok(found.is_some())
    })?;
    found.context("no snapshot")
}

/// Waits until another profiler can attach.
fn is_left_alone(pid: u32) -> Result<()> {
    until("the profiler leaves", || Ok(corprof()?.args(["stacks", &pid.to_string()]).output()?.status.success()))
}

/// The folder for temporary files that a command has.
fn folder_of(pid: u32) -> Result<PathBuf> {
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        let path = fs::read_link(entry?.path()).unwrap_or_default();
        if path.ends_with("owner") {
            return Ok(path.parent().context("no folder")?.to_owned());
        }
    }
    anyhow::bail!("process {pid} has no folder")
}

fn runs_on(mut program: Program) -> Result<()> {
    program.tell("throw 1")?;
    let (code, stderr) = program.end()?;
    ensure!(code == Some(0) && !stderr.contains("panicked"), "{code:?}: {stderr}");
    Ok(())
}

#[test]
fn the_profiler_of_a_killed_command_writes_what_it_has_and_leaves() -> Result<()> {
    for runtime in runtimes()? {
        let folder = tempfile::tempdir()?;
        let program = diagnosed(&runtime, None)?;
        let pid = program.child.id();
        let file = folder.path().join("p.folded");
        let (mut command, _says) = recording(pid, &file)?;
        let temporary = folder_of(command.id())?;
        let written = snapshot(&file)?;
        fs::remove_file(&written)?;
        command.kill()?;
        command.wait()?;
        is_left_alone(pid)?;
        ensure!(fs::read_to_string(&written)?.contains("Diagnosed.Main"), "{runtime}: not written");
        // That is the last that the profiler does, when another may attach already.
        until("the folder of the command is removed", || Ok(!temporary.exists()))?;

        let mut command = corprof()?;
        command.args(["top", &pid.to_string(), "--duration", "100000"]).stderr(Stdio::piped());
        let mut command = command.stdout(Stdio::null()).spawn()?;
        let mut line = String::new();
        BufReader::new(command.stderr.take().context("no stderr")?).read_line(&mut line)?;
        let temporary = folder_of(command.id())?;
        command.kill()?;
        command.wait()?;
        is_left_alone(pid)?;
        // That is the last that the profiler does, when another may attach already.
        until("the folder of the command is removed", || Ok(!temporary.exists()))?;
        runs_on(program)?;
    }
    Ok(())
}

#[test]
fn every_profiler_of_ours_detaches_on_request() -> Result<()> {
    for runtime in runtimes()? {
        let folder = tempfile::tempdir()?;
        let program = diagnosed(&runtime, None)?;
        let pid = program.child.id();
        let detach = || -> Result<()> {
            let output = corprof()?.args(["detach", &pid.to_string()]).output()?;
            ensure!(output.status.success(), "{runtime}: {output:?}");
            Ok(())
        };
        let (mut command, mut says) = recording(pid, &folder.path().join("p.folded"))?;
        detach()?;
        let mut said = String::new();
        says.read_to_string(&mut said)?;
        ensure!(command.wait()?.success() && said.contains("p.folded is written"), "{runtime}: {said}");
        ensure!(!said.contains("has not detached"), "{runtime}: {said}");

        let mut command = corprof()?;
        command.args(["top", &pid.to_string(), "--duration", "100000"]).stderr(Stdio::piped());
        let mut command = command.stdout(Stdio::null()).spawn()?;
        let mut says = BufReader::new(command.stderr.take().context("no stderr")?);
        says.read_line(&mut said)?;
        detach()?;
        says.read_to_string(&mut said)?;
        ensure!(command.wait()?.code() == Some(3), "{runtime}: {said}");
        ensure!(said.contains("the profiler has left process"), "{runtime}: {said}");
        is_left_alone(pid)?;
        runs_on(program)?;
    }
    Ok(())
}

#[test]
fn a_lost_terminal_does_not_cost_the_profile() -> Result<()> {
    if !Command::new("script").arg("--version").output().is_ok_and(|output| output.status.success()) {
        println!("SKIPPED: there is no `script`, which makes a terminal");
        return Ok(());
    }
    for runtime in runtimes()? {
        let folder = tempfile::tempdir()?;
        let program = diagnosed(&runtime, None)?;
        let file = folder.path().join("p.folded");
        let mut terminal = in_terminal(&recorder(program.child.id(), &file)?);
        let mut terminal = terminal.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
        let written = snapshot(&file)?;
        terminal.kill()?;
        terminal.wait()?;
        until("the profile is written", || Ok(file.is_file()))?;
        ensure!(!written.exists(), "{runtime}: {} is there", written.display());
        is_left_alone(program.child.id())?;
        runs_on(program)?;
    }
    Ok(())
}

/// A shell tells its commands that the terminal is gone, and so does the system when the shell has ended.
#[test]
fn a_terminal_that_is_lost_for_shell_and_system_does_not_cost_the_profile() -> Result<()> {
    for runtime in runtimes()? {
        let folder = tempfile::tempdir()?;
        let program = diagnosed(&runtime, None)?;
        let file = folder.path().join("p.folded");
        let (mut command, _says) = recording(program.child.id(), &file)?;
        program.stop()?;
        let written = snapshot(&file)?;
        let stop = folder_of(command.id())?.join(format!(".corprof-{}.stop", command.id()));
        signal(command.id(), "-HUP")?;
        until("the sampler is asked", || Ok(stop.exists()))?;
        signal(command.id(), "-HUP")?;
        thread::sleep(Duration::from_millis(500));
        program.signal("-CONT")?;
        ensure!(command.wait()?.success() && file.is_file() && !written.exists(), "{runtime}");
        is_left_alone(program.child.id())?;
        runs_on(program)?;
    }
    Ok(())
}

#[test]
fn a_second_interrupt_ends_the_command_and_the_profiler_writes_later() -> Result<()> {
    for runtime in runtimes()? {
        let folder = tempfile::tempdir()?;
        let program = diagnosed(&runtime, None)?;
        let file = folder.path().join("p.folded");
        let (mut command, mut says) = recording(program.child.id(), &file)?;
        // A process that stands cannot write.
        program.stop()?;
        let written = snapshot(&file)?;
        let stop = folder_of(command.id())?.join(format!(".corprof-{}.stop", command.id()));
        signal(command.id(), "-INT")?;
        until("the sampler is asked", || Ok(stop.exists()))?;
        signal(command.id(), "-INT")?;
        let mut said = String::new();
        says.read_to_string(&mut said)?;
        let name = written.file_name().context("no name")?.to_string_lossy();
        ensure!(command.wait()?.code() == Some(3) && said.contains("interrupted again"), "{runtime}: {said}");
        ensure!(said.contains(&*name), "{runtime}: {said}");
        program.signal("-CONT")?;
        is_left_alone(program.child.id())?;
        ensure!(written.is_file(), "{runtime}: nothing is written");
        runs_on(program)?;
    }
    Ok(())
}

/// The system ends a process that writes beyond the limit, unless the writing thread blocks the signal.
#[test]
fn a_limit_of_file_sizes_costs_the_profile_and_not_the_application() -> Result<()> {
    for runtime in runtimes()? {
        let folder = tempfile::tempdir()?;
        let mut command = corprof()?;
        command.args(["record", "-o"]).arg(folder.path().join("p.html")).arg("--");
        let output = command.args(application(&runtime, "Ends")?).args(["1500", "limited"]).output()?;
        let (stdout, stderr) = texts(&output);
        ensure!(stdout.contains("dies") && !stderr.contains("has ended the application"), "{runtime}: {stderr}");
        ensure!(stderr.contains("too large"), "{runtime}: {stderr}");
    }
    Ok(())
}

#[test]
fn the_folder_of_a_killed_command_is_removed_by_the_next() -> Result<()> {
    for runtime in runtimes()?.into_iter().take(1) {
        let mut command = corprof()?;
        command.args(["run", "exceptions", "--"]).args(application(&runtime, "Diagnosed")?);
        let mut program = Program::start(command)?;
        program.expect("ready")?;
        let folder = folder_of(program.child.id())?;
        program.child.kill()?;
        program.child.wait()?;
        // Unless the command of another test has removed it already.
        let output = corprof()?.args(["run", "exceptions", "--", "true"]).output()?;
        ensure!(!folder.exists(), "{} is there: {output:?}", folder.display());
    }
    Ok(())
}

mod long {
    use super::*;

    /// Commands that have begun end, and say why, when the process is stopped meanwhile.
    #[test]
    fn a_process_that_is_stopped_is_not_waited_for() -> Result<()> {
        for runtime in runtimes()? {
            let folder = tempfile::tempdir()?;
            let file = folder.path().join("p.folded");
            let name = file.to_str().context("no text")?;
            let record = format!("record -o {name} --mode wall --duration 3 -p");
            for command in [&record[..], "exceptions --duration 3", "events --duration 3"] {
                let program = diagnosed(&runtime, None)?;
                let pid = program.child.id().to_string();
                let mut corprof = corprof()?;
                corprof.args(command.split(' ')).arg(&pid).stdout(Stdio::null()).stderr(Stdio::piped());
                let mut running = corprof.spawn()?;
                thread::sleep(Duration::from_secs(2));
                program.stop()?;
                let start = Instant::now();
                let mut said = String::new();
                running.stderr.take().context("no stderr")?.read_to_string(&mut said)?;
                let status = running.wait()?;
                ensure!(start.elapsed() < Duration::from_secs(40), "{runtime}: {command}: {said}");
                ensure!(status.code().is_some_and(|code| code != 0), "{runtime}: {command}: {status}, {said}");
                ensure!(said.contains("is stopped") && said.contains("kill -CONT"), "{runtime}: {command}: {said}");
                program.signal("-CONT")?;
                is_left_alone(program.child.id())?;
                runs_on(program)?;
            }
        }
        Ok(())
    }
}
