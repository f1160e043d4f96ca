//! `cargo xtask bench`: the cost of corprof profilers, as ratios to profilers in C with the same function.
//!
//! The C profiler is bench/floor.c, with bench/hooks.S and bench/shadow.c, bench/calls.c for single calls, and
//! bench/walks.c for stacks; the counterparts are tests/profilers/bench_*.rs. Each row's module describes how it is
//! measured; `samples.rs` describes how many figures become one.

mod accuracy;
mod awaits;
mod bed;
mod calls;
mod first;
mod heap;
mod hooks;
mod logger;
mod memory;
mod probes;
mod samples;
mod sampling;
mod service;
mod startup;
mod storm;
mod table;
mod unloads;
mod walks;
mod web;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::ValueEnum;

use crate::cache::Cache;
use crate::process::{announce, note};
use crate::runtime_choice::Choice;

use accuracy::Sampling;
use bed::Bed;
use table::Line;

/// Measure the cost of profilers, against the same profilers in C.
///
/// Runs without a profiler, with the one in C and with the one of corprof take turns, so that other work on the machine
/// affects all of them. Even so, figures of a busy machine are noisy: the spread tells by how much. Needs a C compiler,
/// and a C# compiler as `cargo xtask demo` does.
#[derive(Debug, clap::Args)]
#[command(after_help = "Rows:
  storm     ns per allocation, ObjectAllocated being counted: at most 1.05 of C. Objects and bytes by class, as the example
            `allocations` does: at most 1.15
  hooks     ns per call of a method, calls being counted when they begin and when they return: at most 1.00 of C. With a
            shadow stack and times: at most 1.05. And what the built-in `timer` and `tracer` make of it
  probes    ns that a counter and probes add to a call of one method: at most 0.5 for the counter, 4 for empty probes that get
            argument and result, 8 for those that read them. Beside hooks with the same values, by inserted code and the
            runtime's
  unloads   ms per collectible assembly that is loaded and unloaded, modules that go being counted, and classes and code that
            come. At most 1.20 of C
  startup   wall time of a whole short process under a profiler that does nothing. At most 1.05 of C
  logger    events a second that the built-in `logger` writes to /dev/null
  calls     single calls of corprof, against the same through the vtable in C. At most 1.05; a name that is looked up for
            the first time, against C that makes the same calls and keeps the same name, and what the calls alone take; one
            that is known under 100 ns, without allocating
  walks     a frame of one's own stack: frames a second at least 0.95 of C. How long 50 threads of 40 frames stand still in
            a round of the sampler: at most 1.05 of C
  sampling  how much slower an application that computes is when it is sampled: at 100 Hz by at most 2 %, at 1 kHz stated.
            How right the shares of its work are: within 3 points at 20,000 samples
  tracer    a web service (ASP.NET on .NET 10) under the built-in `tracer` and `timer`: the processor time of a request, and
            what `tracer` loses: nothing, there and in a program with 12 million events
  awaits    a request of two awaits of that service, as state machines and as methods that the runtime itself suspends: the
            processor time under `timer`, also by inserted code: at most 1.5 of none; under `tracer` at most 2.5
  first     the processor time until the first answer of that service: with ready-to-run code off, under C whose hooks return,
            under C that asks for names besides, and under `timer` and `tracer`: at most 1.15 of the latter C; by inserted
            code: at most 2 of none
  service   the same under the built-in `sampler`, by signals: at 100 Hz at most 1 / 0.97 of none, at 1 kHz at most 1 / 0.93
  recording the same with a recording of everything (cpu at 100 Hz, alloc, lock, exception, gc): at most 1 / 0.95 of none
  accuracy  by how many points the sampler is wrong about shares of that service's work that are known, by signals, and which part
            of the rounds it misses: the worst of so many runs as there are rounds
  attached  the same as `accuracy`, for a sampler that is attached when the service is at work; attached-service: the same as
            `service` for one
  suspended the same as `accuracy`, by suspended walks after an attach: what they are wrong by where no signals can be sent
  heap      three snapshots of a heap of 10 million objects: no object lost, the pause at most 0.3 s a million objects above a
            bare collection, the application's memory at most 20 MB more, file and analysis at most 500 and 450 MB (Linux only)
  events    ns for a typed view of an event: at most 50. Reading a .nettrace: at least 300 MB a second
  memory    what a profiler that does nothing adds to the peak of resident memory. Under 2 MiB (Linux only)

Examples:
  cargo xtask bench                            every row, in about five minutes after the build
  cargo xtask bench --only storm --rounds 30   one row, longer and so steadier
  cargo xtask bench --json bench.json --strict")]
pub struct Args {
    /// Measure only these rows; may be given several times
    #[arg(long, value_name = "ROW")]
    only: Vec<Row>,

    /// How many objects the callback storm allocates under each profiler, over all rounds
    #[arg(long, value_name = "N", default_value_t = 50_000_000)]
    allocations: u64,

    /// How many calls are made under each of the profilers with hooks, over all rounds
    #[arg(long, value_name = "N", default_value_t = 100_000_000)]
    calls: u64,

    /// How many objects the heap has that snapshots are taken of
    #[arg(long, value_name = "N", default_value_t = 10_000_000)]
    objects: u64,

    /// How many times the profilers take turns
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,

    /// The runtime: 11, 10, 8, or the path of a `dotnet`. The user's own if it is not given, else .NET 10
    #[arg(long, value_name = "11|10|8|PATH")]
    runtime: Option<Choice>,

    /// Write the results to a file as well
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Exit with 1 if a target is missed
    #[arg(long)]
    strict: bool,
}

