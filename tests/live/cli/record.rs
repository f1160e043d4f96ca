//! `corprof record`, and the profilers that are built in.

use std::fs;

use corprof_profilers::table::{self, Loading};
use corprof_tests::{ensure_or_longer, patiently, repetitions};

use super::*;
use crate::cli::recording::Recording;

/// Samples of waits, too: an application that hardly works has no others, and a profile without samples is an error.
const WALL: &[&str] = &["--mode", "wall"];

/// `corprof record -o FILE OPTIONS -- APPLICATION ARGUMENTS`.
fn record(runtime: &Runtime, file: &Path, options: &[&str], app: &str) -> Result<Command> {
    let mut command = corprof()?;
    command.arg("record").arg("-o").arg(file).args(options).arg("--").args(application(runtime, app)?);
    Ok(command)
}

/// The names in a folder.
fn names(folder: &Path) -> Result<Vec<String>> {
    let names = fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut names = names.collect::<Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

/// Waits until there is a file in the folder that is not empty, and answers its name.
fn appears(folder: &Path, ending: &str) -> Result<String> {
    let end = Instant::now() + PATIENCE;
    loop {
        let is_it = |name: &String| {
            name.ends_with(ending) && folder.join(name).metadata().is_ok_and(|metadata| metadata.len() > 0)
        };
        if let Some(name) = names(folder)?.into_iter().find(is_it) {
            return Ok(name);
        }
        ensure!(Instant::now() < end, "no file {ending}, but {:?}", names(folder)?);
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn an_application_is_recorded_under_the_name_that_was_asked_for() -> Result<()> {
    patiently(runtimes()?, |runtime, times| {
        let folder = tempfile::tempdir()?;
        for (file, option) in [("a b%p.folded", "cpu"), ("page.html", "wall")] {
            let file = folder.path().join(file);
            // One of an earlier run.
            fs::write(&file, "old")?;
            let mut command = record(runtime, &file, &["--mode", option, "--rate", "200"], "Pool")?;
            let output = command.arg((1000 * times).to_string()).args(["2", "100000"]).output()?;
            let (_, stderr) = texts(&output);
            ensure!(output.status.success(), "{output:?}");
            ensure!(stderr.contains(&format!("corprof: {} is written\n", file.display())), "{stderr}");
            let profile = fs::read_to_string(&file)?;
            ensure!(profile != "old", "not replaced");
            ensure_or_longer!(profile.contains("Pool.Sixty"), "{option}: not sampled: {stderr}");
        }
        ensure!(names(folder.path())? == ["a b%p.folded", "page.html"], "{:?}", names(folder.path())?);
        Ok(())
    })
}

#[test]
fn the_exit_code_is_the_applications_and_the_ending_chooses_the_format() -> Result<()> {
    for runtime in runtimes()? {
        let folder = tempfile::tempdir()?;
        for (name, begin) in [("p.pb.gz", &[0x1f, 0x8b][..]), ("p.svg", b"<?xml"), ("p.speedscope.json", b"{")] {
            let file = folder.path().join(name);
            let output = record(&runtime, &file, WALL, "Hello")?.arg("you").output()?;
            ensure!(output.status.code() == Some(42), "{runtime}: {output:?}");
            ensure!(texts(&output).0 == "Hello, you!\n", "{runtime}: {output:?}");
            ensure!(fs::read(&file)?.starts_with(begin), "{runtime}: {name}: {output:?}");
        }
    }
    Ok(())
}

#[test]
fn an_interrupt_ends_the_application_and_the_profile_is_written() -> Result<()> {
    for runtime in runtimes()? {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("p.svg");
        let mut program = Program::start(record(&runtime, &file, WALL, "Diagnosed")?)?;
        program.expect("ready")?;
        program.tell("throw 1")?;
        program.signal("-INT")?;
        let input = program.input.take();
        let (code, stderr) = program.end()?;
        drop(input);
        ensure!(code == Some(0), "{runtime}: {code:?}: {stderr}");
        ensure!(file.is_file() && stderr.contains("p.svg is written"), "{runtime}: {stderr}");
    }
    Ok(())
}

/// `corprof` looks seldom for new processes once the application is some seconds old.
#[test]
fn an_interrupt_right_after_a_late_start_does_not_cost_the_profile() -> Result<()> {
    for runtime in runtimes()? {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("p.svg");
        let words = application(&runtime, "Diagnosed")?;
        let quoted: Vec<_> = words.iter().map(|word| format!("'{}'", word.to_string_lossy())).collect();
        let mut command = corprof()?;
        command.arg("record").arg("-o").arg(&file).args(WALL);
        command.args(["--", "sh", "-c", &format!("sleep 3; exec {}", quoted.join(" "))]);
        let mut program = Program::start(command)?;
        program.expect("ready")?;
        program.signal("-INT")?;
        let input = program.input.take();
        let (code, stderr) = program.end()?;
        drop(input);
        ensure!(code == Some(0) && file.is_file(), "{runtime}: {code:?}: {stderr}");
    }
    Ok(())
}

/// A terminal interrupts the application as well, which would die of it without a precaution.
#[test]
fn a_terminal_that_interrupts_does_not_cost_the_profile() -> Result<()> {
    if !Command::new("script").arg("--version").output().is_ok_and(|output| output.status.success()) {
        println!("SKIPPED: there is no `script`, which makes a terminal");
        return Ok(());
    }
    for runtime in runtimes()? {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("p.svg");
        let mut program = Program::start(in_terminal(&record(&runtime, &file, WALL, "Diagnosed")?))?;
        program.expect("ready")?;
        // Some rounds, on a busy machine.
        std::thread::sleep(Duration::from_millis(500));
        program.input.as_mut().context("no input")?.write_all(b"\x03")?;
        let end = Instant::now() + PATIENCE;
        let mut said = Vec::new();
        while !said.iter().any(|line: &String| line.contains("p.svg is written")) {
            let line = program.lines.recv_timeout(end.saturating_duration_since(Instant::now()));
            said.push(line.with_context(|| format!("{runtime}: {said:?}"))?);
        }
        ensure!(program.child.wait()?.code() == Some(0), "{runtime}: {said:?}");
        ensure!(file.is_file(), "{runtime}: {said:?}");
    }
    Ok(())
}

#[test]
fn sampling_ends_before_the_application_does() -> Result<()> {
    for runtime in runtimes()? {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("p.svg");
        let options = ["--delay", "0.2", "--duration", "0.2", "--rate", "50", "--mode", "wall"];
        let mut program = Program::start(record(&runtime, &file, &options, "Diagnosed")?)?;
        program.expect("ready")?;
        let written = appears(folder.path(), ".svg")?;
        ensure!(written.starts_with("p-"), "{written}");
        program.tell("throw 1")?;
        let (code, stderr) = program.end()?;
        ensure!(code == Some(0) && stderr.contains("p.svg is written"), "{runtime}: {code:?}: {stderr}");
        ensure!(names(folder.path())? == ["p.svg"], "{runtime}: {:?}", names(folder.path())?);
    }
    Ok(())
}

#[test]
fn each_process_has_a_file_of_its_own() -> Result<()> {
    for runtime in runtimes()? {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("p.svg");
        let mut command = record(&runtime, &file, WALL, "Family")?;
        let output = command.arg("3").args(application(&runtime, "Hello")?).arg("child").output()?;
        let (stdout, stderr) = texts(&output);
        ensure!(output.status.success(), "{runtime}: {output:?}");
        ensure!(stdout.matches("Hello, child!\n").count() == 3, "{runtime}: {stdout}");
        let names = names(folder.path())?;
        // A child that ends soon may have no samples.
        let empty = stderr.matches("wrote no file (no samples").count();
        ensure!(names.len() + empty == 4 && names.contains(&"p.svg".to_owned()), "{runtime}: {names:?}: {stderr}");
        for name in &names {
            ensure!(stderr.contains(name.as_str()), "{runtime}: {name} is not told of: {stderr}");
        }
        let first = stderr.lines().find(|line| line.contains("p.svg is of")).context("no line of the main file")?;
        ensure!(first.contains("Family.dll"), "{runtime}: {stderr}");
    }
    Ok(())
}

/// A shell, which is not a .NET process, starts two applications one after the other.
#[test]
fn a_script_is_recorded() -> Result<()> {
    for runtime in runtimes()?.into_iter().take(1) {
        let folder = tempfile::tempdir()?;
        let quoted: Vec<_> =
            application(&runtime, "Hello")?.iter().map(|word| format!("'{}'", word.to_string_lossy())).collect();
        let script = format!("{0}; {0}; exit 3", quoted.join(" "));
        let mut command = corprof()?;
        command.arg("record").arg("-o").arg(folder.path().join("p.svg")).args(WALL).args(["--", "sh", "-c", &script]);
        let output = command.output()?;
        ensure!(output.status.code() == Some(3), "{output:?}");
        let empty = texts(&output).1.matches("wrote no file (no samples").count();
        ensure!(names(folder.path())?.len() + empty == 2, "{:?}: {output:?}", names(folder.path())?);
    }
    Ok(())
}

#[test]
fn what_makes_no_sense_is_refused_before_the_application_starts() -> Result<()> {
    // The command is built for this system only.
    if runtimes()?.is_empty() {
        return Ok(());
    }
    for (options, said) in [
        (&["-o", "/tmp/p.pdf"][..], ".speedscope.json"),
        (&["-o", "/nowhere/p.svg"], "no folder"),
        (&["--rate", "0"], "0.01"),
        (&["--duration", "0"], "--duration"),
        (&["--mode", "cup"], "wall"),
    ] {
        let output = corprof()?.arg("record").args(options).args(["--", "sh", "-c", "echo ran"]).output()?;
        ensure!(output.status.code() == Some(2) && output.stdout.is_empty(), "{options:?}: {output:?}");
        ensure!(texts(&output).1.contains(said), "{options:?}: {output:?}");
    }
    let output = corprof()?.args(["record", "--", "sh", "-c", "echo ran"]).current_dir(env::temp_dir()).output()?;
    ensure!(output.status.code() == Some(124) && texts(&output).1.contains("there is no profile"), "{output:?}");
    Ok(())
}

/// A disk that is full after the recording has begun.
#[test]
fn a_full_disk_is_said_for_every_format_and_the_application_runs_on() -> Result<()> {
    const FILLED: &str = r#"mount -t tmpfs -o size=200k none "$1" || exit 99
folder=$1; shift
"$@" &
command=$!
sleep 0.5
head -c 300000 /dev/zero > "$folder/filled" 2> /dev/null
wait $command"#;
    if !Command::new("unshare").args(["-rm", "true"]).status().is_ok_and(|status| status.success()) {
        println!("SKIPPED: this system lets nobody make namespaces (unshare -rm true)");
        return Ok(());
    }
    let names = ["p.html", "p.folded", "p.svg", "p.pb.gz", "p.speedscope.json", "p.firefox.json", "p.json.gz"];
    for runtime in runtimes()? {
        for name in &names[..repetitions(2, names.len())] {
            let disk = tempfile::tempdir()?;
            let mut plain = corprof()?;
            plain.args(["record", "-o"]).arg(disk.path().join(name)).arg("--");
            plain.args(application(&runtime, "Shares")?).arg(repetitions("1500", "3000"));
            let mut command = Command::new("unshare");
            command.args(["-rm", "sh", "-c", FILLED, "sh"]).arg(disk.path());
            command.arg(plain.get_program()).args(plain.get_args());
            command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
            let output = command.output()?;
            let (stdout, stderr) = texts(&output);
            ensure!(stdout.contains("done"), "{runtime}, {name}: {output:?}");
            ensure!(output.status.code() == Some(124), "{runtime}, {name}: {output:?}");
            ensure!(stderr.contains("there is no profile"), "{runtime}, {name}: {stderr}");
            let beginning = format!("sampler: cannot write {}/p-", disk.path().display());
            let is_said = |line: &str| line.starts_with(&beginning) && line.contains("No space left");
            ensure!(stderr.lines().any(is_said), "{runtime}, {name}: {stderr}");
        }
    }
    Ok(())
}

#[test]
fn the_profilers_that_are_built_in_are_run_by_name() -> Result<()> {
    patiently(runtimes()?, |runtime, _times| {
        let folder = tempfile::tempdir()?;
        for name in
            table::ALL.iter().filter(|profiler| profiler.loading != Loading::ByAttach).map(|profiler| profiler.name)
        {
            let mut command = corprof()?;
            // Only the sampler looks at it.
            command.env("SAMPLER_MODE", "wall");
            command.current_dir(folder.path()).args(["run", "--require-load", name, "--"]);
            let output = command.args(application(runtime, "Hello")?).arg("you").output()?;
            let (_, stderr) = texts(&output);
            ensure!(output.status.code() == Some(42), "{runtime}: {name}: {output:?}");
            ensure!(stderr.contains(&format!("corprof: {name} was loaded in process")), "{runtime}: {stderr}");
            if name == "sampler" {
                let page = names(folder.path())?.into_iter().find(|name| name.ends_with(".html"));
                // On a busy machine so short a run may have no round.
                ensure_or_longer!(page.is_some(), "{runtime}: no page: {stderr}");
                let page = folder.path().join(page.unwrap_or_default());
                ensure!(stderr.contains(&format!("corprof: {} is written", page.display())), "{runtime}: {stderr}");
            }
        }
        let mut command = corprof()?;
        let file = folder.path().join("times.csv");
        command.current_dir(folder.path()).args(["run", "timer", "--env", "TIMER_OUT=times.csv", "--"]);
        let output = command.args(application(runtime, "Hello")?).output()?;
        ensure!(fs::read_to_string(&file)?.contains("Hello"), "{runtime}: {output:?}");
        ensure!(texts(&output).1.contains("times.csv is written"), "{runtime}: {output:?}");
        Ok(())
    })
}

#[test]
fn a_process_that_runs_is_recorded_and_runs_on() -> Result<()> {
    patiently(runtimes()?, |runtime, times| {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("p.svg");
        let mut program = diagnosed(runtime, None)?;
        let pid = program.child.id().to_string();
        let mut command = corprof()?;
        let seconds = times.to_string();
        command.args(["record", "-p", &pid, "--mode", "wall", "--duration", &seconds, "-o"]).arg(&file);
        let output = command.output()?;
        let (_, stderr) = texts(&output);
        ensure!(output.status.success(), "{runtime}: {output:?}");
        ensure!(stderr.contains(&format!("corprof: {} is written", file.display())), "{runtime}: {stderr}");
        ensure!(names(folder.path())? == ["p.svg"], "{runtime}: {:?}", names(folder.path())?);
        let picture = fs::read_to_string(&file)?;
        ensure_or_longer!(picture.contains("Diagnosed.Main"), "the main thread is not in it: {picture}");
        program.tell("throw 1")?;
        let (code, stderr) = program.end()?;
        ensure!(code == Some(0), "{runtime}: {stderr}");
        Ok(())
    })
}

/// `corprof record -p PID -o FILE`, which has begun.
fn recording(pid: u32, file: &Path) -> Result<(Child, BufReader<std::process::ChildStderr>)> {
    let mut command = corprof()?;
    command.args(["record", "-p", &pid.to_string(), "--mode", "wall", "-o"]).arg(file);
    let mut child = command.stderr(Stdio::piped()).spawn()?;
    let mut stderr = BufReader::new(child.stderr.take().context("no stderr")?);
    let mut line = String::new();
    stderr.read_line(&mut line)?;
    ensure!(line.contains(&format!("recording process {pid}")), "{line}");
    Ok((child, stderr))
}

fn rest(mut stderr: BufReader<std::process::ChildStderr>) -> Result<String> {
    let mut text = String::new();
    std::io::Read::read_to_string(&mut stderr, &mut text)?;
    Ok(text)
}

#[test]
fn a_process_is_recorded_as_often_as_is_asked() -> Result<()> {
    patiently(runtimes()?, |runtime, times| {
        let seconds = Duration::from_millis(200 * times).as_secs_f64().to_string();
        let folder = tempfile::tempdir()?;
        let mut program = diagnosed(runtime, None)?;
        let pid = program.child.id();
        let mut files = Vec::new();
        for time in 0..3 {
            let file = folder.path().join(format!("{time}.svg"));
            let mut command = corprof()?;
            command.args(["record", "-p", &pid.to_string(), "--duration", &seconds, "-o"]).arg(&file).args(WALL);
            let output = command.output()?;
            ensure_or_longer!(output.status.success(), "{runtime}: {time}: {output:?}");
            ensure!(!texts(&output).1.contains("has not detached"), "{runtime}: {time}: {output:?}");
            files.push(format!("{time}.svg"));
            ensure!(names(folder.path())? == files, "{runtime}: {:?}", names(folder.path())?);
            program.tell("throw 1")?;
        }
        // Another profiler can come then, too.
        let output = corprof()?.args(["stacks", &pid.to_string()]).output()?;
        ensure!(output.status.success() && texts(&output).0.contains("Diagnosed.Main"), "{runtime}: {output:?}");
        let (code, stderr) = program.end()?;
        ensure!(code == Some(0) && !stderr.contains("panicked"), "{runtime}: {code:?}: {stderr}");
        Ok(())
    })
}

#[test]
fn stacks_that_are_too_deep_say_so_in_every_format() -> Result<()> {
    const MISSING: &str = "[outer frames are missing]";
    patiently(runtimes()?, |runtime, times| {
        let folder = tempfile::tempdir()?;
        for name in ["p.folded", "p.html", "p.speedscope.json", "p.nettrace"] {
            let file = folder.path().join(name);
            let options = if name == "p.nettrace" { &["--events", "wall"] } else { WALL };
            for (depth, is_too_deep) in [("5000", true), ("100", false)] {
                let time = (500 * times).to_string();
                let output = record(runtime, &file, options, "Deep")?.args(["1", depth, &time]).output()?;
                ensure_or_longer!(output.status.success(), "{runtime}, {name}: {output:?}");
                let has_mark = if name == "p.nettrace" {
                    Recording::read(&file)?.has_outermost(MISSING)
                } else {
                    fs::read_to_string(&file)?.contains(MISSING)
                };
                ensure_or_longer!(has_mark || !is_too_deep, "{runtime}, {name}: {depth} deep");
                ensure!(!has_mark || is_too_deep, "{runtime}, {name}: {depth} deep");
            }
        }
        Ok(())
    })
}

/// The threads of the server collector have no managed code, and nor has the program's part in the other one.
#[test]
fn what_threads_without_managed_code_have_used_is_told() -> Result<()> {
    const NOTE: &str = "of the processor time was used by threads without managed code";
    patiently(runtimes()?, |runtime, times| {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("a.html");
        let collector = Run::new(runtime, "Asked").args(["collects"]);
        let collector = collector.env("DOTNET_gcServer", "1").env("DOTNET_GCHeapCount", "2");
        let program = Program::start(collector.command()?)?;
        program.expect("ready")?;
        let mut command = corprof()?;
        command.args(["record", "-p", &program.child.id().to_string(), "-o"]).arg(&file);
        let output = command.args(["--duration", &(2 * times).to_string()]).output()?;
        let (_, stderr) = texts(&output);
        ensure_or_longer!(output.status.success() && stderr.contains(NOTE), "{runtime}: {output:?}");
        ensure!(fs::read_to_string(&file)?.contains(NOTE), "{runtime}: it is on the terminal only");
        let (code, stderr) = program.end()?;
        ensure!(code == Some(0) && !stderr.contains("panicked"), "{runtime}: {code:?}: {stderr}");

        let output = record(runtime, &file, &[], "Shares")?.args([&(1000 * times).to_string(), "2"]).output()?;
        let (_, stderr) = texts(&output);
        ensure!(output.status.success() && !stderr.contains(NOTE), "{runtime}: {output:?}");
        Ok(())
    })
}

#[test]
fn who_records_already_is_told_and_an_interrupt_ends_that() -> Result<()> {
    for runtime in runtimes()? {
        let folder = tempfile::tempdir()?;
        let mut program = diagnosed(&runtime, None)?;
        let pid = program.child.id();
        let file = folder.path().join("p.svg");
        let (mut first, first_says) = recording(pid, &file)?;
        for verb in [&["record", "-o", "q.svg", "-p"][..], &["stacks"]] {
            let mut command = corprof()?;
            let output = command.current_dir(folder.path()).args(verb).arg(pid.to_string()).output()?;
            let (stdout, stderr) = texts(&output);
            ensure!(output.status.code() == Some(1) && stdout.is_empty(), "{runtime}: {output:?}");
            ensure!(stderr.contains("another command of corprof, such as `record` or `locks`, is using"), "{stderr}");
        }
        signal(first.id(), "-INT")?;
        let said = rest(first_says)?;
        ensure!(first.wait()?.success() && said.contains("p.svg is written"), "{runtime}: {said}");
        ensure!(names(folder.path())? == ["p.svg"], "{runtime}: {:?}", names(folder.path())?);
        // It has left by now.
        let output = corprof()?.args(["stacks", &pid.to_string()]).output()?;
        ensure!(output.status.success(), "{runtime}: {output:?}");
        program.tell("throw 1")?;
        let (code, stderr) = program.end()?;
        ensure!(code == Some(0), "{runtime}: {code:?}: {stderr}");
    }
    Ok(())
}

#[test]
fn a_process_may_end_while_it_is_recorded() -> Result<()> {
    for runtime in runtimes()? {
        let folder = tempfile::tempdir()?;
        let program = diagnosed(&runtime, None)?;
        let (mut command, says) = recording(program.child.id(), &folder.path().join("ended.svg"))?;
        // The first snapshot.
        appears(folder.path(), ".svg")?;
        let (code, stderr) = program.end()?;
        ensure!(code == Some(0), "{runtime}: {code:?}: {stderr}");
        let said = rest(says)?;
        ensure!(command.wait()?.success() && said.contains("ended.svg is written"), "{runtime}: {said}");

        // A killed process prints nothing more; the test waits for it only after the command has detected its end.
        let mut program = diagnosed(&runtime, None)?;
        let (mut command, says) = recording(program.child.id(), &folder.path().join("killed.svg"))?;
        program.child.kill()?;
        let said = rest(says)?;
        // After a second there would have been a snapshot.
        match command.wait()?.code() {
            Some(124) => ensure!(said.contains("there is no profile of process"), "{runtime}: {said}"),
            code => ensure!(code == Some(0) && said.contains("killed.svg is written"), "{runtime}: {code:?}: {said}"),
        }
    }
    Ok(())
}

/// A machine without a browser has the profile all the same.
#[test]
fn the_profile_is_opened_where_something_opens_it() -> Result<()> {
    for runtime in runtimes()? {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("p.html");
        let record = || -> Result<String> {
            let mut command = corprof()?;
            command
                .args(["record", "--open", "--mode", "wall", "-o"])
                .arg(&file)
                .arg("--")
                .args(application(&runtime, "Ends")?);
            let output = command.args(["1500", "return"]).env("PATH", folder.path()).output()?;
            ensure!(output.status.success() && file.is_file(), "{runtime}: {output:?}");
            Ok(texts(&output).1)
        };
        let said = record()?;
        ensure!(said.contains("p.html is written, but no program here opens it: "), "{runtime}: {said}");

        let opener = folder.path().join("xdg-open");
        fs::write(&opener, "#!/bin/sh\necho \"$1\" >\"$0.part\" && /bin/mv \"$0.part\" \"$0.opened\"\n")?;
        fs::set_permissions(&opener, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        let said = record()?;
        ensure!(!said.contains("no program here"), "{runtime}: {said}");
        let opened = folder.path().join("xdg-open.opened");
        until("it is opened", || Ok(opened.exists()))?;
        ensure!(fs::read_to_string(opened)?.trim_end() == file.to_string_lossy(), "{runtime}: another file");
    }
    Ok(())
}

/// As where signals cannot be sent.
#[test]
fn a_profile_of_stopped_threads_says_what_distorts_it() -> Result<()> {
    for runtime in runtimes()? {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("p.svg");
        let mut command = corprof()?;
        command.args(["record", "--env", "SAMPLER_STRATEGY=suspended", "-o"]).arg(&file).arg("--");
        let output = command.args(application(&runtime, "Ends")?).args(["1000", "return"]).output()?;
        let said = texts(&output).1;
        let words = "Threads were stopped at safepoints";
        ensure!(said.contains(words) && fs::read_to_string(&file)?.contains(words), "{runtime}: {said}");
    }
    Ok(())
}

mod long {
    use super::*;

    /// Memory that an allocator keeps for a thread which has ended stays with the process, and each visit has threads
    /// of its own.
    #[test]
    fn recordings_one_after_the_other_leave_little_memory_behind() -> Result<()> {
        for runtime in runtimes()? {
            let folder = tempfile::tempdir()?;
            let program = diagnosed(&runtime, None)?;
            let status = format!("/proc/{}/status", program.child.id());
            let megabytes = || -> Result<u64> {
                let status = fs::read_to_string(&status)?;
                let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).context("no RssAnon")?;
                Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? / 1024)
            };
            let before = megabytes()?;
            for visit in 0..6 {
                let mut command = corprof()?;
                command.args(["record", "--duration", "0.5", "-p", &program.child.id().to_string(), "-o"]);
                let output = command.arg(folder.path().join(format!("{visit}.folded"))).output()?;
                ensure!(!texts(&output).1.contains("left alone"), "{runtime}: {output:?}");
            }
            let more = megabytes()?.saturating_sub(before);
            println!("{runtime}: {more} MB more");
            ensure!(more < 80, "{runtime}: {more} MB more after 6 recordings");
        }
        Ok(())
    }
}
