//! `corprof leaks PID`: two snapshots, each by the small profiler of `corprof heap`. Between them nothing is in the
//! process, so that other questions can be asked of it.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use corprof_diagnostics::Process;
use corprof_heap::diff::{DEFAULT_DEPTH, Summary};
use corprof_heap::report::{Growth, Options as Size, Report as Page};
use corprof_heap::{Dominators, HeapGraph};
use corprof_launch::processes;
use corprof_profilers::table::LEAKS;
use serde::Serialize;

use super::Question;
use crate::exit::{self, Failure, Outcome};
use crate::heap;
use crate::options::{self, Names};
use crate::output;
use crate::signals;

/// A snapshot that takes longer is given up.
const DEADLINE: Duration = Duration::from_secs(600);
/// The interval at which it looks for Ctrl-C and the end of the process.
const LOOK: Duration = Duration::from_millis(50);

/// Why there may be no answer.
const TOO_EARLY: &str = "there is one snapshot of the heap or none yet, and two are compared: let it take longer";
const HAS_ENDED: &str =
    "the process has ended before the second snapshot: let both come sooner (--first and --duration)";

/// What is asked, by the options and by --env.
struct Options {
    first: Duration,
    seconds: Duration,
    top: usize,
    page: Option<PathBuf>,
    names: Names,
    is_json: bool,
    is_quiet: bool,
}

impl Options {
    fn of(question: &Question) -> Result<Self, Failure> {
        let given = question.settings_in_env()?;
        // An option counts more than a variable.
        let settings: Vec<_> = question.settings.iter().chain(&given).collect();
        let text = |variable: &str| {
            let found = settings.iter().find(|(name, _)| *name == variable);
            found.map_or(options::default(&LEAKS, variable).into(), |(_, value)| value.to_string_lossy())
        };
        // The values were checked when they were read.
        let seconds =
            |variable| text(variable).parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let in_env = Some(PathBuf::from(text("LEAKS_OUT").as_ref())).filter(|path| !path.as_os_str().is_empty());
        Ok(Self {
            first: seconds("LEAKS_FIRST").unwrap_or_default(),
            seconds: seconds("LEAKS_SECONDS").unwrap_or_default(),
            top: text("LEAKS_TOP").parse().unwrap_or_default(),
            page: question.output.clone().or(in_env),
            names: Names { raw_names: text("LEAKS_NAMES") == "raw" },
            is_json: text("LEAKS_FORMAT") == "json",
            is_quiet: question.is_quiet,
        })
    }
}

/// What a snapshot has cost.
#[derive(Serialize)]
struct Snapshot {
    objects: usize,
    /// How long the application stood still.
    pause_ms: f64,
}

/// The answer: the document of --json. The profiler, which answers from the start of an application, has the same
/// (`profilers/library/leaks.rs`).
#[derive(Serialize)]
struct Answer {
    question: &'static str,
    pid: u32,
    seconds: f64,
    notes: Vec<String>,
    snapshots: Vec<Snapshot>,
    /// Why nothing is known of what has grown.
    error: Option<&'static str>,
    grown: Option<Growth>,
}

impl Answer {
    fn print(&self, is_json: bool) -> Result<()> {
        let mut out = output::stdout();
        if is_json {
            writeln!(out, "{}", serde_json::to_string(self)?)?;
            return Ok(());
        }
        for Snapshot { objects, pause_ms } in &self.snapshots {
            writeln!(out, "a snapshot of {objects} objects: the application stood still for {pause_ms:.0} ms")?;
        }
        if let Some(why) = self.error {
            writeln!(out, "no answer: {why}")?;
        }
        for line in self.grown.iter().flat_map(Growth::lines) {
            writeln!(out, "{line}")?;
        }
        if self.grown.is_some() {
            writeln!(out, "objects that grow are not a leak if they stop: compare again, and begin later (--first)")?;
        }
        Ok(())
    }
}

