//! `corprof run`: an application under a profiler.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::time::Duration;

use anyhow::{Context, anyhow};

use crate::checks::{self, Finding, Place};
use crate::environment::{self, Chosen};
use crate::exit::{self, Failure, Outcome};
use crate::image::{self, Image};
use crate::processes;
use crate::select;
use crate::signals::Signals;
use crate::witness::{self, Testimony, Verdict, Witness};

/// Run an application under a profiler.
///
/// Finds the CLSID in the library, checks what a runtime would fail at without a word, sets the variables by which runtimes load
/// profilers (CORECLR_*, and the DOTNET_* of .NET 11), and clears those of other profilers. Output, input and signals are
/// the application's own, and so is the exit code. At the end standard error says whether the profiler was loaded, and by
/// which processes: children inherit the variables.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  corprof run target/release/libmine.so -- dotnet bin/Release/net10.0/App.dll --its-option
  corprof run libmine.so --env MINE_OUT=calls.csv -- dotnet run
  corprof run libmine.so --notification libother.so -- ./App

Where the profiler is not loaded, `corprof doctor` tells more. Exit codes: corprof help exit-codes")]
pub struct Args {
    /// The profiler: the .so, .dll or .dylib that cargo has built
    library: PathBuf,

    /// The profiler that is meant, by CLSID or by the name of its struct, where the library has several or does not tell
    #[arg(long, value_name = "CLSID|NAME")]
    clsid: Option<String>,

    /// A notification profiler beside it (.NET 6 and later), once for each; LIB=CLSID or LIB=NAME where a library has several
    #[arg(long, value_name = "LIB")]
    notification: Vec<String>,

    /// An environment variable for the application, once for each
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,

    /// Exit with 124 where the application ran, but a profiler was not loaded
    #[arg(long)]
    require_load: bool,

    /// Say only what is wrong
    #[arg(short, long)]
    quiet: bool,

