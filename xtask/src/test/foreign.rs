//! Tests for other systems: Windows under Wine, and Linux on arm64 in an emulator.

use anyhow::{Result, bail};

use super::{Args, Phases, Prepared, Tiers, live_tests, run_tests};
use crate::arm64::{self, Qemu};
use crate::cache::Cache;
use crate::cargo::Metadata;
use crate::known;
use crate::process::note;
use crate::runtime::Choice;
use crate::target::{System, Target};
use crate::windows::Wine;

/// The live tests that `cargo xtask test` also runs for arm64, by the beginnings of their names: those that depend on the
/// processor, and others with the most value for their time. `--arm64` also runs the rest, including the shadow stack through
/// exceptions and threads: of three runs of that test on a busy machine a PAL_SEHException in the emulator ended one, at the
/// program's thread abort; its cause was not found.
const ON_ARM64: [&str; 7] = [
    "hooks::",
    "shadow::the_shadow_stack_is_the_stack_on",
    "shadow::the_shadow_stack_is_the_stack_through_tail",
    "values::",
    "exceptions::",
    "walks::",
    "matrix::",
];

/// The tests for Windows. Other tests do not depend on the system.
pub(super) fn windows(args: &Args, phases: &mut Phases) {
    let mut ready = None;
    phases.run("preparing Wine and the target", || {
        ready = Some(Windows::prepare()?);
        Ok(())
    });
    let Some(windows) = ready else { return };
    if !args.live_only {
        phases.run("unit, fake CLR and ABI tests under Wine", || windows.unit_tests(args));
    }
    phases.run("live tests for Windows, under Wine", || windows.live(args));
}

/// All tests for arm64.
pub(super) fn arm64(args: &Args, phases: &mut Phases) {
    let mut ready = None;
    phases.run("preparing the emulator and the target", || {
        ready = Some(Arm64::prepare()?);
        Ok(())
    });
    let Some(arm64) = ready else { return };
    if !args.live_only {
        phases.run(STUBS, || arm64.stubs(args));
    }
    phases.run("live tests for arm64, emulated", || arm64.live(args, true));
}

const STUBS: &str = "hook stubs for arm64, emulated";

/// The tests for arm64 that run on every machine.
pub(super) fn some_for_arm64(args: &Args, phases: &mut Phases) {
    let live = "some live tests for arm64, emulated";
    let reason = match arm64::lacks() {
        _ if !args.filter.is_empty() => Some("a filter was given: see --arm64".to_owned()),
        _ if args.runtime.is_some() => Some("--runtime".to_owned()),
        lacks => lacks,
    };
    if let Some(reason) = reason {
        phases.skip(STUBS, reason.clone());
        return phases.skip(live, reason);
    }
    let mut ready = None;
    phases.run("preparing the emulator of arm64 and the target", || {
        ready = Some(Arm64::prepare()?);
        Ok(())
    });
    let Some(arm64) = ready else { return };
    match args.live_only {
        true => phases.skip(STUBS, "--live-only"),
        false => phases.run(STUBS, || arm64.stubs(args)),
    }
    match (args.no_live, known::has_arm64()) {
        (true, _) => phases.skip(live, "--no-live"),
        (_, false) => phases.skip(live, known::NO_NET_10_FOR_ARM64),
        _ => {
            let filter = ON_ARM64.map(str::to_owned).into();
            phases.run(live, || arm64.live(&Args { filter, ..args.clone() }, false));
        }
    }
}

/// The inputs of the tests for Windows.
struct Windows {
    cache: Cache,
    target: Target,
    wine: Wine,
}

impl Windows {
    fn prepare() -> Result<Self> {
        crate::windows::install_tools()?;
        let cache = Cache::open()?;
        let wine = Wine::install(&cache)?;
        note(format_args!("Wine works in {}", wine.prefix.display()));
        let target = Target::prepare(System::Windows, &Metadata::load()?.target_directory)?;
        note(format_args!("building for {target}"));
        Ok(Self { cache, target, wine })
    }

    /// The tests of the code that is compiled into a profiler, and of named pipes. The compile-fail cases call the compiler,
    /// with the same result on every system.
    fn unit_tests(&self, args: &Args) -> Result<()> {
        let mut command = self.target.cargo("test");
        command.args(["--no-fail-fast", "-p", "corprof-sys", "-p", "corprof", "-p", "corprof-il"]);
        command.args(["--lib", "--test", "abi", "--test", "fake_clr", "--test", "signatures"]);
        self.wine.run_what_is_built(&mut command);
        run_tests(args, command)?;
        let mut command = self.target.cargo("test");
        command.args(["--no-fail-fast", "-p", "corprof-diagnostics", "--lib", "--test", "pipes"]);
        self.wine.run_what_is_built(&mut command);
        run_tests(args, command)
    }

    /// The live tests start the applications, so they run here. Tests that load a library themselves run under Wine.
    fn live(&self, args: &Args) -> Result<()> {
        let get = |name: &str| known::for_windows(name, &self.wine, &self.cache);
        let runtimes = match &args.runtime {
            Some(Choice::Known(name)) => Tiers::only(get(name)?),
            Some(Choice::Path(path)) => bail!("for Windows the runtime is 10 or 8, not {}", path.display()),
            None => Tiers { full: known::in_full(None, get)?, smoke: Vec::new() },
        };
        let prepared = Prepared::new(args, self.target.cargo("build"), runtimes)?;
        let in_wine = || {
            let mut command = self.target.cargo("test");
            command.args(["-p", "corprof-tests", "--features", "live", "--test", "com"]);
            self.wine.run_what_is_built(&mut command);
            prepared.run(args, command)
        };
        // Both run to their end, even if the other fails.
        let (live, com) = (prepared.run(args, live_tests(&["live"])), in_wine());
        live.and(com)
    }
}

/// The inputs of the tests for arm64.
struct Arm64 {
    target: Target,
}

impl Arm64 {
    fn prepare() -> Result<Self> {
        arm64::install_tools()?;
        let target = Target::prepare(System::Arm64, &Metadata::load()?.target_directory)?;
        note(format_args!("building for {target}"));
        Ok(Self { target })
    }

    /// Tests that call the hook stubs from assembly; they need no .NET.
    fn stubs(&self, args: &Args) -> Result<()> {
        let mut command = self.target.cargo("test");
        command.args(["--package", "corprof", "--lib"]);
        let filter = vec!["hooks::stubs".to_owned()];
        Qemu::run_what_is_built(&mut command);
        run_tests(&Args { filter, ..args.clone() }, command)
    }

    /// The live tests start the applications, so they run here. Tests that load a library themselves are emulated, on request.
    fn live(&self, args: &Args, with_com: bool) -> Result<()> {
        let runtime = known::for_arm64(&Cache::open()?)?;
        let prepared = Prepared::new(args, self.target.cargo("build"), Tiers::only(runtime))?;
        let live = prepared.run(args, live_tests(&["live"]));
        if !with_com {
            return live;
        }
        let mut command = self.target.cargo("test");
        command.args(["-p", "corprof-tests", "--features", "live", "--test", "com"]);
        Qemu::run_what_is_built(&mut command);
        live.and(prepared.run(args, command))
    }
}
