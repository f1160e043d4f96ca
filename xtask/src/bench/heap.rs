//! Heap snapshots: what a snapshot of a heap of ten million objects costs the application, and what its analysis needs.
//!
//! tests/managed/Big.cs makes the heap; tests/profilers/heap_dump.rs takes snapshots as files order it, and tells their
//! cost. The memory that a snapshot adds is the peak of resident memory meanwhile over the resident memory before. The
//! analysis is that of `corprof-heap/examples/measure.rs`, in a process of its own.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use corprof_launch::profiler;
use corprof_launch::running::Running;

use crate::cache::Cache;
use crate::cargo::{self, Metadata, TEST_PROFILERS};
use crate::managed::{self, Compiler};
use crate::process::{announce, note};
use crate::runtime_choice::Choice;
use crate::system::profiler_environment;

use super::bed::output;
use super::table::Line;

const ROW: &str = "heap";
/// The longest that a step may take.
const PATIENCE: Duration = Duration::from_secs(900);
/// The interval between two looks for an answer of the profiler.
const LOOK: Duration = Duration::from_millis(20);
/// How many snapshots: the first of a process takes longer.
const SNAPSHOTS: usize = 3;

/// What a snapshot cost, from the profiler's output and /proc.
#[derive(Debug, Clone, Copy)]
struct Snapshot {
    objects: f64,
    pause: f64,
    delivery: f64,
    later: f64,
    added: f64,
    file: f64,
    bare: f64,
    bare_added: f64,
}

/// Measures the row.
///
/// # Errors
/// If a program fails.
pub(super) fn measure(runtime: Option<&Choice>, objects: u64) -> Result<Vec<Line>> {
    let runtime = Choice::resolve(runtime, &Cache::open()?)?;
    announce(format_args!("Heap: {SNAPSHOTS} snapshots of {objects} objects on {runtime}"));
    let directory = Metadata::load()?.target_directory.join("bench");
    let program =
        managed::compile(&Compiler::for_runtime(&runtime)?, &managed::sources_dir().join("Big.cs"), &directory)?;
    let mut build = cargo::cargo();
    build.args(["build", "--release", "--package", TEST_PROFILERS, "--example", "heap_dump"]);
    let built = cargo::build_examples(&mut build)?;
    let (_, library) = built.first().context("cargo built no library for `heap_dump`")?;
    let library = library.canonicalize()?;
    let clsid = profiler::pick(&library, None)?.clsid;

    let folder = directory.join("heap");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    let mut command = runtime.command(&program);
    command.arg(objects.to_string()).env("DUMPS", &folder).envs(profiler_environment(&clsid, library.into()));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut child = command.spawn().context("cannot start the program")?;
    let stdin = child.stdin.take();
    let stdout = child.stdout.take().context("no output")?;
    let mut program = Running::new(child)?;
    let snapshots = snapshots(&mut program, stdout, &folder);
    // Closing its standard input ends it.
    drop(stdin);
    if snapshots.is_err() {
        let _ = program.kill();
    }
    let status = program.wait()?;
    let snapshots = snapshots?;
    ensure!(status.success(), "the program failed: {status}");

    announce("Heap: the analysis");
    let mut analysis = cargo::cargo();
    analysis.args(["run", "--release", "--quiet", "--package", "corprof-heap", "--example", "measure", "--"]);
    let (text, _) = output(analysis.arg(folder.join("2.blocks")))?;
    let _ = fs::remove_dir_all(&folder);
    note(text.trim_end());
    lines(&snapshots, objects, &text)
}

