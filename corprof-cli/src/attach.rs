//! `corprof attach`: attaches a profiler to a running process.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow};
use corprof_diagnostics::{Error, HResult, Process, Uuid};
use corprof_launch::checks::{self, Finding, Place};
use corprof_launch::environment::Chosen;
use corprof_launch::image::Image;
use corprof_launch::launch::Changes;
use corprof_launch::processes;
use corprof_profilers::settings;
use corprof_profilers::table::Profiler;

use crate::exit::{self, Failure, Outcome};
use crate::late::Late;
use crate::{embedded, inspect, select};

/// Attach a profiler to a running process.
///
/// With --wait it starts a command, and attaches as soon as a runtime answers: to the first .NET process that is not a tool of the
/// SDK. The application keeps its input, output, signals and exit code.
///
/// Checks the library first, as the process would load it. Then asks the runtime to attach it; the runtime answers when the
/// profiler's `initialize_for_attach` and `profiler_attach_complete` have returned. The profiler stays until the process ends or
/// until it detaches itself. A process has one profiler at a time.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  corprof attach 4711 target/release/libmine.so
  corprof attach 4711 libmine.so --data 'rate=100' --timeout 30
  corprof attach 4711 libmine.so --inside /opt/libmine.so      the process is in a container
  corprof attach --wait libmine.so -- dotnet App.dll

The exit code is 1 if the runtime refuses. Exit codes: corprof help exit-codes")]
pub struct Args {
    /// The process id, unless there is --wait; then the profiler: a .so, .dll or .dylib that cargo has built, or the name of a
    /// built-in one
    #[arg(value_names = ["PID", "LIBRARY|NAME"], num_args = 1..=2, required = true)]
    target: Vec<OsString>,

    /// Start the command after `--`, and attach to it
    #[arg(long, requires = "command", conflicts_with_all = ["inside", "timeout"])]
    wait: bool,

    /// The profiler's CLSID or the name of its struct, if the library has several profilers or does not contain the CLSID
    #[arg(long, value_name = "CLSID|NAME")]
    clsid: Option<String>,

    /// Text for the profiler's `initialize_for_attach`
    #[arg(long, value_name = "TEXT")]
    data: Option<String>,

    /// A file with the bytes for the profiler's `initialize_for_attach`, at most 64 KB
    #[arg(long, value_name = "FILE", conflicts_with = "data")]
    data_file: Option<PathBuf>,

    /// The path of the library inside the process's container
    #[arg(long, value_name = "PATH")]
    inside: Option<PathBuf>,

    /// The time limit for the runtime's answer, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    timeout: u64,