/// The rows that can be measured.
#[derive(Debug, Clone, Copy, PartialEq, ValueEnum)]
enum Row {
    Storm,
    Hooks,
    Probes,
    Unloads,
    Startup,
    Logger,
    Calls,
    Walks,
    Sampling,
    Service,
    Recording,
    Accuracy,
    Attached,
    AttachedService,
    Suspended,
    Tracer,
    Awaits,
    First,
    Heap,
    Events,
    Memory,
}

impl Row {
    /// Whether it needs the programs and profilers of `Bed`.
    fn needs_bed(self) -> bool {
        !matches!(self, Self::Heap | Self::Events)
    }
}

/// Runs the command.
///
/// # Errors
/// If a step fails. A missed target is not an error: it is in the table, and with `--strict` in the exit code.
pub fn run(args: &Args) -> Result<ExitCode> {
    let rows: Vec<Row> =
        Row::value_variants().iter().copied().filter(|row| args.only.is_empty() || args.only.contains(row)).collect();
    let bed = rows.iter().any(|row| row.needs_bed()).then(|| Bed::prepare(args.runtime.as_ref())).transpose()?;
    let mut lines = Vec::new();
    for &row in &rows {
        lines.extend(match (row, &bed) {
            (Row::Heap, _) if cfg!(target_os = "linux") => heap::measure(args.runtime.as_ref(), args.objects)?,
            (Row::Events, _) => heap::events()?,
            (_, Some(bed)) if row.needs_bed() => measure(row, bed, args)?,
            _ => {
                announce("Heap: left out, as it reads /proc");
                Vec::new()
            }
        });
    }
    print!("{}", table::text(&lines));
    if let Some(file) = &args.json {
        let runtime = Choice::resolve(args.runtime.as_ref(), &Cache::open()?)?;
        let text = table::json(&lines, &runtime.to_string())?;
        fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    let missed = lines.iter().any(|line| line.is_over() == Some(true));
    Ok(if missed && args.strict { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn measure(row: Row, bed: &Bed, args: &Args) -> Result<Vec<Line>> {
    let lines = match row {
        Row::Storm => storm::measure(bed, args.rounds, args.allocations),
        Row::Hooks => match &bed.hooks {
            Some(hooks) => hooks::measure(bed, hooks, args.rounds, args.calls),
            None => {
                announce("Hooks: left out, as bench/hooks.S is for x86-64 Linux");
                return Ok(Vec::new());
            }
        },
        Row::Probes => probes::measure(bed, &bed.probes, args.rounds, args.calls),
        Row::Unloads => unloads::measure(bed, args.rounds),
        Row::Startup => startup::measure(bed, args.rounds),
        Row::Logger => logger::measure(bed, args.rounds),
        Row::Calls => calls::measure(bed, args.rounds),
        Row::Walks => walks::measure(bed, args.rounds),
        Row::Sampling => sampling::measure(bed, args.rounds),
        Row::Awaits => match (&bed.service, &bed.async_service, &bed.hooks) {
            (Some(service), Some(async_service), Some(hooks)) => {
                awaits::measure(bed, &[service.clone(), async_service.clone()], hooks, args.rounds)
            }
            _ => {
                announce("Awaits: left out, as it needs x86-64 Linux, .NET 10 with ASP.NET, and a compiler for it");
                return Ok(Vec::new());
            }
        },
        Row::Tracer | Row::First => match (&bed.service, &bed.hooks) {
            (Some(service), Some(hooks)) if row == Row::First => first::measure(bed, service, hooks, args.rounds),
            (Some(service), Some(hooks)) => web::under_hooks(bed, service, hooks, args.rounds),
            _ => {
                announce(
                    "Tracer and first answer: left out, as it needs x86-64 Linux, .NET 10 with ASP.NET, and a compiler for it",
                );
                return Ok(Vec::new());
            }
        },
        Row::Service | Row::Recording | Row::Accuracy | Row::Attached | Row::AttachedService | Row::Suspended => {
            match &bed.service {
                Some(service) if cfg!(target_os = "linux") => of_service(row, bed, service, args.rounds),
                _ => {
                    announce("Service: left out, as it needs Linux, .NET 10 with ASP.NET, and a compiler for it");
                    return Ok(Vec::new());
                }
            }
        }
        Row::Heap | Row::Events => Ok(Vec::new()), // not of the bed
        Row::Memory if cfg!(target_os = "linux") => memory::measure(bed, args.rounds),
        Row::Memory => {
            announce("Memory: left out, as it is read from /proc");
            return Ok(Vec::new());
        }
    }?;
    if let Ok(load) = fs::read_to_string("/proc/loadavg") {
        let load = load.split(' ').next().unwrap_or_default();
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        note(format_args!("load average {load} on {processors} processors; the measuring itself is about 1 of it"));
    }
    Ok(lines)
}

/// The rows of the service under the sampler.
fn of_service(row: Row, bed: &Bed, service: &Path, rounds: u32) -> Result<Vec<Line>> {
    match row {
        Row::Accuracy => accuracy::measure(bed, service, Sampling::FromStart, rounds),
        Row::Attached => accuracy::measure(bed, service, Sampling::Attached, rounds),
        Row::AttachedService => web::under_the_attached_sampler(bed, service, rounds),
        Row::Suspended => accuracy::measure(bed, service, Sampling::AttachedSuspended, rounds),
        Row::Recording => web::under_a_recording(bed, service, rounds),
        _ => web::under_the_sampler(bed, service, rounds),
    }
}
