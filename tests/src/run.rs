//! Runs of managed programs: prepared, watched, and never longer than they may.

use std::env;
use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use corprof_launch::profiler;
use corprof_launch::running::Running;
use corprof_profilers::table;
use xtask::cargo::BUILT_IN;
use xtask::emulator::Emulator;
use xtask::managed;
use xtask::stacks;
use xtask::stress::PRELOADED;
use xtask::system::profiler_environment;

use crate::starvation;

/// Long enough for any test on a machine with twenty times as much to do as it can, short enough for a person to wait
/// for.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(240);

/// How long it may take to find out where the threads of a program stand.
const STACKS: Duration = Duration::from_secs(20);

/// So much longer may everything take where each instruction is emulated.
const EMULATED: u32 = 5;

/// And under Wine, whose server is asked about each thread and each wait: on a busy machine a program without a
/// profiler starts and ends 100 threads a second on .NET 10.
const UNDER_WINE: u32 = 2;

/// Programs with native threads that end, for which .NET 8 on Linux aborts now and then, with or without a profiler:
/// they run with tests/profilers/exited_threads.rs.
const WITH_NATIVE_THREADS: [&str; 4] = ["Farewell", "Fire", "Foreign", "Stress"];

/// A runtime that the live tests run on.
#[derive(Debug, Clone)]
pub struct Runtime {
    /// Its name, for messages.
    pub name: String,
    /// The number before the first dot of its version, for differences between versions.
    pub major: u32,
    host: PathBuf,
    emulator: Option<Emulator>,
}

impl Runtime {
    /// Every runtime that everything is tested on, the newest first: those of this system, or under `cargo xtask test
    /// --windows` those for Windows, which run under Wine.
    ///
    /// # Errors
    /// If `cargo xtask test` did not start this test.
    pub fn all() -> Result<Vec<Self>> {
        let runtimes = Self::named("CORPROF_TEST_RUNTIMES")?;
        ensure!(!runtimes.is_empty(), "CORPROF_TEST_RUNTIMES names no runtime");
        Ok(runtimes)
    }

    /// Those of [`all`](Self::all) that run `app`, a program in tests/managed/modern. None, and a line that says so,
    /// where there is no compiler for it.
    ///
    /// # Errors
    /// As [`all`](Self::all), or if there is no such program.
    pub fn all_for_modern(app: &str) -> Result<Vec<Self>> {
        let source = managed::modern_dir().join(app).with_extension("cs");
        let text = fs::read_to_string(&source).with_context(|| format!("no program {}", source.display()))?;
        let (target, _) = managed::target(&text)?.split_once('.').context("a target is a version")?;
        let target: u32 = target.parse().context("a target is a version")?;
        if !prepared("CORPROF_APPS")?.join(app).with_extension("dll").is_file() {
            println!("SKIPPED: {app} is not compiled: its compiler comes with .NET 10 in CORPROF_RUNTIMES");
            return Ok(Vec::new());
        }
        Ok(Self::all()?.into_iter().filter(|runtime| runtime.major >= target).collect())
    }

    /// The runtimes in this variable: a line each, with its version and its host.
    fn named(variable: &str) -> Result<Vec<Self>> {
        let emulator = Emulator::named();
        let lines = prepared(variable)?.into_os_string().into_string();
        let lines = lines.map_err(|lines| anyhow!("{variable} is not text: {}", lines.display()))?;
        let runtime = |line: &str| {
            let (version, host) = line.split_once(' ').context("no host")?;
            let major = version.split('.').next().and_then(|number| number.parse().ok()).context("no version")?;
            let system = match &emulator {
                Some(Emulator::Wine(_)) => " for Windows",
                Some(Emulator::Qemu(_)) => " for arm64",
                Some(Emulator::Musl(_)) => " for musl",
                None => "",
            };
            let name = format!(".NET {major}{system}");
            anyhow::Ok(Self { name, major, host: host.into(), emulator: emulator.clone() })
        };
        let runtimes = lines.lines().map(|line| runtime(line).with_context(|| format!("`{line}` in {variable}")));
        runtimes.collect()
    }