    /// The command that starts the application, with --wait
    #[arg(last = true, requires = "wait", value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Runs the command.
///
/// # Errors
/// If the process or the library does not exist, or the runtime refuses.
pub fn run(args: &Args) -> Outcome {
    let usage = |text: &str| Failure::new(exit::USAGE, anyhow!("{text}"));
    let data = || match (&args.data, &args.data_file) {
        (_, Some(file)) => std::fs::read(file).with_context(|| format!("cannot read {}", file.display())),
        (text, None) => Ok(text.clone().unwrap_or_default().into_bytes()),
    };
    let (pid, library) = match args.target.as_slice() {
        [library] if args.wait => return start(args, library, data()?),
        [pid, library] if !args.wait => (pid, Path::new(library)),
        _ if args.wait => return Err(usage("with --wait give one thing before `--`: the library, or a name")),
        _ => return Err(usage("give a process id and a library: `corprof attach 4711 libmine.so`; or use --wait")),
    };
    let pid = pid.to_str().and_then(|pid| pid.parse().ok());
    let pid: u32 = pid.ok_or_else(|| usage("the first argument is a process id; or use --wait"))?;
    embedded::refuse_unknown(library).map_err(|error| Failure::new(exit::USAGE, error))?;
    let process = Process::open(pid)?;
    let real = match Profiler::named(library) {
        Some(_) => embedded::library()?,
        None => std::path::absolute(library).context("the path of the library")?,
    };
    let inside = args.inside.as_deref().unwrap_or(&real);
    leave_alone_if_unloadable(&process, inside)?;
    let chosen = select::choose(library, args.clsid.as_deref())?;
    let data = data()?;
    check_settings(library, &data)?;
    let inside = args.inside.as_ref().unwrap_or(&chosen.library);
    attach(&process, &chosen, inside, &data, Duration::from_secs(args.timeout.max(1)))?;
    eprintln!("corprof: {} is attached to process {pid}", chosen.name);
    Ok(ExitCode::SUCCESS)
}

/// Checks the settings of a built-in profiler, which would refuse them on the standard error of the process.
fn check_settings(library: &Path, data: &[u8]) -> Result<(), Failure> {
    let Some(profiler) = Profiler::named(library) else { return Ok(()) };
    settings::check_data(profiler, data).map_err(|error| Failure::new(exit::USAGE, error))
}

/// Starts the command, and attaches to it.
fn start(args: &Args, library: &OsStr, data: Vec<u8>) -> Outcome {
    let library = Path::new(library);
    let profiler = select::choose_to_start(library, args.clsid.as_deref())?;
    check_settings(library, &data)?;
    let delay = Duration::ZERO;
    let command = args.command.as_slice();
    let late = Late { profiler, data, delay, duration: None, changes: Changes::new(), command, is_quiet: false };
    Ok(exit::of_application(late.run()?.status))
}

/// Checks the library as the process would load it.
///
/// # Errors
/// If the process could not load it; the attach would fail without a reason.
pub fn leave_alone_if_unloadable(process: &Process, library: &Path) -> Result<(), Failure> {
    match check(process, library).first() {
        Some(finding) => Err(Failure::new(exit::NO, anyhow!("process {} was left alone:\n  {finding}", process.pid()))),
        None => Ok(()),
    }
}

/// Has the runtime load a profiler, which it calls `library`.
///
/// # Errors
/// If the runtime refuses, or does not answer in time.
pub fn attach(
    process: &Process,
    chosen: &Chosen,
    library: &Path,
    data: &[u8],
    timeout: Duration,
) -> Result<(), Failure> {
    send(process, chosen, library, data, timeout)?.map_err(|error| refusal(&error, process.pid(), chosen))
}

/// Has the runtime load a profiler, and returns the runtime's answer.
///
/// # Errors
/// If the profiler's CLSID is none.
pub(crate) fn send(
    process: &Process,
    chosen: &Chosen,
    library: &Path,
    data: &[u8],
    timeout: Duration,
) -> anyhow::Result<Result<(), Error>> {
    let clsid = Uuid::parse_str(&chosen.clsid).with_context(|| format!("{} is not a CLSID", chosen.clsid))?;
    Ok(process.client().attach_profiler(clsid, library, data, timeout))
}

/// What keeps the process from loading the profiler, as far as that can be seen from here.
fn check(process: &Process, library: &Path) -> Vec<Finding> {
    let pid = process.pid();
    // By its mapped files: the runtime itself is not asked, as it serves one client at a time.
    let version = processes::mapped(pid).and_then(|mapped| processes::version_by_path(&mapped));
    if let Some(finding) = version.and_then(|version| checks::too_old(&version)) {
        return vec![finding];
    }
    let program = Image::open(Path::new(&format!("/proc/{pid}/exe"))).ok();
    if let Some(finding) = checks::compiled_ahead(program.as_ref()) {
        return vec![finding];
    }
    let variables = inspect::started_with(pid);
    let library_path = variables.as_deref().and_then(|variables| inspect::value_in(variables, "LD_LIBRARY_PATH"));
    let place = Place { program: program.as_ref(), library_path: library_path.map(str::as_ref) };
    if !processes::has_own_files(pid) {
        return checks::library(library, place);
    }
    // The loader here would look for its dependencies in folders of this side.
    let program = program.clone().map(|program| Image { interpreter: None, ..program });
    checks::library(&processes::file_of(pid, library), Place { program: program.as_ref(), ..place })
}

/// The runtime's refusal, with what else is known of the cause.
pub(crate) fn refusal(error: &Error, pid: u32, chosen: &Chosen) -> Failure {
    let Some(code) = error.code() else { return Failure::from(anyhow!("{error}")) };
    let mut text = error.to_string();
    if code == HResult::PROFILER_ALREADY_ACTIVE {
        text.push_str(&others(pid, &chosen.library));
    }
    Failure::new(exit::NO, anyhow!(text))
}

/// The profilers of the process, and the cure.
fn others(pid: u32, own: &Path) -> String {
    let mapped = processes::mapped(pid).map(|mapped| inspect::mapped_profilers(pid, &mapped, &[])).unwrap_or_default();
    let others: Vec<String> =
        mapped.iter().filter(|path| *path != own).map(|path| path.display().to_string()).collect();
    if !others.is_empty() {
        return format!("\n  the process has mapped: {}", others.join(", "));
    }
    let text = if embedded::is_library(own) {
        "the process has mapped no other library of a profiler: another `corprof record`, `stacks`, `top` or `heap` is using the process. \
         Wait until it ends, or end it by Ctrl-C"
    } else {
        "the process has mapped no other profiler: this one is attached already, or is detaching"
    };
    format!("\n  {text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_an_answer_and_silence_is_none() {
        let chosen = Chosen { clsid: "{}".into(), name: "X".into(), library: "/x.so".into() };
        let refused = Error::Refused { action: "attach the profiler", code: HResult::PROFILER_ALREADY_ACTIVE };
        let failure = refusal(&refused, 0, &chosen);
        assert_eq!(failure.code, exit::NO);
        let text = failure.error.to_string();
        assert!(text.contains("CORPROF_E_PROFILER_ALREADY_ACTIVE") && text.contains("no other profiler"), "{text}");
        let silent = Error::TimedOut { action: "attach the profiler", waited: Duration::from_secs(1) };
        assert_eq!(refusal(&silent, 0, &chosen).code, exit::FAILED);
    }
}