    /// The application, as it would be started without a profiler
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// The application's environment, as far as it differs from this process's.
type Changes = BTreeMap<String, Option<OsString>>;

/// Runs the command.
///
/// # Errors
/// If the application is not started.
pub fn run(args: &Args) -> Outcome {
    let refused = |error: anyhow::Error| Failure::new(exit::REFUSED, error);
    let profilers = chosen(args).map_err(refused)?;
    let (main, notification) = profilers.split_first().context("no profiler")?;
    let mut changes = given(&args.env).map_err(|error| Failure::new(exit::USAGE, error))?;
    for name in environment::profiler_variables() {
        changes.entry(name).or_insert(None);
    }
    for (name, value) in environment::to_load(main, notification).map_err(refused)? {
        changes.insert(name, Some(value));
    }
    let (program, arguments) = args.command.split_first().context("no command")?;
    let program = find(program, value_of(&changes, "PATH").as_deref())?;
    let findings = check(&profilers, &program, &changes);
    if !findings.is_empty() {
        let text = findings.iter().map(|finding| format!("\n  {finding}")).collect::<String>();
        return Err(refused(anyhow!("the application was not started, as no runtime would load the profiler:{text}")));
    }
    // Somebody who records events already keeps them.
    let is_recording =
        ["DOTNET_EnableEventPipe", "COMPlus_EnableEventPipe"].iter().any(|name| value_of(&changes, name).is_some());
    let witness = if is_recording { None } else { Some(Witness::new()?) };
    for (name, value) in witness.iter().flat_map(Witness::variables) {
        changes.insert(name.to_owned(), Some(value));
    }

    let mut command = Command::new(&program);
    command.args(arguments);
    for (name, value) in &changes {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let (status, seen) = watched(command, &program, &profilers)?;
    let testimonies = witness.as_ref().map(Witness::testimonies).transpose()?.unwrap_or_default();
    let is_loaded = report(&profilers, &testimonies, &seen, args.quiet);
    Ok(code(status, args.require_load && !is_loaded))
}

/// The profilers that are asked for, the main one first.
fn chosen(args: &Args) -> anyhow::Result<Vec<Chosen>> {
    let mut all = vec![choose_readable(&args.library, args.clsid.as_deref())?];
    for text in &args.notification {
        let (library, wanted) = match text.rsplit_once('=') {
            Some((library, wanted)) => (library, Some(wanted)),
            None => (text.as_str(), None),
        };
        all.push(choose_readable(Path::new(library), wanted)?);
    }
    Ok(all)
}

/// A library that cannot even be read is told of as the checks tell.
fn choose_readable(library: &Path, wanted: Option<&str>) -> anyhow::Result<Chosen> {
    select::choose(library, wanted).map_err(|error| {
        let absolute = std::path::absolute(library).unwrap_or_else(|_| library.to_owned());
        let finding = checks::library(&absolute, Place { program: None, library_path: None }).into_iter().next();
        finding.map_or(error, |finding| anyhow!("the application was not started:\n  {finding}"))
    })
}

fn given(variables: &[String]) -> anyhow::Result<Changes> {
    let one = |text: &String| {
        let (name, value) = text.split_once('=').filter(|(name, _)| !name.is_empty())?;
        Some((name.to_owned(), Some(OsString::from(value))))
    };
    variables.iter().map(|text| one(text).with_context(|| format!("--env {text}: expected NAME=VALUE"))).collect()
}

fn value_of(changes: &Changes, name: &str) -> Option<OsString> {
    changes.get(name).map_or_else(|| std::env::var_os(name), Clone::clone)
}

fn find(program: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, Failure> {
    let found = image::find_program(program, path);
    let found =
        found.ok_or_else(|| Failure::new(exit::NOT_FOUND, anyhow!("there is no program {}", program.display())))?;
    if found.extension().is_some_and(|extension| extension == "dll") {
        let text = format!("{0} is no program of its own: run it by `dotnet {0}`", program.display());
        return Err(Failure::new(exit::CANNOT_START, anyhow!(text)));
    }
    Ok(found)
}

/// What would keep a runtime from loading the profilers, without a word.
fn check(profilers: &[Chosen], program: &Path, changes: &Changes) -> Vec<Finding> {
    let image = Image::of_program(program).ok();
    let library_path = value_of(changes, "LD_LIBRARY_PATH");
    let place = Place { program: image.as_ref(), library_path: library_path.as_deref() };
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

/// What the processes were seen to have mapped: for those whose runtime says nothing (before .NET 5).
#[derive(Debug, Default)]
struct Seen {
    /// Processes with a runtime.
    runtimes: BTreeSet<u32>,
    /// Processes with the library of the profiler, by its place among them.
    mapped: BTreeSet<(u32, usize)>,
}

impl Seen {
    fn look(&mut self, pid: u32, profilers: &[Chosen]) {
        for pid in processes::family(pid) {
            let is_known = |number| self.mapped.contains(&(pid, number));
            if (0..profilers.len()).all(is_known) {
                continue;
            }
            let Some(mapped) = processes::mapped(pid) else { continue };
            if processes::has_runtime(&mapped) {
                self.runtimes.insert(pid);
            }
            for (number, profiler) in profilers.iter().enumerate() {
                let library = profiler.library.canonicalize();
                if mapped.contains(library.as_ref().unwrap_or(&profiler.library)) {
                    self.mapped.insert((pid, number));
                }
            }
        }
    }
}

/// Runs the application to its end. Signals go to it, and what it and its children map is looked at now and then.
fn watched(mut command: Command, program: &Path, profilers: &[Chosen]) -> Result<(ExitStatus, Seen), Failure> {
    /// How often it is looked at whether the application has ended.
    const PERIOD: Duration = Duration::from_millis(5);
    /// So many periods pass between two looks at maps, once the application is some seconds old.
    const SELDOM: u32 = 50;
    let mut signals = Signals::catch().context("cannot catch signals")?;
    let mut child = command.spawn().map_err(|error| {
        let code = if error.kind() == io::ErrorKind::NotFound { exit::NOT_FOUND } else { exit::CANNOT_START };
        Failure::new(code, anyhow!("cannot start {}: {error}", program.display()))
    })?;
    let mut seen = Seen::default();
    for period in 0_u32.. {
        signals.pass_on(child.id());
        if let Some(status) = child.try_wait().context("cannot wait for the application")? {
            return Ok((status, seen));
        }
        if period < 400 || period % SELDOM == 0 {
            seen.look(child.id(), profilers);
        }
        std::thread::sleep(PERIOD);
    }
    // Some eight months later.
    Ok((child.wait().context("cannot wait for the application")?, seen))
}

/// Says what became of each profiler; whether each was loaded by a process at least.
fn report(profilers: &[Chosen], testimonies: &[Testimony], seen: &Seen, is_quiet: bool) -> bool {
    let silent = seen.runtimes.iter().filter(|pid| !testimonies.iter().any(|testimony| testimony.pid == **pid));
    let silent: Vec<u32> = silent.copied().collect();
    if testimonies.is_empty() && silent.is_empty() && seen.mapped.is_empty() {
        let reason = if cfg!(target_os = "linux") {
            "no .NET runtime was seen to start in the application: is it a .NET application, not compiled ahead of time (NativeAOT)?"
        } else {
            "no runtime said anything: is it an application of .NET 5 or later, not compiled ahead of time (NativeAOT)?"
        };
        eprintln!("corprof: NOT loaded: {reason}");
        return false;
    }
    let mut is_loaded = true;
    for (number, profiler) in profilers.iter().enumerate() {
        let mut loaded = Vec::new();
        let mut failed: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for testimony in testimonies {
            match testimony.verdict(&profiler.clsid) {
                Verdict::Loaded => loaded.push(testimony.pid),
                Verdict::Failed(message) => {
                    // The number of the process makes each message another one.
                    failed.entry(without_pid(&message, testimony.pid)).or_default().push(testimony.pid);
                }
                Verdict::Silent if seen.mapped.contains(&(testimony.pid, number)) => loaded.push(testimony.pid),
                Verdict::Silent => {
                    let text =
                        "its runtime tried no profiler (were the variables cleared, or was it killed at its start?)";
                    failed.entry(text.into()).or_default().push(testimony.pid);
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
            eprintln!(
                "corprof: {} is mapped in {pids}, whose runtime does not say more (before .NET 5)",
                profiler.name
            );
        }
        for (message, pids) in &failed {
            eprintln!("corprof: {} was NOT loaded in {}: {message}", profiler.name, shown(pids));
            if let Some(cure) = witness::cure(message) {
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

/// The application's own exit code, if nothing else was asked for.
fn code(status: ExitStatus, is_missing: bool) -> ExitCode {
    if is_missing {
        return exit::NOT_LOADED.into();
    }
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return exit::SIGNALLED.wrapping_add(signal as u8).into();
    }
    let code = status.code().unwrap_or(exit::FAILED.into());
    // Windows has larger codes, of which a program of Rust can only hand on the low byte.
    u8::try_from(code).unwrap_or_else(|_| ((code & 0xff) as u8).max(1)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_have_a_name() {
        let changes = given(&["A=1".into(), "B=x=y".into(), "C=".into()]).unwrap();
        assert_eq!(value_of(&changes, "B"), Some("x=y".into()));
        assert_eq!(value_of(&changes, "C"), Some("".into()));
        assert!(given(&["=1".into()]).unwrap_err().to_string().contains("NAME=VALUE"));
        assert!(given(&["A".into()]).is_err());
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
