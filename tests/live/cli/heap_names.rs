//! The names that reports about the heap have for classes that a compiler has made, on
//! tests/managed/modern/Captured.cs.

use corprof_tests::{ensure_or_longer, patiently};

use super::*;

/// How the classes are named, and how many have a name that begins so.
const CLASSES: [(&str, usize); 6] = [
    ("Captured.Load (closure)", 1),
    ("Captured.Overloaded (closure): <>c__DisplayClass", 2),
    // That of the outer scope has no lambda.
    ("Captured.Scopes (closure): <>c__DisplayClass", 2),
    ("Captured.Wait (async)", 1),
    ("Captured.Items (iterator)", 1),
    ("Captured.Stream (async iterator)", 1),
];
/// The field of a property, as it was written, and what the compiler has made of it.
const FIELD: (&str, &str) = ("static field Captured.Kept", "static field Captured.<Kept>k__BackingField");

fn runtimes() -> Result<Vec<Runtime>> {
    let all = Runtime::all_for_modern("Captured")?;
    Ok(all.into_iter().filter(|runtime| !runtime.is_windows() && !runtime.is_emulated()).collect())
}

/// The text that `corprof heap` prints.
fn heap(arguments: &[&str]) -> Result<String> {
    let output = corprof()?.arg("heap").args(arguments).output()?;
    let (stdout, stderr) = texts(&output);
    ensure!(output.status.success(), "{arguments:?}: {stdout}{stderr}");
    Ok(stdout)
}

/// The classes of a report in JSON.
fn classes(report: &str) -> Result<Vec<String>> {
    let report: serde_json::Value = serde_json::from_str(report)?;
    let classes = report["classes"].as_array().context("no classes")?;
    Ok(classes.iter().filter_map(|class| Some(class["name"].as_str()?.to_owned())).collect())
}

/// How many names begin with this one.
fn count(names: &[String], start: &str) -> usize {
    names.iter().filter(|name| name.starts_with(start)).count()
}

fn check_source(names: &[String]) -> Result<()> {
    for (shown, expected) in CLASSES {
        ensure!(count(names, shown) == expected, "{shown}: {names:?}");
    }
    let of_compiler = |name: &&String| name.starts_with("Captured.<") || name.contains("Box<Captured.");
    let raw: Vec<&String> = names.iter().filter(of_compiler).collect();
    ensure!(raw.is_empty(), "{raw:?}");
    // What stays apart has different names.
    let mut sorted: Vec<&String> = names.iter().filter(|name| name.starts_with("Captured.")).collect();
    let all = sorted.len();
    sorted.sort();
    sorted.dedup();
    ensure!(sorted.len() == all, "{names:?}");
    Ok(())
}

#[test]
fn classes_of_the_compiler_have_the_names_of_their_methods() -> Result<()> {
    for runtime in runtimes()? {
        let folder = tempfile::tempdir()?;
        let path = |name: &str| folder.path().join(name).display().to_string();
        let program = Program::start(Run::new(&runtime, "Captured").command()?)?;
        program.expect("ready")?;
        let pid = program.child.id().to_string();
        let [snapshot, later, json, gcdump] = ["a.heap", "b.heap", "a.json", "a.gcdump"].map(path);
        heap(&[&pid, "-o", &snapshot])?;
        heap(&["top", &snapshot, "-o", &json])?;
        let inside = classes(&fs::read_to_string(&json)?)?;
        check_source(&inside).with_context(|| runtime.to_string())?;
        println!("{runtime}: {:?}", inside.iter().filter(|name| name.contains("Captured")).collect::<Vec<_>>());
        // The snapshot has the runtime's, and so have files for other tools.
        heap(&["top", &snapshot, "-o", &json, "--raw-names"])?;
        let raw = classes(&fs::read_to_string(&json)?)?;
        ensure!(count(&raw, "Captured.<>c__DisplayClass") == 5 && count(&raw, "Captured.Load") == 0, "{raw:?}");
        heap(&["top", &snapshot, "-o", &gcdump])?;
        let bytes = fs::read(&gcdump)?;
        let has = |name: &str| {
            let wide: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
            bytes.windows(name.len()).any(|window| window == name.as_bytes())
                || bytes.windows(wide.len()).any(|window| window == wide)
        };
        ensure!(has("Captured.<Items>d__") && !has("Captured.Items"), "{runtime}: the names of the .gcdump");

        // Over the port the names come from the files of the modules.
        heap(&[&pid, "--session", "-o", &json])?;
        check_source(&classes(&fs::read_to_string(&json)?)?).with_context(|| format!("{runtime}: --session"))?;

        let text = heap(&["top", &snapshot, "--classes", "500"])?;
        for shown in ["Captured.Load (closure)", "Captured.Wait (async)", FIELD.0] {
            ensure!(text.contains(shown) && !text.contains("Captured.<"), "{runtime}: {shown}: {text}");
        }
        let text = heap(&[&pid, "--raw-names"])?;
        ensure!(text.contains(FIELD.1) && !text.contains(FIELD.0), "{runtime}: {text}");

        thread::sleep(Duration::from_millis(300));
        heap(&[&pid, "-o", &later])?;
        for more in [&[][..], &["--json"]] {
            let diff = |raw: &[&str]| heap(&[&["diff", &snapshot, &later, "--count", "500"], more, raw].concat());
            let text = diff(&[])?;
            ensure!(text.contains("Captured.Load (closure)") && !text.contains("Captured.<"), "{runtime}: {text}");
            let text = diff(&["--raw-names"])?;
            ensure!(!text.contains("Captured.Load (closure)") && text.contains("Captured.<"), "{runtime}: {text}");
        }
        program.end()?;
    }
    Ok(())
}

