//! The inputs of all measurements: a runtime, the managed programs, the profilers of both sides, and the commands that
//! start them.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, ensure};
use corprof_launch::profiler;
use corprof_profilers::table::{self, Profiler};

use crate::cache::Cache;
use crate::cargo::{self, BUILT_IN, Metadata, TEST_PROFILERS, workspace_root};
use crate::managed::{self, Compiler};
use crate::process::{self, announce, env_path, find_on_path, note};
use crate::runtime::Runtime;
use crate::runtime_choice::Choice;
use crate::system::profiler_environment;

/// The profiler of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Side {
    /// None.
    Bare,
    /// The profiler in C.
    C,
    /// The profiler in Rust.
    Corprof,
}

impl Side {
    /// All of them, in the order of the table.
    pub(super) const ALL: [Self; 3] = [Self::Bare, Self::C, Self::Corprof];

    /// The first differs from round to round: a position may be an advantage.
    pub(super) fn in_turn(round: u32) -> impl Iterator<Item = Self> {
        let count = Self::ALL.len();
        (0..count).map(move |place| Self::ALL[(place + round as usize) % count])
    }

    /// Its name in the table.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Bare => "no profiler",
            Self::C => "C",
            Self::Corprof => "corprof",
        }
    }
}

/// Two profilers with the same function, one of each side.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) c: Built,
    pub(super) corprof: Built,
}

impl Pair {
    /// The profiler of `side`.
    pub(super) fn of(&self, side: Side) -> Option<&Built> {
        match side {
            Side::Bare => None,
            Side::C => Some(&self.c),
            Side::Corprof => Some(&self.corprof),
        }
    }
}

/// A built profiler.
#[derive(Debug)]
pub(super) struct Built {
    /// Its library, as a canonical path.
    pub(super) library: PathBuf,
    pub(super) clsid: String,
}

impl Built {
    /// The profiler of this name, or the only one.
    fn new(library: &Path, name: Option<&str>) -> Result<Self> {
        let clsid = profiler::pick(library, name)?.clsid;
        let library = library.canonicalize().with_context(|| format!("cannot resolve {}", library.display()))?;
        Ok(Self { library, clsid })
    }
}

/// Profilers with enter/leave hooks.
#[derive(Debug)]
pub(super) struct HookProfilers {
    /// In C; its hooks only return.
    pub(super) returning: Built,
    /// In C, return as well, and ask for the name of each function.
    pub(super) naming: Built,
    /// Count calls.
    pub(super) count: Pair,
    /// Keep a shadow stack with times.
    pub(super) shadow: Pair,
    /// The built-in `timer`.
    pub(super) timer: Built,
    /// The built-in `tracer`.
    pub(super) tracer: Built,
}

/// Profilers that change one method, and one with hooks that get the same values.
#[derive(Debug)]
pub(super) struct ProbeProfilers {
    /// Counts in memory.
    pub(super) counter: Built,
    /// A probe at the beginning.
    pub(super) enter: Built,
    /// Probes with argument and result that do nothing.
    pub(super) empty: Built,
    /// Probes that read argument and result.
    pub(super) values: Built,
    /// The same, with the time.
    pub(super) timed: Built,
    /// Hooks with arguments and results by inserted code: tests/profilers/bench_values.rs.
    pub(super) inserted: Built,
    /// The same hooks, called by the runtime.
    pub(super) hooks: Built,
}

/// Everything that is prepared before the measurements.
#[derive(Debug)]
pub(super) struct Bed {
    /// The runtime of the programs.
    pub(super) runtime: Runtime,
    /// The folder of all compiled files; on the disk that profilers would write to as well.
    pub(super) directory: PathBuf,
    /// bench/Service.cs, if the runtime has ASP.NET and there is a compiler for it.
    pub(super) service: Option<PathBuf>,
    /// bench/AsyncService.cs: the same with methods that the runtime itself suspends.
    pub(super) async_service: Option<PathBuf>,
    /// bench/Bench.cs.
    pub(super) bench: PathBuf,
    /// tests/managed/Hello.cs.
    pub(super) hello: PathBuf,
    /// tests/managed/Sample.cs.
    pub(super) sample: PathBuf,
    /// Count allocated objects.
    pub(super) count: Pair,
    /// Count objects and bytes by class; the one of corprof is the built-in `allocations`.
    pub(super) classes: Pair,
    /// Count unloaded modules, and loaded classes and code.
    pub(super) loads: Pair,
    /// Do nothing.
    pub(super) nothing: Pair,
    /// The built-in `logger`.
    pub(super) logger: Built,
    /// Only on systems that bench/hooks.S supports.
    pub(super) hooks: Option<HookProfilers>,
    /// tests/profilers/bench_probes.rs.
    pub(super) probes: ProbeProfilers,
    /// tests/profilers/bench_calls.rs.
    pub(super) calls: Built,
    /// bench/calls.c.
    pub(super) calls_in_c: PathBuf,
    /// tests/profilers/bench_walks.rs.
    pub(super) walks: Built,
    /// bench/walks.c.
    pub(super) walks_in_c: PathBuf,
    /// The built-in `sampler`.
    pub(super) sampler: Built,
    /// Counts samples by chain of calls: tests/profilers/sampling.rs.
    pub(super) counts: Built,
    /// tests/managed/Deep.cs.
    pub(super) deep: PathBuf,
    /// tests/managed/Shares.cs.
    pub(super) shares: PathBuf,
    /// tests/managed/Pool.cs.
    pub(super) pool: PathBuf,
}

