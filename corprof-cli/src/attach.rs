//! `corprof attach`: attaches a profiler to a running process.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow};
use corprof_diagnostics::{Error, HResult, Process, Uuid};

use crate::bundled;
use crate::checks::{self, Finding, Place};
use crate::environment::Chosen;
use crate::exit::{self, Failure, Outcome};
use crate::image::Image;
use crate::inspect;
use crate::processes;
use crate::select;

/// Attach a profiler to a running process.
///
/// Checks the library first, as the process would load it. Then asks the runtime to attach it; the runtime answers when the
/// profiler's `initialize_for_attach` and `profiler_attach_complete` have returned. The profiler stays until the process ends or
/// until it detaches itself. A process has one profiler at a time.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  corprof attach 4711 target/release/libmine.so
  corprof attach 4711 libmine.so --data 'rate=100' --timeout 30
  corprof attach 4711 libmine.so --inside /opt/libmine.so      the process is in a container

The exit code is 1 if the runtime refuses. Exit codes: corprof help exit-codes")]
pub struct Args {
    /// The process id
    pid: u32,

    /// The profiler: a .so, .dll or .dylib that cargo has built, or the name of a built-in one
    #[arg(value_name = "LIBRARY|NAME")]
    library: PathBuf,

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
}

/// Runs the command.
///
/// # Errors
/// If the process or the library does not exist, or the runtime refuses.
pub fn run(args: &Args) -> Outcome {
    bundled::refuse_unknown(&args.library).map_err(|error| Failure::new(exit::USAGE, error))?;
    let process = Process::open(args.pid)?;
    let library = match bundled::find(&args.library) {
        Some(_) => bundled::library()?,
        None => std::path::absolute(&args.library).context("the path of the library")?,
    };
    let inside = args.inside.as_deref().unwrap_or(&library);
    leave_alone_if_unloadable(&process, inside)?;
    let chosen = select::choose(&args.library, args.clsid.as_deref())?;
    let data = match (&args.data, &args.data_file) {
        (_, Some(file)) => std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?,
        (text, None) => text.clone().unwrap_or_default().into_bytes(),
    };
    let inside = args.inside.as_ref().unwrap_or(&chosen.library);
    attach(&process, &chosen, inside, &data, Duration::from_secs(args.timeout.max(1)))?;
    eprintln!("corprof: {} is attached to process {}", chosen.name, args.pid);
    Ok(ExitCode::SUCCESS)
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
    let clsid = Uuid::parse_str(&chosen.clsid).with_context(|| format!("{} is no CLSID", chosen.clsid))?;
    let attached = process.client().attach_profiler(clsid, library, data, timeout);
    attached.map_err(|error| refusal(&error, process.pid(), chosen))
}

/// What keeps the process from loading the library, as far as that can be seen from here.
fn check(process: &Process, library: &Path) -> Vec<Finding> {
    let pid = process.pid();
    let program = Image::open(Path::new(&format!("/proc/{pid}/exe"))).ok();
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

fn refusal(error: &Error, pid: u32, chosen: &Chosen) -> Failure {
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
    let text = if bundled::is_library(own) {
        "the process has mapped no other library of a profiler: another `corprof record`, `stacks` or `top` is using the process. \
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
