//! Pipes by their names. A pipe ends with its process, so none is stale.

use std::path::PathBuf;

use super::{Process, Scan};
use crate::error::{Error, Result};
use crate::transport::{pipe_exists, processes};

const PIPES: &str = r"\\.\pipe\";

fn process(pid: u32) -> Option<Process> {
    let port = PathBuf::from(format!("{PIPES}dotnet-diagnostic-{pid}"));
    pipe_exists(&port).then_some(Process { pid, inner_pid: pid, port })
}

/// Pipes cannot be listed under Wine, so the processes are, and each is looked at.
fn pids() -> Result<Vec<u32>> {
    processes().map_err(|source| Error::Io { action: "list the processes", source })
}

pub(super) fn scan() -> Result<Scan> {
    Ok(Scan { processes: pids()?.into_iter().filter_map(process).collect(), stale: Vec::new() })
}

pub(super) fn open(pid: u32) -> Result<Process> {
    if !pids()?.contains(&pid) {
        return Err(Error::NoProcess { pid });
    }
    process(pid).ok_or_else(|| Error::NoPort { pid, places: vec![PIPES.into()] })
}
