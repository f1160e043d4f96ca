//! `corprof stacks`.

use std::collections::BTreeMap;

use corprof_tests::repetitions;
use serde_json::Value;

use super::documents::Schema;
use super::*;

/// A run of tests/managed/Standing.cs whose threads stand where they are to stand.
fn standing(runtime: &Runtime, arguments: &[&str]) -> Result<Program> {
    let program = Program::start(Run::new(runtime, "Standing").args(arguments.iter().copied()).command()?)?;
    program.expect("ready")?;
    Ok(program)
}

/// Without the thread that computes all the time.
const CALM: [&str; 1] = ["calm"];

fn stacks(pid: &str, options: &[&str]) -> Result<Output> {
    Ok(corprof()?.args(["stacks", pid]).args(options).output()?)
}

/// Those of the threads that have this name.
fn named<'s>(stacks: &'s Value, name: &str) -> Result<&'s Value> {
    let threads = stacks["threads"].as_array().context("no threads")?;
    let mut found = threads.iter().filter(|thread| thread["name"] == name);
    let first = found.next().with_context(|| format!("no thread {name}: {stacks}"))?;
    ensure!(found.next().is_none(), "two threads {name}: {stacks}");
    Ok(first)
}

/// The frames of a thread, the innermost first, without their parameters.
fn frames(thread: &Value) -> Result<Vec<String>> {
    let frames = thread["frames"].as_array().context("no frames")?;
    let method =
        |frame: &Value| frame["method"].as_str().unwrap_or_default().split('(').next().unwrap_or_default().to_owned();
    Ok(frames.iter().map(method).collect())
}

/// Whether `Main` is on a stack, and nothing of the runtime's is around it but native code.
fn mains_are_the_outermost(stacks: &Value) -> Result<bool> {
    let mut found = false;
    for thread in stacks["threads"].as_array().context("no threads")? {
        let frames = frames(thread)?;
        let Some(main) = frames.iter().position(|frame| frame == "Standing.Main") else { continue };
        found = true;
        if frames.iter().skip(main + 1).any(|frame| frame != "[native]") {
            return Ok(false);
        }
    }
    Ok(found)
}

#[test]
fn every_thread_is_shown_where_it_stands_as_often_as_is_asked() -> Result<()> {
    for runtime in runtimes()? {
        let program = standing(&runtime, &[])?;
        let pid = program.child.id().to_string();
        let mut runs = false;
        let end = Instant::now() + PATIENCE;
        // A thread that has just been let go is about to run, so the first look may find it waiting.
        for time in 0.. {
            let output = stacks(&pid, &["--json"])?;
            ensure!(output.status.success(), "{runtime}: {output:?}");
            let stacks: Value = serde_json::from_slice(&output.stdout).context("no JSON")?;
            ensure!(stacks["pid"] == program.child.id(), "{runtime}: {stacks}");
            ensure!(
                stacks["command"].as_str().is_some_and(|line| line.contains("Standing.dll")),
                "{runtime}: {stacks}"
            );
            for (name, method) in
                [("waiter", "Standing.Waits"), ("first", "Standing.First"), ("second", "Standing.Second")]
            {
                let thread = named(&stacks, name)?;
                let frames = frames(thread)?;
                ensure!(frames.iter().filter(|frame| *frame == method).count() == 1, "{runtime}: {name}: {thread}");
                ensure!(thread["state"] == "waits", "{runtime}: {name}: {thread}");
                let id = thread["id"].as_u64().context("no number")?;
                ensure!(PathBuf::from(format!("/proc/{pid}/task/{id}")).exists(), "{runtime}: no thread {id}");
            }
            let sorter = frames(named(&stacks, "sorter")?)?;
            let place = |name: &str| sorter.iter().position(|frame| frame == name);
            let compare = place("Standing.Compare");
            let sorts = place("Standing.Sorts");
            let (compare, sorts) = compare.zip(sorts).with_context(|| format!("{runtime}: {sorter:?}"))?;
            let between = sorter.get(compare + 1..sorts).unwrap_or_default();
            ensure!(between.iter().any(|frame| frame == "[native]"), "{runtime}: {sorter:?}");
            ensure!(mains_are_the_outermost(&stacks)?, "{runtime}: {stacks}");
            let busy = named(&stacks, "busy")?;
            ensure!(frames(busy)?.iter().any(|frame| frame == "Standing.Spins"), "{runtime}: {busy}");
            runs |= busy["state"] == "runs";
            if time > 0 && runs {
                break;
            }
            ensure!(Instant::now() < end, "{runtime}: a busy thread never runs: {stacks}");
        }
        let output = stacks(&pid, &[])?;
        let (stdout, stderr) = texts(&output);
        ensure!(output.status.success(), "{runtime}: {output:?}");
        ensure!(stdout.starts_with(&format!("process {pid}: ")), "{runtime}: {stdout}");
        let (_, first) = stdout.split_once("\"first\" waits\n").with_context(|| format!("{runtime}: {stdout}"))?;
        let (first, _) = first.split_once("\n\n").with_context(|| format!("{runtime}: {stdout}"))?;
        ensure!(first.contains("  > Standing.First"), "{runtime}: {stdout}");
        ensure!(!stderr.contains("has not detached"), "{runtime}: {stderr}");
        let (code, stderr) = program.end()?;
        ensure!(code == Some(0) && !stderr.contains("panicked"), "{runtime}: {code:?}: {stderr}");
    }
    Ok(())
}