    /// Whether it is a runtime for Windows, for differences between systems.
    #[must_use]
    pub fn is_windows(&self) -> bool {
        self.emulator.as_ref().is_some_and(Emulator::is_windows) || cfg!(windows)
    }

    /// Whether each instruction is emulated, so that a program is given less to do and more time. Wine emulates none.
    #[must_use]
    pub fn is_emulated(&self) -> bool {
        self.emulator.as_ref().is_some_and(Emulator::is_slow)
    }

    /// Whether its C library is musl.
    #[must_use]
    pub fn is_musl(&self) -> bool {
        self.emulator.as_ref().is_some_and(Emulator::is_musl) || cfg!(target_env = "musl")
    }

    /// Whether starting, stopping and looking at threads takes some ten times as long as elsewhere: under Wine, whose
    /// server is asked about each, and where each instruction is emulated.
    #[must_use]
    pub fn is_slow(&self) -> bool {
        self.is_windows() || self.is_emulated()
    }

    /// The processor that it is for, as Rust names processors.
    #[must_use]
    pub fn processor(&self) -> &'static str {
        if self.is_emulated() { "aarch64" } else { std::env::consts::ARCH }
    }

    /// The built library of the example `name`.
    fn library(&self, name: &str) -> Result<PathBuf> {
        let file = if self.is_windows() { format!("{name}.dll") } else { format!("{DLL_PREFIX}{name}{DLL_SUFFIX}") };
        let library = prepared("CORPROF_PROFILERS")?.join(file);
        ensure!(
            library.is_file(),
            "no profiler library {}: is there an [[example]] of that name, of crate type cdylib?",
            library.display()
        );
        Path::canonicalize(&library).with_context(|| format!("cannot resolve {}", library.display()))
    }

    /// Its `dotnet`, as programs on this runtime call it.
    #[must_use]
    pub fn host(&self) -> OsString {
        self.path(&self.host)
    }

    /// The folder of its framework's assemblies.
    ///
    /// # Errors
    /// If there is none beside its `dotnet`.
    pub fn framework(&self) -> Result<PathBuf> {
        let host = self.host.canonicalize().with_context(|| format!("no {}", self.host.display()))?;
        let versions = host.parent().unwrap_or(Path::new("")).join("shared").join("Microsoft.NETCore.App");
        let entries = fs::read_dir(&versions).with_context(|| format!("no folder {}", versions.display()))?;
        let is_own =
            |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with(&format!("{}.", self.major));
        let found = entries.flatten().find(is_own);
        Ok(found.with_context(|| format!("no .NET {} in {}", self.major, versions.display()))?.path())
    }

    /// The managed program `name`, as programs on this runtime call it.
    ///
    /// # Errors
    /// If it has not been compiled.
    pub fn app(&self, name: &str) -> Result<OsString> {
        Ok(self.path(&compiled(name)?))
    }

    /// The name of the file `path`, which is absolute, for programs on this runtime.
    fn path(&self, path: &Path) -> OsString {
        self.emulator.as_ref().map_or_else(|| path.into(), |emulator| emulator.path(path))
    }
}

impl fmt::Display for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// The inputs that `cargo xtask test` has prepared and named in the environment.
fn prepared(variable: &str) -> Result<PathBuf> {
    let path = env::var_os(variable).map(PathBuf::from);
    path.with_context(|| format!("{variable} is not set: start the live tests by `cargo xtask test --live-only`"))
}

/// The managed program `name`.
fn compiled(name: &str) -> Result<PathBuf> {
    let app = prepared("CORPROF_APPS")?.join(name).with_extension("dll");
    ensure!(app.is_file(), "no managed program {}: is there a tests/managed/{name}.cs?", app.display());
    Ok(app)
}

/// A run of a managed program.
#[derive(Debug)]
#[must_use = "nothing runs before `run`"]
pub struct Run {
    runtime: Runtime,
    app: String,
    args: Vec<OsString>,
    profiler: Option<Profiler>,
    env: Vec<(OsString, OsString)>,
    folder: Option<PathBuf>,
    timeout: Duration,
}

