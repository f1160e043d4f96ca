//! `corprof attach`.

use corprof_diagnostics::Process;
use corprof_tests::{ensure_or_longer, patiently};

use super::*;

#[test]
fn a_profiler_is_attached_and_a_second_one_is_refused_with_a_reason() -> Result<()> {
    for runtime in runtimes()? {
        let mut program = diagnosed(&runtime, None)?;
        let pid = program.child.id().to_string();
        let library = library(&runtime, "attached")?;
        let mut command = corprof()?;
        let output =
            command.args(["attach", &pid]).arg(&library).args(["--data", "ab", "--timeout", "120"]).output()?;
        ensure!(output.status.success(), "{runtime}: {output:?}");
        ensure!(texts(&output).1.contains(&format!("Attached is attached to process {pid}")), "{runtime}: {output:?}");

        let output = corprof()?.args(["attach", &pid]).arg(&library).args(["--timeout", "120"]).output()?;
        let (_, stderr) = texts(&output);
        ensure!(output.status.code() == Some(1), "{runtime}: {output:?}");
        ensure!(stderr.contains("CORPROF_E_PROFILER_ALREADY_ACTIVE"), "{runtime}: {stderr}");
        ensure!(stderr.contains("this one is attached already"), "{runtime}: {stderr}");
        let beeper = self::library(&runtime, "beeper")?;
        let output = corprof()?.args(["attach", &pid]).arg(beeper).args(["--timeout", "120"]).output()?;
        let (_, stderr) = texts(&output);
        ensure!(stderr.contains("libattached.so"), "the other one is not named: {runtime}: {stderr}");

        let output = corprof()?.args(["tasks", &pid]).output()?;
        ensure!(output.status.code() == Some(1), "{runtime}: {output:?}");
        ensure!(texts(&output).1.contains("CORPROF_E_PROFILER_ALREADY_ACTIVE"), "{runtime}: {output:?}");

        program.tell("throw 3")?;
        let (code, stderr) = program.end()?;
        ensure!(code == Some(0), "{runtime}: {stderr}");
        ensure!(stderr.contains("attached| given [97, 98]\n"), "{runtime}: {stderr}");
        ensure!(stderr.contains("attached| exceptions: 3\n"), "{runtime}: {stderr}");
    }
    Ok(())
}

/// As a process that has just started: its diagnostics port is there before it can load a profiler.
#[test]
fn a_runtime_that_is_not_ready_yet_is_asked_again() -> Result<()> {
    for runtime in runtimes()? {
        let run = Run::new(&runtime, "Asked").args(["timer"]).env("DOTNET_DefaultDiagnosticPortSuspend", "1");
        let program = Program::start(run.command()?)?;
        let pid = program.child.id();
        let start = Instant::now();
        let process = loop {
            match Process::open(pid) {
                Ok(process) => break process,
                Err(error) => ensure!(start.elapsed() < Duration::from_secs(60), "{runtime}: {error}"),
            }
            thread::sleep(Duration::from_millis(10));
        };
        let mut command = corprof()?;
        command.args(["exceptions", &pid.to_string(), "--duration", "1"]);
        let asked = Program::start(command)?;
        thread::sleep(Duration::from_millis(500));
        process.client().resume_runtime().with_context(|| runtime.to_string())?;
        let (code, stderr) = asked.end()?;
        ensure!(code == Some(0), "{runtime}: {stderr}");
        program.expect("ready")?;
        program.end()?;
    }
    Ok(())
}

#[test]
fn what_cannot_be_loaded_is_not_sent() -> Result<()> {
    for runtime in runtimes()?.into_iter().take(1) {
        let program = diagnosed(&runtime, None)?;
        let pid = program.child.id().to_string();
        let output = corprof()?.args(["attach", &pid, "no-such.so"]).output()?;
        ensure!(output.status.code() == Some(1), "{output:?}");
        ensure!(texts(&output).1.contains("library-missing"), "{output:?}");
        let output = corprof()?.args(["attach", &pid, "sampler", "--data", "SAMPLER_HZ=0"]).output()?;
        ensure!(output.status.code() == Some(2), "{output:?}");
        ensure!(texts(&output).1.contains("SAMPLER_HZ=0: give a number from 0.01 to 10000"), "{output:?}");
        let output = corprof()?.args(["attach", &pid, "samplr"]).output()?;
        ensure!(output.status.code() == Some(2), "{output:?}");
        ensure!(texts(&output).1.contains("did you mean `sampler`?"), "{output:?}");
        let own = std::process::id().to_string();
        let output = corprof()?.args(["attach", &own]).arg(library(&runtime, "attached")?).output()?;
        ensure!(output.status.code() == Some(3), "{output:?}");
        ensure!(texts(&output).1.contains("no diagnostics port"), "{output:?}");
    }
    Ok(())
}

