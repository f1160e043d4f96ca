//! `corprof locks`, `starvation`, `pauses`, `exceptions`, `allocations`, `leaks`, `timer` and `tracer`: of a running
//! process, and from the start of an application until Ctrl-C.

use std::io::Read;

use super::*;

/// What is right in an answer of tests/managed/modern/Asked.cs: lines that contain all of these words.
const ANSWERS: [(&str, &[&[&str]]); 8] = [
    ("locks", &[&["    Asked.Wants() in Asked.cs:"], &["Asked.Holds(", "\"keeper\""], &["waiting: thread"]]),
    ("starvation", &[&["reports of the runtime"], &["Asked.Blocks(", " calls System.Threading.Tasks.Task"]]),
    ("pauses", &[&["generation 0, blocking, asked for"], &["caused by: thread"], &["Asked.Trims("]]),
    (
        "exceptions",
        &[
            &["/s  class and message"],
            &["  System.InvalidOperationException: asked for"],
            &["thrown in Asked.Throws() in Asked.cs:"],
            &["caught in Asked.Catches("],
        ],
    ),
    ("allocations", &[&["class"], &["Order"]]),
    ("leaks", &[&["What has grown in Asked"], &["static field Asked.kept"], &["-> Node  +"]]),
    ("timer", &[&["Asked.Outer("], &["Asked.Inner("]]),
    ("tracer", &[&["Asked.Outer("], &["Asked.Inner("]]),
];

/// Those whose profilers the runtime does not release.
const STAY: [&str; 2] = ["timer", "tracer"];

fn answer_of(name: &str) -> Result<&'static [&'static [&'static str]]> {
    Ok(ANSWERS.iter().find(|(other, _)| *other == name).context("no such question")?.1)
}

/// The line that an answer lacks.
fn lacks(name: &str, text: &str) -> Result<Option<&'static [&'static str]>> {
    let has = |words: &&[&str]| text.lines().any(|line| words.iter().all(|word| line.contains(word)));
    Ok(answer_of(name)?.iter().copied().find(|words| !has(words)))
}

/// The options with which a question has its answer soon.
fn options(name: &str) -> &'static [&'static str] {
    match name {
        "leaks" => &["--first", "0.2"],
        "timer" | "tracer" => &["--filter", "Asked.*"],
        "allocations" => &["--top", "5"],
        _ => &[],
    }
}

fn asked(runtime: &Runtime, name: &str) -> Result<Program> {
    let program = Program::start(Run::new(runtime, "Asked").args([name]).command()?)?;
    program.expect("ready")?;
    Ok(program)
}

/// The process has printed nothing, and runs on.
fn is_unharmed(program: Program, runtime: &Runtime) -> Result<()> {
    let lines: Vec<_> = program.lines.try_iter().collect();
    let (code, stderr) = program.end()?;
    ensure!(lines.is_empty() && stderr.is_empty(), "{runtime}: the process has printed {lines:?} {stderr}");
    ensure!(code == Some(0), "{runtime}: {code:?}");
    Ok(())
}

/// Asks a running process, longer each time, until the answer is right: so it is asked several times on a full machine.
fn asks(name: &str) -> Result<()> {
    for runtime in runtimes()? {
        let program = asked(&runtime, name)?;
        let pid = program.child.id().to_string();
        for seconds in [2, 4, 8, 16] {
            let mut command = corprof()?;
            command.args([name, &pid, "--duration", &seconds.to_string()]).args(options(name));
            let output = command.output()?;
            let (stdout, stderr) = texts(&output);
            ensure!(output.status.success(), "{runtime}: {output:?}");
            ensure!(stderr.contains(&format!("watches process {pid} ")), "{runtime}: {stderr}");
            ensure!(!stderr.contains("has not detached"), "{runtime}: {stderr}");
            let lacks = lacks(name, &stdout)?;
            let is_last = seconds == 16 || STAY.contains(&name);
            ensure!(lacks.is_none() || !is_last, "{runtime}: no line {lacks:?}: {stdout}{stderr}");
            if lacks.is_none() {
                break;
            }
        }
        // Another one can attach; or the runtime's sampler takes the stacks, and the user was told why.
        let output = corprof()?.args(["stacks", &pid]).output()?;
        let (stdout, stderr) = texts(&output);
        ensure!(output.status.success() && stdout.contains("Asked."), "{runtime}: {output:?}");
        let is_told = stderr.contains("keeps their profiler until the process ends");
        ensure!(is_told == STAY.contains(&name), "{runtime}: {output:?}");
        is_unharmed(program, &runtime)?;
    }
    Ok(())
}

