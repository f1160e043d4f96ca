//! `cargo xtask stress`: checks that corprof does no harm to an application under the hardest conditions.
//!
//! The program, tests/managed/Stress.cs, does everything at once and ends at a random moment; the profiler,
//! tests/profilers/stress.rs, samples it at 1 kHz and does other work as well. `plan.rs` describes a run, `judge.rs`
//! its rules; the live tests run a short session.

mod fire;
mod judge;
mod no_sessions;
mod plan;
mod session;
mod summary;
mod watch;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result};
use corprof_launch::profiler;

use crate::arm64;
use crate::cache::Cache;
use crate::cargo::{self, Metadata, TEST_PROFILERS};
use crate::emulator::Emulator;
use crate::known;
use crate::managed::{self, Compiler};
use crate::musl;
use crate::process::{announce, note};
use crate::runtime::Runtime;
use crate::runtime_choice::Choice;
use crate::system::{profiler_environment, this_system};
use crate::target::{System, Target};
use crate::windows::{self, Wine};

use plan::PARTS;

pub use fire::{Condition, Fire, FireBed, FireSummary};
pub use no_sessions::is_event_pipe_refused;
pub use session::{Amount, Bed, LINES};
pub use summary::Summary;

const PROFILER: &str = "stress";
const MATRIX: &str = "matrix";
/// The library between the runtime and glibc: see tests/profilers/exited_threads.rs.
pub const PRELOADED: &str = "exited_threads";

/// Sample an application at 1 kHz under the hardest conditions, over and over.
///
/// Each run differs: the profiler's other work, the runtime's settings, and how and when the application ends. It fails
/// if a run hangs, crashes, prints something else than without a profiler, leaves a thread stopped, or breaks one of
/// the rules of suspension. The output of a failed run is kept, with the stacks of its threads if it hung.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  cargo xtask stress                            a minute on .NET 10 and one on .NET 8
  cargo xtask stress --minutes 30 --runtime 8   longer, on one runtime
  cargo xtask stress --with signals --runs 50     every run samples by signals
  cargo xtask stress --matrix --minutes 60      every call from every context, under fire
  cargo xtask stress --windows                  on the runtimes for Windows, under Wine
  cargo xtask stress --arm64 --minutes 10       on .NET 10 for arm64, in an emulator
  cargo xtask stress --musl --runs 1000         on the runtimes for Linux with musl
  cargo xtask stress --seed 1234 --runs 1       run 1234 once more")]
pub struct Args {
    /// How long, on each runtime
    #[arg(long, value_name = "N", default_value_t = 1.0)]
    minutes: f64,

    /// How many runs on each runtime, instead of a time
    #[arg(long, value_name = "N", conflicts_with = "minutes")]
    runs: Option<u64>,

    /// The number of the first run; the others follow. A random one if it is not given
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,

    /// The runtime: 11, 10, 8, or the path of a `dotnet`. All three if it is not given
    #[arg(long, value_name = "11|10|8|PATH")]
    runtime: Option<Choice>,

    /// Have every run do this work; may be given several times
    #[arg(long, value_name = "PART", value_parser = PARTS, conflicts_with = "matrix")]
    with: Vec<String>,

    /// Instead of the sampler: make every call from every context that offers it, while other threads collect, want the
    /// same lock, and load and unload assemblies
    #[arg(long)]
    matrix: bool,

    /// Build for Windows, and run under Wine
    #[arg(long)]
    windows: bool,

    /// Build for Linux on arm64, and run on .NET 10 in an emulator
    #[arg(long, conflicts_with_all = ["windows", "runtime"])]
    arm64: bool,

    /// Build for Linux with musl, and run on .NET 11 and 10 for it
    #[arg(long, conflicts_with_all = ["windows", "arm64"])]
    musl: bool,
}

impl Args {
    /// The system, if it is another than this one.
    fn foreign(&self) -> Option<System> {
        match (self.windows, self.arm64, self.musl) {
            (true, ..) => Some(System::Windows),
            (_, true, _) => Some(System::Arm64),
            (.., true) => Some(System::Musl),
            _ => None,
        }
    }
}

