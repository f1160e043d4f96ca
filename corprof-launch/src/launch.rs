//! Runs an application under profilers: checks before its start, and a report at its end.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

use crate::application::{Application, Wait};
use crate::checks::{self, Finding, Place};
use crate::crash;
use crate::environment::{self, Chosen};
use crate::exit::{self, Failure};
use crate::image::{self, Image};
use crate::processes::{self, Program};
use crate::runtime_messages::{self, ProcessMessages, RuntimeMessages, Verdict};
use crate::signals::Interrupt;
use crate::starts::Starts;
use crate::stop_file::StopFile;

/// The changes of an application's environment: a value, or none for a cleared variable.
pub type Changes = BTreeMap<String, Option<OsString>>;

/// An application to start.
#[derive(Debug)]
pub struct Launch<'a> {
    /// The profilers, the main one first.
    pub profilers: Vec<Chosen>,
    /// Variables of the application.
    pub changes: Changes,
    /// The command that starts the application.
    pub command: &'a [OsString],
    /// Stops the main profiler, if Ctrl-C is to do that before it ends the application.
    pub stop: Option<&'a StopFile>,
    /// Whether only errors are printed.
    pub is_quiet: bool,
}

/// The result of a run.
#[derive(Debug)]
pub struct Ended {
    /// How the application ended.
    pub status: ExitStatus,
    /// The application's process, which may be a shell or another launcher.
    pub pid: u32,
    /// The processes that have loaded the main profiler.
    pub loaded: BTreeSet<u32>,
    /// What processes ran, as far as they were seen.
    pub programs: BTreeMap<u32, Program>,
    /// The parents of processes, as far as they were seen.
    pub parents: BTreeMap<u32, u32>,
    /// Whether at least one process has loaded each profiler.
    pub is_loaded: bool,
    /// Whether Ctrl-C was pressed.
    pub is_interrupted: bool,
}

impl Ended {
    /// The processes that have loaded the main profiler, the most important first: applications before processes of the
    /// SDK, and parents before their children.
    ///
    /// Among the children of a process the first precedes; among those of a process of the SDK the last, because
    /// `dotnet run` starts the tools of a build before the application.
    #[must_use]
    pub fn by_importance(&self) -> Vec<u32> {
        let mut pids: Vec<u32> = self.loaded.iter().copied().collect();
        pids.sort_by_key(|pid| {
            let is_of_sdks = self.parents.get(pid).is_some_and(|parent| self.is_of_sdk(*parent));
            let order = if is_of_sdks { -i64::from(*pid) } else { i64::from(*pid) };
            (self.is_of_sdk(*pid), self.depth(*pid), order)
        });
        pids
    }

    /// Whether a process is known to be one of the SDK.
    #[must_use]
    pub fn is_of_sdk(&self, pid: u32) -> bool {
        self.programs.get(&pid).is_some_and(|program| program.is_of_sdk)
    }

    /// The command line of a process, if it was seen.
    #[must_use]
    pub fn command(&self, pid: u32) -> Option<&str> {
        self.programs.get(&pid).map(|program| program.command.as_str())
    }

    /// How many processes there are between this and the started one; the largest number if that is not known.
    fn depth(&self, pid: u32) -> usize {
        let mut current = pid;
        // Numbers of processes are used again, so a chain of parents may have a loop.
        for depth in 0..=self.parents.len() {
            if current == self.pid {
                return depth;
            }
            let Some(parent) = self.parents.get(&current) else { break };
            current = *parent;
        }
        usize::MAX
    }
}

/// What the SDK's processes are told, unless the user has told them something.
///
/// VSTest kills the process of the tests 100 ms after the last one, in which a profiler cannot write its file. And a
/// server that a build starts would live on with the profiler in it, and compile for others: so nodes of MSBuild end
/// with the build, and the compiler is a process of its own.
const FOR_THE_SDK: [(&str, &str); 4] = [
    ("VSTEST_TESTHOST_SHUTDOWN_TIMEOUT", "30000"),
    ("MSBUILDDISABLENODEREUSE", "1"),
    ("DOTNET_CLI_USE_MSBUILD_SERVER", "0"),
    ("UseSharedCompilation", "false"),
];