/// Whether bench/hooks.S supports this system.
const HAS_HOOKS: bool = cfg!(all(target_arch = "x86_64", target_os = "linux"));

impl Bed {
    /// Finds the runtime, compiles and builds.
    ///
    /// # Errors
    /// If one of these steps fails.
    pub(super) fn prepare(runtime: Option<&Choice>) -> Result<Self> {
        announce("Finding the .NET runtime");
        let runtime = Choice::resolve(runtime, &Cache::open()?)?;
        note(&runtime);

        let dir = Metadata::load()?.target_directory.join("bench");
        let compiler = Compiler::for_runtime(&runtime)?;
        announce(format_args!("Compiling the managed programs into {}", dir.display()));
        note(format_args!("by {compiler}"));
        let compile = |source: &Path| managed::compile(&compiler, source, &dir);
        let bench = compile(&workspace_root().join("bench").join("Bench.cs"))?;
        let tested = |name: &str| compile(&managed::sources_dir().join(name));
        let hello = tested("Hello.cs")?;
        let sample = tested("Sample.cs")?;
        let deep = tested("Deep.cs")?;
        let shares = tested("Shares.cs")?;
        let pool = tested("Pool.cs")?;

        let service = managed::service(&runtime, &dir)?;
        let async_service = managed::async_service(&runtime, &dir)?;

        announce("Building the C code (floor.c, shadow.c, calls.c and walks.c of bench/)");
        let c_count = floor(&dir, "count", &["-DCOUNT"], &[])?;
        let c_classes = floor(&dir, "classes", &["-DCOUNT_CLASSES"], &[])?;
        let c_loads = floor(&dir, "loads", &["-DCOUNT_LOADS"], &[])?;
        let c_nothing = floor(&dir, "nothing", &[], &[])?;
        let hooks = |role, options: &[_], others: &[_]| floor(&dir, role, options, &[&["hooks.S"], others].concat());
        let in_c = || -> Result<_> {
            let returning = hooks("return", &["-DHOOK_RETURNS"], &[])?;
            let naming = hooks("names", &["-DHOOK_RETURNS", "-DASK_NAMES"], &[])?;
            Ok((
                returning,
                naming,
                hooks("calls", &["-DCOUNT_CALLS"], &[])?,
                hooks("shadow", &["-DSHADOW"], &["shadow.c"])?,
            ))
        };
        let hooks_in_c = HAS_HOOKS.then(in_c).transpose()?;
        let calls_in_c = c_library(&dir, &["calls.c"], "calls", &[])?;
        let walks_in_c = c_library(&dir, &["walks.c"], "walks", &[])?;

        announce("Building the profilers in Rust, optimised");
        let of_tests = [
            "bench_count",
            "bench_loads",
            "bench_nothing",
            "bench_hooks",
            "bench_shadow",
            "bench_calls",
            "bench_walks",
            "sampling",
            "bench_probes",
            "bench_values",
        ];
        // One after the other: together the built-in profilers would get what the tests want of corprof as well, its
        // feature `testing`, and be slower than those that users build.
        let build = |package: &[&str], names: &[&str]| {
            let mut build = cargo::cargo();
            build.args(["build", "--release", "--package"]).args(package);
            build.args(names.iter().flat_map(|name| ["--example", name]));
            cargo::build_examples(&mut build)
        };
        let built_in = build(&["corprof-profilers"], &[BUILT_IN])?;
        let libraries = [build(&[TEST_PROFILERS, "--features", "bench"], &of_tests)?, built_in];
        let libraries = libraries.concat();
        let library = |name: &str| {
            let library = libraries.iter().find(|(example, _)| example == name).map(|(_, library)| library);
            library.with_context(|| format!("cargo built no library for the example `{name}`"))
        };
        let built = |name: &str| Built::new(library(name)?, None);
        let [count, loads, nothing, hooks, shadow, calls, walks, sampling, probes, hook_values] = of_tests;
        let named = |profiler: &Profiler| Built::new(library(BUILT_IN)?, Some(profiler.type_name));
        let hooks = |(returning, naming, count, stack)| {
            anyhow::Ok(HookProfilers {
                returning,
                naming,
                count: Pair { c: count, corprof: built(hooks)? },
                shadow: Pair { c: stack, corprof: built(shadow)? },
                timer: named(&table::TIMER)?,
                tracer: named(&table::TRACER)?,
            })
        };
        Ok(Self {
            runtime,
            directory: dir,
            service,
            async_service,
            bench,
            hello,
            sample,
            count: Pair { c: c_count, corprof: built(count)? },
            classes: Pair { c: c_classes, corprof: named(&table::ALLOCATIONS)? },
            loads: Pair { c: c_loads, corprof: built(loads)? },
            nothing: Pair { c: c_nothing, corprof: built(nothing)? },
            logger: named(&table::LOGGER)?,
            hooks: hooks_in_c.map(hooks).transpose()?,
            probes: ProbeProfilers {
                counter: Built::new(library(probes)?, Some("Counter"))?,
                enter: Built::new(library(probes)?, Some("Enter"))?,
                empty: Built::new(library(probes)?, Some("Empty"))?,
                values: Built::new(library(probes)?, Some("Values"))?,
                timed: Built::new(library(probes)?, Some("Timed"))?,
                inserted: Built::new(library(hook_values)?, Some("SumInserted"))?,
                hooks: Built::new(library(hook_values)?, Some("SumValues"))?,
            },
            calls: built(calls)?,
            calls_in_c,
            walks: built(walks)?,
            walks_in_c,
            sampler: named(&table::SAMPLER)?,
            counts: Built::new(library(sampling)?, Some("Counts"))?,
            deep,
            shares,
            pool,
        })
    }