#[test]
fn the_class_of_a_state_machine_is_told_from_its_box() -> Result<()> {
    for runtime in runtimes()? {
        let folder = tempfile::tempdir()?;
        let json = folder.path().join("a.json").display().to_string();
        let program = Program::start(Run::new(&runtime, "CapturedDebug").command()?)?;
        program.expect("ready")?;
        heap(&[&program.child.id().to_string(), "-o", &json])?;
        let names = classes(&fs::read_to_string(&json)?)?;
        for name in ["Captured.Wait (async)", "Captured.Wait (async state machine)", "Captured.Stream (async iterator)"]
        {
            ensure!(names.iter().filter(|shown| *shown == name).count() == 1, "{runtime}: {name}: {names:?}");
        }
        program.end()?;
    }
    Ok(())
}

#[test]
fn leaks_names_them_as_heap_does() -> Result<()> {
    patiently(runtimes()?, |runtime, times| {
        let program = Program::start(Run::new(runtime, "Captured").command()?)?;
        program.expect("ready")?;
        let pid = program.child.id().to_string();
        let seconds = times.to_string();
        let leaks = |more: &[&str]| {
            let mut command = corprof()?;
            command.args(["leaks", &pid, "--first", "0", "--duration", &seconds, "--top", "100"]).args(more);
            let output = command.output()?;
            let (stdout, stderr) = texts(&output);
            ensure!(output.status.success(), "{runtime}: {stdout}{stderr}");
            Ok(stdout)
        };
        for more in [&[][..], &["--json"]] {
            let text = leaks(more)?;
            for name in ["Captured.Load (closure)", "Captured.Wait (async)", "Captured.Items (iterator)", FIELD.0] {
                ensure_or_longer!(text.contains(name), "{runtime}: {name}: {text}");
            }
            ensure!(!text.contains("Captured.<"), "{runtime}: {text}");
        }
        let text = leaks(&["--raw-names"])?;
        ensure_or_longer!(text.contains("Captured.<>c__DisplayClass"), "{runtime}: {text}");
        ensure!(!text.contains("Captured.Load (closure)") && text.contains(FIELD.1), "{runtime}: {text}");
        program.end()?;
        Ok(())
    })
}

#[test]
fn allocations_names_them_as_heap_does() -> Result<()> {
    patiently(runtimes()?, |runtime, times| {
        for is_raw in [false, true] {
            let mut command = corprof()?;
            command.args(["allocations", "--duration", &times.to_string(), "--top", "1000"]);
            command.args(is_raw.then_some("--raw-names")).arg("--").args(application(runtime, "Captured")?);
            let output = command.stdin(Stdio::null()).output()?;
            let text = texts(&output).1 + &texts(&output).0;
            for (shown, raw) in [
                ("  Captured.Load (closure)\n", "  Captured.<>c__DisplayClass"),
                ("  Captured.Wait (async)\n", "AsyncStateMachineBox<Captured.<Wait>d__"),
                ("  Captured.Items (iterator)\n", "  Captured.<Items>d__"),
            ] {
                let (wanted, other) = if is_raw { (raw, shown) } else { (shown, raw) };
                ensure!(!text.contains(other), "{runtime}: raw: {is_raw}: {other}: {text}");
                ensure_or_longer!(text.contains(wanted), "{runtime}: raw: {is_raw}: {wanted}: {text}");
            }
        }
        Ok(())
    })
}

/// The events of samples name a nested class without the classes around it.
#[test]
fn allocations_of_a_running_process_names_them_too() -> Result<()> {
    patiently(runtimes()?, |runtime, times| {
        let program = Program::start(Run::new(runtime, "Captured").args(["fast"]).command()?)?;
        program.expect("ready")?;
        let pid = program.child.id().to_string();
        let seconds = times.to_string();
        for is_raw in [false, true] {
            let mut command = corprof()?;
            command.args(["allocations", &pid, "--duration", &seconds, "--top", "1000"]);
            let output = command.args(is_raw.then_some("--raw-names")).output()?;
            let (stdout, stderr) = texts(&output);
            ensure!(output.status.success(), "{runtime}: {stdout}{stderr}");
            let wanted = if is_raw { "  Captured.<>c__DisplayClass" } else { "  Captured.Load (closure)\n" };
            ensure_or_longer!(stdout.contains(wanted), "{runtime}: raw: {is_raw}: {stdout}{stderr}");
            ensure!(!stdout.contains("  <>c__DisplayClass"), "{runtime}: raw: {is_raw}: {stdout}");
        }
        program.end()?;
        Ok(())
    })
}
