//! Which processes have a diagnostics port, without connecting to any.

#[cfg(target_os = "linux")]
#[path = "discovery/linux.rs"]
mod system;
#[cfg(all(unix, not(target_os = "linux")))]
#[path = "discovery/unix.rs"]
mod system;
#[cfg(windows)]
#[path = "discovery/windows.rs"]
mod system;

use std::path::{Path, PathBuf};

use crate::client::Client;
use crate::error::Result;

/// A process with a diagnostics port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    pub(crate) pid: u32,
    pub(crate) inner_pid: u32,
    pub(crate) port: PathBuf,
}

/// The result of a search.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Scan {
    /// The processes, by their numbers.
    pub processes: Vec<Process>,
    /// Sockets in the folder for temporary files whose process cannot be seen: it was killed, or is in a container that
    /// shares the folder and nothing else.
    pub stale: Vec<PathBuf>,
}

impl Process {
    /// Every process that has a diagnostics port and may be asked by this user, by number.
    ///
    /// On Linux that includes processes in containers: their ports are found by way of `/proc`. Nothing is connected
    /// to, so nothing is disturbed, and a process that is listed may still not answer.
    ///
    /// # Errors
    /// If the system will not list processes or ports.
    pub fn all() -> Result<Vec<Self>> {
        Ok(Self::scan()?.processes)
    }

    /// [`all`](Self::all), and the ports without a listener.
    ///
    /// # Errors
    /// As [`all`](Self::all).
    pub fn scan() -> Result<Scan> {
        let mut scan = system::scan()?;
        scan.processes.sort_by_key(|process| process.pid);
        scan.stale.sort();
        Ok(scan)
    }

    /// The process with this number.
    ///
    /// # Errors
    /// [`NoProcess`](crate::Error::NoProcess), [`NotPermitted`](crate::Error::NotPermitted), or
    /// [`NoPort`](crate::Error::NoPort) with the folders that were searched.
    pub fn open(pid: u32) -> Result<Self> {
        system::open(pid)
    }

    /// Its number here.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Its number as it knows it: another one in a container.
    #[must_use]
    pub fn inner_pid(&self) -> u32 {
        self.inner_pid
    }

    /// Its socket, or its pipe.
    #[must_use]
    pub fn port(&self) -> &Path {
        &self.port
    }

    /// A client of the process. It connects at the first query.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::of_process(self.pid, &self.port)
    }
}

/// The process and the key in `dotnet-diagnostic-PID-KEY-socket`.
#[cfg(unix)]
fn parse_socket_name(name: &std::ffi::OsStr) -> Option<(u32, u64)> {
    let parts = name.to_str()?.strip_prefix("dotnet-diagnostic-")?.strip_suffix("-socket")?;
    let (pid, key) = parts.split_once('-')?;
    Some((pid.parse().ok()?, key.parse().ok()?))
}
