//! Sockets in folders for temporary files, and their processes, found in `/proc`.
//!
//! A socket's name holds the process number, as the process knows it, and the time of its start in the ticks of
//! `/proc/PID/stat`. Both together distinguish the socket of a killed process from a living one, and find the process
//! of a socket in a container, without connecting.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;

use super::{Process, Scan, parse_socket_name};
use crate::error::{Error, Result};
use crate::owner::Owner;

/// The system's folders. Tests use others.
#[derive(Debug)]
struct Places {
    proc: PathBuf,
    root: PathBuf,
    /// Where this process would look for temporary files.
    temp: Vec<PathBuf>,
}

/// A folder, under any of its paths.
type FolderId = (u64, u64);

/// A process, as `/proc` has it.
#[derive(Debug, Clone, Copy)]
struct Known {
    pid: u32,
    inner_pid: u32,
    start: u64,
}

#[derive(Debug, Clone)]
struct Socket {
    inner_pid: u32,
    key: u64,
    path: PathBuf,
}

const DEFAULT_TEMP: &str = "/tmp";

pub(super) fn scan() -> Result<Scan> {
    Places::of_system().scan()
}

pub(super) fn open(pid: u32) -> Result<Process> {
    Places::of_system().open(pid)
}

fn not_permitted(pid: u32) -> Error {
    Error::NotPermitted { pid, owner: Owner::of(pid) }
}

/// Whether this user may connect to a socket: who may write to it.
fn may_connect(socket: &Path) -> bool {
    accessat(CWD, socket, Access::WRITE_OK, AtFlags::EACCESS) != Err(Errno::ACCESS)
}

fn folder_id(path: &Path) -> io::Result<FolderId> {
    fs::metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
}

/// The sockets in a folder; none if it cannot be read.
fn sockets(folder: &Path) -> Vec<Socket> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let sockets = entries.flatten().filter_map(|entry| {
        let (inner_pid, key) = parse_socket_name(&entry.file_name())?;
        Some(Socket { inner_pid, key, path: entry.path() })
    });
    sockets.collect()
}

impl Socket {
    /// The same, by another name of its folder.
    fn in_folder(&self, folder: &Path) -> Self {
        let name = self.path.file_name().unwrap_or_default();
        Self { path: folder.join(name), ..self.clone() }
    }

    fn is_of(&self, process: &Known) -> bool {
        (self.inner_pid, self.key) == (process.inner_pid, process.start)
    }
}

impl Known {
    fn with_port(self, socket: &Socket) -> Process {
        Process { pid: self.pid, inner_pid: self.inner_pid, port: socket.path.clone() }
    }
}

impl Places {
    fn of_system() -> Self {
        let mut temp: Vec<PathBuf> =
            std::env::var_os("TMPDIR").filter(|path| !path.is_empty()).map(PathBuf::from).into_iter().collect();
        temp.push(DEFAULT_TEMP.into());
        Self { proc: "/proc".into(), root: "/".into(), temp }
    }

    fn of(&self, pid: u32) -> PathBuf {
        self.proc.join(pid.to_string())
    }

    /// The information of `/proc` about a process.
    fn known(&self, pid: u32) -> io::Result<Known> {
        let malformed = || io::Error::from(io::ErrorKind::InvalidData);
        let folder = self.of(pid);
        let stat = fs::read(folder.join("stat"))?;
        let stat = String::from_utf8_lossy(&stat);
        // The name of the program is in brackets, and may hold anything.
        let (_, fields) = stat.rsplit_once(')').ok_or_else(malformed)?;
        // One that has ended, and whose parent has not asked for its exit code, is left as a number only.
        if fields.trim_start().starts_with('Z') {
            return Err(io::ErrorKind::NotFound.into());
        }
        let start =
            fields.split_ascii_whitespace().nth(19).and_then(|field| field.parse().ok()).ok_or_else(malformed)?;
        let status = fs::read(folder.join("status")).unwrap_or_default();
        let status = String::from_utf8_lossy(&status);
        let inner_pid =
            status.lines().find_map(|line| line.strip_prefix("NSpid:")?.split_ascii_whitespace().last()?.parse().ok());
        Ok(Known { pid, inner_pid: inner_pid.unwrap_or(pid), start })
    }

