//! cargo-nextest, which runs the tests: a process for each, with a limit (`.config/nextest.toml`).

use std::env;
use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};

use super::results::{Results, TestsFailed};
use crate::cache::Cache;
use crate::cargo;
use crate::process::{self, announce, note};

/// The tests to run, of the programs that cargo selects.
#[derive(Debug, Clone)]
pub(super) struct Selection<'a> {
    /// The arguments of cargo that select programs and features.
    pub(super) cargo: &'a [&'a str],
    /// An expression of nextest's.
    pub(super) expression: &'a str,
    /// The arguments of `cargo test` that select about the same, where nextest is missing.
    pub(super) otherwise: &'a [&'a str],
    /// And those of the test programs.
    pub(super) skipped: &'a [&'a str],
    /// The user's own arguments of test programs: parts of names, `--nocapture`, ….
    pub(super) filter: &'a [String],
    pub(super) is_release: bool,
    /// A profile of nextest's: how long a test may take.
    pub(super) profile: &'a str,
}

/// Runs the tests of `selection` in the environment that `prepare` sets.
///
/// # Errors
/// [`TestsFailed`] if some fail, otherwise if the tests cannot be built or started.
pub(super) fn run(selection: &Selection<'_>, prepare: impl FnOnce(&mut Command)) -> Result<Results> {
    let Some(mut command) = nextest()? else {
        let mut command = cargo_test(selection);
        cargo::embed_profilers(&mut command, selection.is_release)?;
        prepare(&mut command);
        announce(process::shown(&command));
        process::run(&mut command)?;
        return Ok(Results::default());
    };
    let profile = selection.profile;
    command.args(["run", "--profile", profile, "--no-tests", "pass"]).args(selection.cargo);
    command.args(selection.is_release.then_some("--release"));
    command.args(["-E", selection.expression, "--test-threads", &at_once().to_string()]);
    let target = cargo::Metadata::load()?.target_directory;
    guard(&mut command, &target)?;
    if !selection.filter.is_empty() {
        command.arg("--").args(selection.filter);
    }
    cargo::embed_profilers(&mut command, selection.is_release)?;
    prepare(&mut command);
    announce(process::shown(&command));

    // There nextest keeps its results, wherever programs are built.
    let junit = cargo::workspace_root().join("target/nextest").join(profile).join("junit.xml");
    if junit.exists() {
        fs::remove_file(&junit).with_context(|| format!("cannot delete {}", junit.display()))?;
    }
    let status = process::status(&mut command)?;
    let results = match junit.exists() {
        true => Results::read(&junit)?,
        // No test was selected, or the build failed.
        false => Results::default(),
    };
    if !status.success() {
        bail!(TestsFailed { command: process::shown(&command), status, results });
    }
    Ok(results)
}

/// How many tests run at once. Most live tests wait for more than half of their time; of those that compute, one for
/// each processor runs beside them, by `.config/nextest.toml`. With three at once, whatever they do, two processors had
/// nothing to do for a third of the time; so they have for a twentieth.
fn at_once() -> usize {
    5 * std::thread::available_parallelism().map_or(1, NonZero::get) / 2
}

/// `cargo nextest`: the user's own, otherwise one that cargo builds, once. None if that fails; then a note says so.
fn nextest() -> Result<Option<Command>> {
    let mut own = cargo::cargo();
    own.arg("nextest");
    if process::output(cargo::cargo().args(["nextest", "--version"])).is_ok() {
        return Ok(Some(own));
    }
    let built = Cache::open()?.install("cargo-nextest-built", |content| {
        announce("cargo-nextest is missing: building it by `cargo install --locked`, some minutes, once");
        let mut install = cargo::cargo();
        install.args(["install", "--locked", "cargo-nextest", "--root"]).arg(content);
        process::run_as_progress(&mut install)
    });
    match built {
        Ok(folder) => {
            let program = folder.join("bin").join(format!("cargo-nextest{}", env::consts::EXE_SUFFIX));
            let mut command = Command::new(program);
            command.arg("nextest").current_dir(cargo::workspace_root());
            Ok(Some(command))
        }
        Err(error) => {
            note(format_args!("cargo-nextest cannot be built: {error:#}"));
            note("`cargo test` runs the tests instead: A TEST THAT HANGS IS NOT ENDED, and no test is timed");
            Ok(None)
        }
    }
}

fn cargo_test(selection: &Selection<'_>) -> Command {
    let mut command = cargo::cargo();
    command.args(["test", "--no-fail-fast"]).args(selection.otherwise);
    command.args(selection.is_release.then_some("--release"));
    command.arg("--").args(selection.skipped).args(selection.filter);
    command
}

/// Has `cargo xtask guard` start each test program.
fn guard(command: &mut Command, target: &Path) -> Result<()> {
    if !cfg!(unix) {
        // There nextest itself ends whatever a test has started.
        return Ok(());
    }
    // A name of its own, and once: the builds of the tests may replace this program's file.
    static IS_LINKED: AtomicBool = AtomicBool::new(false);
    let link = target.join("xtask-guard");
    if !IS_LINKED.swap(true, Ordering::Relaxed) {
        link_to(&env::current_exe().context("this program has no path")?, &link)?;
    }
    let runner = serde_json::json!([link, "guard"]);
    command.arg("--config").arg(format!("target.'cfg(unix)'.runner={runner}"));
    Ok(())
}

fn link_to(program: &Path, link: &PathBuf) -> Result<()> {
    if link.exists() {
        fs::remove_file(link).with_context(|| format!("cannot replace {}", link.display()))?;
    }
    if fs::hard_link(program, link).is_err() {
        // Another file system.
        fs::copy(program, link).with_context(|| format!("cannot make {}", link.display()))?;
    }
    Ok(())
}
