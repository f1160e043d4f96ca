//! Collects information about a running .NET process and its profilers, without disturbing it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use corprof_diagnostics::{Error, Process};
use corprof_launch::checks;
use corprof_launch::environment::{self, Configured};
use corprof_launch::image::{self, Image};
use corprof_launch::processes;
use serde::Serialize;

/// The state of a process's profilers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// None is configured, and none is mapped.
    None,
    /// Its variables name one. On Linux: and its library is not mapped.
    Configured,
    /// The library of a profiler is mapped.
    Mapped,
    /// Neither its variables nor its mapped files can be read.
    Unknown,
}

/// A .NET process.
#[derive(Debug, Clone, Serialize)]
pub struct Inspected {
    /// The process.
    pub pid: u32,
    /// The runtime's version, such as `8.0.4`.
    pub runtime: Option<String>,
    /// The processor, such as `x64`.
    pub architecture: Option<String>,
    /// The command line, as one text.
    pub command: Option<String>,
    /// The state of its profilers.
    pub profiler: State,
    /// The libraries of the profilers that are mapped, or else configured.
    pub libraries: Vec<PathBuf>,
    /// The error of its runtime, if a query failed.
    pub error: Option<String>,
    /// Its variables.
    #[serde(skip)]
    pub variables: Option<Vec<(String, String)>>,
    /// Its mapped files.
    #[serde(skip)]
    pub mapped: Option<BTreeSet<PathBuf>>,
}

/// Why a process that [is stopped](processes::is_stopped) is not asked, and what helps.
pub(crate) fn stopped(pid: u32) -> String {
    format!(
        "process {pid} is stopped, by a signal (SIGSTOP, Ctrl-Z) or by a debugger, and answers nothing. It runs on after: \
         kill -CONT {pid}"
    )
}

/// Queries a process. Each query takes at most `timeout`.
pub fn inspect(process: &Process, timeout: Duration) -> Inspected {
    let pid = process.pid();
    let client = process.client().with_timeout(timeout);
    // A stopped process would be waited for in vain.
    let answer = (!processes::is_stopped(pid)).then(|| client.process_info());
    let error = match &answer {
        None => Some(stopped(pid)),
        Some(Err(error)) if !matches!(error, Error::Unsupported { .. }) => Some(error.to_string()),
        Some(_) => None,
    };
    // After a query without answer, no further queries are made.
    let asked = if error.is_none() { client.environment().ok() } else { None };
    let info = answer.and_then(Result::ok);
    let variables =
        asked.map(|variables| variables.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect());
    let variables: Option<Vec<(String, String)>> = variables.or_else(|| started_with(pid));
    let mapped = processes::mapped(pid);
    let runtime = info.as_ref().map(|info| info.clr_version.clone());
    let runtime = runtime.or_else(|| processes::version_by_path(mapped.as_ref()?));
    let major = runtime.as_deref().and_then(checks::major);
    let (profiler, libraries) = state(pid, major, variables.as_deref(), mapped.as_ref());
    Inspected {
        pid,
        runtime,
        architecture: info.as_ref().map(|info| info.architecture.clone()).or_else(|| architecture(pid)),
        command: info.map(|info| info.command_line).or_else(|| processes::command_line(pid)),
        profiler,
        libraries,
        error,
        variables,
        mapped,
    }
}

/// The variables that a process was started with, if the system shows them.
pub fn started_with(pid: u32) -> Option<Vec<(String, String)>> {
    let bytes = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let pair = |variable: &str| variable.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    Some(text.split('\0').filter_map(pair).collect())
}

fn architecture(pid: u32) -> Option<String> {
    let image = Image::open(Path::new(&format!("/proc/{pid}/exe"))).ok()?;
    Some(image::processor(image.architecture))
}

/// The value of a variable among these.
pub fn value_in<'a>(variables: &'a [(String, String)], name: &str) -> Option<&'a str> {
    variables.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
}

