//! `corprof ps`.

use super::*;

fn listed(pid: u32) -> Result<serde_json::Value> {
    let output = corprof()?.args(["ps", "--json", "--wait", "120"]).output()?;
    ensure!(output.status.success(), "{output:?}");
    let lines = texts(&output).0;
    let all = lines.lines().map(serde_json::from_str::<serde_json::Value>).collect::<Result<Vec<_>, _>>()?;
    all.into_iter().find(|process| process["pid"] == pid).with_context(|| format!("{pid} is not listed: {lines}"))
}

#[test]
fn processes_are_listed_with_their_profilers() -> Result<()> {
    for runtime in runtimes()? {
        let plain = diagnosed(&runtime, None)?;
        let process = listed(plain.child.id())?;
        ensure!(process["profiler"] == "none", "{runtime}: {process}");
        ensure!(process["architecture"] == "x64", "{runtime}: {process}");
        let version = process["runtime"].as_str().context("no version")?;
        ensure!(version.starts_with(&format!("{}.", runtime.major)), "{runtime}: {process}");
        ensure!(process["command"].as_str().is_some_and(|line| line.contains("Diagnosed.dll")), "{runtime}: {process}");

        let profiled = diagnosed(&runtime, Some("attached"))?;
        let process = listed(profiled.child.id())?;
        ensure!(process["profiler"] == "mapped", "{runtime}: {process}");
        let library = library(&runtime, "attached")?;
        ensure!(process["libraries"][0] == library.to_string_lossy().as_ref(), "{runtime}: {process}");

        let mut command = Run::new(&runtime, "Diagnosed").profiler("attached").command()?;
        command.env("CORECLR_PROFILER_PATH", "/nowhere/libgone.so");
        let broken = Program::start(command)?;
        broken.expect("ready")?;
        let process = listed(broken.child.id())?;
        ensure!(process["profiler"] == "configured", "{runtime}: {process}");

        let output = corprof()?.args(["ps", "--wait", "120"]).output()?;
        let table = texts(&output).0;
        for (pid, word) in
            [(plain.child.id(), " - "), (profiled.child.id(), " mapped "), (broken.child.id(), " configured ")]
        {
            let line = table.lines().find(|line| line.trim_start().starts_with(&format!("{pid} ")));
            ensure!(line.is_some_and(|line| line.contains(word)), "{runtime}: {table}");
        }
    }
    Ok(())
}
