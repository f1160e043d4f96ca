//! `corprof heap` on a program whose heap is known: tests/managed/Heap.cs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use corprof_heap::{HeapGraph, Root, RootKind};
use corprof_tests::repetitions;
use serde_json::Value;

use super::*;

/// Bytes of a node: header, class, two references; and of its array: header, class, length, 16 bytes.
const NODE: u64 = 32;
const ARRAY: u64 = 40;
const NODES: u64 = 60_000;
/// Enough for a dump that is under way for a while.
const MANY: u64 = 400_000;
/// After this time without a part of the heap the command gives up the end of a dump.
const SILENCE: Duration = Duration::from_secs(30);
/// What the command says if it cannot attach.
const OVER_PORT: &str = "no profiler can attach, so the runtime sends the heap over its port";

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
    for runtime in runtimes()? {
        let dir = tempfile::tempdir()?;
        let program = heap(&runtime, NODES)?;
        let json = dir.path().join("heap.json");
        let told = snapshot(&program, &json, &[])?;
        println!("{runtime}: {told}");
        ensure!(told.contains(" MB written in ") && !told.contains(OVER_PORT), "{told}");
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
        ensure!(path.contains("static field Heap.nodes"), "{path}");

        // The names of types come every time, though a runtime reports each only once.
        let again = dir.path().join("again.json");
        snapshot(&program, &again, &[])?;
        let again = self::report(&again)?;
        ensure!(class(&again, "Node")?.0 == NODES, "{again}");
        let unnamed = again["classes"].as_array().into_iter().flatten().filter(|class| {
            class["name"].as_str().is_none_or(|name| name.starts_with("(class") || name.contains("<unknown"))
        });
        ensure!(unnamed.count() == 0, "{again}");
    }
    Ok(())
}

