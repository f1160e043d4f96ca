//! `cargo xtask torture`: whether corprof leaves an application alive that makes it as hard as it can.
//!
//! The program, tests/managed/Torture.cs, does everything at once and ends at a random moment; the profiler,
//! tests/profilers/torture.rs, samples it at 1 kHz and does more besides. What a run is like is in `plan.rs`, what it must keep
//! to in `judge.rs`; the live tests make a short session of their own.

mod judge;
mod plan;
mod session;
mod summary;
mod watch;

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::cache::Cache;
use crate::cargo::{self, Metadata};
use crate::managed::{self, Compiler};
use crate::process::{announce, note};
use crate::profiler;
use crate::runtime::{Choice, Pinned, Runtime, profiler_environment, this_system};
use crate::windows::{self, Target, Wine};

pub use session::{Amount, Bed};
pub use summary::Summary;

const PROFILER: &str = "torture";
/// What is put between the runtime and glibc: see tests/profilers/exited_threads.rs.
pub const PRELOADED: &str = "exited_threads";

/// Sample an application at 1 kHz that makes it as hard as it can, over and over.
///
/// Each run differs: what the profiler does besides, how the runtime is set, and how and when the application ends. It
/// fails if a run hangs, crashes, prints something else than without a profiler, leaves a thread stopped, or breaks one of the
/// rules of suspension. The output of a run that failed, and where its threads stood if it hung, is kept.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  cargo xtask torture                            a minute on .NET 8 and one on .NET Core 3.1
  cargo xtask torture --minutes 30 --runtime 8   longer, on one runtime
  cargo xtask torture --windows                  on the runtimes for Windows, under Wine
  cargo xtask torture --seed 1234 --runs 1       run 1234 once more")]
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

    /// The runtime: 3.1 or 8 for a pinned one, or the path of a `dotnet`. Both pinned ones if it is not given
    #[arg(long, value_name = "3.1|8|PATH")]
    runtime: Option<Choice>,

    /// Build for Windows, and run under Wine
    #[arg(long)]
    windows: bool,
}

/// Runs the command.
///
/// # Errors
/// If something cannot be prepared. A run that fails is none: it is in the summary and in the exit code.
pub fn run(args: &Args) -> Result<ExitCode> {
    let metadata = Metadata::load()?;
    let folder = metadata.target_directory.join("torture");
    let wine = args.windows.then(prepare_wine).transpose()?;
    let runtimes = runtimes(args, wine.as_ref())?;

    announce(format_args!("Compiling the managed programs into {}", folder.display()));
    let compiler = Compiler::for_every_runtime()?;
    // The second and the third are loaded and unloaded by the first.
    let compile = |name: &str| managed::compile(&compiler, &managed::sources_dir().join(name), &folder);
    let [app, _, _] = [compile("Torture.cs")?, compile("Generics.cs")?, compile("Throw.cs")?];

    announce("Building the profiler `torture` (tests/profilers/torture.rs, optimised), and `exited_threads`");
    let mut build = match &wine {
        Some(_) => Target::prepare(&metadata.target_directory)?.cargo("build"),
        None => {
            let mut command = cargo::cargo();
            command.arg("build");
            command
        }
    };
    let examples = [PROFILER, PRELOADED].into_iter().flat_map(|name| ["--example", name]);
    let libraries = cargo::build_examples(build.args(["--release", "-p", "corprof-tests"]).args(examples))?;
    let library = |name: &str| {
        let library = libraries.iter().find(|(example, _)| example == name).map(|(_, library)| library);
        let library = library.with_context(|| format!("cargo built no library for the example `{name}`"))?;
        anyhow::Ok(library.canonicalize()?)
    };
    let (library, preloaded) = (library(PROFILER)?, library(PRELOADED)?);
    let clsid = profiler::pick(&library, None)?.clsid;

    let seed = args.seed.unwrap_or_else(any_number);
    let amount = match args.runs {
        Some(runs) => Amount::Runs(runs),
        None => Amount::Time(Duration::try_from_secs_f64(args.minutes * 60.0).context("--minutes is no time")?),
    };
    announce(format_args!("Torture, from run {seed} on: {amount:?} on each runtime"));
    let mut summaries = Vec::new();
    for runtime in &runtimes {
        let bed = Bed {
            runtime: name(runtime),
            is_windows: args.windows || cfg!(windows),
            command: Box::new(|is_profiled| {
                Ok(command(runtime, &app, is_profiled.then_some((clsid.as_str(), library.as_path()))))
            }),
            folder: folder.join(format!("on-{}", runtime.version)),
            preloaded: (!args.windows).then(|| preloaded.clone()),
            exits: runtime.wine.is_none() || runtime.version.major != 8,
        };
        summaries.push(bed.torture(seed, amount)?);
    }
    announce("Summary");
    summaries.iter().for_each(|summary| println!("{summary}"));
    let is_good = summaries.iter().all(Summary::is_good);
    println!("{}", if is_good { "The application got through all of it." } else { "FAILED: see above." });
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The number of a first run, when any will do.
#[must_use]
pub fn any_number() -> u64 {
    fastrand::u64(..1_000_000)
}

fn prepare_wine() -> Result<Wine> {
    windows::install_tools()?;
    Wine::install(&Cache::open()?)
}

/// The runtimes that were asked for.
fn runtimes(args: &Args, wine: Option<&Wine>) -> Result<Vec<Runtime>> {
    let cache = Cache::open()?;
    let pinned = |name| match wine {
        Some(wine) => Pinned::install_for_windows(name, wine, &cache),
        None => Pinned::find(name, &this_system())?.install(&cache),
    };
    let runtimes = match (&args.runtime, wine) {
        (None, _) => vec![pinned("8")?, pinned("3.1")?],
        (Some(Choice::Pinned(name)), _) => vec![pinned(name)?],
        (Some(choice), None) => vec![Choice::resolve(Some(choice), &cache)?],
        (Some(_), Some(_)) => anyhow::bail!("with --windows the runtime is 3.1 or 8, which are fetched"),
    };
    announce("The runtimes");
    runtimes.iter().for_each(note);
    Ok(runtimes)
}

fn name(runtime: &Runtime) -> String {
    let system = if runtime.wine.is_some() { " for Windows" } else { "" };
    format!(".NET {}{system}", runtime.version)
}

/// Starts the program, under the profiler if there is one.
fn command(runtime: &Runtime, app: &Path, profiler: Option<(&str, &Path)>) -> Command {
    let mut command = runtime.command(app);
    match (profiler, &runtime.wine) {
        (Some((clsid, library)), _) => {
            let library: OsString = runtime.path(library);
            command.envs(profiler_environment(clsid, library));
        }
        (None, Some(wine)) => {
            command.envs(wine.without_profiler());
        }
        (None, None) => {}
    }
    command
}