/// What is right in an answer about `Asked dies`: the framework's methods are not the throwers.
const THROWN: [&str; 3] = [
    "thrown in Asked.Throws() in Asked.cs:",
    "thrown in Asked.Indexes() in Asked.cs:",
    "thrown in Asked.Opens() in Asked.cs:",
];

#[test]
fn an_application_that_dies_has_answered_a_moment_before() -> Result<()> {
    for runtime in runtimes()? {
        let answer = |name: &str, milliseconds: u64| -> Result<(Option<i32>, String)> {
            let mut command = corprof()?;
            command.args([name, "--"]).args(application(&runtime, "Asked")?).arg("dies");
            let program = Program::start(command)?;
            program.expect("ready")?;
            thread::sleep(Duration::from_millis(milliseconds));
            program.end()
        };
        let (code, stderr) = answer("exceptions", 1000)?;
        let (_, draft) = stderr.split_once(" s before:").with_context(|| format!("{runtime}: {stderr}"))?;
        ensure!(code == Some(134), "{runtime}: {code:?}");
        ensure!(THROWN.iter().all(|line| draft.contains(line)), "{runtime}: {draft}");
        let (_, stderr) = answer("allocations", 1500)?;
        let (_, draft) = stderr.split_once(" s before:").with_context(|| format!("{runtime}: {stderr}"))?;
        ensure!(draft.contains("System.InvalidOperationException"), "{runtime}: {draft}");
        let (_, stderr) = answer("timer", 0)?;
        ensure!(stderr.contains("there is no answer of process"), "{runtime}: {stderr}");
    }
    Ok(())
}

/// Kills an application, later each time, until the answer of the moment before is right.
fn is_asked_and_killed(name: &str) -> Result<()> {
    for runtime in runtimes()? {
        for seconds in [3, 6, 12, 24] {
            let mut command = corprof()?;
            command.args([name, "--"]).args(application(&runtime, "Asked")?).arg(name);
            let program = Program::start(command)?;
            program.expect("ready")?;
            thread::sleep(Duration::from_secs(seconds));
            signal(child_of(program.child.id())?.context("no child")?, "-KILL")?;
            let (code, stderr) = program.end()?;
            ensure!(code == Some(137), "{runtime}: {code:?}: {stderr}");
            let draft = stderr.split_once(" s before:").map(|(_, draft)| draft);
            let lacks = lacks(name, draft.with_context(|| format!("{runtime}: {stderr}"))?)?;
            ensure!(lacks.is_none() || seconds < 24, "{runtime}: no line {lacks:?}: {stderr}");
            if lacks.is_none() {
                break;
            }
        }
    }
    Ok(())
}

#[test]
fn locks_of_a_killed_application() -> Result<()> {
    is_asked_and_killed("locks")
}

#[test]
fn starvation_of_a_killed_application() -> Result<()> {
    is_asked_and_killed("starvation")
}

#[test]
fn pauses_of_a_killed_application() -> Result<()> {
    is_asked_and_killed("pauses")
}

