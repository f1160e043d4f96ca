//! `corprof heap` on a program whose heap is known: tests/managed/Heap.cs.

use std::path::Path;

use serde_json::Value;

use super::*;

/// Bytes of a node: header, class, two references; and of its array: header, class, length, 16 bytes.
const NODE: u64 = 32;
const ARRAY: u64 = 40;
const NODES: u64 = 200_000;

fn heap(runtime: &Runtime, nodes: u64) -> Result<Program> {
    let program = Program::start(Run::new(runtime, "Heap").args([nodes.to_string()]).command()?)?;
    program.expect("ready")?;
    Ok(program)
}

fn corprof_heap(arguments: &[&str]) -> Result<(Option<i32>, String, String)> {
    let output = corprof()?.arg("heap").args(arguments).output()?;
    let (stdout, stderr) = texts(&output);
    Ok((output.status.code(), stdout, stderr))
}

/// Takes a snapshot into a file, and returns the command's output.
fn snapshot(program: &Program, file: &Path, more: &[&str]) -> Result<String> {
    let pid = program.child.id().to_string();
    let file = file.to_str().context("a path is text")?;
    let (code, stdout, stderr) = corprof_heap(&[&[&pid, "-o", file][..], more].concat())?;
    ensure!(code == Some(0), "{code:?}: {stdout}{stderr}");
    Ok(stderr)
}

/// Objects, shallow and retained bytes of a class in a report.
fn class(report: &Value, name: &str) -> Result<(u64, u64, u64)> {
    let classes = report["classes"].as_array().context("no classes")?;
    let row =
        classes.iter().find(|class| class["name"] == name).with_context(|| format!("no class {name}: {report}"))?;
    let number = |field: &str| row[field].as_u64().context("no number");
    Ok((number("objects")?, number("shallow")?, number("retained")?))
}

fn report(file: &Path) -> Result<Value> {
    Ok(serde_json::from_str(&std::fs::read_to_string(file)?)?)
}

#[test]
fn a_heap_of_known_shape_is_told_as_it_is() -> Result<()> {
    for runtime in speaking()? {
        let dir = tempfile::tempdir()?;
        let program = heap(&runtime, NODES)?;
        let json = dir.path().join("heap.json");
        let told = snapshot(&program, &json, &[])?;
        println!("{runtime}: {told}");
        ensure!(told.contains("forced; the application stood still for"), "{told}");
        let report = report(&json)?;
        ensure!(report["title"] == "Heap", "{}", report["title"]);
        ensure!(
            class(&report, "Node")? == (NODES, NODES * NODE, NODES * (NODE + ARRAY)),
            "{:?}",
            class(&report, "Node")
        );
        let of_node = report["classes"].as_array().and_then(|all| all.iter().find(|class| class["name"] == "Node"));
        ensure!(of_node.is_some_and(|class| class["assembly"] == "Heap"), "{of_node:?}");
        // Each of the two would keep it alive without the other, so neither retains it.
        ensure!(class(&report, "Holder")? == (2, 48, 48), "{:?}", class(&report, "Holder"));
        ensure!(class(&report, "Shared")? == (1, 24, 24 + 1024), "{:?}", class(&report, "Shared"));
        // 5,000 bytes and the array's header.
        ensure!(class(&report, "Secret")? == (1, 24, 24 + 5024), "{:?}", class(&report, "Secret"));
        let largest = &report["largest"][0];
        ensure!(largest["class"] == "Node", "{largest}");
        ensure!(largest["retained"] == NODES * (NODE + ARRAY), "{largest}");
        let path = largest["path"].to_string();
        ensure!(path.contains("static field") && path.contains("nodes"), "{path}");

        // The names of types come every time, though a runtime reports each only once.
        let again = dir.path().join("again.json");
        snapshot(&program, &again, &[])?;
        let again = self::report(&again)?;
        ensure!(class(&again, "Node")?.0 == NODES, "{again}");
        let unnamed = again["classes"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|class| class["name"].as_str().is_none_or(|name| name.starts_with("(class")));
        ensure!(unnamed.count() == 0, "{again}");
    }
    Ok(())
}

#[test]
fn a_second_snapshot_tells_what_has_grown() -> Result<()> {
    for runtime in speaking()? {
        let dir = tempfile::tempdir()?;
        let mut program = heap(&runtime, 1000)?;
        let [before, after] = ["before.heap", "after.heap"].map(|name| dir.path().join(name));
        snapshot(&program, &before, &[])?;
        program.tell("grow 5000")?;
        snapshot(&program, &after, &[])?;
        let [before, after] = [&before, &after].map(|path| path.to_str().unwrap_or_default());

        let (code, stdout, stderr) = corprof_heap(&["diff", "--json", before, after])?;
        ensure!(code == Some(0), "{stderr}");
        let changes: Value = serde_json::from_str(&stdout)?;
        let classes = changes["classes"].as_array().context("no classes")?;
        let node = classes.iter().find(|class| class["name"] == "Node").context(stdout.clone())?;
        ensure!(node["object_growth"] == 5000 && node["retained_growth"] == 5000 * (NODE + ARRAY), "{node}");
        let (code, stdout, _) = corprof_heap(&["diff", before, after])?;
        ensure!(code == Some(0) && stdout.contains("Node"), "{stdout}");

        let (code, stdout, _) = corprof_heap(&["top", after])?;
        ensure!(code == Some(0) && stdout.contains("Heap of Heap") && stdout.contains("Node  [Heap]"), "{stdout}");
        for name in ["x.pftrace", "x.gcdump", "x.heapsnapshot", "x.html", "x.txt"] {
            let file = dir.path().join(name);
            let (code, _, stderr) = corprof_heap(&["top", after, "-o", file.to_str().unwrap_or_default()])?;
            ensure!(code == Some(0), "{name}: {stderr}");
            let bytes = std::fs::read(&file)?;
            ensure!(bytes.windows(4).any(|window| window == b"Node"), "{name} does not name the class");
        }
    }
    Ok(())
}

#[test]
fn a_dump_is_whole_or_an_error() -> Result<()> {
    for runtime in speaking()? {
        let dir = tempfile::tempdir()?;
        let program = heap(&runtime, NODES)?;
        let file = dir.path().join("heap.json");
        let pid = program.child.id().to_string();
        // 18 MB through a buffer of one: whether events are lost is a matter of luck, that it is noticed is not.
        let path = file.to_str().context("a path is text")?;
        let (code, _, stderr) = corprof_heap(&[&pid, "-o", path, "--buffer-mb", "1"])?;
        println!("{runtime}: {code:?}: {stderr}");
        if code == Some(0) {
            ensure!(class(&report(&file)?, "Node")?.0 == NODES, "{runtime}: a cut dump looks whole");
        } else {
            ensure!(code == Some(3) && stderr.contains("cut") && stderr.contains("--buffer-mb"), "{code:?}: {stderr}");
            ensure!(!file.exists() && std::fs::read_dir(dir.path())?.count() == 0, "{runtime}: a file of a cut dump");
        }
        // The process is as it was.
        snapshot(&program, &file, &[])?;
        ensure!(class(&report(&file)?, "Node")?.0 == NODES, "{runtime}");
        let (code, _, stderr) = corprof_heap(&[&pid, "-o", "nowhere.zip"])?;
        ensure!(code == Some(3) && stderr.contains(".gcdump"), "{code:?}: {stderr}");
    }
    Ok(())
}