/// Its wait ends in the stop now and then. On a busy machine it may be ready to run for as long as it sleeps.
#[test]
fn a_thread_that_sleeps_shortly_waits() -> Result<()> {
    const LOOKS: usize = 10;
    for runtime in runtimes()? {
        let program = standing(&runtime, &CALM)?;
        let pid = program.child.id().to_string();
        let mut waits = 0;
        for _ in 0..LOOKS {
            let output = stacks(&pid, &["--json"])?;
            let stacks: Value = serde_json::from_slice(&output.stdout).context("no JSON")?;
            let napper = named(&stacks, "napper")?;
            ensure!(frames(napper)?.iter().any(|frame| frame == "Standing.Naps"), "{runtime}: {napper}");
            waits += usize::from(napper["state"] == "waits");
        }
        ensure!(waits > LOOKS / 2, "{runtime}: it waited in {waits} of {LOOKS} looks");
    }
    Ok(())
}

/// The runtime leaves them out of its walks.
#[test]
fn dynamic_methods_are_among_the_frames_and_have_names() -> Result<()> {
    for runtime in runtimes()? {
        let program = Program::start(Run::new(&runtime, "Dynamic").args(["wait"]).command()?)?;
        program.expect("ready")?;
        let pid = program.child.id().to_string();
        for _ in 0..2 {
            let output = stacks(&pid, &["--json"])?;
            ensure!(output.status.success(), "{runtime}: {output:?}");
            let stacks: Value = serde_json::from_slice(&output.stdout).context("no JSON")?;
            let frames = frames(named(&stacks, "dynamic")?)?;
            // `frames` leaves out `(dynamic)`, as it does parameters.
            let expected = ["Dynamic.Waits", "Inner ", "Outer ", "Dynamic.Runs"].map(str::to_owned);
            ensure!(frames.windows(4).any(|frames| *frames == expected), "{runtime}: {frames:#?}");
            let named = frames.iter().filter(|frame| frame.ends_with(' '));
            ensure!(named.count() == 2, "{runtime}: no stub of the runtime's is among them: {frames:#?}");
        }
        let (code, stderr) = program.end()?;
        ensure!(code == Some(0) && !stderr.contains("panicked"), "{runtime}: {code:?}: {stderr}");
    }
    Ok(())
}

/// One that runs was interrupted, and the runtime's walk begins with its caller.
#[test]
fn dynamic_methods_that_run_are_innermost() -> Result<()> {
    for runtime in runtimes()? {
        let program = Program::start(Run::new(&runtime, "Dynamic").args(["run"]).command()?)?;
        program.expect("ready")?;
        let pid = program.child.id().to_string();
        for _ in 0..3 {
            let output = stacks(&pid, &["--json"])?;
            ensure!(output.status.success(), "{runtime}: {output:?}");
            let stacks: Value = serde_json::from_slice(&output.stdout).context("no JSON")?;
            let frames = frames(named(&stacks, "dynamic")?)?;
            ensure!(
                frames.starts_with(&["Loop ", "Outer ", "Dynamic.Runs"].map(str::to_owned)),
                "{runtime}: {frames:#?}"
            );
        }
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("wall.folded");
        let mut command = corprof()?;
        command.args(["record", "-p", &pid, "--mode", "wall", "--duration", "2", "-o"]).arg(&file);
        let output = command.output()?;
        ensure!(output.status.success(), "{runtime}: {output:?}");
        let folded = fs::read_to_string(&file)?;
        let mut lines = folded.lines().filter(|line| line.contains("Dynamic.Runs("));
        let is_right = |line: &str| line.contains(";Outer (dynamic);Loop (dynamic) ");
        ensure!(lines.clone().count() > 0 && lines.all(is_right), "{runtime}: {folded}");
        let (code, stderr) = program.end()?;
        ensure!(code == Some(0) && !stderr.contains("panicked"), "{runtime}: {code:?}: {stderr}");
    }
    Ok(())
}

