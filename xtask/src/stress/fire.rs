//! `cargo xtask stress --matrix`: every call of the API from every context that offers it, over and over, while other
//! threads collect, want the same lock, and load and unload assemblies.
//!
//! The program is tests/managed/Fire.cs, the profiler tests/profilers/matrix/fire/mod.rs (which documents its output).
//! `fire/plan.rs` describes a run, `fire/judge.rs` its rules. The live tests make each kind of run once.

mod judge;
mod plan;

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::process::note;
use crate::stacks;

use super::session::set_up;
use super::summary::ReportedValues;
use super::watch;
use judge::Cell;
pub use plan::Condition;
use plan::Plan;

/// A run that has not ended this long after it should have is taken to hang.
const GRACE: Duration = Duration::from_secs(120);

/// The profiler's file of the current call of each thread.
const BLACK_BOX: &str = "black-box.txt";

/// The amount of runs.
#[derive(Debug, Clone, Copy)]
pub enum Fire {
    /// One condition, until each cell has had so many calls.
    Fill(Condition, u64),
    /// The same, then with each of the runtime's settings, and with a profiler that panics.
    FillBySettings(Condition, u64),
    /// Random runs of half a minute, for this long.
    Time(Duration),
    /// This many random runs.
    Runs(u64),
}

/// Starts tests/managed/Fire.cs under tests/profilers/matrix.
pub struct FireBed<'b> {
    /// The runtime, for messages.
    pub runtime: String,
    /// Its major version.
    pub major: u32,
    /// Whether it is for Windows.
    pub is_windows: bool,
    /// A command without the program's arguments, with the profiler's environment.
    pub command: Box<dyn Fn() -> Result<Command> + 'b>,
    /// The folder for the output of failed runs.
    pub folder: PathBuf,
    /// As [`Bed::preloaded`](super::Bed::preloaded).
    pub preloaded: Option<PathBuf>,
}

impl FireBed<'_> {
    /// Runs the program; the first run has the number `seed`.
    ///
    /// # Errors
    /// If the program cannot be started. A failed run is not an error: it is in the summary.
    pub fn fire(&self, seed: u64, amount: Fire) -> Result<FireSummary> {
        let start = Instant::now();
        let mut summary = FireSummary { runtime: self.runtime.clone(), ..FireSummary::default() };
        let any = |number| Plan::any(number, self.major, self.is_windows);
        let plans: Box<dyn Iterator<Item = Plan>> = match amount {
            Fire::Fill(condition, calls) => Box::new(std::iter::once(Plan::fill(seed, condition, calls, self.major))),
            Fire::FillBySettings(condition, calls) => {
                Box::new(Plan::fill_by_settings(seed, condition, calls, self.major, self.is_windows).into_iter())
            }
            Fire::Time(time) => Box::new((seed..).take_while(move |_| start.elapsed() < time).map(any)),
            Fire::Runs(runs) => Box::new((seed..).take(usize::try_from(runs)?).map(any)),
        };
        for plan in plans {
            self.one(&plan, &mut summary)?;
            summary.elapsed = start.elapsed();
        }
        fs::create_dir_all(&self.folder).with_context(|| format!("cannot make {}", self.folder.display()))?;
        summary.table = Some(self.folder.join("cells.txt"));
        fs::write(self.folder.join("cells.txt"), summary.cells()).context("cannot write the counts of all cells")?;
        Ok(summary)
    }

    /// One run; its files are kept if it fails.
    fn one(&self, plan: &Plan, summary: &mut FireSummary) -> Result<()> {
        let folder = self.folder.join(format!("run-{}", plan.number));
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let mut command = (self.command)()?;
        set_up(&mut command);
        command.args(plan.arguments()).envs(plan.environment());
        command.env("MATRIX_BLACK_BOX", folder.join(BLACK_BOX));
        command.envs(self.preloaded.iter().map(|library| ("LD_PRELOAD", library)));
        let run = watch::run(&mut command, &folder, Duration::from_secs(plan.time.1.into()) + GRACE)?;
        let cells = judge::cells(&run.stderr);
        let mut faults = judge::faults(plan, &run, &cells);
        let told = ReportedValues::last(&run.stderr, "fire: ").unwrap_or_default();
        summary.add(plan.condition, &told, cells);
        let verdict = if faults.is_empty() { "ok" } else { "FAILED" };
        note(format_args!(
            "{}: run {}: {plan}: {:.1} s, {} calls: {verdict}",
            self.runtime,
            plan.number,
            run.duration.as_secs_f64(),
            told.get("calls"),
        ));
        if faults.is_empty() {
            return fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()));
        }
        if !run.status.is_some_and(|status| status.success()) {
            faults.extend(under_way(&folder));
        }
        if let Some(threads) = &run.threads {
            fs::write(folder.join("threads.txt"), threads).context("cannot write where the threads stand")?;
            note(format_args!("where the threads of run {} stand:\n{}", plan.number, stacks::in_short(threads)));
        }
        let failure = format!("run {} ({plan}): {}; see {}", plan.number, faults.join("; "), folder.display());
        note(format_args!("{failure}"));
        summary.failures.push(failure);
        Ok(())
    }
}