    /// A command that runs the managed program `dll` under `profiler`, without standard input and output.
    pub(super) fn command(&self, dll: &Path, profiler: Option<&Built>) -> Result<Command> {
        let mut command = self.runtime.command(dll);
        // The user's own settings must not change the results.
        for (name, _) in env::vars_os() {
            let text = name.to_string_lossy();
            let settings =
                ["CORECLR_", "COR_", "COMPlus_", "DOTNET_", "LOGGER_", "SAMPLER_", "TIMER_", "TRACER_", "ALLOCATIONS_"];
            if settings.iter().any(|prefix| text.starts_with(prefix)) {
                command.env_remove(&name);
            }
        }
        if let Some(profiler) = profiler {
            command.envs(profiler_environment(&profiler.clsid, profiler.library.clone().into()));
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(command)
    }
}

/// Runs `command`, which must succeed, and returns its standard output and standard error.
pub(super) fn output(command: &mut Command) -> Result<(String, String)> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let Output { status, stdout, stderr } =
        command.output().with_context(|| format!("cannot start `{}`", process::shown(command)))?;
    let [stdout, stderr] = [stdout, stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    ensure!(status.success(), "`{}` failed: {status}\n{stdout}{stderr}", process::shown(command));
    Ok((stdout, stderr))
}

/// The profiler of bench/floor.c in one of its roles.
fn floor(dir: &Path, role: &str, options: &[&str], others: &[&str]) -> Result<Built> {
    let sources: Vec<_> = ["floor.c"].iter().chain(others).copied().collect();
    Built::new(&c_library(dir, &sources, &format!("floor_{role}"), options)?, None)
}

/// Compiles sources of bench/ into a library of this name.
fn c_library(dir: &Path, sources: &[&str], name: &str, options: &[&str]) -> Result<PathBuf> {
    let compiler = env_path("CC").or_else(|| ["cc", "gcc", "clang"].into_iter().find_map(find_on_path));
    let compiler =
        compiler.context("no C compiler: install gcc, or name one in CC (on Debian: apt-get install gcc)")?;
    let library = dir.join(format!("{}{name}{}", env::consts::DLL_PREFIX, env::consts::DLL_SUFFIX));
    let mut command = Command::new(compiler);
    command.args(["-O2", "-Wall", "-Wextra", "-shared", "-fPIC"]).args(options).arg("-o").arg(&library);
    command.args(sources.iter().map(|file| workspace_root().join("bench").join(file)));
    note(process::shown(&command));
    process::run_as_progress(&mut command)?;
    Ok(library)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_goes_first_in_turn() {
        let first: Vec<_> = (0..4).filter_map(|round| Side::in_turn(round).next()).collect();
        assert_eq!(first, [Side::Bare, Side::C, Side::Corprof, Side::Bare]);
        assert_eq!(Side::in_turn(2).count(), 3);
    }
}