    /// The folder for temporary files of a process, as it is called here, and which one it is. The same root does not
    /// make the same folder: something else may be mounted there.
    fn temp_of(&self, process: &Known) -> io::Result<(PathBuf, FolderId)> {
        let environment = fs::read(self.of(process.pid).join("environ")).unwrap_or_default();
        let variable = environment.split(|byte| *byte == 0).find_map(|variable| variable.strip_prefix(b"TMPDIR="));
        let temp = variable
            .filter(|value| !value.is_empty())
            .map_or(Path::new(DEFAULT_TEMP), |value| Path::new(OsStr::from_bytes(value)));
        let inner = temp.strip_prefix("/").unwrap_or(temp);
        let theirs = self.of(process.pid).join("root").join(inner);
        let id = folder_id(&theirs)?;
        let ours = self.root.join(inner);
        Ok((if folder_id(&ours).is_ok_and(|ours| ours == id) { ours } else { theirs }, id))
    }

    fn scan(&self) -> Result<Scan> {
        let entries = fs::read_dir(&self.proc).map_err(|source| Error::Io { action: "list the processes", source })?;
        let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        // One that cannot be read has just ended.
        let processes: Vec<Known> = pids.filter_map(|pid| self.known(pid).ok()).collect();

        let mut folders = HashMap::<FolderId, Vec<Socket>>::new();
        let mut own = HashSet::new();
        for folder in &self.temp {
            if let Ok(id) = folder_id(folder) {
                own.insert(id);
                folders.entry(id).or_insert_with(|| sockets(folder));
            }
        }
        let mut used = HashSet::new();
        let mut scan = Scan::default();
        for process in &processes {
            let own_sockets = own.iter().filter_map(|id| folders.get(id)).flatten();
            let mut found = own_sockets.clone().find(|socket| socket.is_of(process)).cloned();
            if found.is_none() {
                // Another user's process, unless this one is root: its root and its environment cannot be read.
                let Ok((temp, id)) = self.temp_of(process) else { continue };
                let sockets = folders.entry(id).or_insert_with(|| sockets(&temp));
                // The folder may have been listed by way of another process, which may end earlier.
                found = sockets.iter().find(|socket| socket.is_of(process)).map(|socket| socket.in_folder(&temp));
            }
            if let Some(socket) = found {
                scan.processes.push(process.with_port(&socket));
                used.insert(socket.path);
            }
        }
        let own_sockets = own.iter().filter_map(|id| folders.get(id)).flatten().map(|socket| &socket.path);
        scan.stale = own_sockets.filter(|path| !used.contains(*path)).cloned().collect();
        Ok(scan)
    }

