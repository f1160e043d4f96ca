//! The live tests: their runtimes, their inputs, and how much of them is run.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use super::Args;
use super::nextest::{self, Selection};
use super::results::Results;
use crate::cache::Cache;
use crate::cargo::{self, ELSEWHERE, HERE, Metadata};
use crate::emulator::Emulator;
use crate::managed::{self, Compiler};
use crate::process::{announce, note};
use crate::runtime::Runtime;
use crate::viewers;

/// How much of the live tests is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tier {
    /// That a profiler loads, receives callbacks, hooks and walks: tests/live/smoke.rs.
    Smoke,
    /// About fifty of the quick ones, for a system that is tested in full by `--all`.
    Few,
    /// The quick ones in modules `differs`, which depend on what differs between .NET 10 and 11.
    Differs,
    /// What takes less than five seconds each: all but the modules `long`.
    Quick,
    /// All, in their short form: for tests that the user has named.
    Named,
    /// All, in their long form.
    All,
}

impl Tier {
    /// The condition that tests of the tier meet, for nextest; and what a test program has to be told.
    pub(super) fn condition(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::Smoke => ("test(/^smoke::/)", &["smoke::"]),
            Self::Few => (FEW, &["--skip", "long::"]),
            Self::Differs => {
                ("test(/(^|::)differs::/) and not test(/(^|::)long::/)", &["differs::", "--skip", "long::"])
            }
            Self::Quick => ("not test(/(^|::)long::/)", &["--skip", "long::"]),
            Self::Named | Self::All => ("all()", &[]),
        }
    }

    /// The libraries of profilers that its tests load, as cargo selects them.
    pub(super) fn libraries(self) -> Vec<&'static str> {
        match self {
            Self::Few => LIBRARIES_OF_FEW.into_iter().flat_map(|name| ["--example", name]).collect(),
            _ => vec!["--examples"],
        }
    }
}

/// The tests of [`Tier::Few`]: from the start, attached and detached again; hooks, walks, heaps, events.
const FEW: &str = "test(/^(differs::)?(smoke|walks|hooks|heap_dump|cli::(differs::)?(attach|detach|events|stacks))::/) and not test(/(^|::)long::/)";

/// The libraries that these tests load: each takes a second or two to compile and to link, and the others are not
/// needed.
const LIBRARIES_OF_FEW: [&str; 11] = [
    cargo::BUILT_IN,
    "attached",
    "beeper",
    "detacher",
    "heap_dump",
    "hooks",
    "leaver",
    "own_event",
    "own_events",
    "smoke",
    "walks",
];

/// How many times tests repeat what they do: see tests/src/repetitions.rs.
const REPETITIONS: &str = "CORPROF_TEST_REPETITIONS";

/// Programs of tests that need a runtime.
pub(super) const PROGRAMS: [&str; 2] = ["live", "com"];

/// What the live tests run beside profilers, of the packages that cargo selects.
const COMMAND: [&str; 2] = ["--bin", "corprof"];

/// The inputs of the live tests.
pub(super) struct Prepared {
    runtimes: Vec<Runtime>,
    tier: Tier,
    apps: PathBuf,
    profilers: PathBuf,
    /// The command for this system, whose runtimes are for the other C library.
    host_command: Option<PathBuf>,
}

impl Prepared {
    /// Prepares them; `build` is the command that builds for the runtimes' system.
    pub(super) fn new(args: &Args, mut build: Command, runtimes: Vec<Runtime>, tier: Tier) -> Result<Self> {
        for runtime in &runtimes {
            note(format_args!("{tier:?} live tests on {runtime}"));
        }
        let apps = Metadata::load()?.target_directory.join("managed").join("tests");
        let compiler = Compiler::for_every_runtime()?;
        announce(format_args!("Compiling the managed programs into {}", apps.display()));
        let count = managed::compile_all(&compiler, &apps)?;
        note(format_args!("{count} programs by {compiler}"));
        let (count, missing) = managed::compile_modern(&apps, &Cache::open()?)?;
        note(format_args!("{count} programs in today's C#"));
        if missing > 0 {
            note(format_args!(
                "SKIPPED: {missing} programs in today's C#: their compiler comes with .NET 10 in CORPROF_RUNTIMES"
            ));
        }

        announce("Building the profilers");
        if tier == Tier::Smoke && runtimes.iter().any(|runtime| runtime.emulator.is_some()) {
            // Of the workspace, so that macros are compiled as for this system, and not once more with fewer features.
            build.args(HERE).args(["--example", "smoke"]);
        } else if runtimes.iter().all(|runtime| runtime.emulator.is_none()) {
            cargo::embed_profilers(&mut build, args.release)?;
            build.args(HERE).args(tier.libraries()).args(COMMAND);
        } else {
            build.args(ELSEWHERE).args(tier.libraries()).args(COMMAND);
        }
        if args.release {
            build.arg("--release");
        }
        let libraries = cargo::build_examples(&mut build)?;
        let built = libraries.first().and_then(|(_, library)| library.parent());
        let profilers = built.context("there are no examples")?.to_owned();
        note(format_args!("{} libraries in {}", libraries.len(), profilers.display()));
        Ok(Self { runtimes, tier, apps, profilers, host_command: None })
    }