#[test]
fn a_second_snapshot_tells_what_has_grown() -> Result<()> {
    for runtime in runtimes()? {
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

        let (code, stdout, _) = corprof_heap(&["top", after, "--json"])?;
        let report: Value = serde_json::from_str(&stdout)?;
        ensure!(code == Some(0) && report["classes"].as_array().is_some_and(|classes| !classes.is_empty()), "{stdout}");
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
    for runtime in runtimes()? {
        let dir = tempfile::tempdir()?;
        let program = heap(&runtime, NODES)?;
        let file = dir.path().join("heap.json");
        let pid = program.child.id().to_string();
        // 5 MB through a buffer of one: whether events are lost is a matter of luck, that it is noticed is not.
        let path = file.to_str().context("a path is text")?;
        let (code, _, stderr) = corprof_heap(&[&pid, "-o", path, "--buffer-mb", "1"])?;
        println!("{runtime}: {code:?}: {stderr}");
        ensure!(
            code == Some(0) || !runtime.has(Difference::WaitsWhileBufferIsFull),
            "{runtime} can wait while the buffer is full: {stderr}"
        );
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

/// Each class of a heap, with its assembly and the number of its objects; and the number of roots of each kind that are
/// not of tools.
fn counts(file: &Path) -> Result<(BTreeMap<String, usize>, BTreeMap<RootKind, usize>)> {
    let graph = HeapGraph::read(BufReader::new(std::fs::File::open(file)?))?;
    let mut classes = BTreeMap::new();
    let mut roots = BTreeMap::new();
    for object in graph.objects() {
        let class = graph.class(graph.class_of(object));
        *classes.entry(format!("{} [{}]", class.name, class.assembly)).or_default() += 1;
    }
    // A thread or a handle of a tool that has ended is on the way to its finalizer now, and gone later.
    let is_of_the_program = |root: &&Root| !is_of_the_tools(&graph.class(graph.class_of(root.object)).name);
    for root in graph.roots().iter().filter(is_of_the_program) {
        *roots.entry(root.kind).or_default() += 1;
    }
    Ok((classes, roots))
}

/// What attaching and sessions add to a heap and take from it: threads, event sources, remains of dynamic methods.
fn is_of_the_tools(class: &str) -> bool {
    // On .NET 11 a session leaves a handle for waits.
    let spaces = [
        "System.Diagnostics.Tracing.",
        "System.Threading.",
        "System.Reflection.Emit.",
        "Microsoft.Win32.SafeHandles.SafeWaitHandle",
    ];
    spaces.iter().any(|space| class.contains(space))
}

/// The runtime does not say that these are where it has said, and only one class has a field of the name.
#[test]
fn fields_of_structures_and_of_classes_without_methods_have_their_class() -> Result<()> {
    for runtime in runtimes()? {
        let dir = tempfile::tempdir()?;
        let file = dir.path().join("statics.heap");
        let program = heap(&runtime, 10)?;
        snapshot(&program, &file, &[])?;
        let graph = HeapGraph::read(BufReader::new(std::fs::File::open(&file)?))?;
        for (class, field) in [("Boxed", "static field Boxes.HeldBoxed"), ("Secret[]", "static field Bare.HeldBare")] {
            let of_class = graph.roots().iter().filter(|root| graph.class(graph.class_of(root.object)).name == class);
            let roots: Vec<String> = of_class.map(ToString::to_string).collect();
            ensure!(roots.iter().any(|root| root == field), "{runtime}: {class}: {roots:?}");
        }
    }
    Ok(())
}

#[test]
fn both_ways_tell_the_same() -> Result<()> {
    for runtime in runtimes()? {
        let dir = tempfile::tempdir()?;
        let program = heap(&runtime, 1000)?;
        let [inside, session] = ["inside.heap", "session.heap"].map(|name| dir.path().join(name));
        // The first ones add objects to the heap that stay.
        for _ in 0..2 {
            snapshot(&program, &inside, &[])?;
            let told = snapshot(&program, &session, &["--session"])?;
            ensure!(told.contains(" MB sent in "), "{told}");
        }
        let ((inside, inside_roots), (session, session_roots)) = (counts(&inside)?, counts(&session)?);
        let mut others = Vec::new();
        let classes: BTreeSet<&String> = inside.keys().chain(session.keys()).collect();
        for &class in &classes {
            let [ours, theirs] = [&inside, &session].map(|counts| counts.get(class).copied().unwrap_or_default());
            if ours != theirs {
                others.push(format!("{class}: {ours} and {theirs}"));
                ensure!(is_of_the_tools(class), "{runtime}: {class}: {ours} and {theirs}");
            }
        }
        println!("{runtime}: {} classes; different: {others:?}; {inside_roots:?} {session_roots:?}", classes.len());
        let frozen = [&inside_roots, &session_roots].map(|roots| roots.get(&RootKind::Frozen).copied().unwrap_or(0));
        ensure!(frozen[0] > 10 && frozen[0] == frozen[1], "{runtime}: {frozen:?}");
        let kinds = |roots: &BTreeMap<RootKind, usize>| roots.keys().copied().collect::<BTreeSet<_>>();
        ensure!(kinds(&inside_roots) == kinds(&session_roots), "{runtime}: {inside_roots:?} {session_roots:?}");
        let statics = [&inside_roots, &session_roots].map(|roots| roots.get(&RootKind::Static));
        ensure!(statics[0] == statics[1], "{runtime}: {statics:?}");
        for class in [
            "Outer<int> [Heap]",
            "Outer<string>.Plain [Heap]",
            "Outer<int?>.Inner<Key[], object> [Heap]",
            "Outer<decimal>.Inner<System.Collections.Generic.Dictionary<string, int[]>, \
             System.Collections.Generic.List<Outer<bool>.Plain>>.Innermost [Heap]",
            "int?[] [System.Private.CoreLib]",
            "int[][,] [System.Private.CoreLib]",
            "Outer<byte>.Plain[,][] [Heap]",
            "nint[] [System.Private.CoreLib]",
        ] {
            ensure!(inside.contains_key(class), "{runtime}: {class}: {:?}", inside.keys());
        }
    }
    Ok(())
}

#[test]
fn suspended_methods_are_objects_of_the_same_class_both_ways() -> Result<()> {
    const CONTINUATION: &str = "System.Runtime.CompilerServices.Continuation";
    for runtime in Runtime::all_for_modern("RuntimeAsync")? {
        if runtime.is_windows() || runtime.is_emulated() {
            continue;
        }
        let dir = tempfile::tempdir()?;
        let run = Run::new(&runtime, "RuntimeAsync").args(["1", "hold"]).env("DOTNET_RuntimeAsync", "1");
        let program = Program::start(run.command()?)?;
        program.expect("ready")?;
        let [inside, session] = ["inside.heap", "session.heap"].map(|name| dir.path().join(name));
        snapshot(&program, &inside, &[])?;
        snapshot(&program, &session, &["--session"])?;
        let held = |counts: &BTreeMap<String, usize>| -> BTreeMap<String, usize> {
            let is_held = |class: &str| class.starts_with(CONTINUATION);
            counts.iter().filter(|(class, _)| is_held(class)).map(|(class, count)| (class.clone(), *count)).collect()
        };
        let inside = counts(&inside)?.0;
        let session = counts(&session)?.0;
        let unnamed = inside.keys().find(|class| class.contains("<unknown") || class.starts_with("(class"));
        ensure!(unnamed.is_none(), "{runtime}: {unnamed:?}");
        println!("{runtime}: {:?} and {:?}", held(&inside), held(&session));
        ensure!(held(&inside) == held(&session), "{runtime}: {:?} and {:?}", held(&inside), held(&session));
        ensure!(held(&inside).values().sum::<usize>() >= 100, "{runtime}: {inside:?}");
    }
    Ok(())
}

/// Its threads write the start of a collection after its end, into other blocks of the session.
#[test]
fn the_server_collector_sends_its_heap_each_time() -> Result<()> {
    for runtime in runtimes()? {
        let dir = tempfile::tempdir()?;
        let file = dir.path().join("heap.json");
        let mut run = Run::new(&runtime, "Heap").args(["1000"]).command()?;
        // A heap and a thread for each of two processors, on a machine with one as well.
        run.env("DOTNET_gcServer", "1").env("DOTNET_PROCESSOR_COUNT", "2").env("DOTNET_GCHeapCount", "2");
        let program = Program::start(run)?;
        program.expect("ready")?;
        for _ in 0..5 {
            let begin = Instant::now();
            let told = snapshot(&program, &file, &["--session"])?;
            ensure!(told.contains("1 collection was forced; the application stood still for"), "{runtime}: {told}");
            ensure!(class(&report(&file)?, "Node")?.0 == 1000, "{runtime}: {told}");
            ensure!(begin.elapsed() < SILENCE, "{runtime}: {:?}: {told}", begin.elapsed());
        }
    }
    Ok(())
}

/// A heap that a command is taking a snapshot of: the profiler has opened the file for it. Returns the folder for
/// temporary files.
fn under_way(program: &Program) -> Result<(Child, tempfile::TempDir)> {
    let folder = tempfile::tempdir()?;
    let mut command = corprof()?;
    command.env("TMPDIR", folder.path()).args(["heap", &program.child.id().to_string()]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let end = Instant::now() + PATIENCE;
    loop {
        let own = std::fs::read_dir(folder.path())?.next().transpose()?;
        if own.is_some_and(|own| own.path().join("heap.wanted").exists() && !own.path().join("heap").exists()) {
            return Ok((child, folder));
        }
        if let Some(status) = child.try_wait()? {
            anyhow::bail!("it has ended: {status}: {:?}", texts(&child.wait_with_output()?));
        }
        ensure!(Instant::now() < end, "the profiler does not open the file");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Nothing of a profiler remains that would keep the next one from attaching.
fn can_attach(program: &Program) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let end = Instant::now() + PATIENCE;
    let file = dir.path().join("heap.json");
    while snapshot(program, &file, &[])?.contains(OVER_PORT) {
        ensure!(Instant::now() < end, "the profiler has not detached");
    }
    ensure!(class(&report(&file)?, "Node")?.0 == MANY, "a cut dump");
    Ok(())
}

#[test]
fn a_process_may_end_while_its_heap_is_written() -> Result<()> {
    for runtime in runtimes()? {
        let mut program = heap(&runtime, MANY)?;
        let (child, folder) = under_way(&program)?;
        program.child.kill()?;
        let output = child.wait_with_output()?;
        let (_, stderr) = texts(&output);
        match output.status.code() {
            Some(0) => println!("{runtime}: it was too fast"),
            code => ensure!(code == Some(3) && stderr.contains("ended before"), "{runtime}: {output:?}"),
        }
        ensure!(std::fs::read_dir(folder.path())?.next().is_none(), "{runtime}: files are left: {stderr}");
    }
    Ok(())
}

#[test]
fn a_process_under_a_profiler_sends_its_heap() -> Result<()> {
    for runtime in runtimes()? {
        let dir = tempfile::tempdir()?;
        let file = dir.path().join("heap.json");
        let run = Run::new(&runtime, "Heap").profiler("attached").args(["1000"]);
        let program = Program::start(run.command()?)?;
        program.expect("ready")?;
        let told = snapshot(&program, &file, &[])?;
        let why = told.lines().find(|line| line.contains(OVER_PORT)).with_context(|| format!("{runtime}: {told}"))?;
        ensure!(why.contains("libattached.so") && told.contains(" MB sent in "), "{runtime}: {told}");
        ensure!(class(&report(&file)?, "Node")?.0 == 1000, "{runtime}");

        // Without being asked, no profiler is attached.
        let program = heap(&runtime, 1000)?;
        snapshot(&program, &file, &["--session"])?;
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", program.child.id()))?;
        ensure!(!maps.contains("corprof_profilers"), "{runtime}: {maps}");
    }
    Ok(())
}

mod long {
    use super::*;

    /// Nodes of some 100 MB, with their arrays.
    const LARGE: u64 = 1_400_000;

    /// The runtime sends it: the threads of a server collection into blocks of their own.
    #[test]
    fn a_large_heap_comes_whole_each_time() -> Result<()> {
        for runtime in runtimes()? {
            for server in ["0", "1"] {
                let mut run = Run::new(&runtime, "Heap").args([LARGE.to_string()]).command()?;
                run.env("DOTNET_gcServer", server).env("DOTNET_PROCESSOR_COUNT", "2").env("DOTNET_GCHeapCount", "2");
                let program = Program::start(run)?;
                program.expect("ready")?;
                let dir = tempfile::tempdir()?;
                let file = dir.path().join("heap.json");
                let mut longest = Duration::ZERO;
                let count = repetitions(3, 50);
                for _ in 0..count {
                    let begin = Instant::now();
                    let told = snapshot(&program, &file, &["--session"])?;
                    longest = longest.max(begin.elapsed());
                    ensure!(class(&report(&file)?, "Node")?.0 == LARGE, "{runtime}, server {server}: {told}");
                }
                println!("{runtime}, server {server}: {count} of {count} whole, the longest took {longest:.1?}");
            }
        }
        Ok(())
    }

    /// By whom does not matter: the process goes on, and nothing of ours is left.
    #[test]
    fn a_profiler_can_be_detached_in_the_middle_of_a_snapshot() -> Result<()> {
        for runtime in runtimes()? {
            let program = heap(&runtime, MANY)?;
            let (child, folder) = under_way(&program)?;
            let detached = corprof()?.args(["detach", &program.child.id().to_string()]).output()?;
            let output = child.wait_with_output()?;
            let (_, stderr) = texts(&output);
            // On an idle machine the snapshot may be complete by then, and its profiler gone.
            match output.status.code() {
                Some(0) => println!("{runtime}: it was too fast"),
                code => {
                    ensure!(code == Some(3) && stderr.contains("being stopped"), "{runtime}: {output:?}");
                    ensure!(detached.status.success(), "{runtime}: {detached:?}");
                }
            }
            ensure!(std::fs::read_dir(folder.path())?.next().is_none(), "{runtime}: files are left: {stderr}");
            can_attach(&program)?;
            let (code, stderr) = program.end()?;
            ensure!(code == Some(0) && !stderr.contains("panicked"), "{runtime}: {code:?}: {stderr}");
        }
        Ok(())
    }

    #[test]
    fn a_snapshot_can_be_interrupted() -> Result<()> {
        for runtime in runtimes()? {
            let program = heap(&runtime, MANY)?;
            let (child, folder) = under_way(&program)?;
            signal(child.id(), "-INT")?;
            let output = child.wait_with_output()?;
            let (_, stderr) = texts(&output);
            // On an idle machine the snapshot may be complete by then.
            match output.status.code() {
                Some(0) => println!("{runtime}: it was too fast"),
                code => ensure!(code == Some(3) && stderr.contains("was stopped"), "{runtime}: {output:?}"),
            }
            ensure!(std::fs::read_dir(folder.path())?.next().is_none(), "{runtime}: files are left: {stderr}");
            can_attach(&program)?;

            let (mut child, folder) = under_way(&program)?;
            child.kill()?;
            child.wait()?;
            can_attach(&program)?;
            for own in std::fs::read_dir(folder.path())? {
                for file in std::fs::read_dir(own?.path())? {
                    let length = file?.metadata()?.len();
                    ensure!(length < 1_000_000, "{runtime}: a file of {length} bytes is left");
                }
            }
            let (code, stderr) = program.end()?;
            ensure!(code == Some(0) && !stderr.contains("panicked"), "{runtime}: {code:?}: {stderr}");
        }
        Ok(())
    }
}