fn lines(snapshots: &[Snapshot], objects: u64, analysis: &str) -> Result<Vec<Line>> {
    let millions = objects as f64 / 1e6;
    let most = |of: fn(&Snapshot) -> f64| snapshots.iter().map(of).fold(0.0, f64::max);
    let best = snapshots.iter().min_by(|one, other| one.pause.total_cmp(&other.pause)).context("no snapshot")?;
    let seconds = |line: &str| line.split_whitespace().nth(1)?.parse::<f64>().ok();
    let steps = analysis.lines().filter(|line| line.contains("resident: peak"));
    let peak =
        steps.clone().filter_map(|line| line.split("peak").nth(1)?.split_whitespace().next()?.parse::<f64>().ok());
    // What a heap of so many objects may cost, in megabytes; the targets are those of ten million.
    let megabytes = |target: f64| target * (millions / 10.0).max(1.0);
    // The program's own objects; the runtime's come on top.
    let lost = (objects as f64 - best.objects).max(0.0);
    ensure!(analysis.contains(" objects, "), "the analysis says nothing: {analysis}");
    Ok(vec![
        Line::stated(ROW, "objects of a snapshot", best.objects / 1e6, "million"),
        Line::stated(ROW, "objects lost", lost, "objects").target(0.0),
        Line::stated(ROW, "a bare collection", best.bare, "s"),
        Line::stated(ROW, "pause of a snapshot", best.pause, "s").target(best.bare + 0.3 * millions),
        Line::stated(ROW, "pause after the session", best.later, "s").target(best.bare + 0.3 * millions),
        Line::stated(ROW, "delivery", best.delivery / millions, "s/million").target(0.3),
        Line::stated(ROW, "a bare collection adds", most(|one| one.bare_added), "MB"),
        Line::stated(ROW, "application adds", most(|one| one.added), "MB").target(20.0),
        Line::stated(ROW, "file", most(|one| one.file), "MB").target(megabytes(500.0)),
        Line::stated(ROW, "peak of the analysis", peak.fold(0.0, f64::max), "MB").target(megabytes(450.0)),
        Line::stated(ROW, "time of the analysis", steps.filter_map(seconds).sum(), "s"),
    ])
}

/// A bare collection and the snapshots, by orders in files.
fn snapshots(program: &mut Running, stdout: ChildStdout, folder: &Path) -> Result<Vec<Snapshot>> {
    let mut line = String::new();
    // Stays open: the program may print more.
    let mut stdout = BufReader::new(stdout);
    stdout.read_line(&mut line)?;
    ensure!(line.trim_end() == "ready", "the program does not say that it is ready, but `{}`", line.trim_end());
    let mut number = 0;
    let mut order = |program: &mut Running, order: &str| {
        number += 1;
        fs::write(folder.join(format!("{number}.order")), format!("{order}\n"))?;
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if let Ok(told) = fs::read_to_string(folder.join(format!("{number}.told"))) {
                return Ok((told, folder.join(format!("{number}.blocks"))));
            }
            if let Some(status) = program.wait_for(LOOK)? {
                bail!("the program has ended: {status}");
            }
        }
        bail!("order {number} was not carried out within {PATIENCE:?}")
    };
    let mut snapshots = Vec::new();
    for _ in 0..SNAPSHOTS {
        let process = format!("/proc/{}", program.id());
        let before = reset_peak(&process)?;
        let (told, _) = order(program, "bare")?;
        let bare_added = peak(&process)? - before;
        ensure!(told.starts_with("Ok"), "no collection: {told}");
        let bare = duration(told.trim_end().rsplit(' ').next().unwrap_or_default())?;
        let before = reset_peak(&process)?;
        let (told, blocks) = order(program, "take")?;
        let added = peak(&process)? - before;
        ensure!(told.starts_with("HeapDumpCost"), "no snapshot: {told}");
        let field = |name: &str| {
            let value = told.split(&format!(" {name}: ")).nth(1).and_then(|rest| rest.split([',', '}']).next());
            value.with_context(|| format!("no {name}: {told}"))
        };
        let later = told.split("later_pauses: [").nth(1).and_then(|rest| rest.split(']').next()).unwrap_or_default();
        let later = later.split(", ").filter(|pause| !pause.is_empty()).map(duration).collect::<Result<Vec<_>>>()?;
        let snapshot = Snapshot {
            objects: field("objects")?.parse()?,
            pause: duration(field("pause")?)?,
            delivery: duration(field("delivery")?)?,
            later: later.into_iter().fold(0.0, f64::max),
            added,
            file: fs::metadata(&blocks)?.len() as f64 / 1e6,
            bare,
            bare_added,
        };
        note(format_args!("{snapshot:?}"));
        snapshots.push(snapshot);
        if snapshots.len() > 1 {
            fs::remove_file(blocks)?;
        }
    }
    Ok(snapshots)
}

