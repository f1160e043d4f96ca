//! Why a process has no diagnostics port that can be seen from here.

use std::path::{Path, PathBuf};

use corprof_diagnostics::Error;
use corprof_launch::checks::{Finding, mount_of};

use crate::inspect;

/// What the system says of a process.
#[derive(Default)]
struct Known {
    /// The variables that it started with.
    variables: Vec<(String, String)>,
    /// Its table of mounts.
    mounts: String,
    /// Its state, as /proc has it.
    status: String,
}

impl Known {
    fn of(pid: u32) -> Self {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
        Self {
            variables: inspect::started_with(pid).unwrap_or_default(),
            mounts: read("mounts"),
            status: read("status"),
        }
    }

    fn value_of(&self, name: &str) -> Option<&str> {
        inspect::value_in(&self.variables, name)
    }

    /// Where a runtime makes its port.
    fn folder_of_port(&self) -> PathBuf {
        self.value_of("TMPDIR").filter(|folder| !folder.is_empty()).unwrap_or("/tmp").into()
    }

    /// Whether its system calls are filtered (`Seccomp: 2`).
    fn is_filtered(&self) -> bool {
        self.status.lines().any(|line| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() == "2"))
    }
}

/// The finding about a process that cannot be opened; none if the error says all.
pub(super) fn missing(pid: u32, error: &Error) -> Option<Finding> {
    // The first namespace of a system has this number; a container has another one.
    let first = Path::new("pid:[4026531836]");
    let is_contained = std::fs::read_link("/proc/self/ns/pid").is_ok_and(|own| own != first);
    match error {
        Error::NoPort { .. } => Some(without_port(pid, &Known::of(pid), error)),
        Error::NotPermitted { .. } => {
            Some(Finding::new("process-of-another-user", error.to_string(), "ask as that user, or as root"))
        }
        Error::NoProcess { .. } if is_contained => Some(not_here(error)),
        _ => None,
    }
}

fn not_here(error: &Error) -> Finding {
    let what = format!("{error}: this is a container, which sees the processes of its own pid namespace only");
    let cure = "let the containers share their processes (Kubernetes: `shareProcessNamespace: true`; docker: \
                `--pid=container:NAME`), and take the number that `corprof ps` prints here";
    Finding::new("other-pid-namespace", what, cure)
}

fn without_port(pid: u32, known: &Known, error: &Error) -> Finding {
    let settings = ["DOTNET_EnableDiagnostics", "DOTNET_EnableDiagnostics_IPC", "COMPlus_EnableDiagnostics"];
    if let Some(name) = settings.iter().find(|name| known.value_of(name) == Some("0")) {
        let what = format!("{name} is 0 in process {pid}: its diagnostics port is off, and nothing can be attached");
        return Finding::new("port-disabled", what, format!("start it without {name}"));
    }
    let folder = known.folder_of_port();
    if mount_of(&folder, &known.mounts).is_some_and(|(_, options)| options.split(',').any(|option| option == "ro")) {
        let shown = folder.display();
        let what = format!("{shown}, where process {pid} would make its diagnostics port, is read-only");
        let cure =
            "mount a writable folder there (Kubernetes: an `emptyDir`; docker: `--tmpfs /tmp`), or set TMPDIR to one";
        return Finding::new("read-only-port-folder", what, cure);
    }
    if known.is_filtered() {
        let what = format!("{error}. A filter of system calls (seccomp) is on in it, which may forbid local sockets");
        let cure = "systemd: add AF_UNIX to `RestrictAddressFamilies`; a container: run it with the engine's default \
                    filter. If it is not a .NET process, it has no port anyway";
        return Finding::new("filtered-by-seccomp", what, cure);
    }
    let cure = "is it a .NET process? One compiled ahead of time (NativeAOT) has no profilers; one of another TMPDIR is found \
                with the same TMPDIR here";
    Finding::new("no-port", error.to_string(), cure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_without_a_port_is_told_why() {
        let error = Error::NoPort { pid: 1, places: Vec::new() };
        let id = |known: &Known| without_port(1, known, &error).id;
        let read_only = "overlay / overlay ro,relatime 0 0\n";
        let known = |variables: &[(&str, &str)], mounts: &str, seccomp: u32| Known {
            variables: variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            mounts: mounts.to_owned(),
            status: format!("Name:\tx\nSeccomp:\t{seccomp}\nSeccomp_filters:\t1\n"),
        };
        assert_eq!(id(&known(&[], "", 0)), "no-port");
        assert_eq!(id(&known(&[], read_only, 2)), "read-only-port-folder");
        let writable = format!("{read_only}tmpfs /tmp tmpfs rw 0 0\n");
        assert_eq!(id(&known(&[], &writable, 0)), "no-port");
        assert_eq!(id(&known(&[("TMPDIR", "/data")], &writable, 0)), "read-only-port-folder");
        assert_eq!(id(&known(&[], &writable, 2)), "filtered-by-seccomp");
        assert_eq!(id(&known(&[("DOTNET_EnableDiagnostics", "0")], read_only, 2)), "port-disabled");
    }

    #[test]
    fn a_process_that_cannot_be_opened_is_explained_where_that_helps() {
        let foreign = Error::NotPermitted { pid: 0, owner: corprof_diagnostics::Owner::default() };
        assert_eq!(missing(0, &foreign).unwrap().id, "process-of-another-user");
        let gone = Error::NoProcess { pid: 7 };
        assert!(not_here(&gone).what.starts_with("there is no process 7: this is a container"));
        assert!(missing(7, &Error::Stale { path: "/x".into() }).is_none());
    }
}