/// Two commands at the same time, which a storm of collections and exceptions slows down.
#[test]
fn one_of_two_that_attach_at_once_is_refused() -> Result<()> {
    for runtime in runtimes()? {
        let mut program = diagnosed(&runtime, None)?;
        program.tell("storm")?;
        let pid = program.child.id().to_string();
        let library = library(&runtime, "attached")?;
        let start = || -> Result<Child> {
            let mut command = corprof()?;
            command.args(["attach", &pid]).arg(&library).args(["--timeout", "240"]);
            Ok(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?)
        };
        let first = start()?;
        let second = start()?;
        let outputs = [first.wait_with_output()?, second.wait_with_output()?];
        let (attached, refused): (Vec<_>, Vec<_>) = outputs.iter().partition(|output| output.status.success());
        ensure!(attached.len() == 1 && refused.len() == 1, "{runtime}: {outputs:?}");
        let refused = refused.first().map(|output| texts(output).1).unwrap_or_default();
        ensure!(refused.contains("CORPROF_E_PROFILER_ALREADY_ACTIVE"), "{runtime}: {refused}");
        program.tell("calm")?;
        let (code, stderr) = program.end()?;
        ensure!(code == Some(0) && stderr.matches("attached| given").count() == 1, "{runtime}: {stderr}");
        ensure!(stderr.matches("attached| exceptions: ").count() == 1, "{runtime}: {stderr}");
    }
    Ok(())
}

#[test]
fn a_process_that_does_not_answer_or_is_killed_ends_the_commands_with_a_reason() -> Result<()> {
    for runtime in runtimes()? {
        let mut program = diagnosed(&runtime, None)?;
        let pid = program.child.id().to_string();
        let library = library(&runtime, "leaver")?;
        let attach = |timeout: &str| -> Result<Command> {
            let mut command = corprof()?;
            command.args(["attach", &pid]).arg(&library).args(["--data", "stays listens", "--timeout", timeout]);
            Ok(command)
        };
        program.stop()?;
        let output = attach("1")?.output()?;
        let (_, stderr) = texts(&output);
        ensure!(output.status.code().is_some_and(|code| code != 0), "{runtime}: {output:?}");
        ensure!(stderr.contains("no answer after"), "{runtime}: {stderr}");
        program.signal("-CONT")?;
        // The request is in the socket: the runtime has attached the profiler, or does so now.
        program.tell("collect 1")?;
        let output = attach("240")?.output()?;
        let (_, stderr) = texts(&output);
        let is_there = output.status.success() || stderr.contains("CORPROF_E_PROFILER_ALREADY_ACTIVE");
        ensure!(is_there, "{runtime}: {output:?}");

        // The same for `detach`, whose profiler does not answer.
        program.stop()?;
        let output = corprof()?.args(["detach", &pid, "--timeout", "1"]).output()?;
        let (_, stderr) = texts(&output);
        ensure!(output.status.code() == Some(1) && stderr.contains("1 s"), "{runtime}: {output:?}");

        // Killed while both wait.
        let start = |mut command: Command| command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut detach = corprof()?;
        detach.args(["detach", &pid, "--timeout", "100000"]);
        let waiting = [start(attach("100000")?)?, start(detach)?];
        thread::sleep(Duration::from_millis(500));
        program.signal("-KILL")?;
        for child in waiting {
            let output = child.wait_with_output()?;
            let (_, stderr) = texts(&output);
            ensure!(output.status.code().is_some_and(|code| code != 0), "{runtime}: {output:?}");
            ensure!(stderr.contains("corprof: error: "), "{runtime}: {stderr}");
        }
    }
    Ok(())
}