/// Takes both snapshots, and prints what has grown.
pub(super) fn ask(question: &Question, pid: u32) -> Outcome {
    let options = Options::of(question)?;
    let process = heap::open(pid)?;
    let stop = signals::stop_requests().context("cannot catch signals")?;
    if !question.is_quiet {
        eprintln!("corprof: `leaks` watches process {pid} {}", question.until());
    }
    let begin = Instant::now();
    let mut snapshots = Vec::new();
    let compared = compare(&process, &options, &stop, &mut snapshots);
    let no_answer = |error| Failure::new(exit::NOT_LOADED, anyhow!("there is no answer of process {pid}: {error:#}"));
    let compared = compared.map_err(no_answer)?;
    let (grown, error) = match compared {
        Ok(grown) => (Some(grown), None),
        Err(why) => (None, Some(why)),
    };
    let answer = Answer {
        question: LEAKS.name,
        pid: process.inner_pid(),
        seconds: begin.elapsed().as_secs_f64(),
        notes: Vec::new(),
        snapshots,
        error,
        grown,
    };
    answer.print(options.is_json)?;
    if let (Some(page), Some(_), false) = (&options.page, &answer.grown, question.is_quiet) {
        eprintln!("corprof: {} is written", page.display());
    }
    Ok(if answer.grown.is_some() { exit::OK } else { exit::NOT_LOADED }.into())
}

/// What has grown; or why there were no two snapshots. Ctrl-C between the two takes the second one at once.
fn compare(
    process: &Process,
    options: &Options,
    stop: &AtomicBool,
    snapshots: &mut Vec<Snapshot>,
) -> Result<Result<Growth, &'static str>> {
    match wait(process, options.first, stop) {
        Woken::InTime => {}
        Woken::Interrupted => return Ok(Err(TOO_EARLY)),
        Woken::Ended => return Ok(Err(HAS_ENDED)),
    }
    // Of the first heap, only sums are kept.
    let before = Summary::of(&Dominators::of(&take(process, stop, snapshots)?), DEFAULT_DEPTH);
    let start = Instant::now();
    if !options.is_quiet {
        let seconds = options.seconds.as_secs_f64();
        eprintln!(
            "corprof: the first snapshot is taken. The second one follows in {seconds} s, or at Ctrl-C; other commands \
             can ask the process meanwhile"
        );
    }
    if matches!(wait(process, options.seconds, stop), Woken::Ended) {
        return Ok(Err(HAS_ENDED));
    }
    // The next request ends the snapshot.
    stop.store(false, Ordering::Relaxed);
    let seconds = start.elapsed().as_secs_f64();
    let graph = take(process, stop, snapshots)?;
    let tree = Dominators::of(&graph);
    let after = Summary::of(&tree, DEFAULT_DEPTH);
    let names = options.names.of_heap(graph.classes());
    if let Some(path) = &options.page {
        let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        Page::of(&tree, Size::default(), &names).write_html(file)?;
    }
    Ok(Ok(Growth::of(&before, &after, &tree, options.top, seconds, &names)))
}

fn take(process: &Process, stop: &AtomicBool, snapshots: &mut Vec<Snapshot>) -> Result<HeapGraph> {
    let (graph, cost) = heap::snapshot(process, false, None, DEADLINE, stop)?;
    let pause: Duration = cost.pauses.iter().sum();
    snapshots.push(Snapshot { objects: cost.objects, pause_ms: 1e3 * pause.as_secs_f64() });
    Ok(graph)
}

/// Why a wait has ended.
enum Woken {
    InTime,
    Interrupted,
    Ended,
}

fn wait(process: &Process, time: Duration, stop: &AtomicBool) -> Woken {
    let begin = Instant::now();
    loop {
        if stop.load(Ordering::Relaxed) {
            return Woken::Interrupted;
        }
        if !processes::is_there(process.pid()) {
            return Woken::Ended;
        }
        let rest = time.saturating_sub(begin.elapsed());
        if rest.is_zero() {
            return Woken::InTime;
        }
        thread::sleep(rest.min(LOOK));
    }
}