fn prepare_the_sdk(changes: &mut Changes) {
    for (name, value) in FOR_THE_SDK {
        if value_of(changes, name).is_none() {
            changes.insert(name.to_owned(), Some(value.into()));
        }
    }
}

impl Launch<'_> {
    /// Runs the application to its end, and reports on standard error which processes loaded the profilers.
    ///
    /// # Errors
    /// If the application is not started.
    pub fn run(mut self) -> Result<Ended, Failure> {
        let refused = |error: anyhow::Error| Failure::new(exit::REFUSED, error);
        let (main, notification) = self.profilers.split_first().context("no profiler")?;
        let changes = &mut self.changes;
        for name in environment::profiler_variables() {
            changes.entry(name).or_insert(None);
        }
        for (name, value) in environment::to_load(main, notification).map_err(refused)? {
            changes.insert(name, Some(value));
        }
        let (program, arguments) = self.command.split_first().context("no command")?;
        let program = find(program, value_of(changes, "PATH").as_deref())?;
        refuse(&self.profilers, &program, changes)?;
        // A session that the user has set up stays unchanged.
        let is_recording =
            ["DOTNET_EnableEventPipe", "COMPlus_EnableEventPipe"].iter().any(|name| value_of(changes, name).is_some());
        let messages_of_runtimes = if is_recording { None } else { Some(RuntimeMessages::new()?) };
        for (name, value) in messages_of_runtimes.iter().flat_map(RuntimeMessages::variables) {
            changes.insert(name.to_owned(), Some(value));
        }
        prepare_the_sdk(changes);

        let interrupt = if self.stop.is_some() { Interrupt::Stop } else { Interrupt::PassOn };
        let mut command = interrupt.command(&program);
        command.args(arguments);
        set(&mut command, changes);
        let application = Application::start(&mut command, &program, interrupt)?;
        // The folder of messages has files of this application only; in the other, each runtime of the machine makes a
        // socket.
        let folder = match &messages_of_runtimes {
            Some(messages_of_runtimes) => messages_of_runtimes.folder().to_owned(),
            None => value_of(&self.changes, "TMPDIR").map_or_else(|| PathBuf::from("/tmp"), PathBuf::from),
        };
        let watched = watch(application, &self.profilers, self.stop, &folder)?;
        let processes = messages_of_runtimes.as_ref().map(RuntimeMessages::by_process).transpose()?.unwrap_or_default();
        let is_loaded = report(&self.profilers, &processes, &watched.seen, self.is_quiet);
        let Watched { status, pid, seen, is_interrupted } = watched;
        let text_of = |name: &str| value_of(&self.changes, name).map(|value| value.to_string_lossy().into_owned());
        if let Some(hint) = crash::hint(status, text_of).filter(|_| !self.is_quiet) {
            eprintln!("corprof: {hint}");
        }
        let clsid = self.profilers.first().map(|main| main.clsid.as_str()).unwrap_or_default();
        let reported = processes.iter().filter(|process| process.verdict(clsid) == Verdict::Loaded);
        let mapped = seen.mapped.iter().filter(|(_, number)| *number == 0).map(|(pid, _)| *pid);
        let loaded = reported.map(|process| process.pid).chain(mapped).collect();
        let Seen { programs, parents, .. } = seen;
        Ok(Ended { status, pid, loaded, programs, parents, is_loaded, is_interrupted })
    }
}

/// The value of a variable in the application's environment.
pub fn value_of(changes: &Changes, name: &str) -> Option<OsString> {
    changes.get(name).map_or_else(|| std::env::var_os(name), Clone::clone)
}

