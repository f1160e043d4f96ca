//! The request to attach a profiler: what is checked before, and what a refusal means.

use std::fmt::{self, Display, Formatter};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use corprof_diagnostics::{Error, HResult, Process, Uuid};
use corprof_launch::checks::{self, Finding, Place};
use corprof_launch::environment::Chosen;
use corprof_launch::image::Image;
use corprof_launch::processes;

use crate::exit::{self, Failure};
use crate::startup_wait::WaitsFor;
use crate::{detach, embedded, inspect};

/// How long a runtime that has just started is asked, and how often.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(20);

/// Checks the library as the process would load it.
///
/// # Errors
/// If the process could not load it; the attach would fail without a reason.
pub(crate) fn leave_alone_if_unloadable(process: &Process, library: &Path) -> Result<(), Failure> {
    match check(process, library).first() {
        Some(finding) => Err(Failure::new(exit::NO, anyhow!("process {} was left alone:\n  {finding}", process.pid()))),
        None => Ok(()),
    }
}

/// Refuses a process that has no CLR, before anything else is tried.
///
/// # Errors
/// If it was compiled ahead of time.
pub(crate) fn leave_alone_if_compiled_ahead(pid: u32) -> Result<(), Failure> {
    let program = Image::open(Path::new(&format!("/proc/{pid}/exe"))).ok();
    match checks::runs_compiled_ahead(processes::mapped(pid).as_ref(), program.as_ref()) {
        Some(finding) => Err(Failure::new(exit::NO, anyhow!("process {pid} was left alone:\n  {finding}"))),
        None => Ok(()),
    }
}

/// Refuses a process that cannot answer, rather than wait for it.
///
/// # Errors
/// If it is stopped.
pub(crate) fn leave_alone_if_stopped(pid: u32) -> Result<(), Failure> {
    if !processes::is_stopped(pid) {
        return Ok(());
    }
    Err(Failure::new(exit::NO, anyhow!(inspect::stopped(pid))))
}

/// Has the runtime load a profiler, which it calls `library`. One that is not ready yet is asked again: the process has
/// just started.
///
/// # Errors
/// If the runtime refuses, or does not answer in time.
pub(crate) fn attach(
    process: &Process,
    chosen: &Chosen,
    library: &Path,
    data: &[u8],
    timeout: Duration,
) -> Result<(), Failure> {
    let start = Instant::now();
    loop {
        match send(process, chosen, library, data, timeout)? {
            Ok(()) => return Ok(()),
            Err(error) if is_early(&error) && start.elapsed() < PATIENCE => thread::sleep(PAUSE),
            Err(error) => return Err(refusal(&error, process.pid(), chosen)),
        }
    }
}

/// Whether the runtime was asked before it was ready.
pub(crate) fn is_early(error: &Error) -> bool {
    matches!(error.code(), Some(HResult::NOT_YET_AVAILABLE | HResult::RUNTIME_UNINITIALIZED))
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
    let mapped = processes::mapped(pid);
    let version = mapped.as_ref().and_then(processes::version_by_path);
    if let Some(finding) = version.and_then(|version| checks::too_old(&version)) {
        return vec![finding];
    }
    let program = Image::open(Path::new(&format!("/proc/{pid}/exe"))).ok();
    if let Some(finding) = checks::runs_compiled_ahead(mapped.as_ref(), program.as_ref()) {
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

/// The error that another profiler has the process's only place for one, and will not leave it.
#[derive(Debug)]
pub(crate) struct Occupied(pub(crate) String);

impl Display for Occupied {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Occupied {}

/// The runtime's refusal, with what else is known of the cause.
pub(crate) fn refusal(error: &Error, pid: u32, chosen: &Chosen) -> Failure {
    let Some(code) = error.code() else { return Failure::from(anyhow!("{error}")) };
    if is_early(error)
        && let Some(waits_for) = WaitsFor::of_process(pid)
    {
        return waits_for.left_alone(pid);
    }
    if code != HResult::PROFILER_ALREADY_ACTIVE {
        return Failure::new(exit::NO, anyhow!("{error}"));
    }
    match holder(pid, &chosen.library) {
        Ok(staying) => Failure::new(exit::NO, Occupied(format!("{error}{staying}"))),
        Err(own) => Failure::new(exit::NO, anyhow!("{error}{own}")),
    }
}

/// The profiler that has the place and will not leave it, or else what the cause may be.
fn holder(pid: u32, own: &Path) -> Result<String, String> {
    // Unknown, and so of another maker as far as is known.
    let Some(mapped) = processes::mapped(pid) else { return Ok(String::new()) };
    let others: Vec<String> = inspect::mapped_profilers(pid, &mapped, &[])
        .iter()
        .filter(|path| *path != own)
        .map(|path| path.display().to_string())
        .collect();
    if !others.is_empty() {
        return Ok(format!("\n  the process has mapped: {}", others.join(", ")));
    }
    let text = match (embedded::is_library(own), detach::has_listener(pid)) {
        (false, _) => "the process has mapped no other profiler: this one is attached already, or is detaching",
        (true, true) => {
            "another command of corprof, such as `record` or `locks`, is using the process. Wait until it ends, or end it by \
             Ctrl-C or by `corprof detach PID`"
        }
        (true, false) => {
            let text = "after `corprof timer`, `tracer`, `record --trace` and --async-probe, which change code, the runtime keeps \
                        their profiler until the process ends, at rest";
            return Ok(format!("\n  {text}"));
        }
    };
    Err(format!("\n  {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_an_answer_and_silence_is_none() {
        let chosen = Chosen { clsid: "{}".into(), name: "X".into(), library: "/x.so".into() };
        let refused = Error::Refused { action: "attach the profiler", code: HResult::PROFILER_ALREADY_ACTIVE };
        let unknown = refusal(&refused, 0, &chosen);
        assert!(unknown.code == exit::NO && unknown.error.is::<Occupied>());
        assert!(unknown.error.to_string().contains("CORPROF_E_PROFILER_ALREADY_ACTIVE"), "{}", unknown.error);
        if cfg!(target_os = "linux") {
            // Its mapped files are known.
            let own = refusal(&refused, std::process::id(), &chosen);
            assert!(own.code == exit::NO && !own.error.is::<Occupied>());
            assert!(own.error.to_string().contains("no other profiler"), "{}", own.error);
        }
        let silent = Error::TimedOut { action: "attach the profiler", waited: Duration::from_secs(1) };
        assert_eq!(refusal(&silent, 0, &chosen).code, exit::FAILED);
    }
}