/// As with `| head -1`, which may end before the first byte is written, and with `> /dev/full`.
#[test]
fn a_reader_that_has_seen_enough_is_no_failure_and_a_full_disk_is_one() -> Result<()> {
    for runtime in runtimes()? {
        let program = standing(&runtime, &CALM)?;
        let pid = program.child.id().to_string();
        for (question, options) in [("stacks", &[][..]), ("stacks", &["--json"]), ("locks", &["--duration", "0.5"])] {
            let command = || -> Result<Command> {
                let mut command = corprof()?;
                command.arg(question).arg(&pid).args(options).stderr(Stdio::piped());
                Ok(command)
            };
            let (reader, writer) = std::io::pipe()?;
            drop(reader);
            let output = command()?.stdout(writer).output()?;
            let (_, stderr) = texts(&output);
            let is_calm = !stderr.contains("error") && !stderr.contains("panicked");
            ensure!(output.status.success() && is_calm, "{runtime}: {question} {options:?}: {output:?}");

            let full = fs::File::options().write(true).open("/dev/full")?;
            let output = command()?.stdout(full).output()?;
            let (_, stderr) = texts(&output);
            let says = stderr.contains("cannot write to standard output: No space left");
            ensure!(output.status.code() == Some(3) && says, "{runtime}: {question} {options:?}: {output:?}");
        }
        // Each has left the process, which runs on.
        let output = stacks(&pid, &[])?;
        ensure!(output.status.success(), "{runtime}: {output:?}");
        let (code, stderr) = program.end()?;
        ensure!(code == Some(0) && stderr.is_empty(), "{runtime}: {code:?}: {stderr}");
    }
    Ok(())
}

/// The numbers of the lines of a managed source that end in such a comment, by the text of the comment.
fn marked(source: &str) -> BTreeMap<&str, u64> {
    let lines = source.lines().zip(1..);
    lines.filter_map(|(line, number)| Some((line.split_once(" // ")?.1, number))).collect()
}

#[test]
fn lines_are_those_that_the_threads_have_reached() -> Result<()> {
    let source = fs::read_to_string(xtask::managed::modern_dir().join("Lines.cs"))?;
    let marked = marked(&source);
    for runtime in Runtime::all_for_modern("Lines")? {
        if runtime.is_windows() || runtime.is_emulated() {
            continue; // corprof is built for this system
        }
        let program = Program::start(Run::new(&runtime, "Lines").command()?)?;
        program.expect("ready")?;
        let pid = program.child.id().to_string();
        let output = stacks(&pid, &["--json"])?;
        ensure!(output.status.success(), "{runtime}: {output:?}");
        let found: Value = serde_json::from_slice(&output.stdout).context("no JSON")?;
        for name in ["plain", "branch", "generic", "catch", "lambda", "awaiter", "busy"] {
            let thread = named(&found, name)?;
            let frames = thread["frames"].as_array().context("no frames")?;
            let mut own = frames.iter().filter(|frame| frame["method"].as_str().is_some_and(|it| it.contains("Lines")));
            let mut is_at = |mark: &str| -> Result<()> {
                let frame = own.next().with_context(|| format!("{runtime}: no frame for {mark}: {thread}"))?;
                let line = marked.get(mark).with_context(|| format!("no line is marked by {mark}"))?;
                ensure!(frame["line"] == *line, "{runtime}: {mark} is line {line}: {thread}");
                let file = frame["file"].as_str().context("no file")?;
                ensure!(file.ends_with("/Lines.cs"), "{runtime}: {mark}: {thread}");
                Ok(())
            };
            // While a catch block runs, the runtime shows its method where it has left the try block.
            is_at(if name == "catch" { "thrown by catch" } else { name })?;
            if name == "plain" {
                is_at("by plain")?;
            }
            // The framework has no PDB beside it.
            let others =
                frames.iter().filter(|frame| frame["method"].as_str().is_some_and(|it| it.starts_with("System.")));
            for frame in others {
                ensure!(frame["line"].is_null() && frame["file"].is_null(), "{runtime}: {thread}");
            }
        }
        let (text, _) = texts(&stacks(&pid, &[])?);
        let line = format!("  > Lines.Waits(int) in Lines.cs:{}\n", marked["plain"]);
        ensure!(text.contains(&line), "{runtime}: {line}: {text}");
        let (code, stderr) = program.end()?;
        ensure!(code == Some(0) && stderr.is_empty(), "{runtime}: {code:?}: {stderr}");
    }
    Ok(())
}