/// Sets and clears variables of a command.
pub fn set(command: &mut Command, changes: &Changes) {
    for (name, value) in changes {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
}

/// The path of a program.
///
/// # Errors
/// If there is none, or it is a library.
pub fn find(program: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, Failure> {
    let found = image::find_program(program, path);
    let found =
        found.ok_or_else(|| Failure::new(exit::NOT_FOUND, anyhow!("there is no program {}", program.display())))?;
    if found.extension().is_some_and(|extension| extension == "dll") {
        let text = format!("{0} is not a program of its own: run it by `dotnet {0}`", program.display());
        return Err(Failure::new(exit::CANNOT_START, anyhow!(text)));
    }
    Ok(found)
}

/// Refuses profilers that a runtime would silently not load.
///
/// # Errors
/// With the reasons, and [`exit::REFUSED`].
pub fn refuse(profilers: &[Chosen], program: &Path, changes: &Changes) -> Result<(), Failure> {
    let findings = check(profilers, program, changes);
    if findings.is_empty() {
        return Ok(());
    }
    let text = findings.iter().map(|finding| format!("\n  {finding}")).collect::<String>();
    let error = anyhow!("the application was not started, as no runtime would load the profiler:{text}");
    Err(Failure::new(exit::REFUSED, error))
}

/// Finds the reasons for which a runtime would silently not load the profilers.
fn check(profilers: &[Chosen], program: &Path, changes: &Changes) -> Vec<Finding> {
    let image = Image::of_program(program).ok();
    let library_path = value_of(changes, "LD_LIBRARY_PATH");
    let place = Place { program: image.as_ref(), library_path: library_path.as_deref() };
    if let Some(finding) = checks::compiled_ahead(image.as_ref()) {
        return vec![finding];
    }
    let mut findings: Vec<Finding> =
        profilers.iter().flat_map(|profiler| checks::library(&profiler.library, place)).collect();
    let names = ["DOTNET", "COMPlus"].iter().flat_map(|prefix| {
        ["EnableDiagnostics", "EnableDiagnostics_Profiler"].map(|setting| format!("{prefix}_{setting}"))
    });
    let settings: Vec<(String, OsString)> =
        names.filter_map(|name| Some((name.clone(), value_of(changes, &name)?))).collect();
    let of = |name: &str| settings.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_os_str());
    if let Some((name, value)) = environment::forbidding(of) {
        let what = format!("{name} is {}, which forbids profilers", value.display());
        findings.push(Finding::new("profilers-forbidden", what, format!("unset it, or run with `--env {name}=1`")));
    }
    findings
}

/// What was last seen of processes from outside: their mapped files, for runtimes that write no messages (the user has
/// set up another session of events). A process that has ended stays as it was seen last.
#[derive(Debug, Default)]
struct Seen {
    /// Processes with a runtime.
    runtimes: BTreeSet<u32>,
    /// Processes that have mapped a profiler's library, by the profiler's index.
    mapped: BTreeSet<(u32, usize)>,
    /// What those with a runtime run.
    programs: BTreeMap<u32, Program>,
    /// The parents of all, also of shells between them.
    parents: BTreeMap<u32, u32>,
    /// Processes whose runtime is too old for profilers, and what was found about it.
    too_old: BTreeMap<u32, Finding>,
}

impl Seen {
    fn look(&mut self, pid: u32, profilers: &[Chosen]) {
        for (pid, parent) in processes::with_parents(pid) {
            self.parents.extend(parent.map(|parent| (pid, parent)));
            let Some(mapped) = processes::mapped(pid) else { continue };
            // A process that ends has neither any more.
            let Some(program) = Program::of(pid) else { continue };
            let has_runtime = processes::has_runtime(&mapped);
            if has_runtime && processes::has_one_thread(pid) {
                // Between `fork` and `exec` a process is still its parent. A runtime soon has several threads, and is
                // seen then.
                continue;
            }
            self.forget(pid);
            if has_runtime {
                let version = processes::version_by_path(&mapped);
                if let Some(finding) = version.and_then(|version| checks::too_old(&version)) {
                    self.too_old.insert(pid, finding);
                    continue;
                }
                self.runtimes.insert(pid);
                self.programs.insert(pid, program);
            }
            for (number, profiler) in profilers.iter().enumerate() {
                let library = profiler.library.canonicalize();
                if mapped.contains(library.as_ref().unwrap_or(&profiler.library)) {
                    self.mapped.insert((pid, number));
                }
            }
        }
    }

    /// Forgets a process that may be another program by now.
    fn forget(&mut self, pid: u32) {
        self.runtimes.remove(&pid);
        self.mapped.retain(|(other, _)| *other != pid);
        self.programs.remove(&pid);
        self.too_old.remove(&pid);
    }
}

/// How long a profiler may take to write what it has. Another Ctrl-C ends the application at once.
pub const LAST_WORDS: Duration = Duration::from_secs(60);

/// Ends the process, and the .NET processes that it has started: a shell would not tell them. With `is_forced` at once.
pub fn end(pid: u32, is_forced: bool) {
    let is_dotnet = |pid: u32| processes::mapped(pid).is_some_and(|mapped| processes::has_runtime(&mapped));
    let family = processes::family(pid);
    let family: Vec<u32> = family.into_iter().filter(|other| *other == pid || is_dotnet(*other)).collect();
    processes::end(&family, is_forced);
}

/// How the application ended, and what was seen of it until then.
struct Watched {
    status: ExitStatus,
    pid: u32,
    seen: Seen,
    is_interrupted: bool,
}

/// The interval between two looks for the file by which a profiler confirms that it has written.
const LOOK: Duration = Duration::from_millis(10);

/// When to look at the mapped files next. A runtime that starts maps its profilers soon afterwards, and nothing changes
/// later: so the pauses between looks double, until the last, and then there are no more looks.
#[derive(Debug)]
struct Looks {
    next: Option<Instant>,
    pause: Duration,
}

impl Looks {
    const FIRST: Duration = LOOK;
    const LAST: Duration = Duration::from_secs(3);
    /// A look is followed by this many times its own duration without one: on a busy machine looks take long.
    const SHARE: u32 = 20;

    /// A process starts.
    fn starting(now: Instant) -> Self {
        Self { next: Some(now + Self::FIRST), pause: Self::FIRST }
    }

    /// The time until the next look: very long without one.
    fn left(&self, now: Instant) -> Duration {
        self.next.map_or(Duration::MAX, |next| next.saturating_duration_since(now))
    }

    /// A look has ended that took this time.
    fn done(&mut self, now: Instant, took: Duration) {
        self.pause *= 2;
        self.next = (self.pause <= Self::LAST).then(|| now + self.pause.max(took * Self::SHARE));
    }
}

/// Waits for the end of the application. Meanwhile it looks at the mapped files of the application and its children,
/// whenever a runtime makes a file in `folder`.
fn watch(
    mut application: Application,
    profilers: &[Chosen],
    stop: Option<&StopFile>,
    folder: &Path,
) -> Result<Watched> {
    let pid = application.id();
    let mut seen = Seen::default();
    // Without it, only the first runtime is looked at, and those that run at Ctrl-C.
    let _starts = Starts::watch(folder, application.waker()).ok();
    let mut looks = Looks::starting(Instant::now());
    let mut stopping: Option<Stopping<'_>> = None;
    loop {
        let limit = match &stopping {
            Some(stopping) if !stopping.is_ended => LOOK,
            _ => looks.left(Instant::now()),
        };
        let wait = application.wait(limit).context("cannot wait for the application")?;
        let start = Instant::now();
        let is_signal = match wait {
            Wait::Ended(status) => {
                let is_interrupted = stopping.is_some();
                return Ok(Watched { status, pid, seen, is_interrupted });
            }
            Wait::Woken => {
                looks = Looks::starting(start);
                false
            }
            Wait::Signal => true,
            Wait::TimedOut => false,
        };
        // The processes that have mapped the profiler when Ctrl-C comes are those that have to write.
        if is_signal || looks.left(start).is_zero() {
            seen.look(pid, profilers);
            looks.done(Instant::now(), start.elapsed());
        }
        match &mut stopping {
            Some(_) if is_signal => end(pid, true),
            Some(stopping) => stopping.end_when_written(pid, &seen),
            None => {
                if let (Some(stop), true) = (stop, is_signal) {
                    stop.ask()?;
                    stopping = Some(Stopping { stop, since: Instant::now(), is_ended: false });
                }
            }
        }
    }
}

/// The time between Ctrl-C and the end of the application.
struct Stopping<'a> {
    stop: &'a StopFile,
    since: Instant,
    /// Whether the application was requested to end.
    is_ended: bool,
}