/// A profiler as the test names it.
#[derive(Debug)]
struct Profiler {
    library: String,
    name: Option<String>,
    clsid: Option<String>,
}

impl Run {
    /// `app` is the name of a source in `tests/managed`, without its extension.
    pub fn new(runtime: &Runtime, app: &str) -> Self {
        Self {
            runtime: runtime.clone(),
            app: app.to_owned(),
            args: Vec::new(),
            profiler: None,
            env: Vec::new(),
            folder: None,
            timeout: DEFAULT_TIMEOUT,
        }
    }

    /// Under the only profiler of `library`, which is the name of an example.
    pub fn profiler(self, library: &str) -> Self {
        self.under(library, None, None)
    }

    /// Under the profiler of this name that the command has built in.
    pub fn built_in(self, name: &str) -> Self {
        let type_name = table::Profiler::named(Path::new(name)).map_or(name, |profiler| profiler.type_name);
        self.under(BUILT_IN, Some(type_name), None)
    }

    /// Under the profiler `name` of `library`, which holds several.
    pub fn profiler_named(self, library: &str, name: &str) -> Self {
        self.under(library, Some(name), None)
    }

    /// With the runtime asking `library` for `clsid` in braces, whether there is such a profiler or not.
    pub fn profiler_with_clsid(self, library: &str, clsid: &str) -> Self {
        self.under(library, None, Some(clsid))
    }

    fn under(mut self, library: &str, name: Option<&str>, clsid: Option<&str>) -> Self {
        let [name, clsid] = [name, clsid].map(|text| text.map(str::to_owned));
        self.profiler = Some(Profiler { library: library.to_owned(), name, clsid });
        self
    }

    /// In this working folder.
    pub fn inside(mut self, folder: &Path) -> Self {
        self.folder = Some(folder.to_owned());
        self
    }

    /// With these arguments for the program, after those given before.
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// With an environment variable. An absolute path in it means the same file under Wine, where the current drive is
    /// this machine's file system.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// With another limit than four minutes. Time in which it waits for a processor does not count
    /// ([`Limit`](crate::Limit)). It is longer in an emulator and under Wine.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Runs the program to its end.
    ///
    /// # Errors
    /// If it cannot be started, or is not done in time: then it is killed, and the error has its output.
    pub fn run(&self) -> Result<Outcome> {
        let outcome = self.run_once()?;
        if self.runtime.emulator.as_ref().is_some_and(Emulator::is_windows) && outcome.has_not_started() {
            println!("Wine has not started {}: once more", outcome.what);
            return self.run_once();
        }
        Ok(outcome)
    }

    fn run_once(&self) -> Result<Outcome> {
        // Files and not pipes: if another process holds one open, reading cannot hang.
        let file = || tempfile::tempfile().context("cannot make a file for the output");
        let mut stdout = file()?;
        let mut stderr = file()?;
        let share = |file: &File| file.try_clone().context("cannot share the output file");
        let mut command = self.command()?;
        command.stdin(Stdio::null()).stdout(share(&stdout)?).stderr(share(&stderr)?);

        let start = Instant::now();
        let child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        let timeout = match &self.runtime.emulator {
            Some(Emulator::Qemu(_)) => self.timeout * EMULATED,
            Some(Emulator::Wine(_)) => self.timeout * UNDER_WINE,
            Some(Emulator::Musl(_)) | None => self.timeout,
        };
        let (status, stacks) = wait(child, timeout)?;
        // Windows ends lines differently, and the tests are about their contents.
        let lines = |text: String| if self.runtime.is_windows() { text.replace("\r\n", "\n") } else { text };
        let outcome = Outcome {
            what: format!("{} on {}", self.app, self.runtime),
            stdout: lines(text(&mut stdout)?),
            stderr: lines(text(&mut stderr)?),
            status,
            duration: start.elapsed(),
        };
        match stacks {
            None => Ok(outcome),
            Some(stacks) => {
                bail!("not done after {timeout:?}, so it was killed: {outcome}\nits threads stood:\n{stacks}")
            }
        }
    }