/// Runs the command.
///
/// # Errors
/// If something cannot be prepared. A failed run is not an error: it is in the summary and in the exit code.
pub fn run(args: &Args) -> Result<ExitCode> {
    let metadata = Metadata::load()?;
    let runtimes = runtimes(args)?;
    let seed = args.seed.unwrap_or_else(any_number);
    let is_good = if args.matrix {
        matrix(args, &metadata, &runtimes, seed)?
    } else {
        sampler(args, &metadata, &runtimes, seed)?
    };
    println!("{}", if is_good { "The application got through all of it." } else { "FAILED: see above." });
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The time of `--minutes`.
fn time(args: &Args) -> Result<Duration> {
    Duration::try_from_secs_f64(args.minutes * 60.0).context("--minutes is not time")
}

/// Everything at once, with the sampler.
fn sampler(args: &Args, metadata: &Metadata, runtimes: &[Runtime], seed: u64) -> Result<bool> {
    let folder = metadata.target_directory.join("stress");
    // The first loads and unloads the second and the third.
    let app = compile(&["Stress.cs", "Generics.cs", "Throw.cs"], &folder)?;
    let (library, preloaded) = build(PROFILER, metadata, args)?;
    let clsid = profiler::pick(&library, None)?.clsid;
    let amount = match args.runs {
        Some(runs) => Amount::Runs(runs),
        None => Amount::Time(time(args)?),
    };
    announce(format_args!("Stress, from run {seed} on: {amount:?} on each runtime"));
    let mut summaries = Vec::new();
    for runtime in runtimes {
        let bed = Bed {
            runtime: name(runtime),
            system: args.foreign().unwrap_or(if cfg!(windows) { System::Windows } else { System::X64 }),
            is_emulated: args.arm64,
            command: Box::new(|is_profiled| {
                command(runtime, &app, is_profiled.then_some((clsid.as_str(), library.as_path())))
            }),
            folder: folder.join(on(runtime, args)),
            preloaded: preloaded.clone(),
            always: args.with.clone(),
            exits: !args.windows,
            lines: LINES,
        };
        summaries.push(bed.stress(seed, amount)?);
    }
    announce("Summary");
    summaries.iter().for_each(|summary| println!("{summary}"));
    Ok(summaries.iter().all(Summary::is_good))
}

/// Every call from every context.
fn matrix(args: &Args, metadata: &Metadata, runtimes: &[Runtime], seed: u64) -> Result<bool> {
    let folder = metadata.target_directory.join("stress").join("matrix");
    let app = compile(&["Fire.cs"], &folder)?;
    let (library, preloaded) = build(MATRIX, metadata, args)?;
    let clsid = profiler::pick(&library, None)?.clsid;
    let amount = match args.runs {
        Some(runs) => Fire::Runs(runs),
        None => Fire::Time(time(args)?),
    };
    announce(format_args!("The matrix under fire, from run {seed} on: {amount:?} on each runtime"));
    let mut summaries = Vec::new();
    for runtime in runtimes {
        let bed = FireBed {
            runtime: name(runtime),
            major: runtime.version.major,
            is_windows: args.windows || cfg!(windows),
            command: Box::new(|| command(runtime, &app, Some((&clsid, &library)))),
            folder: folder.join(on(runtime, args)),
            preloaded: preloaded.clone(),
        };
        summaries.push(bed.fire(seed, amount)?);
    }
    announce("Summary");
    summaries.iter().for_each(|summary| println!("{summary}"));
    Ok(summaries.iter().all(FireSummary::is_good))
}

/// Compiles these programs, and returns the path of the first.
fn compile(sources: &[&str], folder: &Path) -> Result<PathBuf> {
    announce(format_args!("Compiling the managed programs into {}", folder.display()));
    let compiler = Compiler::for_every_runtime()?;
    let compiled: Result<Vec<_>> =
        sources.iter().map(|name| managed::compile(&compiler, &managed::sources_dir().join(name), folder)).collect();
    compiled?.into_iter().next().context("no program")
}

/// Builds this profiler, and the library to preload where the C library is glibc.
fn build(profiler: &str, metadata: &Metadata, args: &Args) -> Result<(PathBuf, Option<PathBuf>)> {
    announce(format_args!("Building the profiler `{profiler}` (tests/profilers, optimised), and `{PRELOADED}`"));
    let foreign = args.foreign();
    let mut build = match foreign {
        Some(system) => {
            let target = Target::prepare(system, &metadata.target_directory)?;
            if system == System::Musl { musl::cargo_build(&target, &Cache::open()?)? } else { target.cargo("build") }
        }
        None => {
            let mut command = cargo::cargo();
            command.arg("build");
            command
        }
    };
    let examples = [profiler, PRELOADED].into_iter().flat_map(|name| ["--example", name]);
    let libraries = cargo::build_examples(build.args(["--release", "-p", TEST_PROFILERS]).args(examples))?;
    let library = |name: &str| {
        let library = libraries.iter().find(|(example, _)| example == name).map(|(_, library)| library);
        let library = library.with_context(|| format!("cargo built no library for the example `{name}`"))?;
        anyhow::Ok(library.canonicalize()?)
    };
    let has_glibc = !matches!(foreign, Some(System::Windows | System::Musl));
    Ok((library(profiler)?, has_glibc.then(|| library(PRELOADED)).transpose()?))
}

/// The name of the folder for files of runs on a runtime.
fn on(runtime: &Runtime, args: &Args) -> String {
    let system = match args.foreign() {
        Some(System::Arm64) => "-arm64",
        Some(System::Musl) => "-musl",
        _ => "",
    };
    format!("on-{}{system}", runtime.version)
}

/// An arbitrary number for a first run.
#[must_use]
pub fn any_number() -> u64 {
    fastrand::u64(..1_000_000)
}

/// The requested runtimes.
fn runtimes(args: &Args) -> Result<Vec<Runtime>> {
    let cache = Cache::open()?;
    let mut wine = None;
    if args.windows {
        windows::install_tools()?;
        wine = Some(Wine::install(&cache)?);
    } else if args.arm64 {
        arm64::install_tools()?;
    } else if args.musl {
        musl::install_tools()?;
    }
    let get = |name: &str| match &wine {
        Some(wine) => known::for_windows(name, wine, &cache),
        None if args.musl => known::for_musl(name, &cache),
        None => known::here(name, &cache),
    };
    let runtimes = match (&args.runtime, &wine) {
        _ if args.arm64 => vec![known::for_arm64(&cache)?],
        (None, None) if args.musl => musl::RUNTIMES.into_iter().map(get).collect::<Result<_>>()?,
        (None, Some(_)) => known::in_full("win-x64", None, get)?,
        (None, None) => known::in_full(&this_system(), None, get)?,
        (Some(Choice::Known(name)), _) => vec![get(name)?],
        (Some(_), None) if args.musl => anyhow::bail!("with --musl the runtime is {}", musl::RUNTIMES.join(" or ")),
        (Some(choice), None) => vec![Choice::resolve(Some(choice), &cache)?],
        (Some(_), Some(_)) => anyhow::bail!("with --windows the runtime is {}", known::names("win-x64")),
    };
    announce("The runtimes");
    runtimes.iter().for_each(note);
    Ok(runtimes)
}

fn name(runtime: &Runtime) -> String {
    let system = runtime.emulator.as_ref().map(Emulator::to_string).unwrap_or_default();
    format!(".NET {}{system}", runtime.version)
}

/// Starts the program, under the profiler if there is one.
fn command(runtime: &Runtime, app: &Path, profiler: Option<(&str, &Path)>) -> Result<Command> {
    let mut command = runtime.command(app);
    if let Some((clsid, library)) = profiler {
        command.envs(profiler_environment(clsid, runtime.path(library)));
    }
    if let Some(emulator) = &runtime.emulator {
        command.envs(emulator.environment(profiler.is_some()));
    }
    Ok(command)
}