impl Stopping<'_> {
    /// Requests the application to end if the main profiler has written its file in each process, or the time for that
    /// is over.
    fn end_when_written(&mut self, pid: u32, seen: &Seen) {
        if self.is_ended {
            return;
        }
        let mut sampled = seen.mapped.iter().filter(|(_, number)| *number == 0);
        let is_written = sampled.all(|(pid, _)| self.stop.is_done(*pid) || !processes::is_there(*pid));
        if is_written || self.since.elapsed() > LAST_WORDS {
            end(pid, false);
            self.is_ended = true;
        }
    }
}

/// Says what became of each profiler; whether each was loaded by a process at least.
fn report(profilers: &[Chosen], processes: &[ProcessMessages], seen: &Seen, is_quiet: bool) -> bool {
    let silent = seen.runtimes.iter().filter(|pid| !processes.iter().any(|process| process.pid == **pid));
    let silent: Vec<u32> = silent.copied().collect();
    for (pid, finding) in &seen.too_old {
        eprintln!("corprof: NOT loaded in process {pid}: {finding}");
    }
    if processes.is_empty() && silent.is_empty() && seen.mapped.is_empty() && seen.too_old.is_empty() {
        let reason = if cfg!(target_os = "linux") {
            "no .NET runtime was seen to start in the application: is it a .NET application, not compiled ahead of time (NativeAOT)?"
        } else {
            "no runtime said anything: is it an application of .NET 8 or later, not compiled ahead of time (NativeAOT)?"
        };
        eprintln!("corprof: NOT loaded: {reason}");
        return false;
    }
    let mut is_loaded = true;
    for (number, profiler) in profilers.iter().enumerate() {
        let mut loaded = Vec::new();
        let mut failed: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for process in processes {
            match process.verdict(&profiler.clsid) {
                Verdict::Loaded => loaded.push(process.pid),
                Verdict::Failed(message) => {
                    // The number of the process makes each message another one.
                    failed.entry(without_pid(&message, process.pid)).or_default().push(process.pid);
                }
                Verdict::Silent if seen.mapped.contains(&(process.pid, number)) => loaded.push(process.pid),
                Verdict::Silent => {
                    let text =
                        "its runtime tried no profiler (were the variables cleared, or was it killed at its start?)";
                    failed.entry(text.into()).or_default().push(process.pid);
                }
            }
        }
        let (mapped, unmapped): (Vec<u32>, Vec<u32>) =
            silent.iter().partition(|pid| seen.mapped.contains(&(**pid, number)));
        if !loaded.is_empty() && !is_quiet {
            eprintln!("corprof: {} was loaded in {}", profiler.name, shown(&loaded));
        }
        if !mapped.is_empty() && !is_quiet {
            let pids = shown(&mapped);
            eprintln!("corprof: {} is mapped in {pids}, whose runtime does not say more", profiler.name);
        }
        for (message, pids) in &failed {
            eprintln!("corprof: {} was NOT loaded in {}: {message}", profiler.name, shown(pids));
            if let Some(cure) = runtime_messages::cure(message) {
                eprintln!("corprof:   {cure}");
            }
        }
        if !unmapped.is_empty() {
            let pids = shown(&unmapped);
            eprintln!("corprof: {} was not seen in {pids}, whose runtime does not say why", profiler.name);
        }
        is_loaded &= !loaded.is_empty() || !mapped.is_empty();
    }
    is_loaded
}

