//! Heap snapshots from inside the application: tests/managed/Heap.cs under `heap_dump`, whose heap is known.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use corprof::heap_dump::BlockFile;
use corprof_heap::{BulkReader, Dominators, GraphBuilder, HeapGraph};
use corprof_tests::{Run, Runtime};
use tempfile::TempDir;

/// Long enough for any step on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);
const LOOK: Duration = Duration::from_millis(20);
/// Bytes of a node: header, class, two references; and of its array: header, class, length, 16 bytes.
const NODE: u64 = 32;
const ARRAY: u64 = 40;

/// A running program, and the folder with its orders.
struct Heap {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    errors: Receiver<String>,
    folder: TempDir,
    orders: u32,
}

fn lines(from: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    lines
}

impl Heap {
    fn start(runtime: &Runtime, nodes: u64, server: bool) -> Result<Self> {
        let heap = Self::start_with(runtime, nodes, server, None)?;
        heap.expect("ready")?;
        Ok(heap)
    }

    /// With a `first` order, which is there before the application.
    fn start_with(runtime: &Runtime, nodes: u64, server: bool, first: Option<&str>) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        if let Some(order) = first {
            fs::write(folder.path().join("1.order"), format!("{order}\n"))?;
        }
        let mut run = Run::new(runtime, "Heap").args([nodes.to_string()]).profiler("heap_dump");
        run = run.env("DUMPS", folder.path());
        if server {
            run = run.env("DOTNET_gcServer", "1").env("DOTNET_GCHeapCount", "2");
        }
        let mut command = run.command()?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let input = child.stdin.take();
        let output = lines(child.stdout.take().context("no output")?);
        let errors = lines(child.stderr.take().context("no errors")?);
        Ok(Self { child, input, lines: output, errors, folder, orders: u32::from(first.is_some()) })
    }

    fn expect(&self, line: &str) -> Result<()> {
        loop {
            let found = self.lines.recv_timeout(PATIENCE).with_context(|| format!("no line {line}"))?;
            if found == line {
                return Ok(());
            }
        }
    }

    fn tell(&mut self, command: &str) -> Result<()> {
        writeln!(self.input.as_mut().context("it has ended")?, "{command}")?;
        self.expect(&format!("done {command}"))
    }

    fn file(&self, extension: &str) -> PathBuf {
        self.folder.path().join(format!("{}.{extension}", self.orders))
    }

    fn begin(&mut self, order: &str) -> Result<()> {
        self.orders += 1;
        Ok(fs::write(self.file("order"), format!("{order}\n"))?)
    }

    /// What the profiler tells about the last order.
    fn told(&mut self) -> Result<String> {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if let Ok(told) = fs::read_to_string(self.file("told")) {
                return Ok(told);
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("the application has ended: {status}: {}", self.errors.iter().collect::<Vec<_>>().join("\n"));
            }
            thread::sleep(LOOK);
        }
        bail!("order {} was not carried out within {PATIENCE:?}", self.orders)
    }

    fn order(&mut self, order: &str) -> Result<String> {
        self.begin(order)?;
        self.told()
    }

    /// The graph that the blocks of the last order make.
    fn graph(&self, told: &str) -> Result<HeapGraph> {
        let mut reader = BulkReader::new(GraphBuilder::new("Heap"), cfg!(target_pointer_width = "64"));
        BlockFile::read(&self.file("blocks"), |event, payload| {
            reader.event(event, payload);
        })?;
        for line in told.lines() {
            if let Some((key, name)) = line.strip_prefix("class ").and_then(|rest| rest.split_once(' ')) {
                reader.builder().class(key.parse()?, name, "", 0);
            }
        }
        ensure!(reader.builder().undescribed_classes().count() == 0, "classes without names: {told}");
        Ok(reader.finish()?)
    }

    /// Ends the application. Returns what it has written to standard error.
    fn end(mut self) -> Result<String> {
        drop(self.input.take());
        let until = Instant::now() + PATIENCE;
        let status = loop {
            match self.child.try_wait()? {
                Some(status) => break status,
                None if Instant::now() > until => bail!("the application does not end"),
                None => thread::sleep(LOOK),
            }
        };
        let mut errors = Vec::new();
        loop {
            match self.errors.recv_timeout(PATIENCE) {
                Ok(line) => errors.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => bail!("its output does not end"),
            }
        }
        ensure!(status.success(), "{status}: {errors:?}");
        Ok(errors.join("\n"))
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Objects and retained bytes of the classes.
fn classes(graph: &HeapGraph) -> BTreeMap<String, (u64, u64)> {
    let totals = corprof_heap::Totals::of(&Dominators::of(graph));
    let rows = totals.by_retained().into_iter();
    rows.map(|(class, total)| (graph.class(class).name.clone(), (total.objects, total.retained))).collect()
}

/// A number of the costs that the profiler tells.
fn cost(told: &str, name: &str) -> Result<u64> {
    let (_, rest) = told.split_once(&format!("{name}: ")).with_context(|| format!("no {name}: {told}"))?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().with_context(|| format!("{name}: {rest}"))
}

#[test]
fn a_snapshot_from_inside_has_the_whole_heap() -> Result<()> {
    for (runtime, server) in Runtime::all()?.iter().flat_map(|runtime| [(runtime, false), (runtime, true)]) {
        let nodes = 20_000;
        let mut heap = Heap::start(runtime, nodes, server)?;
        let told = heap.order("take")?;
        println!("{runtime}, server: {server}: {}", told.lines().next().unwrap_or_default());
        let graph = heap.graph(&told)?;
        ensure!(graph.losses().is_whole(), "{}", graph.losses());
        ensure!(cost(&told, "objects")? == graph.len() as u64, "{told}");
        let found = classes(&graph);
        ensure!(found.get("Node") == Some(&(nodes, nodes * (NODE + ARRAY))), "{:?}", found.get("Node"));
        ensure!(found.get("Shared") == Some(&(1, 24 + 1024)), "{:?}", found.get("Shared"));
        ensure!(found.get("Secret") == Some(&(1, 24 + 5024)), "{:?}", found.get("Secret"));
        ensure!(found.contains_key("System.Collections.Generic.Dictionary<string, int[]>"), "{found:?}");
        ensure!(graph.ephemeron_count() > 0, "no pair of the weak table");
        let is_nodes = |root: &corprof_heap::Root| root.name.as_deref().is_some_and(|name| name.contains("nodes"));
        ensure!(graph.roots().iter().any(is_nodes), "no root is the static field: {:?}", graph.roots());

        // The next one is as whole, and a collection alone dumps nothing.
        heap.tell("grow 500")?;
        ensure!(heap.order("bare")?.starts_with("Ok(())"), "no collection");
        let told = heap.order("take")?;
        let found = classes(&heap.graph(&told)?);
        ensure!(found.get("Node").is_some_and(|node| node.0 == nodes + 500), "{:?}", found.get("Node"));
        ensure!(cost(&told, "foreign_blocks")? == 0, "{told}");
        heap.end()?;
    }
    Ok(())
}

#[test]
fn a_snapshot_can_be_taken_while_the_runtime_starts() -> Result<()> {
    for runtime in Runtime::all()? {
        // A runtime that is still starting refuses the collection without an error.
        let mut heap = Heap::start_with(&runtime, 100, false, Some("take"))?;
        let told = heap.told()?;
        ensure!(heap.graph(&told)?.losses().is_whole() && cost(&told, "objects")? > 0, "{told}");
        heap.expect("ready")?;
        heap.end()?;
    }
    Ok(())
}

#[test]
fn a_snapshot_that_is_not_whole_is_an_error() -> Result<()> {
    for runtime in Runtime::all()? {
        let mut heap = Heap::start(&runtime, 20_000, false)?;
        let told = heap.order("fail")?;
        ensure!(told.contains("error: the blocks could not be written") && told.contains("the disk is full"), "{told}");
        let told = heap.order("doubled")?;
        ensure!(told.starts_with("Ok(())\nerror: ") && told.contains("blocks came twice"), "{told}");
        let told = heap.order("late")?;
        ensure!(told.starts_with("error: the dump has not ended within 0ns"), "{told}");
        // What goes on after the deadline ends some time; until then another is refused.
        loop {
            let told = heap.order("take")?;
            if !told.contains("another snapshot is being taken") {
                let found = classes(&heap.graph(&told)?);
                ensure!(found.get("Node").is_some_and(|node| node.0 == 20_000), "{:?}", found.get("Node"));
                break;
            }
        }
        heap.end()?;
    }
    Ok(())
}

#[test]
fn a_second_snapshot_at_the_same_time_is_refused() -> Result<()> {
    for runtime in Runtime::all()? {
        let mut heap = Heap::start(&runtime, 100, false)?;
        let told = heap.order("two")?;
        ensure!(told.starts_with("Ok(()), refused: true\nHeapDumpCost"), "{told}");
        heap.end()?;
    }
    Ok(())
}

#[test]
fn the_application_ends_in_the_middle_of_snapshots() -> Result<()> {
    for runtime in Runtime::all()? {
        for objects in 1..4 {
            let mut heap = Heap::start(&runtime, 20_000, false)?;
            heap.begin("storm")?;
            for _ in 0..objects {
                let line = heap.errors.recv_timeout(PATIENCE)?;
                ensure!(line.ends_with(" objects"), "{line}");
            }
            let errors = heap.end()?;
            ensure!(!errors.contains("panic"), "{errors}");
        }
    }
    Ok(())
}

#[test]
fn the_profiler_leaves_in_the_middle_of_a_snapshot() -> Result<()> {
    for runtime in Runtime::all()? {
        let mut heap = Heap::start(&runtime, 20_000, false)?;
        heap.begin("leave")?;
        let mut lines = Vec::new();
        while !lines.iter().any(|line: &String| line.contains("detach: ")) {
            let line = heap.errors.recv_timeout(PATIENCE);
            lines.push(line.with_context(|| format!("{lines:?}"))?);
        }
        ensure!(lines.iter().any(|line| line.contains("detach: Ok")), "{lines:?}");
        heap.tell("grow 100")?;
        heap.end()?;
    }
    Ok(())
}
