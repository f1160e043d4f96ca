//! Sockets in folders for temporary files, where there is no `/proc`: the newest one of each living process.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::SystemTime;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use super::{Process, Scan, parse_socket_name};
use crate::error::{Error, Result};

fn places() -> Vec<PathBuf> {
    let mut places: Vec<PathBuf> = std::env::var_os("TMPDIR").map(PathBuf::from).into_iter().collect();
    places.push("/tmp".into());
    places
}

fn is_alive(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| !matches!(test_kill_process(pid), Err(Errno::SRCH)))
}

pub(super) fn scan() -> Result<Scan> {
    let mut newest = BTreeMap::<u32, (SystemTime, PathBuf)>::new();
    let mut scan = Scan::default();
    for entry in places().iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten() {
        let Some((pid, _)) = parse_socket_name(&entry.file_name()) else { continue };
        let made = entry.metadata().and_then(|metadata| metadata.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
        let (older, path) = match newest.remove(&pid) {
            Some((before, path)) if before >= made => (Some(entry.path()), (before, path)),
            before => (before.map(|(_, path)| path), (made, entry.path())),
        };
        scan.stale.extend(older);
        newest.insert(pid, path);
    }
    for (pid, (_, port)) in newest {
        if is_alive(pid) {
            scan.processes.push(Process { pid, inner_pid: pid, port });
        } else {
            scan.stale.push(port);
        }
    }
    Ok(scan)
}

pub(super) fn open(pid: u32) -> Result<Process> {
    if !is_alive(pid) {
        return Err(Error::NoProcess { pid });
    }
    let found = scan()?.processes.into_iter().find(|process| process.pid == pid);
    found.ok_or_else(|| Error::NoPort { pid, places: places() })
}