/// A thread waits for an object of a class that another one holds.
type Edge = (String, &'static str, String);

/// The waits that a program has by construction: of each, who waits, for what, and who holds it.
fn edges(expected: &[(&str, &'static str, &str)]) -> Vec<Edge> {
    let edge =
        |(waiter, class, owner): &(&str, &'static str, &str)| ((*waiter).to_owned(), *class, (*owner).to_owned());
    let mut edges: Vec<Edge> = expected.iter().map(edge).collect();
    edges.sort();
    edges
}

/// Runs a program until its threads stand, and compares who waits for whom, and the deadlock if there is one. Returns
/// the text.
fn waits_are(runtime: &Runtime, app: &str, mode: &str, expected: &[(&str, &'static str, &str)]) -> Result<String> {
    let mut command = Run::new(runtime, app).command()?;
    command.arg(mode);
    let program = Program::start(command)?;
    program.expect("ready")?;
    let pid = program.child.id().to_string();
    let output = stacks(&pid, &["--json"])?;
    ensure!(output.status.success(), "{runtime}: {mode}: {output:?}");
    let json: Value = serde_json::from_slice(&output.stdout).context("no JSON")?;
    let name_of = |id: &Value| -> Result<String> {
        let threads = json["threads"].as_array().context("no threads")?;
        let thread = threads.iter().find(|thread| thread["id"] == *id).with_context(|| format!("no thread {id}"))?;
        Ok(thread["name"].as_str().unwrap_or_default().to_owned())
    };
    let locks = &json["locks"];
    ensure!(locks["sees_monitors"] == true && locks["error"].is_null(), "{runtime}: {mode}: {json}");
    ensure!(locks["unknown"].as_array().is_some_and(Vec::is_empty), "{runtime}: {mode}: {json}");
    let mut found = Vec::new();
    for wait in locks["waits"].as_array().context("no waits")? {
        ensure!(wait["has_limit"] == (mode == "limited"), "{runtime}: {mode}: {json}");
        let class = wait["class"].as_str().context("no class")?;
        let known = expected.iter().find(|(_, known, _)| *known == class);
        let (_, class, _) = known.with_context(|| format!("{runtime}: {mode}: {class}: {json}"))?;
        found.push((name_of(&wait["waiter"])?, *class, name_of(&wait["owner"])?));
    }
    found.sort();
    ensure!(found == edges(expected), "{runtime}: {mode}: {found:?}: {json}");
    let mut in_cycles = Vec::new();
    for id in json["deadlocks"]
        .as_array()
        .context("no deadlocks")?
        .iter()
        .flat_map(|one| one.as_array().into_iter().flatten())
    {
        in_cycles.push(name_of(id)?);
    }
    in_cycles.sort();
    let mut circle: Vec<&str> =
        expected.iter().map(|(waiter, ..)| *waiter).filter(|name| name.starts_with("circle")).collect();
    circle.sort_unstable();
    ensure!(in_cycles == circle, "{runtime}: {mode}: {in_cycles:?}: {json}");
    let (text, stderr) = texts(&stacks(&pid, &[])?);
    let says = text.contains(&format!("\ndeadlock: {} threads wait for each other", circle.len()));
    ensure!(says != circle.is_empty(), "{runtime}: {mode}: {text}");
    ensure!(!stderr.contains("has not detached"), "{runtime}: {mode}: {stderr}");
    let (code, stderr) = program.end()?;
    ensure!(code == Some(0) && stderr.is_empty(), "{runtime}: {mode}: {code:?}: {stderr}");
    Ok(text)
}

const ACCOUNT: &str = "Deadlocks.Account";
const LEDGER: &str = "Deadlocks.Ledger<int>";
const LOCK: &str = "System.Threading.Lock";

#[test]
fn threads_that_wait_for_each_others_monitors_are_a_deadlock() -> Result<()> {
    for runtime in runtimes()? {
        let two = [("circle 0", LEDGER, "circle 1"), ("circle 1", ACCOUNT, "circle 0")];
        let text = waits_are(&runtime, "Deadlocks", "two", &two)?;
        for said in [
            "\" holds an object of Deadlocks.Account (",
            ", and waits for an object of Deadlocks.Ledger<int> (",
            "    > Deadlocks.Wants(",
        ] {
            ensure!(text.contains(said), "{runtime}: {said}: {text}");
        }
        let ring =
            [("circle 0", LEDGER, "circle 1"), ("circle 1", "int[]", "circle 2"), ("circle 2", ACCOUNT, "circle 0")];
        waits_are(&runtime, "Deadlocks", "ring", &ring)?;
        let text = waits_are(&runtime, "Deadlocks", "limited", &two)?;
        ensure!(text.contains("until a time limit ends") && text.contains(" for a limited time "), "{runtime}: {text}");
        let again = [two[0], two[1], ("last", "System.Object", "keeper")];
        waits_are(&runtime, "Deadlocks", "again", &again)?;
    }
    Ok(())
}

/// tests/managed/Deadlocks.cs with this argument, which goes on, and what `corprof locks` says of it.
fn locks_of(runtime: &Runtime, argument: &str) -> Result<(Program, Value)> {
    let mut command = Run::new(runtime, "Deadlocks").command()?;
    command.arg(argument);
    let program = Program::start(command)?;
    program.expect("ready")?;
    let pid = program.child.id().to_string();
    let output = corprof()?.args(["locks", &pid, "--duration", "0.5", "--json"]).output()?;
    let (stdout, stderr) = texts(&output);
    ensure!(output.status.success(), "{runtime}: {stderr}");
    let json: Value = serde_json::from_str(&stdout)?;
    Schema::read()?.check("locks", &json)?;
    Ok((program, json))
}

#[test]
fn locks_tells_of_waits_that_began_before_as_well() -> Result<()> {
    for runtime in runtimes()? {
        let (program, json) = locks_of(&runtime, "again")?;
        let edge = |wait: &Value| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            [text(&wait["waiter"]["name"]), text(&wait["class"]), text(&wait["owner"]["name"])]
        };
        let deadlocks = json["deadlocks"].as_array().context("no deadlocks")?;
        let circles: Vec<Vec<_>> =
            deadlocks.iter().map(|waits| waits.as_array().into_iter().flatten().map(edge).collect()).collect();
        let circle = [["circle 0", LEDGER, "circle 1"], ["circle 1", ACCOUNT, "circle 0"]];
        ensure!(circles.len() == 1 && circles[0] == circle, "{runtime}: {json}");
        let frames = json["deadlocks"][0][0]["waiter"]["frames"].as_array().context("no frames")?;
        let is_there =
            |frame: &Value| frame["method"].as_str().is_some_and(|name| name.starts_with("Deadlocks.Wants("));
        ensure!(frames.iter().any(is_there), "{runtime}: {json}");
        let others: Vec<_> = json["began_before"].as_array().into_iter().flatten().map(edge).collect();
        ensure!(others == [["last", "System.Object", "keeper"]], "{runtime}: {json}");
        let owner = json["began_before"][0]["owner"]["frames"].as_array().context("no frames")?;
        let keeps = |frame: &Value| frame["method"].as_str().is_some_and(|name| name.starts_with("Deadlocks."));
        ensure!(owner.iter().any(keeps), "{runtime}: where the owner is now: {json}");
        let output = corprof()?.args(["locks", &program.child.id().to_string(), "--duration", "0.2"]).output()?;
        let (stdout, _) = texts(&output);
        ensure!(stdout.starts_with("deadlock: 2 threads wait for each other\n"), "{runtime}: {stdout}");
        ensure!(stdout.contains("\nwaits that began before:\n"), "{runtime}: {stdout}");
        let (_, beside) = stdout.split_once("\n  owner of the lock: thread ").context("no owner")?;
        ensure!(beside.lines().skip(1).take(8).any(|line| line.contains("Deadlocks.")), "{runtime}: {stdout}");
        let (code, stderr) = program.end()?;
        ensure!(code == Some(0) && stderr.is_empty(), "{runtime}: {code:?}: {stderr}");
    }
    Ok(())
}

/// Nobody owns a semaphore. The page has the stacks as well.
#[test]
fn locks_tells_who_waits_for_a_semaphore() -> Result<()> {
    for runtime in runtimes()? {
        let folder = tempfile::tempdir()?;
        let page = folder.path().join("locks.html");
        let (program, json) = locks_of(&runtime, "semaphore")?;
        let wait = &json["semaphores"][0];
        let method = wait["method"].as_str().unwrap_or_default();
        ensure!(wait["threads"] == 2 && method.starts_with("Deadlocks.WantsSemaphore("), "{runtime}: {json}");
        let output = corprof()?
            .args(["locks", &program.child.id().to_string(), "--duration", "0.5", "-o"])
            .arg(&page)
            .output()?;
        let (stdout, _) = texts(&output);
        ensure!(
            stdout.contains("2 threads wait for a SemaphoreSlim in Deadlocks.WantsSemaphore("),
            "{runtime}: {stdout}"
        );
        let page = fs::read_to_string(&page)?;
        ensure!(page.contains("2 for a SemaphoreSlim: thread ") && page.contains("Who waits for whom"), "{runtime}");
        program.end()?;
    }
    Ok(())
}

#[test]
fn threads_that_wait_for_one_that_sleeps_are_no_deadlock() -> Result<()> {
    for runtime in runtimes()? {
        let waiters = ["waiter 0", "waiter 1", "waiter 2", "waiter 3"].map(|waiter| (waiter, ACCOUNT, "sleeper"));
        let text = waits_are(&runtime, "Deadlocks", "one", &waiters)?;
        ensure!(text.contains("\n4 threads wait for an object of Deadlocks.Account ("), "{runtime}: {text}");
        ensure!(text.contains("\n4 threads wait: "), "{runtime}: {text}");
        waits_are(&runtime, "Deadlocks", "none", &[])?;
        waits_are(&runtime, "Deadlocks", "waits", &[("last", ACCOUNT, "sleeper")])?;
    }
    Ok(())
}

#[test]
fn threads_that_take_turns_are_never_a_deadlock() -> Result<()> {
    for runtime in runtimes()? {
        let mut command = Run::new(&runtime, "Deadlocks").command()?;
        command.arg("busy");
        let program = Program::start(command)?;
        program.expect("ready")?;
        let end = Instant::now() + PATIENCE;
        let mut looks = 0;
        let mut seen = 0;
        // Now and then all of them have moved on meanwhile.
        let least = repetitions(4, 300);
        while looks < least || seen == 0 {
            let output = stacks(&program.child.id().to_string(), &["--json"])?;
            ensure!(output.status.success(), "{runtime}: {output:?}");
            let json: Value = serde_json::from_slice(&output.stdout).context("no JSON")?;
            ensure!(json["deadlocks"].as_array().is_some_and(Vec::is_empty), "{runtime}: {json}");
            for wait in json["locks"]["waits"].as_array().context("no waits")? {
                let class = wait["class"].as_str().context("no class")?;
                ensure!([ACCOUNT, LEDGER, "int[]"].contains(&class), "{runtime}: {class}: {json}");
                ensure!(wait["waiter"] != wait["owner"], "{runtime}: {json}");
                seen += 1;
            }
            looks += 1;
            ensure!(Instant::now() < end, "{runtime}: in {looks} looks no thread waits: {json}");
        }
        let (code, stderr) = program.end()?;
        ensure!(code == Some(0) && stderr.is_empty(), "{runtime}: {code:?}: {stderr}");
    }
    Ok(())
}

/// The stack of the thread that holds a lock is of the moment at which it does.
#[test]
fn the_owner_of_a_lock_stands_where_it_holds_it() -> Result<()> {
    for runtime in runtimes()? {
        let program = Program::start(Run::new(&runtime, "Deadlocks").args(["turns"]).command()?)?;
        program.expect("ready")?;
        let pid = program.child.id().to_string();
        let mut standing = 0;
        // On a busy machine, most owners have run.
        for look in 0..60 {
            if look >= 10 && standing > 0 {
                break;
            }
            let output = stacks(&pid, &["--json"])?;
            ensure!(output.status.success(), "{runtime}: {output:?}");
            let json: Value = serde_json::from_slice(&output.stdout).context("no JSON")?;
            let threads = json["threads"].as_array().context("no threads")?;
            let waits = json["locks"]["waits"].as_array().context("no waits")?;
            for wait in waits.iter().filter(|wait| wait["owner_has_run"] == false) {
                let owner = threads.iter().find(|thread| thread["id"] == wait["owner"]).context("no owner")?;
                let holds = frames(owner)?.iter().any(|frame| frame.contains("Deadlocks.Holds"));
                ensure!(holds, "{runtime}: {wait}: {owner}: {json}");
                standing += 1;
            }
        }
        ensure!(standing > 0, "{runtime}: every owner has run");
        program.end()?;
    }
    Ok(())
}

#[test]
fn locks_of_the_class_lock_are_seen_as_well() -> Result<()> {
    let source = fs::read_to_string(xtask::managed::modern_dir().join("LockDeadlocks.cs"))?;
    let marked = marked(&source);
    for runtime in Runtime::all_for_modern("LockDeadlocks")? {
        if runtime.is_windows() || runtime.is_emulated() {
            continue; // corprof is built for this system
        }
        let two = [("circle 0", LOCK, "circle 1"), ("circle 1", LOCK, "circle 0")];
        waits_are(&runtime, "LockDeadlocks", "two", &two)?;
        const OBJECT: &str = "LockDeadlocks.Account";
        let text = waits_are(&runtime, "LockDeadlocks", "mixed", &[two[0], ("circle 1", OBJECT, "circle 0")])?;
        let (_, deadlock) = text.split_once("\ndeadlock: ").context("no deadlock")?;
        let (_, waits) = deadlock.split_once(" \"circle 1\" waits\n").context("no stack")?;
        let own = waits.lines().find(|line| line.starts_with("    > ")).context("no frame")?;
        let wants = format!("    > LockDeadlocks.Hold(object, System.Action) in LockDeadlocks.cs:{}", marked["wants"]);
        ensure!(own == wants, "{runtime}: {wants}: {text}");
        let ring = [("circle 0", OBJECT, "circle 1"), ("circle 1", LOCK, "circle 2"), ("circle 2", LOCK, "circle 0")];
        waits_are(&runtime, "LockDeadlocks", "ring", &ring)?;
        waits_are(&runtime, "LockDeadlocks", "again", &[two[0], two[1], ("last", LOCK, "keeper")])?;
        let waiters = ["waiter 0", "waiter 1", "waiter 2", "waiter 3"].map(|waiter| (waiter, LOCK, "sleeper"));
        waits_are(&runtime, "LockDeadlocks", "one", &waiters)?;
        waits_are(&runtime, "LockDeadlocks", "none", &[])?;
    }
    Ok(())
}

#[test]
fn what_cannot_be_looked_at_is_said() -> Result<()> {
    for runtime in runtimes()?.into_iter().take(1) {
        let refused = |pid: &str, code: i32, said: &str| -> Result<()> {
            let output = stacks(pid, &[])?;
            ensure!(output.status.code() == Some(code) && output.stdout.is_empty(), "{said}: {output:?}");
            ensure!(texts(&output).1.contains(said), "{said}: {output:?}");
            Ok(())
        };
        refused("4194304", 3, "there is no process 4194304")?; // above the highest number of Linux
        refused(&std::process::id().to_string(), 3, "no diagnostics port")?;

        let stopped = standing(&runtime, &CALM)?;
        let pid = stopped.child.id().to_string();
        let signal = |name: &str| std::process::Command::new("kill").args([name, &pid]).status();
        signal("-STOP")?;
        let answer = refused(&pid, 1, &format!("kill -CONT {pid}"));
        signal("-CONT")?;
        answer?;
        stopped.end()?;

        let mut command = Run::new(&runtime, "Diagnosed").command()?;
        command.env("DOTNET_EnableDiagnostics", "0");
        let disabled = Program::start(command)?;
        disabled.expect("ready")?;
        refused(&disabled.child.id().to_string(), 3, "DOTNET_EnableDiagnostics")?;
    }
    Ok(())
}

/// The callers by construction, and with --physical none of them: of methods that run for the first time, and of
/// optimised ones, in which the methods of boxes are inlined into each other.
#[test]
fn awaiting_callers_stand_under_methods_that_hang() -> Result<()> {
    for runtime in Runtime::all_for_modern("HangingMachines")? {
        if runtime.is_windows() || runtime.is_emulated() {
            continue; // corprof is built for this system
        }
        // .NET 11 makes boxes of another class while somebody listens to async operations.
        let trace = tempfile::NamedTempFile::new()?;
        let trace = trace.path().to_str().context("UTF-8")?;
        let listener = [
            ("DOTNET_EnableEventPipe", "1"),
            ("DOTNET_EventPipeOutputPath", trace),
            ("DOTNET_EventPipeConfig", "System.Runtime.CompilerServices.AsyncProfilerEventSource:0x3FFFF:4"),
        ];
        let without = &[][..];
        // There a box whose result is a reference is not recognised.
        let unknown = u64::from(runtime.major == 8);
        for env in repetitions(&[&listener[..]][..], &[&listener, without]) {
            let found = check_awaiting_callers(&runtime, &[], env)?;
            ensure!(found == unknown, "{runtime}: of {found} threads the callers are not known, with {env:?}");
        }
        // Boxes are not seen whose methods are inlined into those of the thread pool.
        for env in repetitions(&[without][..], &[without, &listener]) {
            let found = check_awaiting_callers(&runtime, &["warm", "1000"], env).context("optimised")?;
            ensure!(found < 4, "{runtime}: of no thread the callers are known, with {env:?}");
        }
    }
    Ok(())
}

/// The frames below the method that hangs. `--physical` shows none of inlined methods.
fn below_hangs(thread: &Value) -> Result<Vec<String>> {
    let mut thread = thread.clone();
    let frames_of = thread["frames"].as_array_mut().context("no frames")?;
    frames_of.retain(|frame| !frame["method"].as_str().unwrap_or_default().ends_with("(inlined)"));
    let mut frames = frames(&thread)?;
    let place = frames.iter().position(|frame| frame == "Hanging.Hangs").with_context(|| format!("{frames:#?}"))?;
    Ok(frames.split_off(place + 1))
}

/// Returns of how many threads they are not known: as many have none.
fn check_awaiting_callers(runtime: &Runtime, args: &[&str], env: &[(&str, &str)]) -> Result<u64> {
    let callers = [
        ("of first", ["Hanging.<Leaf>", "Hanging.<Load>", "Hanging.<First>"].as_slice()),
        ("of second", &["Hanging.<Leaf>", "Hanging.<Load>", "Hanging.<Second>"]),
        ("of third", &["Hanging.<Text>", "Hanging.<Third>"]),
        ("of fifth", &["Hanging.<Fourth>", "Hanging.<Fifth>"]),
    ];
    let run = Run::new(runtime, "HangingMachines").args(args);
    let run = env.iter().fold(run, |run, (name, value)| run.env(name, value));
    let program = Program::start(run.command()?)?;
    program.expect("ready")?;
    let pid = program.child.id().to_string();
    let output = stacks(&pid, &["--json", "--raw-names"])?;
    ensure!(output.status.success(), "{runtime}: {output:?}");
    let found: Value = serde_json::from_slice(&output.stdout).context("no JSON")?;
    ensure!(found["callers_by_runtime"] == 0, "{runtime}: {found}");
    let mut unknown = 0;
    let physical = stacks(&pid, &["--json", "--raw-names", "--physical"])?;
    let physical: Value = serde_json::from_slice(&physical.stdout).context("no JSON")?;
    for (name, expected) in callers {
        let of_thread = frames(named(&physical, name)?)?;
        let caller = expected.last().context("no caller")?;
        ensure!(!of_thread.iter().any(|frame| frame.starts_with(caller)), "{runtime}: {name}: {of_thread:#?}");
        let under = below_hangs(named(&found, name)?)?;
        if under == below_hangs(named(&physical, name)?)? {
            unknown += 1;
            continue;
        }
        let is_same = under.len() == expected.len() && under.iter().zip(expected).all(|(a, b)| a.starts_with(b));
        ensure!(is_same, "{runtime}: {name}: {under:#?}");
        ensure!(of_thread.iter().any(|frame| frame.contains("StateMachineBox")), "{runtime}: {name}: {of_thread:#?}");
    }
    ensure!(found["callers_unknown"] == unknown, "{runtime}: {unknown} are not known: {found}");
    let (code, stderr) = program.end()?;
    ensure!(code == Some(0) && stderr.is_empty(), "{runtime}: {code:?}: {stderr}");
    Ok(unknown)
}
