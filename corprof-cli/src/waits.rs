//! `corprof waits`: where async operations wait.

use std::collections::HashMap;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, anyhow};
use corprof_async::{Chain, Queued, Step, Wait, Waits};
use corprof_export::{Format, Frame, Mode, Output, Profile, Table, Unit};
use serde::Serialize;

use crate::async_trace::{self, Listened, Listener, Names, Place, Sort, Spread, Traced};
use crate::exit::{self, Failure, Outcome};

/// The most steps that wait for their turn, and the most operations that wait.
const STEPS: usize = 1 << 20;
const OPERATIONS: usize = 1 << 20;
/// The most chains whose waits are summed up. Waits of further ones are counted.
const CHAINS: usize = 100_000;

/// Show where the async operations of a process wait, and for how long (.NET 11).
///
/// Listens to the async operations of a process over the diagnostics port: nothing is attached. At the end it prints
/// the places at which operations waited, with the number of waits, their sum, mean and 99th percentile. With -o it
/// writes a flame graph of the waiting time by the chain of methods that await each other, on a page (.html) with the
/// table. The same for a .nettrace
/// that was recorded with these events.
///
/// An operation waits from its creation or suspension until a thread resumes it: for input and output, timers, locks,
/// other operations, or a thread of the pool. Of the last, `queued` is the sum: for so long, the work that resumed it
/// was in the queue of the thread pool. If that is much, the pool has too few threads: `corprof starvation` tells why.
/// A place is the innermost method of the application that awaits, `in` names the framework's method below. Chains
/// without a method of the application, such as connections that nobody uses, are left out without --all.
///
/// With a command, starts the application, whose runtime waits for the session before it runs managed code: no request
/// is missed. The answer comes at its end, after --duration, or at Ctrl-C, which then ends it. If this command is
/// killed, .NET processes that the application starts later wait for it in vain. What threads have held back when an
/// application ends by itself is not told; Ctrl-C has them tell it first.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  corprof waits 4711 --duration 10
  corprof waits 4711 --duration 10 -o waits.html
  corprof waits -- dotnet App.dll
  corprof waits service.nettrace --json

For a file: dotnet-trace collect --providers
System.Runtime.CompilerServices.AsyncProfilerEventSource:0xF4DD:4,System.Diagnostics.Eventing.FrameworkEventSource:0x2:5

Exits with 3 if the process is not there, its runtime is older than .NET 11, or it told nothing; with a command, with the code of the
application, or with 0 if Ctrl-C ended it. Exit codes: corprof help exit-codes")]
pub struct Args {
    #[command(flatten)]
    listened: Listened,

    /// Also write the waiting time by chain: the extension chooses the format, as of `record`
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// What places are ordered by
    #[arg(long, value_name = "TIME", value_enum, default_value_t)]
    sort: Sort,

    /// The most places to print [default: 20, with --json all]
    #[arg(long, value_name = "N")]
    rows: Option<usize>,

    /// Also chains without a method of the application
    #[arg(long)]
    all: bool,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// The rows without --rows.
const ROWS: usize = 20;
/// The rows on a page.
const ON_PAGE: usize = 200;

/// The most samples of a chain in a profile.
const SAMPLES: u64 = 10_000;

/// Waits by chain.
struct Sums {
    waits: Waits,
    ended: EndedWaits,
}

/// The waits of a chain, or at a place.
#[derive(Default)]
struct Sum {
    times: Spread,
    /// The part in the queue of the thread pool, in ticks.
    queued: u64,
}

impl Sum {
    fn merge(&mut self, other: &Self) {
        self.times.merge(&other.times);
        self.queued += other.queued;
    }
}

/// Those that have ended.
#[derive(Default)]
struct EndedWaits {
    by_chain: HashMap<Option<Chain>, Sum>,
    /// Waits of chains beyond the limit.
    left_out: u64,
    /// Waits that have ended before do not count.
    begin: u64,
    /// Waits that end later do not count.
    end: Option<u64>,
}

impl Sums {
    fn new() -> Self {
        Self { waits: Waits::new(STEPS, OPERATIONS), ended: EndedWaits::default() }
    }
}

impl Listener for Sums {
    fn step(&mut self, step: Step) {
        self.waits.push(step, |wait| self.ended.add(wait));
    }

    fn work_queued(&mut self, ticks: u64, work: u64) {
        self.waits.work_queued(ticks, work, |wait| self.ended.add(wait));
    }

    fn work_taken(&mut self, ticks: u64, thread: u64, work: u64) {
        self.waits.work_taken(ticks, thread, work, |wait| self.ended.add(wait));
    }

