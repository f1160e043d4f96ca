//! For whom a .NET process waits before its first managed code.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::anyhow;
use corprof_launch::processes;

use crate::exit::{self, Failure};
use crate::inspect;

/// The variable that has a runtime wait until a tool that connects to its own port resumes it.
const OWN: &str = "DOTNET_DefaultDiagnosticPortSuspend";
/// The variable with ports of tools, each of which resumes the runtime itself.
const OTHERS: &str = "DOTNET_DiagnosticPorts";

/// For whom a process waits at its start.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WaitsFor {
    /// Any tool that connects to the port of the process.
    Anyone,
    /// The tool that listens here.
    Tool(String),
}

impl WaitsFor {
    /// For whom a process with these variables waits at its start.
    fn of(variables: &[(String, String)]) -> Option<Self> {
        // The runtime reads numbers as hexadecimal ones.
        let number = |value: &str| u32::from_str_radix(value.trim_start_matches("0x"), 16).unwrap_or(0);
        if inspect::value_in(variables, OWN).is_some_and(|value| number(value) != 0) {
            return Some(Self::Anyone);
        }
        let ports = inspect::value_in(variables, OTHERS)?;
        let waits = |port: &&str| !port.is_empty() && !port.split(',').any(|option| option.trim() == "nosuspend");
        let port = ports.split(';').find(waits)?;
        Some(Self::Tool(port.split(',').next().unwrap_or(port).to_owned()))
    }

    /// For whom a process waits now that has these variables and these mapped files. None if it has no files of a
    /// runtime, which a program of a single file contains: nothing tells then.
    fn now(variables: &[(String, String)], mapped: &BTreeSet<PathBuf>) -> Option<Self> {
        let has = |name: &str| mapped.iter().any(|path| path.file_name().is_some_and(|file| file == name));
        // The runtime waits before it loads its core library.
        let waits = has("libcoreclr.so") && !has("System.Private.CoreLib.dll");
        if waits { Self::of(variables) } else { None }
    }

    /// For whom this process waits now.
    pub(crate) fn of_process(pid: u32) -> Option<Self> {
        Self::now(&inspect::started_with(pid)?, &processes::mapped(pid)?)
    }

    /// The error that a process was left alone.
    pub(crate) fn left_alone(&self, pid: u32) -> Failure {
        Failure::new(exit::NO, anyhow!("process {pid} was left alone: {}: {}", self.what(), self.cure(pid)))
    }

    /// What the process waits for.
    pub(crate) fn what(&self) -> String {
        match self {
            Self::Anyone => format!("it waits at its start to be resumed, by {OWN}"),
            Self::Tool(port) => format!("it waits at its start for the tool that listens at {port} ({OTHERS})"),
        }
    }

    /// What lets it go on.
    pub(crate) fn cure(&self, pid: u32) -> String {
        match self {
            Self::Anyone => format!("`corprof resume {pid}` lets it go on"),
            Self::Tool(_) => format!("start that tool, or start the process with `nosuspend` in {OTHERS}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_tell_for_whom_a_process_waits() {
        let of = |name: &str, value: &str| WaitsFor::of(&[(name.to_owned(), value.to_owned())]);
        assert_eq!(of(OWN, "1"), Some(WaitsFor::Anyone));
        assert_eq!(of(OWN, "0x1"), Some(WaitsFor::Anyone));
        assert_eq!(of(OWN, "0"), None);
        assert_eq!(of(OTHERS, "/monitor.sock"), Some(WaitsFor::Tool("/monitor.sock".into())));
        assert_eq!(of(OTHERS, "/monitor.sock,nosuspend"), None);
        assert_eq!(of(OTHERS, "/a,nosuspend;/b,connect,suspend;"), Some(WaitsFor::Tool("/b".into())));
        assert_eq!(of("PATH", "/bin"), None);
    }

    #[test]
    fn a_process_that_has_loaded_the_core_library_waits_no_longer() {
        let variables = [(OWN.to_owned(), "1".to_owned())];
        let now = |names: &[&str]| WaitsFor::now(&variables, &names.iter().map(PathBuf::from).collect());
        assert_eq!(now(&["/net/libcoreclr.so"]), Some(WaitsFor::Anyone));
        assert_eq!(now(&["/net/libcoreclr.so", "/net/System.Private.CoreLib.dll"]), None);
        assert_eq!(now(&["/app/single-file"]), None);
    }
}