fn without_pid(message: &str, pid: u32) -> String {
    message.replace(&format!(" Process ID (decimal): {pid}."), "")
}

fn shown(pids: &[u32]) -> String {
    let list = pids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    if pids.len() == 1 { format!("process {list}") } else { format!("{} processes: {list}", pids.len()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sdk_starts_no_servers_and_tests_have_time_to_end() {
        let mut changes = Changes::from([("UseSharedCompilation".to_owned(), Some("true".into()))]);
        prepare_the_sdk(&mut changes);
        assert_eq!(changes["VSTEST_TESTHOST_SHUTDOWN_TIMEOUT"], Some("30000".into()));
        assert_eq!(changes["MSBUILDDISABLENODEREUSE"], Some("1".into()));
        assert_eq!(changes["UseSharedCompilation"], Some("true".into()), "the user's own");
    }

    #[test]
    fn the_application_is_the_first_that_is_not_of_the_sdk() {
        let program = |name: &str| Program {
            command: name.to_owned(),
            name: name.to_owned(),
            is_of_sdk: ["dotnet run", "csc", "vstest"].contains(&name),
        };
        // Number, parent and program; a shell loads no profiler.
        let order = |pid: u32, all: &[(u32, u32, &str)]| {
            let loaded = all.iter().filter(|(.., name)| *name != "sh");
            let ended = Ended {
                status: ExitStatus::default(),
                pid,
                loaded: loaded.map(|(pid, ..)| *pid).collect(),
                programs: all.iter().map(|(pid, _, name)| (*pid, program(name))).collect(),
                parents: all.iter().map(|(pid, parent, _)| (*pid, *parent)).collect(),
                is_loaded: true,
                is_interrupted: false,
            };
            let names = ended.by_importance().into_iter().map(|pid| ended.programs[&pid].name.clone());
            names.collect::<Vec<_>>().join(", ")
        };
        let run = [(5, 1, "dotnet run"), (6, 5, "tool"), (7, 5, "csc"), (8, 5, "app"), (9, 8, "child")];
        assert_eq!(order(5, &run), "app, tool, child, dotnet run, csc");
        let shell = [(5, 1, "sh"), (6, 5, "app"), (7, 6, "first"), (8, 6, "second")];
        assert_eq!(order(5, &shell), "app, first, second");
        // The numbers have begun again.
        assert_eq!(order(500, &[(500, 1, "app"), (7, 500, "child")]), "app, child");
        assert_eq!(order(5, &[(5, 1, "dotnet run"), (7, 5, "vstest"), (9, 7, "tests")]), "tests, dotnet run, vstest");
        assert_eq!(order(5, &[(6, 7, "a"), (7, 6, "b")]), "a, b", "a loop");
    }

    #[test]
    fn looks_end_soon_after_a_start() {
        let start = Instant::now();
        let mut now = start;
        let mut looks = Looks::starting(start);
        let mut count = 0;
        while looks.next.is_some() {
            now += looks.left(now);
            looks.done(now, Duration::ZERO);
            count += 1;
        }
        assert_eq!(count, 9);
        assert!(now.duration_since(start) > Looks::LAST && now.duration_since(start) < 2 * Looks::LAST);
        assert_eq!(looks.left(now), Duration::MAX);
        let mut busy = Looks::starting(start);
        busy.done(start, Duration::from_millis(50));
        assert_eq!(busy.left(start), Duration::from_secs(1));
    }

    #[test]
    fn a_dll_is_started_by_dotnet() {
        let dir = tempfile::tempdir().unwrap();
        let app = dir.path().join("App.dll");
        std::fs::write(&app, "").unwrap();
        let failure = find(app.as_os_str(), None).unwrap_err();
        assert_eq!(failure.code, exit::CANNOT_START);
        assert!(failure.error.to_string().contains("dotnet"));
        assert_eq!(find("no-such-program".as_ref(), Some("/bin".as_ref())).unwrap_err().code, exit::NOT_FOUND);
    }
}