fn state(
    pid: u32,
    major: Option<u32>,
    variables: Option<&[(String, String)]>,
    mapped: Option<&BTreeSet<PathBuf>>,
) -> (State, Vec<PathBuf>) {
    let families = environment::families(major);
    let configured = variables.map(|variables| Configured::read(families, |name| value_in(variables, name)));
    let configured = configured.filter(Configured::is_enabled);
    let named: Vec<PathBuf> =
        configured.iter().flat_map(|configured| configured.libraries()).map(Path::to_owned).collect();
    let profilers = mapped.map(|mapped| mapped_profilers(pid, mapped, &named)).unwrap_or_default();
    match (profilers.is_empty(), configured, variables, mapped) {
        (false, ..) => (State::Mapped, profilers),
        (_, Some(_), ..) => (State::Configured, named),
        (_, None, None, None) | (_, None, None, Some(_)) | (_, None, Some(_), None) => (State::Unknown, named),
        (_, None, Some(_), Some(_)) => (State::None, named),
    }
}

/// The libraries of profilers among what a process has mapped: those that are configured, and those that export what a
/// runtime asks a profiler for and that are neither the runtime's own nor the system's.
pub fn mapped_profilers(pid: u32, mapped: &BTreeSet<PathBuf>, named: &[PathBuf]) -> Vec<PathBuf> {
    let runtime = mapped.iter().find(|path| path.file_name().is_some_and(|name| name == "libcoreclr.so"));
    let framework = runtime.and_then(|path| path.parent());
    let named: Vec<PathBuf> = named.iter().map(|path| path.canonicalize().unwrap_or_else(|_| path.clone())).collect();
    let is_profiler = |path: &&PathBuf| {
        if named.contains(path) {
            return true;
        }
        let is_library = path.file_name().is_some_and(|name| name.to_string_lossy().contains(".so"));
        let is_of_system = ["/lib", "/usr/lib"].iter().any(|folder| path.starts_with(folder));
        let is_of_runtime = framework.is_some_and(|folder| path.starts_with(folder));
        is_library
            && !is_of_system
            && !is_of_runtime
            && Image::open(&processes::file_of(pid, path)).is_ok_and(|image| image.has_factory)
    };
    mapped.iter().filter(is_profiler).cloned().collect()
}

/// A process with its command line, without the folder of its program.
pub(crate) fn title(pid: u32) -> String {
    let command = processes::command_line(pid).unwrap_or_else(|| "?".to_owned());
    format!("process {pid}: {}", without_folder(&command).replace(char::is_control, " "))
}

/// A command line without the folder of its program.
pub(crate) fn without_folder(command: &str) -> String {
    let (program, arguments) = command.split_once(' ').unwrap_or((command, ""));
    let program = program.rsplit('/').next().unwrap_or(program);
    format!("{program} {arguments}").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_state_needs_both_sources_to_be_none() {
        let asks = variables(&[("CORECLR_ENABLE_PROFILING", "1"), ("CORECLR_PROFILER_PATH", "/nowhere/p.so")]);
        let nothing = BTreeSet::new();
        let with = BTreeSet::from([PathBuf::from("/nowhere/p.so")]);
        assert_eq!(state(0, None, Some(&asks), Some(&nothing)).0, State::Configured);
        assert_eq!(state(0, None, Some(&asks), Some(&with)), (State::Mapped, vec!["/nowhere/p.so".into()]));
        assert_eq!(state(0, None, Some(&[]), Some(&with)).0, State::None);
        assert_eq!(state(0, None, Some(&[]), None).0, State::Unknown);
        assert_eq!(state(0, None, None, None).0, State::Unknown);
        let off = variables(&[("CORECLR_ENABLE_PROFILING", "0"), ("CORECLR_PROFILER_PATH", "/nowhere/p.so")]);
        assert_eq!(state(0, None, Some(&off), Some(&nothing)).0, State::None);
    }

    #[test]
    fn the_folder_of_the_runtime_tells_its_version() {
        let mapped = |path: &str| BTreeSet::from([PathBuf::from(path)]);
        assert_eq!(
            processes::version_by_path(&mapped("/d/Microsoft.NETCore.App/8.0.4/libcoreclr.so")),
            Some("8.0.4".into())
        );
        assert_eq!(processes::version_by_path(&mapped("/app/libcoreclr.so")), None);
    }
}