    /// The command that [`run`](Self::run) starts, for callers that watch it themselves.
    ///
    /// # Errors
    /// If there is no such program or profiler.
    pub fn command(&self) -> Result<Command> {
        let app = compiled(&self.app)?;
        let mut command = match &self.runtime.emulator {
            Some(emulator) => emulator.command(&self.runtime.host, &app),
            None => {
                let mut command = Command::new(&self.runtime.host);
                command.arg("exec").arg(&app);
                command
            }
        };
        command.args(&self.args);
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        // The settings of the caller's environment must not change the results.
        for (name, _) in env::vars_os() {
            let text = name.to_string_lossy();
            if ["CORECLR_", "COR_", "COMPlus_", "DOTNET_"].iter().any(|prefix| text.starts_with(prefix)) {
                command.env_remove(&name);
            }
        }
        if let Some(profiler) = &self.profiler {
            let library = self.runtime.library(&profiler.library)?;
            let clsid = match &profiler.clsid {
                Some(clsid) => clsid.clone(),
                None => profiler::pick(&library, profiler.name.as_deref())?.clsid,
            };
            let variables = profiler_environment(&clsid, self.runtime.path(&library));
            // The other family would hide the changes that tests make to these; nobody else has set it.
            command.envs(variables.into_iter().filter(|(name, _)| name.starts_with("CORECLR_")));
        }
        if let Some(emulator) = &self.runtime.emulator {
            command.envs(emulator.environment(self.profiler.is_some()));
        }
        if WITH_NATIVE_THREADS.contains(&self.app.as_str()) && !self.runtime.is_windows() && !self.runtime.is_musl() {
            command.env("LD_PRELOAD", self.runtime.library(PRELOADED)?);
        }
        // glibc then overwrites what is freed, so that a call crashes that leads the runtime there.
        command.env("MALLOC_PERTURB_", "165");
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        Ok(command)
    }
}

/// Waits for the end of `child`. When the time is over, kills it, and returns where its threads stood.
fn wait(child: Child, timeout: Duration) -> Result<(ExitStatus, Option<String>)> {
    let mut running = Running::new(child).context("cannot watch the program")?;
    match starvation::wait_for(&mut running, timeout).context("cannot wait for the program")? {
        Some(status) => Ok((status, None)),
        None => {
            let stacks = stacks::of_in_short(running.id(), STACKS);
            Ok((running.kill().context("cannot kill the program")?, Some(stacks)))
        }
    }
}

fn text(file: &mut File) -> Result<String> {
    let mut bytes = Vec::new();
    file.rewind().and_then(|()| file.read_to_end(&mut bytes)).context("cannot read the output")?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// How a run ended.
#[derive(Debug)]
pub struct Outcome {
    what: String,
    /// All of its standard output.
    pub stdout: String,
    /// All of its standard error: the program's, the runtime's and the profiler's.
    pub stderr: String,
    /// Its exit code, or the signal that ended it.
    pub status: ExitStatus,
    /// From start to end.
    pub duration: Duration,
}

impl Outcome {
    /// Whether Wine has ended before the program could begin, which it does now and then, with status 1 and without a
    /// word, within some milliseconds. To begin takes a program a hundred times as long.
    fn has_not_started(&self) -> bool {
        let is_silent = self.stdout.is_empty() && self.stderr.is_empty();
        self.status.code() == Some(1) && is_silent && self.duration < Duration::from_millis(50)
    }

    /// That the program ended by itself, with `code`.
    ///
    /// # Errors
    /// If it did not; the error has its output.
    pub fn exited_with(&self, code: i32) -> Result<&Self> {
        if self.status.code() != Some(code) {
            bail!("expected exit code {code}: {self}");
        }
        Ok(self)
    }
}

/// Everything, for the message of a test that fails.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, stdout, stderr, status, duration } = self;
        write!(
            f,
            "{what}: {status} after {duration:.1?}\n--- stdout ---\n{stdout}\n--- stderr ---\n{stderr}\n--- end ---"
        )
    }
}
