//! `corprof tasks`: which async operations of a process are pending now, and what they wait for.

// `pending.rs` finds the tasks and who awaits whom, `chains.rs` the ways from a task to what it awaits in the end.

mod chains;
mod names;
mod pending;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow};
use corprof_diagnostics::Process;
use serde::Serialize;

use crate::attach_request;
use crate::exit::{self, Failure, Outcome};
use crate::heap::inside::{self, TaskFields};
use crate::options::{self, Names};
use crate::{output, signals};

use chains::{Chain, Lines, SourceLine};

/// The rows without --rows.
const ROWS: usize = 20;
/// The most methods of a chain that are printed without --all.
const METHODS: usize = 12;

/// Show the async operations of a process that are pending now, and what they wait for.
///
/// A thread that waits shows its stack; an async method that waits is an object on the heap. This attaches a small
/// profiler, which has the runtime collect and report the heap while the application stands still, and detaches. Then
/// it prints which methods await which, equal chains once, with their number: the innermost method first, below what it
/// awaits, with the file and line of the await if a PDB tells. Methods with state machines (.NET 8 to 11) and those
/// that the runtime suspends itself (.NET 11, runtime async). On Linux.
///
/// Chains that can never go on come first: methods that await each other, and promises that nothing can complete any
/// more, because only those who await them refer to them. A chain that a thread waits for (`Wait()`, `Result`) says so.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  corprof tasks 4711
  corprof tasks 4711 --json | jq '.chains[] | select(.is_stuck)'

Exits with 1 if the runtime refused the profiler, and with 3 if there is no such process, it is not a .NET process, or it did not
answer. Exit codes: corprof help exit-codes")]
pub struct Args {
    /// The process, as `corprof ps` numbers it
    #[arg(value_parser = options::pid)]
    pid: u32,

    /// The most chains to print [default with --json: all]
    #[arg(long, value_name = "N")]
    rows: Option<usize>,

    /// Also chains without a method of the application, and all methods of long chains
    #[arg(long)]
    all: bool,

    #[command(flatten)]
    names: Names,

    /// Print one JSON document
    #[arg(long)]
    json: bool,

    /// The longest time without a part of the heap from the process, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    timeout: u64,
}

/// The answer.
#[derive(Debug, Serialize)]
struct Answer {
    pid: u32,
    /// For how long the application stood still.
    standstill_ms: f64,
    /// Tasks that have not ended, whether somebody awaits them or not.
    pending_tasks: usize,
    /// Equal chains together: those that can never go on, then the most frequent ones.
    chains: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    count: usize,
    #[serde(flatten)]
    chain: Chain,
}

/// Runs the command.
///
/// # Errors
/// If the process is not there, the runtime refuses, or the heap does not come.
pub fn run(args: &Args) -> Outcome {
    let process = Process::open(args.pid)?;
    attach_request::leave_alone_if_compiled_ahead(args.pid)?;
    let answer = ask(args, &process)?;
    let mut out = output::stdout();
    if args.json {
        serde_json::to_writer(&mut out, &answer).context("cannot write the JSON")?;
        writeln!(out).context("cannot write")?;
    } else {
        print(&mut out, &answer, args).context("cannot write")?;
    }
    out.flush().context("cannot write")?;
    Ok(ExitCode::SUCCESS)
}

fn ask(args: &Args, process: &Process) -> Result<Answer, Failure> {
    let timeout = Duration::from_secs(args.timeout.max(1));
    let info = process.client().with_timeout(timeout).process_info()?;
    let stop = signals::stop_requests()?;
    let mut fields = TaskFields::default();
    let taken = inside::take(process, &info, timeout, &stop, Some(&mut fields))?;
    let (graph, cost) = taken.map_err(|refused| Failure::new(exit::NO, refused))?;
    // Most processes have some: those that have ended are kept.
    if fields.tasks.is_empty() {
        let why = "it has made none, or the system does not let a process read its own memory (process_vm_readv)";
        return Err(anyhow!("the profiler has read no task of process {}: {why}", args.pid).into());
    }
    let tasks = pending::pending(&graph, &fields);
    let chains = chains::chains(&graph, &fields, &tasks, &mut Lines::of(args.pid), args.names);
    let standstill = cost.pauses.iter().sum::<Duration>();
    Ok(Answer {
        pid: args.pid,
        standstill_ms: standstill.as_secs_f64() * 1e3,
        pending_tasks: tasks.len(),
        chains: rows(chains),
    })
}