    /// Builds the command for this system, with these profilers for the other C library.
    pub(super) fn build_host_command(&mut self, args: &Args) -> Result<()> {
        let mut build = cargo::cargo();
        build.arg("build");
        cargo::embed_profilers(&mut build, args.release)?;
        build.env("CORPROF_BUNDLE_OTHER", self.profilers.join("libcorprof_profilers.so"));
        build.args(HERE).args(self.tier.libraries()).args(COMMAND);
        build.args(args.release.then_some("--release"));
        let libraries = cargo::build_examples(&mut build)?;
        let built = libraries.first().and_then(|(_, library)| library.parent()?.parent());
        self.host_command = Some(built.context("there are no examples")?.join("corprof"));
        Ok(())
    }

    /// Runs the live tests of these programs.
    pub(super) fn run(&self, args: &Args, programs: &[&str]) -> Result<Results> {
        let mut cargo = HERE.to_vec();
        cargo.extend(programs.iter().flat_map(|program| ["--test", program]));
        let (expression, skipped) = self.tier.condition();
        let selection = Selection {
            cargo: &cargo,
            expression,
            otherwise: &cargo,
            skipped,
            filter: &args.filter,
            is_release: args.release,
            profile: self.profile(),
        };
        nextest::run(&selection, |command| self.pass_to(command))
    }

    /// Passes the inputs to the tests that `command` runs.
    pub(super) fn pass_to(&self, command: &mut Command) {
        command.env("CORPROF_TEST_RUNTIMES", self.lines());
        command.env("CORPROF_APPS", &self.apps).env("CORPROF_PROFILERS", &self.profilers);
        command.env(REPETITIONS, if self.tier == Tier::All { "many" } else { "few" });
        // Cargo puts examples into a subfolder of the folder of programs.
        if let Some(programs) = self.profilers.parent() {
            let suffix =
                if self.emulator().is_some_and(Emulator::is_windows) { ".exe" } else { std::env::consts::EXE_SUFFIX };
            command.env("CORPROF_COMMAND", programs.join(format!("corprof{suffix}")));
        }
        match &self.host_command {
            Some(program) => command.env("CORPROF_HOST_COMMAND", program),
            None => command.env_remove("CORPROF_HOST_COMMAND"),
        };
        if matches!(self.tier, Tier::All | Tier::Named)
            && self.emulator().is_none()
            && let Some(tool) = viewers::dotnet_trace()
        {
            command.env(viewers::DOTNET_TRACE, tool);
        }
        Emulator::name_to(self.emulator(), command);
    }

    fn profile(&self) -> &'static str {
        match (self.emulator(), self.tier) {
            (Some(emulator), _) if !emulator.is_musl() => "emulated",
            (_, Tier::All) => "all",
            (_, _) => "default",
        }
    }

    fn emulator(&self) -> Option<&Emulator> {
        self.runtimes.first().and_then(|runtime| runtime.emulator.as_ref())
    }

    /// The runtimes for the tests: one a line, with its version and its host.
    fn lines(&self) -> OsString {
        let line = |runtime: &Runtime| [runtime.version.to_string().into(), runtime.host.clone().into_os_string()];
        let lines: Vec<OsString> = self.runtimes.iter().map(|runtime| line(runtime).join(" ".as_ref())).collect();
        lines.join("\n".as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_libraries_of_the_few_tests_can_be_built() {
        let metadata = Metadata::load().unwrap();
        let examples = ["corprof-profilers", "corprof-examples", cargo::TEST_PROFILERS, "corprof-smoke"]
            .map(|package| metadata.examples(package));
        let has = |name: &str| examples.iter().flatten().any(|example| example.name == name);
        assert_eq!(LIBRARIES_OF_FEW.iter().find(|name| !has(name)), None);
        assert_eq!(Tier::Few.libraries().len(), 2 * LIBRARIES_OF_FEW.len());
    }
}
