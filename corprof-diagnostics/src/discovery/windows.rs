//! Pipes by their names. A pipe ends with its process, so none is stale.

use std::fs;
use std::path::PathBuf;

use super::{Process, Scan};
use crate::error::{Error, Result};

const PIPES: &str = r"\\.\pipe\";
const PREFIX: &str = "dotnet-diagnostic-";

fn process(pid: u32) -> Process {
    Process { pid, inner_pid: pid, port: PathBuf::from(format!("{PIPES}{PREFIX}{pid}")) }
}

pub(super) fn scan() -> Result<Scan> {
    let entries = fs::read_dir(PIPES).map_err(|source| Error::Io { action: "list the pipes", source })?;
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.strip_prefix(PREFIX)?.parse().ok());
    Ok(Scan { processes: pids.map(process).collect(), stale: Vec::new() })
}

pub(super) fn open(pid: u32) -> Result<Process> {
    let found = scan()?.processes.into_iter().find(|process| process.pid == pid);
    found.ok_or_else(|| Error::NoPort { pid, places: vec![PIPES.into()] })
}