/// The threads of the program run all the time before the sampler comes, so they are prepared while the runtime is
/// suspended.
#[test]
fn an_attached_sampler_sends_signals_to_threads_that_are_older() -> Result<()> {
    patiently(runtimes()?, |runtime, times| {
        let folder = tempfile::tempdir()?;
        let run = Run::new(runtime, "Shares").args([&(3000 * times).to_string(), "1"]);
        let program = Program::start(run.command()?)?;
        let pid = program.child.id().to_string();
        thread::sleep(Duration::from_secs(1));
        let out = folder.path().join("shares.folded");
        // With the usual budget there are few samples of a second, beside other tests.
        let data =
            format!("SAMPLER_HZ=1000\nSAMPLER_BUDGET=50\nSAMPLER_DURATION={times}\nSAMPLER_OUT={}\n", out.display());
        let output = corprof()?.args(["attach", &pid, "sampler", "--data", &data, "--timeout", "120"]).output()?;
        ensure!(output.status.success(), "{runtime}: {output:?}");
        let (code, stderr) = program.end()?;
        ensure!(code == Some(0), "{runtime}: {stderr}");
        ensure_or_longer!(out.is_file(), "{runtime}: {stderr}");
        let folded = fs::read_to_string(&out)?;
        let weight = |method: &str| -> u64 {
            let lines = folded.lines().filter(|line| line.contains(method));
            lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum()
        };
        let weights = ["Shares.Sixty()", "Shares.Thirty()", "Shares.Ten()"].map(weight);
        let total: u64 = weights.iter().sum();
        // A thread for a second, of which a busy machine gives them a part. Suspended walks have no native
        // frames.
        ensure_or_longer!(total > 100_000_000, "{runtime}: {weights:?}: {folded}{stderr}");
        ensure!(folded.contains("libcoreclr.so"), "{runtime}: not by signals: {folded}{stderr}");
        for (weight, expected) in weights.into_iter().zip([60.0, 30.0, 10.0]) {
            let share = 100.0 * weight as f64 / total as f64;
            println!("{runtime}: {share:.1} %, {expected} % expected");
            ensure_or_longer!((share - expected).abs() < 8.0, "{runtime}: {share:.1} % instead of {expected} %");
        }
        Ok(())
    })
}

/// The method was made and compiled before the sampler came.
#[test]
fn an_attached_sampler_names_dynamic_methods_that_are_older() -> Result<()> {
    patiently(runtimes()?, |runtime, times| {
        let folder = tempfile::tempdir()?;
        let run = Run::new(runtime, "Dynamic").args([&(3000 * times).to_string()]);
        let program = Program::start(run.command()?)?;
        let pid = program.child.id().to_string();
        thread::sleep(Duration::from_secs(1));
        let out = folder.path().join("dynamic.folded");
        let data = format!("SAMPLER_HZ=1000\nSAMPLER_DURATION={times}\nSAMPLER_OUT={}\n", out.display());
        let output = corprof()?.args(["attach", &pid, "sampler", "--data", &data, "--timeout", "120"]).output()?;
        ensure!(output.status.success(), "{runtime}: {output:?}");
        let (code, stderr) = program.end()?;
        ensure!(code == Some(0), "{runtime}: {stderr}");
        // On a busy machine the first round may come after the second: then there is no file, and the sampler says so.
        let folded = fs::read_to_string(&out).unwrap_or_default();
        let is_right = folded.lines().any(|line| line.contains("Dynamic.Spin(int);Loop (dynamic) "));
        ensure_or_longer!(is_right, "{runtime}: {folded}{stderr}");
        Ok(())
    })
}

mod long {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// The threads of the pool that wait for work are not at work, however long threads wait for a processor.
    #[test]
    fn threads_of_the_pool_that_rest_have_no_processor_time_on_a_full_machine() -> Result<()> {
        const LOAD: usize = 12;

        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..LOAD {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let result = patiently(runtimes()?, |runtime, times| {
                let folder = tempfile::tempdir()?;
                let program = Program::start(Run::new(runtime, "Resting").args(["3600000"]).command()?)?;
                program.expect("ready")?;
                let file = folder.path().join("p.folded");
                let pid = program.child.id().to_string();
                let duration = (10 * times).to_string();
                let mut command = corprof()?;
                command.args(["record", "-p", &pid, "--rate", "500", "--duration", &duration, "-o"]).arg(&file);
                let (_, stderr) = texts(&command.output()?);
                let folded = fs::read_to_string(&file).unwrap_or_default();
                let weight_of = |method: &str| -> u64 {
                    let lines = folded.lines().filter(|line| line.contains(method));
                    lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum()
                };
                let [all, works, rests] = ["", "Resting.Works(", "LowLevelLifoSemaphore"].map(weight_of);
                let share = 100.0 * rests as f64 / all as f64;
                println!(
                    "{runtime}: {all} ns, of which Works has {works}, and threads that rest {rests}: {share:.2} %"
                );
                println!("{stderr}");
                ensure_or_longer!(works > 500_000_000, "{runtime}: {works} ns: {folded}{stderr}");
                ensure!(share <= 1.0, "{runtime}: {share:.2} %: {folded}");
                Ok(())
            });
            is_over.store(true, Ordering::Relaxed);
            result
        })
    }
}