#[test]
fn a_process_that_dies_has_answered_a_moment_before() -> Result<()> {
    for runtime in runtimes()? {
        let program = asked(&runtime, "dies")?;
        let mut command = corprof()?;
        command.args(["exceptions", &program.child.id().to_string()]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut command = command.spawn()?;
        let mut says = BufReader::new(command.stderr.take().context("no stderr")?);
        says.read_line(&mut String::new())?;
        thread::sleep(Duration::from_secs(1));
        drop(program);
        let output = command.wait_with_output()?;
        let draft = texts(&output).0;
        let is_told = output.status.success() && THROWN.iter().all(|line| draft.contains(line));
        ensure!(is_told, "{runtime}: {output:?}");
    }
    Ok(())
}

#[test]
fn boxes_are_counted_or_said_not_to_be() -> Result<()> {
    for runtime in runtimes()? {
        let answer = |options: &[&str]| -> Result<(u64, bool)> {
            let mut command = corprof()?;
            command.args(["allocations", "--json"]).args(options).arg("--");
            let output = command.args(application(&runtime, "Asked")?).arg("boxes").stdin(Stdio::null()).output()?;
            let answer: serde_json::Value = serde_json::from_str(texts(&output).0.trim_start_matches("ready\n"))?;
            let rows = answer["rows"].as_array().context("no rows")?;
            let boxes = rows.iter().find(|row| row["class"] == "Point").and_then(|row| row["count"].as_u64());
            let is_said = answer["notes"].to_string().contains("boxes that code makes before it is optimised");
            Ok((boxes.unwrap_or(0), is_said))
        };
        let (boxes, is_said) = answer(&[])?;
        ensure!(is_said != (boxes == 10_000), "{runtime}: {boxes}, {is_said}");
        let (boxes, _) = answer(&["--env", "DOTNET_TieredCompilation=0"])?;
        ensure!(boxes == 10_000, "{runtime}: {boxes} of code that is all optimised");
    }
    Ok(())
}

#[test]
fn calls_that_are_parts_of_async_methods_are_said_to_be() -> Result<()> {
    for runtime in runtimes()? {
        for name in ["timer", "tracer"] {
            let program = asked(&runtime, "starvation")?;
            let pid = program.child.id().to_string();
            let output = corprof()?.args([name, &pid, "--filter", "Asked*", "--duration", "3"]).output()?;
            let stdout = texts(&output).0;
            ensure!(stdout.contains("of an async method each part that runs is a call"), "{runtime}: {name}: {stdout}");
            program.end()?;
        }
    }
    Ok(())
}

#[test]
fn both_pauses_of_a_background_collection_are_told_as_its_own() -> Result<()> {
    for runtime in runtimes()? {
        let program = asked(&runtime, "background")?;
        let output =
            corprof()?.args(["pauses", &program.child.id().to_string(), "--duration", "2", "--json"]).output()?;
        let answer: serde_json::Value = serde_json::from_str(&texts(&output).0)?;
        let rows = answer["reasons"].as_array().context("no reasons")?;
        let pauses = |ending: &str| -> u64 {
            let of = |row: &&serde_json::Value| {
                row["name"]
                    .as_str()
                    .is_some_and(|name| name.starts_with("generation 2, background") && name.ends_with(ending))
            };
            rows.iter().filter(of).filter_map(|row| row["pauses"].as_u64()).sum()
        };
        let all = pauses("");
        let second = pauses(", second pause");
        // It begins and ends in the middle of one.
        ensure!(second > 5 && second.abs_diff(all - second) <= 1, "{runtime}: {answer}");
        // That of one which began before cannot be told.
        let untold = rows.iter().find(|row| row["name"] == "preparing a collection");
        ensure!(untold.is_none_or(|row| row["pauses"] == 1), "{runtime}: {answer}");
        is_unharmed(program, &runtime)?;
    }
    Ok(())
}

#[test]
fn a_wait_that_a_limit_ends_is_as_long_as_the_limit() -> Result<()> {
    for runtime in runtimes()? {
        let program = asked(&runtime, "limits")?;
        let pid = program.child.id().to_string();
        let output = corprof()?.args(["locks", &pid, "--duration", "3", "--json"]).output()?;
        let answer: serde_json::Value = serde_json::from_str(&texts(&output).0)?;
        let waiters = answer["waiters"].as_array().context("no waiters")?;
        let tries = waiters.iter().find(|waiter| waiter["method"] == "Asked.Tries()").context("it does not wait")?;
        let total = tries["total_ms"].as_f64().context("no time")?;
        let mean = total / tries["waits"].as_f64().context("no waits")?;
        // Where the end is not reported, it is between two looks. A busy machine adds some tens of milliseconds, and of the
        // first wait only the rest is seen.
        ensure!((300.0..750.0).contains(&mean), "{runtime}: {mean} ms: {answer}");
        ensure!(answer["unfinished_waits"].as_u64().is_some_and(|waits| waits <= 2), "{runtime}: {answer}");
        let owners = answer["owners"].as_array().context("no owners")?;
        let of_owners: f64 = owners.iter().filter_map(|owner| owner["waited_for_ms"].as_f64()).sum();
        let waited = answer["waited_ms"].as_f64().context("no time")?;
        ensure!((of_owners - waited).abs() < 0.1 * waited + 1.0, "{runtime}: {of_owners} of {waited} ms: {answer}");
        is_unharmed(program, &runtime)?;
    }
    Ok(())
}

#[test]
fn a_wait_for_a_lock_whose_owner_has_ended_is_told() -> Result<()> {
    for runtime in runtimes()? {
        let program = asked(&runtime, "orphan")?;
        let output = corprof()?.args(["locks", &program.child.id().to_string(), "--duration", "2"]).output()?;
        let answer = texts(&output).0;
        let waits = answer.lines().any(|line| line.contains("\"waiter\" waits for a lock; which one"));
        ensure!(waits && answer.contains("Asked.Wants() in Asked.cs:"), "{runtime}: {answer}");
        is_unharmed(program, &runtime)?;
    }
    Ok(())
}

#[test]
fn locks_of_a_running_process() -> Result<()> {
    asks("locks")
}

#[test]
fn starvation_of_a_running_process() -> Result<()> {
    asks("starvation")
}

#[test]
fn pauses_of_a_running_process() -> Result<()> {
    asks("pauses")
}

#[test]
fn exceptions_of_a_running_process() -> Result<()> {
    asks("exceptions")
}

#[test]
fn allocations_of_a_running_process() -> Result<()> {
    asks("allocations")
}

#[test]
fn leaks_of_a_running_process() -> Result<()> {
    asks("leaks")
}

#[test]
fn timer_of_a_running_process() -> Result<()> {
    asks("timer")
}

/// Inserted code is in the body that all instantiations share.
#[test]
fn a_generic_method_of_a_running_process_is_named_as_it_is_defined() -> Result<()> {
    for runtime in runtimes()? {
        let program = asked(&runtime, "timer")?;
        let pid = program.child.id().to_string();
        let mut command = corprof()?;
        let output = command.args(["timer", &pid, "--duration", "2", "--filter", "Asked.*", "--json"]).output()?;
        let (stdout, stderr) = texts(&output);
        let answer: serde_json::Value =
            serde_json::from_str(&stdout).with_context(|| format!("{runtime}: {output:?}"))?;
        let rows = answer["top"].as_array().context("no methods")?;
        let calls = |name: &str| rows.iter().find(|row| row["method"] == name)?["calls"].as_u64();
        let same = calls("Asked.Same<T>(T)").with_context(|| format!("{runtime}: {stdout}{stderr}"))?;
        let outer = calls("Asked.Outer()").with_context(|| format!("{runtime}: {stdout}{stderr}"))?;
        // Methods get their hooks one after the other, and a call that runs then has none.
        ensure!(same.abs_diff(2 * outer) <= 2 + outer / 50, "{runtime}: {same} calls in {outer}: {stdout}");
        let instances = rows.iter().filter(|row| row["method"].as_str().is_some_and(|name| name.contains("Same")));
        ensure!(instances.count() == 1, "{runtime}: {stdout}");
        is_unharmed(program, &runtime)?;
    }
    Ok(())
}

#[test]
fn tracer_of_a_running_process() -> Result<()> {
    asks("tracer")
}

/// Asks from the start of an application, and ends it by a signal.
fn interrupted(signal: &str, names: &[&str]) -> Result<()> {
    for runtime in runtimes()? {
        for name in names.iter().copied() {
            let mut lacked = None;
            for seconds in [2, 4, 8, 16] {
                let mut command = corprof()?;
                // Both spellings.
                if seconds == 2 {
                    command.arg(name).args(options(name));
                } else {
                    command.args(["run", name, "--env", "LEAKS_FIRST=0.2"]);
                }
                command.arg("--").args(application(&runtime, "Asked")?).arg(name);
                let mut program = Program::start(command)?;
                program.expect("ready")?;
                thread::sleep(Duration::from_secs(seconds));
                program.signal(signal)?;
                // The input stays open, so that nothing else ends it.
                let input = program.input.take();
                let (code, stderr) = program.end()?;
                drop(input);
                ensure!(code == Some(0), "{runtime}: {name} {signal}: {code:?}: {stderr}");
                lacked = lacks(name, &stderr)?.map(|words| (words, stderr));
                if lacked.is_none() {
                    break;
                }
            }
            ensure!(lacked.is_none(), "{runtime}: {name} {signal}: {lacked:?}");
        }
    }
    Ok(())
}

#[test]
fn an_interrupt_has_the_answer_first() -> Result<()> {
    interrupted("-INT", &["timer"])
}

/// A profiler that was attached later, in both spellings: by `attach --wait` without `--` too, as `dnx` removes the
/// first.
#[test]
fn an_interrupt_has_the_answer_of_a_late_profiler_first() -> Result<()> {
    const NAME: &str = "exceptions";
    for runtime in runtimes()? {
        let late = ["run", NAME, "--delay", "0.1", "--"];
        for spelling in [&late[..], &["attach", "--wait", NAME]] {
            let mut lacked = None;
            for seconds in [2, 4, 8, 16] {
                let mut command = corprof()?;
                command.args(spelling).args(application(&runtime, "Asked")?).arg(NAME);
                let mut program = Program::start(command)?;
                program.expect("ready")?;
                let said = program.stderr_line("is attached to process")?;
                thread::sleep(Duration::from_secs(seconds));
                program.signal("-INT")?;
                let input = program.input.take();
                let (code, stderr) = program.end()?;
                drop(input);
                ensure!(code == Some(0), "{runtime}: {spelling:?}: {code:?}: {said}{stderr}");
                lacked = lacks(NAME, &stderr)?.map(|words| (words, stderr));
                if lacked.is_none() {
                    break;
                }
            }
            ensure!(lacked.is_none(), "{runtime}: {spelling:?}: {lacked:?}");
        }
    }
    Ok(())
}

#[test]
fn a_request_to_end_has_the_answer_first() -> Result<()> {
    interrupted("-TERM", &["locks"])
}

/// `corprof NAME PID`, which has attached its profiler.
fn watching(name: &str, pid: u32) -> Result<Program> {
    let mut command = corprof()?;
    command.args([name, &pid.to_string()]);
    let mut program = Program::start(command)?;
    program.stderr_line("watches process")?;
    Ok(program)
}

/// Those whose profilers leave end at once by an interrupt and by a detach.
fn ends_at_once(names: &[&str]) -> Result<()> {
    for runtime in runtimes()? {
        for name in names.iter().filter(|name| !STAY.contains(name)) {
            let target = asked(&runtime, name)?;
            let pid = target.child.id();
            // Between two snapshots there is no profiler that could be detached.
            for by_detach in [false, true].into_iter().filter(|by_detach| !by_detach || *name != "leaks") {
                let mut command = watching(name, pid)?;
                let start = Instant::now();
                if by_detach {
                    let output = corprof()?.args(["detach", &pid.to_string()]).output()?;
                    ensure!(output.status.success(), "{runtime}: {name}: {output:?}");
                } else {
                    command.signal("-INT")?;
                }
                let lines: Vec<_> = command.lines.iter().collect();
                let took = start.elapsed();
                let mut said = String::new();
                command.child.stderr.take().context("no stderr")?.read_to_string(&mut said)?;
                // Two snapshots are compared, and there is none yet.
                let code = if *name == "leaks" { 124 } else { 0 };
                ensure!(command.child.wait()?.code() == Some(code), "{runtime}: {name}: {lines:?} {said}");
                ensure!(!lines.is_empty() && !said.contains("has not detached"), "{runtime}: {name}: {lines:?} {said}");
                // It would be 35 seconds without.
                ensure!(*name != "leaks" || took < Duration::from_secs(25), "{runtime}: {took:?}");
            }
            is_unharmed(target, &runtime)?;
        }
    }
    Ok(())
}

#[test]
fn a_wait_for_the_second_snapshot_ends_at_once() -> Result<()> {
    ends_at_once(&["leaks"])
}

#[test]
fn other_questions_are_answered_between_two_snapshots() -> Result<()> {
    for runtime in runtimes()? {
        let target = asked(&runtime, "leaks")?;
        let pid = target.child.id().to_string();
        let mut leaks = corprof()?;
        leaks.args(["leaks", &pid, "--first", "0", "--duration", "3600"]);
        let mut leaks = Program::start(leaks)?;
        leaks.stderr_line("the first snapshot is taken")?;
        for others in [&["stacks"][..], &["locks", "--duration", "1"], &["heap"], &["tasks"]] {
            let output = corprof()?.args(others).arg(&pid).output()?;
            let (_, stderr) = texts(&output);
            ensure!(output.status.success() && !stderr.contains("no profiler can attach"), "{runtime}: {output:?}");
        }
        leaks.signal("-INT")?;
        let (lines, code) = leaks.rest()?;
        ensure!(code == Some(0) && lacks("leaks", &lines.join("\n"))?.is_none(), "{runtime}: {code:?}: {lines:?}");
        is_unharmed(target, &runtime)?;
    }
    Ok(())
}

#[test]
fn the_profiler_of_a_killed_question_leaves() -> Result<()> {
    for runtime in runtimes()? {
        for name in ["locks", "leaks"] {
            let target = asked(&runtime, name)?;
            let pid = target.child.id();
            let mut command = watching(name, pid)?;
            command.child.kill()?;
            command.child.wait()?;
            let end = Instant::now() + PATIENCE;
            while !corprof()?.args(["stacks", &pid.to_string()]).output()?.status.success() {
                ensure!(Instant::now() < end, "{runtime}: {name} stays");
            }
            is_unharmed(target, &runtime)?;
        }
    }
    Ok(())
}

/// Files, and what is in them.
const FILES: [(&str, &str, &str); 5] = [
    ("allocations", "a.svg", "new Order"),
    ("locks", "a.folded", "Asked.Holds"),
    ("leaks", "a.html", "Node"),
    ("timer", "a.csv", "Asked.Outer"),
    ("tracer", "a.json", "Asked.Outer"),
];

fn writes(files: &[(&str, &str, &str)]) -> Result<()> {
    for runtime in runtimes()? {
        let folder = tempfile::tempdir()?;
        for (name, file, word) in files.iter().copied() {
            let target = asked(&runtime, name)?;
            let file = folder.path().join(file);
            let mut command = corprof()?;
            command.args([name, &target.child.id().to_string(), "--duration", "4"]).args(options(name));
            let output = command.arg("-o").arg(&file).output()?;
            let (_, stderr) = texts(&output);
            ensure!(output.status.success() && stderr.contains("is written"), "{runtime}: {name}: {output:?}");
            ensure!(fs::read_to_string(&file)?.contains(word), "{runtime}: {name}: {output:?}");
            is_unharmed(target, &runtime)?;
        }
    }
    Ok(())
}

#[test]
fn a_file_is_written_in_the_requested_format() -> Result<()> {
    writes(&FILES[..1])
}

#[test]
fn a_wrong_option_is_refused_before_anything_is_done() -> Result<()> {
    for (args, said) in [
        (&["locks", "1", "--tops", "3"][..], "a similar argument exists: '--top'"),
        (&["timer", "1", "--env", "TIMER_CALLER=x"], "did you mean TIMER_CALLERS?"),
        (&["timer", "1", "--env", "SHOP=1"], "a running process keeps its environment"),
        (&["locks", "1", "--rate", "0"], "give a number from 0.1 to 1000"),
        (&["locks", "--env", "LOCKS_TPO=3", "--", "sh", "-c", "echo ran"], "did you mean LOCKS_TOP?"),
    ] {
        let output = corprof()?.args(args).output()?;
        ensure!(output.status.code() == Some(2) && output.stdout.is_empty(), "{args:?}: {output:?}");
        ensure!(texts(&output).1.contains(said), "{args:?}: {output:?}");
    }
    Ok(())
}

/// Test runners read what the process of the tests writes on standard error. Each of several answers says whose it is.
#[test]
fn answers_do_not_depend_on_the_standard_error_of_the_application() -> Result<()> {
    for runtime in runtimes()? {
        let words = application(&runtime, "Asked")?;
        let quoted: Vec<_> = words.iter().map(|word| format!("'{}'", word.to_string_lossy())).collect();
        let application = format!("{} exceptions 2>/dev/null", quoted.join(" "));
        for count in [1, 2] {
            let script = vec![application.clone(); count].join("; ");
            let mut command = corprof()?;
            command.args(["exceptions", "--", "sh", "-c", &format!("{script}; exit 7")]);
            let program = Program::start(command)?;
            program.expect("ready")?;
            thread::sleep(Duration::from_millis(300));
            let (code, stderr) = program.end()?;
            ensure!(code == Some(7), "{runtime}: {code:?}: {stderr}");
            ensure!(stderr.matches("InvalidOperationException: asked for").count() >= count, "{runtime}: {stderr}");
            let heads = stderr.matches("corprof: the answer of process ").count();
            ensure!(heads == if count == 1 { 0 } else { count }, "{runtime}: {heads} heads: {stderr}");
        }
    }
    Ok(())
}

#[test]
fn a_second_interrupt_ends_the_application_at_once() -> Result<()> {
    for runtime in runtimes()? {
        let mut command = corprof()?;
        command.args(["timer", "--"]).args(application(&runtime, "Asked")?).arg("timer");
        let mut program = Program::start(command)?;
        program.expect("ready")?;
        let child = child_of(program.child.id())?.context("no child")?;
        // A process that stands cannot answer.
        signal(child, "-STOP")?;
        program.signal("-INT")?;
        thread::sleep(Duration::from_millis(500));
        ensure!(program.child.try_wait()?.is_none(), "{runtime}: it does not wait for the answer");
        program.signal("-INT")?;
        let input = program.input.take();
        let (code, stderr) = program.end()?;
        drop(input);
        ensure!(code == Some(124) && stderr.contains("there is no answer"), "{runtime}: {code:?}: {stderr}");
    }
    Ok(())
}

/// Every question: more than seconds.
mod long {
    use super::*;

    fn names() -> Vec<&'static str> {
        ANSWERS.iter().map(|(name, _)| *name).collect()
    }

    /// The process ends some milliseconds after such an exception.
    #[test]
    fn the_exception_that_nobody_catches_is_in_most_answers() -> Result<()> {
        for runtime in runtimes()? {
            let mut told = 0;
            let runs = 10;
            for _ in 0..runs {
                let mut command = corprof()?;
                command.args(["exceptions", "--"]).args(application(&runtime, "Asked")?).arg("throws");
                let program = Program::start(command)?;
                program.expect("ready")?;
                thread::sleep(Duration::from_millis(500));
                let (code, stderr) = program.end()?;
                ensure!(code == Some(134), "{runtime}: {code:?}: {stderr}");
                let draft = stderr.split_once(" s before:").map(|(_, draft)| draft);
                told +=
                    usize::from(draft.is_some_and(|draft| draft.contains("NotSupportedException: nobody catches it")));
            }
            println!("{runtime}: {told} of {runs} drafts have it");
            ensure!(told * 10 >= runs * 8, "{runtime}: {told} of {runs}");
        }
        Ok(())
    }

    #[test]
    fn an_interrupt_has_every_answer_first() -> Result<()> {
        interrupted("-INT", &names())
    }

    #[test]
    fn a_request_to_end_has_every_answer_first() -> Result<()> {
        interrupted("-TERM", &names())
    }

    #[test]
    fn every_question_ends_at_once_by_an_interrupt_and_by_a_detach() -> Result<()> {
        ends_at_once(&names())
    }

    #[test]
    fn every_file_is_written_in_the_requested_format() -> Result<()> {
        writes(&FILES)
    }
}
