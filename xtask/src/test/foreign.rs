//! Tests for other systems: Windows under Wine, Linux on arm64 in an emulator, and Linux with musl.

use std::cell::OnceCell;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::Args;
use super::live::{PROGRAMS, Prepared, Tier};
use super::results::Results;
use crate::arm64::{self, Qemu};
use crate::cache::Cache;
use crate::cargo::{self, ELSEWHERE, Metadata};
use crate::known;
use crate::musl;
use crate::process::{self, announce, note};
use crate::runtime::Runtime;
use crate::runtime_choice::Choice;
use crate::target::{System, Target};
use crate::windows::{self, Wine};

/// What builds and runs for other systems, for all phases of a run.
#[derive(Default)]
pub(super) struct Foreign {
    pub(super) windows: Windows,
    pub(super) arm64: Arm64,
    pub(super) musl: Musl,
}

/// Builds and runs for Windows. What it needs is prepared by the first phase that uses it.
#[derive(Default)]
pub(super) struct Windows {
    ready: OnceCell<ForWindows>,
}

struct ForWindows {
    cache: Cache,
    target: Target,
    wine: Wine,
}

impl Windows {
    fn ready(&self) -> Result<&ForWindows> {
        if let Some(ready) = self.ready.get() {
            return Ok(ready);
        }
        windows::install_tools()?;
        let cache = Cache::open()?;
        let wine = Wine::install(&cache)?;
        note(format_args!("Wine works in {}", wine.prefix.display()));
        let target = Target::prepare(System::Windows, &Metadata::load()?.target_directory)?;
        note(format_args!("building for {target}"));
        Ok(self.ready.get_or_init(|| ForWindows { cache, target, wine }))
    }

    /// The tests of the code that is compiled into a profiler, and of named pipes; other tests do not depend on the
    /// system. The compile-fail cases call the compiler, with the same result on every system.
    pub(super) fn unit_tests(&self, args: &Args) -> Result<Results> {
        let ForWindows { target, wine, .. } = self.ready()?;
        let mut command = target.cargo("test");
        command.args(["--no-fail-fast", "-p", "corprof-sys", "-p", "corprof", "-p", "corprof-il"]);
        command.args(["--lib", "--test", "abi", "--test", "fake_clr", "--test", "signatures"]);
        wine.run_what_is_built(&mut command);
        cargo_test(args, command)?;
        let mut command = target.cargo("test");
        command.args(["--no-fail-fast", "-p", "corprof-diagnostics", "--lib", "--test", "pipes"]);
        wine.run_what_is_built(&mut command);
        cargo_test(args, command)
    }

    /// The live tests on the runtime `name`, or on the one that the user has chosen. They start the applications, so
    /// they run here. Tests that load a library themselves run under Wine.
    pub(super) fn live(&self, args: &Args, name: &str, tier: Tier) -> Result<Results> {
        let ForWindows { cache, target, wine } = self.ready()?;
        let name = match &args.runtime {
            Some(Choice::Known(name)) => name,
            Some(Choice::Path(path)) => {
                bail!("for Windows the runtime is {}, not {}", known::names("win-x64"), path.display())
            }
            None => name,
        };
        let runtime = known::for_windows(name, wine, cache)?;
        let prepared = Prepared::new(args, target.cargo("build"), vec![runtime], tier)?;
        let live = prepared.run(args, &PROGRAMS[..1]);
        if tier == Tier::Smoke {
            return live;
        }
        let mut command = target.cargo("test");
        command.args(["-p", "corprof-tests", "--features", "live", "--test", "com"]);
        wine.run_what_is_built(&mut command);
        prepared.pass_to(&mut command);
        // Both run to their end, even if the other fails.
        let com = cargo_test(args, command);
        live.and_then(|live| com.map(|_| live))
    }
}

/// Builds and runs for Linux on arm64. What it needs is prepared by the first phase that uses it.
#[derive(Default)]
pub(super) struct Arm64 {
    target: OnceCell<Target>,
}