/// Those that can never go on first, then by their number.
fn rows(chains: BTreeMap<Chain, usize>) -> Vec<Row> {
    let mut rows: Vec<Row> = chains.into_iter().map(|(chain, count)| Row { count, chain }).collect();
    rows.sort_by(|one, other| {
        let by_stuck = other.chain.is_stuck.cmp(&one.chain.is_stuck);
        by_stuck.then(other.count.cmp(&one.count))
    });
    rows
}

fn print(out: &mut impl Write, answer: &Answer, args: &Args) -> io::Result<()> {
    let is_shown = |row: &&Row| args.all || row.chain.is_mine || row.chain.is_stuck || row.chain.blocks_thread;
    let shown: Vec<&Row> = answer.chains.iter().filter(is_shown).collect();
    let count: usize = shown.iter().map(|row| row.count).sum();
    let stood = answer.standstill_ms;
    let are = if count == 1 { "chain of async methods is" } else { "chains of async methods are" };
    writeln!(out, "{count} {are} pending in process {}. It stood still for {stood:.0} ms.", answer.pid)?;
    let most = args.rows.unwrap_or(ROWS);
    for row in shown.iter().take(most) {
        row.print(out, args.all)?;
    }
    let others = answer.chains.len() - shown.len();
    if shown.len() > most {
        writeln!(out, "\n[{} more kinds of chains: --rows {}]", shown.len() - most, shown.len())?;
    }
    if others > 0 {
        writeln!(out, "\n[{others} more kinds of chains, without a method of the application: --all]")?;
    }
    Ok(())
}

impl Row {
    fn print(&self, out: &mut impl Write, all: bool) -> io::Result<()> {
        let Chain { is_stuck, awaits, methods, places, blocks_thread, .. } = &self.chain;
        write!(out, "\n{} × awaiting {awaits}", self.count)?;
        if *is_stuck {
            write!(out, ": can never go on")?;
        }
        writeln!(out)?;
        if methods.is_empty() {
            writeln!(out, "    [its methods are not known while it runs: corprof stacks]")?;
        }
        let most = if all { methods.len() } else { METHODS };
        for (method, place) in methods.iter().zip(places).take(most) {
            write!(out, "    {method}")?;
            if let SourceLine { file: Some(file), line: Some(line) } = place {
                write!(out, "  {}:{line}", file.rsplit(['/', '\\']).next().unwrap_or(file))?;
            }
            writeln!(out)?;
        }
        if methods.len() > most {
            writeln!(out, "    [{} outer methods: --all]", methods.len() - most)?;
        }
        if *blocks_thread {
            writeln!(out, "    a thread waits for it")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(awaits: &str, is_stuck: bool) -> Chain {
        let methods = ["Load", "Request"].map(|name| format!("Shop.{name}")).to_vec();
        let places =
            vec![SourceLine { file: Some("/src/Orders.cs".to_owned()), line: Some(41) }, SourceLine::default()];
        Chain { is_stuck, awaits: awaits.to_owned(), methods, places, blocks_thread: is_stuck, is_mine: true }
    }

    #[test]
    fn stuck_chains_come_first_and_then_the_most_frequent() {
        let chains = [(chain("a", false), 2), (chain("b", false), 30), (chain("c", true), 1)];
        let answer = Answer { pid: 7, standstill_ms: 11.6, pending_tasks: 40, chains: rows(chains.into()) };
        let args = Args { pid: 7, rows: Some(2), all: false, names: Names::default(), json: false, timeout: 1 };
        let mut text = Vec::new();
        print(&mut text, &answer, &args).unwrap();
        let text = String::from_utf8(text).unwrap();
        let expected = "33 chains of async methods are pending in process 7. It stood still for 12 ms.\n\n\
                        1 × awaiting c: can never go on\n    Shop.Load  Orders.cs:41\n    Shop.Request\n    a thread waits for it\n\n\
                        30 × awaiting b\n    Shop.Load  Orders.cs:41\n    Shop.Request\n\n\
                        [1 more kinds of chains: --rows 3]\n";
        assert_eq!(text, expected);
    }
}