    fn begin(&mut self, at: u64) {
        self.ended.begin = at;
    }

    fn end(&mut self, at: u64) {
        self.ended.end = Some(at);
    }

    fn release(&mut self, until: u64) {
        self.waits.release(until, |wait| self.ended.add(wait));
    }
}

impl EndedWaits {
    fn add(&mut self, wait: Wait) {
        if wait.to < self.begin || self.end.is_some_and(|end| wait.to > end) {
            return;
        }
        if self.by_chain.len() >= CHAINS && !self.by_chain.contains_key(&wait.place) {
            self.left_out += 1;
            return;
        }
        let sum = self.by_chain.entry(wait.place).or_default();
        sum.times.add(wait.to.saturating_sub(wait.from));
        sum.queued += wait.queued.map(Queued::length).unwrap_or_default();
    }
}

/// The document of --json. Times are in milliseconds.
#[derive(Debug, Clone, Serialize)]
struct Report {
    title: String,
    seconds: f64,
    waits: u64,
    /// Without a method of the application, and left out.
    hidden_waits: u64,
    /// Operations that waited when it ended, by place, without those that are left out.
    still_waiting: Vec<Still>,
    places: Vec<Row>,
}

#[derive(Debug, Clone, Serialize)]
struct Row {
    #[serde(flatten)]
    place: Place,
    waits: u64,
    total_ms: f64,
    mean_ms: f64,
    p99_ms: f64,
    /// The part of the sum in the queue of the thread pool, if that was told.
    queued_ms: Option<f64>,
}

impl Row {
    /// In seconds.
    fn queued(&self) -> String {
        self.queued_ms.map_or_else(|| "-".to_owned(), |queued| format!("{:.3}", queued / 1e3))
    }
}

#[derive(Debug, Clone, Serialize)]
struct Still {
    #[serde(flatten)]
    place: Place,
    operations: u64,
}

/// Runs the command.
///
/// # Errors
/// If the process or file tells nothing of async operations, the application is not started, or the file cannot be
/// written.
pub fn run(args: &Args) -> Outcome {
    let output = args.output.as_deref().map(Output::new).transpose();
    let output = output.map_err(|error| Failure::new(exit::USAGE, error))?;
    async_trace::follow(&args.listened, false, Sums::new(), |sums, traced| answer(args, output, &sums, traced))
}

fn answer(args: &Args, output: Option<Output>, sums: &Sums, traced: &Traced) -> Result<(), Failure> {
    traced.warn();
    if sums.ended.left_out > 0 {
        eprintln!("corprof: {} waits are missing: there are more than {CHAINS} chains of methods", sums.ended.left_out);
    }
    if sums.ended.by_chain.is_empty() {
        return Err(anyhow!("no operation waited and was resumed meanwhile").into());
    }
    let mut names = Names::new(traced, args.listened.names);
    let report = report(traced, &mut names, sums, args.all, args.sort);
    let mut out = crate::output::stdout();
    if args.json {
        let mut shown = report.clone();
        shown.places.truncate(args.rows.unwrap_or(usize::MAX));
        writeln!(out, "{}", serde_json::to_string(&shown).map_err(anyhow::Error::from)?)?;
    } else {
        print(&report, args.rows.unwrap_or(ROWS), &mut out)?;
    }
    out.flush()?;
    if let Some(mut output) = output {
        let is_picture = matches!(output.format(), Format::Html | Format::FlameGraph);
        let mut profile = profile(traced, &mut names, sums, args.all, is_picture);
        profile.set_table(table(&report));
        output.write(&profile).map_err(anyhow::Error::from)?;
        eprintln!("corprof: {} is written", output.path().display());
    }
    Ok(())
}

fn report(traced: &Traced, names: &mut Names<'_>, sums: &Sums, is_all: bool, sort: Sort) -> Report {
    let mut by_place: HashMap<Place, Sum> = HashMap::new();
    let mut hidden_waits = 0;
    for (chain, sum) in &sums.ended.by_chain {
        let place = names.place(chain.as_ref());
        if !is_all && !place.is_mine {
            hidden_waits += sum.times.count();
            continue;
        }
        by_place.entry(place).or_default().merge(sum);
    }
    let row = |(place, Sum { times, queued }): (Place, Sum)| Row {
        place,
        waits: times.count(),
        total_ms: traced.milliseconds(times.sum()),
        mean_ms: traced.milliseconds(times.mean()),
        p99_ms: traced.milliseconds(times.most()),
        queued_ms: traced.tells_queue.then(|| traced.milliseconds(queued)),
    };
    let mut places: Vec<Row> = by_place.into_iter().map(row).collect();
    let key = |row: &Row| sort.key(row.total_ms, row.mean_ms, row.p99_ms);
    places.sort_by(|a, b| key(b).total_cmp(&key(a)).then_with(|| a.place.cmp(&b.place)));
    let mut still: HashMap<Place, u64> = HashMap::new();
    for (_, _, chain) in sums.waits.waiting() {
        let place = names.place(chain);
        if is_all || place.is_mine {
            *still.entry(place).or_default() += 1;
        }
    }
    let mut still_waiting: Vec<Still> =
        still.into_iter().map(|(place, operations)| Still { place, operations }).collect();
    still_waiting.sort_by(|a, b| b.operations.cmp(&a.operations).then_with(|| a.place.cmp(&b.place)));
    let waits = places.iter().map(|row| row.waits).sum();
    Report { title: traced.title.clone(), seconds: traced.seconds, waits, hidden_waits, still_waiting, places }
}

fn print(report: &Report, rows: usize, out: &mut impl Write) -> Result<()> {
    writeln!(out, "{}, {:.1} s, {} waits\n", report.title, report.seconds, report.waits)?;
    writeln!(out, "   waits     total s    mean ms     p99 ms    queued s  waits at")?;
    for row in report.places.iter().take(rows) {
        let Row { place, waits, total_ms, mean_ms, p99_ms, .. } = row;
        let queued = row.queued();
        writeln!(out, "{waits:>8} {:>11.3} {mean_ms:>10.2} {p99_ms:>10.2} {queued:>11}  {place}", total_ms / 1e3)?;
    }
    let more = report.places.len().saturating_sub(rows);
    if more > 0 {
        writeln!(out, "{more} more places: --rows")?;
    }
    if report.hidden_waits > 0 {
        writeln!(out, "{} waits are not of the application: --all", report.hidden_waits)?;
    }
    if !report.still_waiting.is_empty() {
        writeln!(out, "\noperations that were still waiting at the end")?;
        for Still { place, operations } in report.still_waiting.iter().take(rows) {
            writeln!(out, "{operations:>8}  {place}")?;
        }
    }
    Ok(())
}

/// The places, for the page.
fn table(report: &Report) -> Table {
    let title = format!("{} waits by place", report.waits);
    let mut table = Table::new(title, ["waits", "total s", "mean ms", "p99 ms", "queued s", "waits at"]);
    for row in report.places.iter().take(ON_PAGE) {
        table.row([
            row.waits.to_string(),
            format!("{:.3}", row.total_ms / 1e3),
            format!("{:.2}", row.mean_ms),
            format!("{:.2}", row.p99_ms),
            row.queued(),
            row.place.to_string(),
        ]);
    }
    table
}

/// The waiting time by chain. Pictures have shorter names.
fn profile(traced: &Traced, names: &mut Names<'_>, sums: &Sums, is_all: bool, is_picture: bool) -> Profile {
    let title = format!("waits of {}", traced.title);
    // The names are spelled here. The page takes a state machine for an iterator if a method that the runtime suspends
    // awaits it.
    let mut profile = Profile::summed(title, Unit::Nanoseconds).in_mode(Mode::Wall).with_raw_names();
    let thread = profile.thread(0, "async operations");
    for (chain, Sum { times: spread, .. }) in &sums.ended.by_chain {
        let Some(chain) = chain else { continue };
        if !is_all && !names.place(Some(chain)).is_mine {
            continue;
        }
        let mut frames = Vec::new();
        for frame in chain.iter().filter(|frame| frame.address != 0) {
            let (_, module) = names.full(frame.address);
            let module = module.map(|module| module.to_string_lossy().into_owned());
            let name = if is_picture { names.label(frame.address) } else { names.name(frame.address) };
            let shown = Frame::managed(&name);
            let id = profile.frame(module.as_deref().map_or(shown, |module| shown.in_module(module)));
            if let Some((file, line)) = names.begin(frame.address) {
                profile.place(id, &file, line);
            }
            frames.push(id);
        }
        let stack = profile.stack_leaf_first(frames);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "nanoseconds of hours")]
        let total = (traced.milliseconds(spread.sum()) * 1e6) as u64;
        // As many samples as there were waits: the page says how sure shares are.
        let count = spread.count().clamp(1, SAMPLES);
        for number in 0..count {
            let rest = if number == 0 { total % count } else { 0 };
            profile.sample(thread, Duration::ZERO, stack, total / count + rest);
        }
    }
    profile.set_duration(Duration::from_secs_f64(traced.seconds));
    profile
}