impl Arm64 {
    /// Why this machine cannot run the live tests, if that cannot be changed.
    pub(super) fn lacks() -> Option<String> {
        arm64::lacks().or_else(known::lacks_arm64)
    }

    fn target(&self) -> Result<&Target> {
        if let Some(target) = self.target.get() {
            return Ok(target);
        }
        arm64::install_tools()?;
        let target = Target::prepare(System::Arm64, &Metadata::load()?.target_directory)?;
        note(format_args!("building for {target}"));
        Ok(self.target.get_or_init(|| target))
    }

    /// Tests that call the hook stubs from assembly, and those of signals and of the walk from their registers; they
    /// need no .NET.
    pub(super) fn stubs(&self, args: &Args) -> Result<Results> {
        let mut command = self.target()?.cargo("test");
        command.args(["--package", "corprof", "--lib"]);
        Qemu::run_what_is_built(&mut command);
        cargo_test(&Args { filter: ["hooks::stubs", "signals"].map(str::to_owned).into(), ..args.clone() }, command)
    }

    /// The live tests start the applications, so they run here. Tests that load a library themselves are emulated.
    pub(super) fn live(&self, args: &Args, tier: Tier) -> Result<Results> {
        let target = self.target()?;
        let runtime: Runtime = known::for_arm64(&Cache::open()?)?;
        let prepared = Prepared::new(args, target.cargo("build"), vec![runtime], tier)?;
        let live = prepared.run(args, &PROGRAMS[..1]);
        if tier == Tier::Smoke {
            return live;
        }
        let mut command = target.cargo("test");
        command.args(["-p", "corprof-tests", "--features", "live", "--test", "com"]);
        Qemu::run_what_is_built(&mut command);
        prepared.pass_to(&mut command);
        let com = cargo_test(args, command);
        live.and_then(|live| com.map(|_| live))
    }
}

/// Builds and runs for Linux with musl. What it needs is prepared by the first phase that uses it.
#[derive(Default)]
pub(super) struct Musl {
    target: OnceCell<Target>,
}

impl Musl {
    fn target(&self) -> Result<&Target> {
        if let Some(target) = self.target.get() {
            return Ok(target);
        }
        musl::install_tools()?;
        let target = Target::prepare(System::Musl, &Metadata::load()?.target_directory)?;
        note(format_args!("building for {target}"));
        Ok(self.target.get_or_init(|| target))
    }

    /// The live tests on the runtime `name`, or on the one that the user has chosen. They start the applications, and
    /// the command `corprof` for musl, so they run here.
    pub(super) fn live(&self, args: &Args, name: &str, tier: Tier) -> Result<Results> {
        let name = match &args.runtime {
            Some(Choice::Known(name)) => name,
            Some(Choice::Path(path)) => bail!("for musl the runtime is 11 or 10, not {}", path.display()),
            None => name,
        };
        let target = self.target()?;
        let cache = Cache::open()?;
        let runtime = known::for_musl(name, &cache)?;
        let mut build = musl::cargo_build(target, &cache)?;
        announce("Building the profilers of the command `corprof` for musl");
        let mut profilers = musl::cargo_build(target, &cache)?;
        profilers.args(ELSEWHERE).args(tier.libraries());
        cargo::embed_profilers_of(profilers, &mut build, args.release)?;
        let mut prepared = Prepared::new(args, build, vec![runtime], tier)?;
        if tier != Tier::Few {
            announce("Building the command `corprof` for glibc, with the profilers for musl");
            prepared.build_host_command(args)?;
        }
        prepared.run(args, &PROGRAMS[..1])
    }
}

/// Runs tests whose programs an emulator starts: there a process for each test would take longer than the tests.
fn cargo_test(args: &Args, mut command: Command) -> Result<Results> {
    command.args(args.release.then_some("--release"));
    if !args.filter.is_empty() {
        command.arg("--").args(&args.filter);
    }
    announce(process::shown(&command));
    process::run(&mut command).context("what failed is above")?;
    Ok(Results::default())
}