/// The greatest resident memory of a process since the reset, in megabytes.
fn peak(process: &str) -> Result<f64> {
    let text = fs::read_to_string(format!("{process}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB")).context("no VmHWM")?;
    Ok(kibibytes.parse::<f64>()? * 1024.0 / 1e6)
}

/// Makes the peak the memory that is resident now, and returns it.
fn reset_peak(process: &str) -> Result<f64> {
    fs::write(format!("{process}/clear_refs"), "5").context("cannot reset the peak of memory")?;
    peak(process)
}

/// The seconds of a duration as `{:?}` prints it.
fn duration(text: &str) -> Result<f64> {
    let units = [("ns", 1e-9), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    let known =
        units.into_iter().find_map(|(unit, scale)| Some(text.trim().strip_suffix(unit)?.parse::<f64>().ok()? * scale));
    known.with_context(|| format!("`{text}` is not a duration"))
}

/// The decoding of events and the reader of traces, whose crates measure them by examples.
pub(super) fn events() -> Result<Vec<Line>> {
    const ROW: &str = "events";
    let run = |package: &str, example: &str, arguments: &[&Path]| {
        let mut command: Command = cargo::cargo();
        command.args(["run", "--release", "--quiet", "--package", package, "--example", example, "--"]);
        output(command.args(arguments)).map(|(text, _)| text)
    };
    announce("Events: decoding, and reading a trace");
    let text = run("corprof-events", "cost", &[])?;
    note(text.trim_end());
    let figure = |name: &str| {
        let line = text.lines().find(|line| line.contains(name)).with_context(|| format!("no {name}: {text}"))?;
        Ok::<f64, anyhow::Error>(line.split_whitespace().next().unwrap_or_default().parse()?)
    };
    let mut lines = vec![
        Line::stated(ROW, "typed view, numbers", figure("GcStart")?, "ns/event").target(50.0),
        Line::stated(ROW, "typed view, owner of a lock", figure("ContentionStart")?, "ns/event").target(50.0),
        Line::stated(ROW, "typed view, one text", figure("GcAllocationTick, with")?, "ns/event").target(50.0),
        Line::stated(ROW, "typed view, three texts", figure("MethodLoadVerbose")?, "ns/event").target(50.0),
        Line::stated(ROW, "one field by its name", figure("field(")?, "ns/event"),
    ];
    let trace = cargo::workspace_root().join("../shared/nettrace/gc.nettrace.xz");
    if trace.is_file() {
        let text = run("corprof-nettrace", "throughput", &[&trace, Path::new("200")])?;
        let best = text.lines().last().and_then(|line| line.split_whitespace().next());
        let speed: f64 = best.with_context(|| format!("no figure: {text}"))?.parse()?;
        // 300 MB a second.
        lines.push(Line::stated(ROW, "reader of .nettrace", 1e3 / speed, "s/GB").target(1e3 / 300.0));
        note(format_args!("reader: {speed} MB/s"));
    } else {
        note(format_args!("the reader is left out: there is no {}", trace.display()));
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_they_are_printed() {
        for micros in [0, 1, 999, 1_500, 2_000_000, 61_250_000] {
            let read = duration(&format!("{:?}", Duration::from_micros(micros))).unwrap();
            assert!((read - micros as f64 / 1e6).abs() < 1e-9, "{micros}");
        }
        assert!(duration("5").is_err());
    }
}