/// The calls that threads were in at the end.
fn under_way(folder: &Path) -> Option<String> {
    let text = fs::read_to_string(folder.join(BLACK_BOX)).ok()?;
    let calls: Vec<_> =
        text.split('\n').map(|line| line.trim_matches(['\0', ' '])).filter(|line| !line.is_empty()).collect();
    Some(format!("calls under way: {}", if calls.is_empty() { "none".to_owned() } else { calls.join(", ") }))
}

/// A condition, the type of a context, a level and a method.
type Key = (Condition, String, String, String);

/// The sums of all runs on one runtime.
#[derive(Debug, Default)]
pub struct FireSummary {
    runtime: String,
    runs: u64,
    elapsed: Duration,
    failures: Vec<String>,
    told: BTreeMap<Condition, ReportedValues>,
    /// How many times each call was made by contexts of a type, and how many times it must be.
    by_context: BTreeMap<Key, (u64, u64)>,
    /// The same by place.
    by_place: BTreeMap<(Condition, String), BTreeMap<String, u64>>,
    /// The file with the counts of all cells.
    table: Option<PathBuf>,
}

impl FireSummary {
    fn add(&mut self, condition: Condition, told: &ReportedValues, cells: Vec<Cell>) {
        self.runs += 1;
        self.told.entry(condition).or_default().add(told);
        for cell in cells {
            let places = self.by_place.entry((condition, cell.place)).or_default();
            *places.entry(format!("{}.{}", cell.level, cell.method)).or_default() += cell.count;
            // The required count is that of a run that fills all cells.
            let sum = self.by_context.entry((condition, cell.context, cell.level, cell.method)).or_default();
            *sum = (sum.0 + cell.count, if sum.1 == 0 { cell.least } else { sum.1.min(cell.least) });
        }
    }

    /// Whether no run failed, and each condition was run.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.failures.is_empty() && self.runs > 0 && self.told.values().all(|told| told.get("objects") > 0)
    }

    /// Every cell, a line each.
    fn cells(&self) -> String {
        let mut text = String::new();
        for ((condition, context, level, method), (count, _)) in &self.by_context {
            _ = writeln!(text, "{} | {context} | {level} | {method} | {count}", condition.name());
        }
        for ((condition, place), rows) in &self.by_place {
            for (row, count) in rows {
                _ = writeln!(text, "{} | {place} | {row} | {count}", condition.name());
            }
        }
        text
    }
}

impl fmt::Display for FireSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { runtime, runs, elapsed, failures, told, by_context, by_place, table } = self;
        writeln!(f, "{runtime}: {runs} runs in {:.0} s, {} failed", elapsed.as_secs_f64(), failures.len())?;
        for (condition, told) in told {
            let get = |key| told.get(key);
            writeln!(f, "  {}: {} calls", condition.name(), get("calls"))?;
            writeln!(f, "    objects of one class before and after   {}", get("objects"))?;
            writeln!(f, "    hooks whose values stayed               {}", get("values"))?;
            let [lasting, live, dead] = ["ids.lasting", "ids.live", "ids.dead"].map(get);
            writeln!(
                f,
                "    identifiers   {lasting} of the program's own and {live} others answered, {dead} dead ones refused"
            )?;
            let mut contexts = BTreeMap::<&str, Vec<(u64, &str)>>::new();
            for ((_, context, _, method), (count, _)) in by_context.iter().filter(|((of, ..), _)| of == condition) {
                contexts.entry(context).or_default().push((*count, method));
            }
            for (context, mut rows) in contexts {
                rows.sort_unstable();
                let sum: u64 = rows.iter().map(|(count, _)| count).sum();
                let least = rows.first().map(|(count, method)| format!("{count} ({method})")).unwrap_or_default();
                writeln!(f, "    {context:<12} {} cells, {sum} calls, at least {least}", rows.len())?;
            }
            let places = by_place.iter().filter(|((of, _), _)| of == condition);
            let least = places
                .clone()
                .map(|((_, place), rows)| (rows.values().min().copied().unwrap_or_default(), place))
                .min();
            let least = least.map(|(count, place)| format!("{count} ({place})")).unwrap_or_default();
            writeln!(f, "    {} places, of each call at least {least}", places.count())?;
        }
        if let Some(table) = table {
            write!(f, "  all counts: {}", table.display())?;
        }
        failures.iter().try_for_each(|failure| write!(f, "\n  FAILED {failure}"))
    }
}
