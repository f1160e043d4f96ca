//! `corprof stacks`.

use serde_json::Value;

use super::*;

/// A run of tests/managed/Standing.cs whose threads stand where they are to stand.
fn standing(runtime: &Runtime) -> Result<Program> {
    let program = Program::start(Run::new(runtime, "Standing").command()?)?;
    program.expect("ready")?;
    Ok(program)
}

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
    let name = |frame: &Value| frame.as_str().unwrap_or_default().split('(').next().unwrap_or_default().to_owned();
    Ok(frames.iter().map(name).collect())
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
        let program = standing(&runtime)?;
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
        ensure!(first.contains("    Standing.First"), "{runtime}: {stdout}");
        ensure!(!stderr.contains("has not detached"), "{runtime}: {stderr}");
        let (code, stderr) = program.end()?;
        ensure!(code == Some(0) && !stderr.contains("panicked"), "{runtime}: {code:?}: {stderr}");
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

        let mut command = Run::new(&runtime, "Diagnosed").command()?;
        command.env("DOTNET_EnableDiagnostics", "0");
        let disabled = Program::start(command)?;
        disabled.expect("ready")?;
        refused(&disabled.child.id().to_string(), 3, "DOTNET_EnableDiagnostics")?;
    }
    Ok(())
}