    fn open(&self, pid: u32) -> Result<Process> {
        let process = self.known(pid).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => not_permitted(pid),
            _ => Error::NoProcess { pid },
        })?;
        let mut places = self.temp.clone();
        let is_hidden = fs::metadata(self.of(pid).join("root")).is_err();
        if let Ok((temp, _)) = self.temp_of(&process) {
            places.insert(0, temp);
        }
        places.dedup();
        let mut found = places.iter().flat_map(|folder| sockets(folder));
        match found.find(|socket| socket.is_of(&process)) {
            Some(socket) if !may_connect(&socket.path) => Err(not_permitted(pid)),
            Some(socket) => Ok(process.with_port(&socket)),
            None if is_hidden => Err(not_permitted(pid)),
            None => Err(Error::NoPort { pid, places }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

    /// A system of its own in a folder.
    struct System {
        folder: tempfile::TempDir,
        places: Places,
    }

    impl System {
        fn new() -> Result<Self> {
            let folder = tempfile::tempdir()?;
            let root = folder.path().join("host");
            let places = Places { proc: folder.path().join("proc"), temp: vec![root.join("tmp")], root };
            fs::create_dir_all(&places.temp[0])?;
            fs::create_dir_all(&places.proc)?;
            Ok(Self { folder, places })
        }

        fn process(&self, pid: u32, namespaces: &str, start: u64, root: &str, environment: &str) -> Result {
            let folder = self.places.of(pid);
            fs::create_dir_all(&folder)?;
            let zeros = "0 ".repeat(18);
            fs::write(folder.join("stat"), format!("{pid} (a) b (c)) S {zeros}{start} 0 0\n"))?;
            fs::write(folder.join("status"), format!("Name:\tx\nNSpid:\t{namespaces}\n"))?;
            fs::write(folder.join("environ"), environment)?;
            let root = self.folder.path().join(root);
            fs::create_dir_all(root.join("tmp"))?;
            symlink(root, folder.join("root"))?;
            Ok(())
        }

        fn socket(&self, place: &str, pid: u32, key: u64) -> Result<PathBuf> {
            let folder = self.folder.path().join(place);
            fs::create_dir_all(&folder)?;
            let path = folder.join(format!("dotnet-diagnostic-{pid}-{key}-socket"));
            fs::write(&path, "")?;
            Ok(path)
        }
    }

    #[test]
    fn processes_are_found_here_in_containers_and_with_other_folders() -> Result {
        let system = System::new()?;
        system.process(10, "10", 500, "host", "")?;
        system.process(11, "11 1", 600, "container", "TMPDIR=/var/x\0A=1")?;
        // It shares the container, and is listed before or after it.
        system.process(9, "9 2", 601, "container", "TMPDIR=/var/x\0")?;
        system.process(12, "12 1", 700, "other", "")?;
        system.process(13, "13", 800, "host", "A=1\0TMPDIR=/home/x\0")?;
        system.process(14, "14", 900, "host", "")?;
        let here = system.socket("host/tmp", 10, 500)?;
        system.socket("container/var/x", 1, 600)?;
        system.socket("other/tmp", 1, 700)?;
        let elsewhere = system.socket("host/home/x", 13, 800)?;
        let stale = system.socket("host/tmp", 10, 499)?;
        let gone = system.socket("host/tmp", 99, 1)?;
        fs::write(system.places.temp[0].join("dotnet-diagnostic-x-socket"), "")?;

        let mut scan = system.places.scan()?;
        scan.processes.sort_by_key(Process::pid);
        scan.stale.sort();
        let proc = &system.places.proc;
        let expected = [
            (10, 10, here),
            (11, 1, proc.join("11/root/var/x/dotnet-diagnostic-1-600-socket")),
            (12, 1, proc.join("12/root/tmp/dotnet-diagnostic-1-700-socket")),
            (13, 13, elsewhere),
        ]
        .map(|(pid, inner_pid, port)| Process { pid, inner_pid, port });
        assert_eq!(scan.processes, expected);
        assert_eq!(scan.stale, [stale, gone]);
        for process in expected {
            assert_eq!(system.places.open(process.pid)?, process);
        }
        assert!(matches!(system.places.open(14), Err(Error::NoPort { pid: 14, .. })));
        assert!(matches!(system.places.open(15), Err(Error::NoProcess { pid: 15 })));
        Ok(())
    }

    #[test]
    fn a_process_that_has_ended_is_none_though_its_parent_has_not_asked() -> Result {
        let system = System::new()?;
        system.process(10, "10", 500, "host", "")?;
        let stat = system.places.of(10).join("stat");
        fs::write(&stat, fs::read_to_string(&stat)?.replace(") S ", ") Z "))?;
        assert!(matches!(system.places.open(10), Err(Error::NoProcess { pid: 10 })));
        Ok(())
    }

    #[test]
    fn a_process_whose_root_cannot_be_seen_is_somebody_elses() -> Result {
        let system = System::new()?;
        system.process(10, "10", 500, "host", "")?;
        fs::remove_file(system.places.of(10).join("root"))?;
        assert!(matches!(system.places.open(10), Err(Error::NotPermitted { pid: 10, .. })));
        system.socket("host/tmp", 10, 500)?;
        assert_eq!(system.places.open(10)?.pid(), 10);
        assert_eq!(system.places.scan()?.processes.len(), 1);
        Ok(())
    }
}
