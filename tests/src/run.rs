//! Runs of managed programs: prepared, watched, and never longer than they may.

use std::env;
use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use xtask::profiler;
use xtask::runtime::profiler_environment;
use xtask::torture::PRELOADED;
use xtask::windows::Wine;

/// Long enough for any test on a busy machine, short enough for a person to wait for.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// How often a running program is looked at.
const POLL: Duration = Duration::from_millis(5);

/// A runtime that the live tests run on.
#[derive(Debug, Clone)]
pub struct Runtime {
    /// Its name, for messages.
    pub name: &'static str,
    /// The number before the first dot of its version, for what differs by it.
    pub major: u32,
    host: PathBuf,
    wine: Option<Wine>,
}

impl Runtime {
    /// Every runtime that is supported, the newest first: those of this system, or under `cargo xtask test --windows`
    /// those for Windows, which run under Wine.
    ///
    /// # Errors
    /// If `cargo xtask test` did not start this test.
    pub fn all() -> Result<Vec<Self>> {
        let wine = env::var_os("CORPROF_WINE_PREFIX").map(|prefix| Wine { prefix: prefix.into() });
        let names = if wine.is_some() {
            [".NET 8 for Windows", ".NET Core 3.1 for Windows"]
        } else {
            [".NET 8", ".NET Core 3.1"]
        };
        Ok(vec![
            Self { name: names[0], major: 8, host: prepared("CORPROF_DOTNET_8")?, wine: wine.clone() },
            Self { name: names[1], major: 3, host: prepared("CORPROF_DOTNET_3_1")?, wine },
        ])
    }

    /// Whether it is a runtime for Windows, for what differs by system.
    #[must_use]
    pub fn is_windows(&self) -> bool {
        self.wine.is_some() || cfg!(windows)
    }

    /// What to preload where native threads end, on Linux: see tests/profilers/exited_threads.rs.
    ///
    /// # Errors
    /// If it has not been built.
    pub fn preloaded(&self) -> Result<Option<PathBuf>> {
        (!self.is_windows()).then(|| self.library(PRELOADED)).transpose()
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

    /// What programs on this runtime call the file `path`, which is absolute.
    fn path(&self, path: &Path) -> OsString {
        if self.wine.is_some() { Wine::path(path) } else { path.into() }
    }
}

impl fmt::Display for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// What `cargo xtask test` has prepared and named in the environment.
fn prepared(variable: &str) -> Result<PathBuf> {
    let path = env::var_os(variable).map(PathBuf::from);
    path.with_context(|| format!("{variable} is not set: start the live tests by `cargo xtask test --live-only`"))
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
            timeout: DEFAULT_TIMEOUT,
        }
    }

    /// Under the only profiler of `library`, which is the name of an example.
    pub fn profiler(self, library: &str) -> Self {
        self.under(library, None, None)
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

    /// With these arguments for the program, after those given before.
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// With an environment variable. An absolute path in it means the same file under Wine, where the current drive is this
    /// machine's file system.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// With another limit than a minute.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Runs the program to its end.
    ///
    /// # Errors
    /// If it cannot be started, or is not done in time: then it is killed, and the error holds what it printed.
    pub fn run(&self) -> Result<Outcome> {
        // Files and not pipes: whoever else holds one open, reading them cannot hang.
        let file = || tempfile::tempfile().context("cannot make a file for the output");
        let (mut stdout, mut stderr) = (file()?, file()?);
        let share = |file: &File| file.try_clone().context("cannot share the output file");
        let mut command = self.command()?;
        command.stdin(Stdio::null()).stdout(share(&stdout)?).stderr(share(&stderr)?);

        let start = Instant::now();
        let child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        let (status, timed_out) = wait(child, self.timeout)?;
        // Windows ends lines its own way, and the tests are about what is in them.
        let lines = |text: String| if self.runtime.is_windows() { text.replace("\r\n", "\n") } else { text };
        let outcome = Outcome {
            what: format!("{} on {}", self.app, self.runtime),
            stdout: lines(text(&mut stdout)?),
            stderr: lines(text(&mut stderr)?),
            status,
            duration: start.elapsed(),
        };
        ensure!(!timed_out, "not done after {:?}, so it was killed: {outcome}", self.timeout);
        Ok(outcome)
    }

    /// The command that [`run`](Self::run) starts, for those who watch it themselves.
    ///
    /// # Errors
    /// If there is no such program or profiler.
    pub fn command(&self) -> Result<Command> {
        let app = prepared("CORPROF_APPS")?.join(&self.app).with_extension("dll");
        ensure!(app.is_file(), "no managed program {}: is there a tests/managed/{}.cs?", app.display(), self.app);
        let mut command = match &self.runtime.wine {
            Some(wine) => wine.command(&self.runtime.host),
            None => Command::new(&self.runtime.host),
        };
        command.arg("exec").arg(self.runtime.path(&app)).args(&self.args);
        // What the person who runs the tests has set must not change what they find.
        for (name, _) in env::vars_os() {
            let text = name.to_string_lossy();
            if ["CORECLR_", "COR_", "COMPlus_", "DOTNET_"].iter().any(|prefix| text.starts_with(prefix)) {
                command.env_remove(&name);
            }
        }
        match (&self.profiler, &self.runtime.wine) {
            (Some(profiler), _) => {
                let library = self.runtime.library(&profiler.library)?;
                let clsid = match &profiler.clsid {
                    Some(clsid) => clsid.clone(),
                    None => profiler::pick(&library, profiler.name.as_deref())?.clsid,
                };
                command.envs(profiler_environment(&clsid, self.runtime.path(&library)));
            }
            (None, Some(wine)) => {
                command.envs(wine.without_profiler());
            }
            (None, None) => {}
        }
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        Ok(command)
    }
}

/// Waits for the end of `child`, and brings it about when the time is over; tells whether it had to.
fn wait(mut child: Child, timeout: Duration) -> Result<(ExitStatus, bool)> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().context("cannot wait for the program")? {
            return Ok((status, false));
        }
        if start.elapsed() >= timeout {
            child.kill().context("cannot kill the program")?;
            return Ok((child.wait().context("cannot wait for the killed program")?, true));
        }
        thread::sleep(POLL);
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
    /// That the program ended by itself, with `code`.
    ///
    /// # Errors
    /// If it did not; the error holds what it printed.
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
