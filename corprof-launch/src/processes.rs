//! Mapped files, programs and children of processes, by `/proc`; none on other systems.

use std::collections::BTreeSet;
use std::path::PathBuf;

use corprof_profilers::sdk;

use crate::image::{self, Libc};

/// The mapped files of a process; none if they cannot be read.
#[cfg(target_os = "linux")]
pub fn mapped(pid: u32) -> Option<BTreeSet<PathBuf>> {
    let maps = std::fs::read(format!("/proc/{pid}/maps")).ok()?;
    Some(mapped_in(&String::from_utf8_lossy(&maps)))
}

/// The mapped files of a process: visible on Linux only.
#[cfg(not(target_os = "linux"))]
pub fn mapped(_pid: u32) -> Option<BTreeSet<PathBuf>> {
    None
}

/// A line is `ADDRESSES MODE OFFSET DEVICE INODE    PATH`.
#[cfg(any(target_os = "linux", test))]
fn mapped_in(maps: &str) -> BTreeSet<PathBuf> {
    let path = |line: &str| {
        let path = line.splitn(6, ' ').nth(5)?.trim_start();
        let path = path.strip_suffix(" (deleted)").unwrap_or(path);
        path.starts_with('/').then(|| PathBuf::from(path))
    };
    maps.lines().filter_map(path).collect()
}

/// The version of the runtime that has mapped these files. The runtime's folder is named after it.
pub fn version_by_path(mapped: &BTreeSet<PathBuf>) -> Option<String> {
    let runtime = mapped.iter().find(|path| path.file_name().is_some_and(|name| name == "libcoreclr.so"))?;
    let folder = runtime.parent()?.file_name()?.to_str()?;
    folder.starts_with(|first: char| first.is_ascii_digit()).then(|| folder.to_owned())
}

/// The C library of a process that has mapped these files.
pub fn libc_by_path(mapped: &BTreeSet<PathBuf>) -> Option<Libc> {
    mapped.iter().find_map(|path| image::libc_of(path.to_str()?))
}

/// The command line of a process as one text, if the system shows it.
pub fn command_line(pid: u32) -> Option<String> {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    Some(String::from_utf8_lossy(&bytes).trim_end_matches('\0').replace('\0', " "))
}

/// What a process runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The command line, as one text.
    pub command: String,
    /// A short name: that of the assembly or the program, or a command of the SDK, or the benchmark of a process that
    /// BenchmarkDotNet has started.
    pub name: String,
    /// Whether it is a program of the SDK and not an application.
    pub is_of_sdk: bool,
}

impl Program {
    /// What the process runs, if the system shows it and the process has not ended.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok().filter(|line| !line.is_empty())?;
        let link = |name: &str| std::fs::read_link(format!("/proc/{pid}/{name}"));
        let arguments = sdk::arguments(&line);
        let executable = link("exe").unwrap_or_default();
        Some(Self {
            command: arguments.join(" "),
            name: benchmark(&arguments).map_or_else(|| sdk::name(&executable, &arguments), str::to_owned),
            is_of_sdk: sdk::is_tool(&executable, &arguments, link("cwd").ok().as_deref()),
        })
    }
}

/// The benchmark that a process runs which BenchmarkDotNet has started. All its processes run one assembly; its log has
/// `Execute: dotnet Bench-Job-1.dll --anonymousPipes 140 141 --benchmarkName Bench.Sorting.Quick --job Default`.
fn benchmark(arguments: &[String]) -> Option<&str> {
    let (_, rest) = arguments.split_at_checked(arguments.iter().position(|word| word == "--benchmarkName")? + 1)?;
    rest.first().map(String::as_str)
}

/// A process and its descendants, as far as they are visible: parents precede their children.
pub fn family(pid: u32) -> Vec<u32> {
    with_parents(pid).into_iter().map(|(pid, _)| pid).collect()
}

/// The same, each with its parent. The parent of the first is not among them.
#[cfg(target_os = "linux")]
pub fn with_parents(pid: u32) -> Vec<(u32, Option<u32>)> {
    let mut all = vec![(pid, None)];
    let mut next = 0;
    while let Some((parent, _)) = all.get(next).copied() {
        next += 1;
        let Ok(tasks) = std::fs::read_dir(format!("/proc/{parent}/task")) else { continue };
        for task in tasks.flatten() {
            let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            let children = children.split_ascii_whitespace().filter_map(|child| child.parse::<u32>().ok());
            all.extend(children.map(|child| (child, Some(parent))));
        }
    }
    all
}

/// The process only: descendants are cheap to find on Linux only.
#[cfg(not(target_os = "linux"))]
pub fn with_parents(pid: u32) -> Vec<(u32, Option<u32>)> {
    vec![(pid, None)]
}

/// Whether a process still runs; true if the system does not show it. A zombie has ended.
pub fn is_there(pid: u32) -> bool {
    if is_zombie(pid) {
        return false;
    }
    #[cfg(unix)]
    if let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) {
        return rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH);
    }
    let _ = pid;
    true
}

/// A process that is told from a later one to which the system has given its number.
#[derive(Debug, Clone, Copy)]
pub struct Identity {
    pid: u32,
    /// When it began, in ticks since the start of the system; none if the system does not show it.
    began: Option<u64>,
}

impl Identity {
    /// That of the process which has this number now.
    #[must_use]
    pub fn of(pid: u32) -> Self {
        Self { pid, began: began(pid) }
    }

    /// Whether it still runs; true if the system does not show it. A zombie has ended.
    #[must_use]
    pub fn is_there(&self) -> bool {
        is_there(self.pid) && (self.began.is_none() || began(self.pid) == self.began)
    }
}

fn began(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The fields after the name, which may contain anything, begin with the third one.
    stat.rsplit(')').next()?.split_whitespace().nth(22 - 3)?.parse().ok()
}

/// Whether a process has ended, and its parent has not waited for it yet.
fn is_zombie(pid: u32) -> bool {
    // Its first thread may have ended alone.
    matches!(state(pid), Some('Z' | 'X')) && threads(pid) <= 1
}

/// Whether a process is stopped: by a signal such as SIGSTOP, or by a debugger. It answers nothing until it runs on.
/// False if the system does not tell.
#[must_use]
pub fn is_stopped(pid: u32) -> bool {
    matches!(state(pid), Some('T' | 't'))
}

/// The letter of a process's state, or rather of its first thread's.
fn state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.trim_start().chars().next()
}

/// Whether a process has one thread only.
#[must_use]
pub fn has_one_thread(pid: u32) -> bool {
    threads(pid) == 1
}

/// The number of threads; none if the system does not show them.
fn threads(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count)
}

/// The user and the group with whose rights a process uses files, as `/proc` shows them; `/proc/PID` itself may belong
/// to root.
pub fn user_of(pid: u32) -> Option<(u32, u32)> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let last = |name: &str| {
        let numbers = status.lines().find_map(|line| line.strip_prefix(name))?;
        numbers.split_ascii_whitespace().last()?.parse().ok()
    };
    Some((last("Uid:")?, last("Gid:")?))
}

/// Makes the user of a process the owner of a file or folder.
///
/// # Errors
/// If this is another user, and the current one is not root.
#[cfg(target_os = "linux")]
pub fn give(file: &std::fs::File, pid: u32) -> std::io::Result<()> {
    use std::os::unix::fs::{MetadataExt, fchown};
    let (user, group) = user_of(pid).ok_or(std::io::ErrorKind::NotFound)?;
    if file.metadata()?.uid() != user {
        fchown(file, Some(user), Some(group))?;
    }
    Ok(())
}

/// Processes of other users are visited on Linux only.
///
/// # Errors
/// None.
#[cfg(not(target_os = "linux"))]
pub fn give(_file: &std::fs::File, _pid: u32) -> std::io::Result<()> {
    Ok(())
}

/// Requests processes to end, or kills them.
pub fn end(pids: &[u32], is_forced: bool) {
    #[cfg(unix)]
    for pid in pids {
        use rustix::process::Signal;
        let signal = if is_forced { Signal::KILL } else { Signal::TERM };
        if let Some(pid) = i32::try_from(*pid).ok().and_then(rustix::process::Pid::from_raw) {
            // The process may have just ended.
            let _ = rustix::process::kill_process(pid, signal);
        }
    }
    #[cfg(not(unix))]
    let _ = (pids, is_forced);
}

/// Whether a path may mean another file for a process: it has mounts of its own, as in a container, or another root.
pub fn has_own_files(pid: u32) -> bool {
    let mounts = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    matches!((mounts("self"), mounts(&pid.to_string())), (Some(ours), Some(theirs)) if ours != theirs)
        || has_own_root(pid)
}

#[cfg(target_os = "linux")]
fn has_own_root(pid: u32) -> bool {
    use std::os::unix::fs::MetadataExt;
    let root = |path: &str| std::fs::metadata(path).map(|root| (root.dev(), root.ino())).ok();
    matches!((root("/"), root(&format!("/proc/{pid}/root"))), (Some(ours), Some(theirs)) if ours != theirs)
}

#[cfg(not(target_os = "linux"))]
fn has_own_root(_pid: u32) -> bool {
    false
}

/// The path of a process's file, as seen by this process.
pub fn file_of(pid: u32, path: &std::path::Path) -> PathBuf {
    match path.strip_prefix("/") {
        Ok(inner) if has_own_files(pid) => PathBuf::from(format!("/proc/{pid}/root")).join(inner),
        _ => path.to_owned(),
    }
}

/// Whether one of the files is the runtime itself.
pub fn has_runtime(mapped: &BTreeSet<PathBuf>) -> bool {
    mapped.iter().any(|path| path.file_name().is_some_and(|name| name == "libcoreclr.so"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_with_spaces_in_their_names() {
        let maps = "7f00-7f01 r-xp 00000000 08:01 42                         /opt/my app/libcoreclr.so\n\
                    7f01-7f02 rw-p 00000000 00:00 0 \n7f02-7f03 r--p 00000000 08:01 43   /tmp/p.so (deleted)\n\
                    7f03-7f04 rw-p 00000000 00:00 0                          [stack]\n";
        let files = mapped_in(maps);
        assert_eq!(files, BTreeSet::from(["/opt/my app/libcoreclr.so".into(), "/tmp/p.so".into()]));
        assert!(has_runtime(&files));
        let libc = |path: &str| libc_by_path(&BTreeSet::from(["/a/libm.so.6".into(), path.into()]));
        assert_eq!(libc("/lib/ld-musl-x86_64.so.1"), Some(Libc::Musl));
        assert_eq!(libc("/usr/lib/x86_64-linux-gnu/libc.so.6"), Some(Libc::Glibc));
    }

    #[test]
    fn a_benchmark_has_its_own_name() {
        let name = |line: &str| benchmark(&line.split(' ').map(str::to_owned).collect::<Vec<_>>()).map(str::to_owned);
        assert_eq!(
            name("dotnet x-1.dll --benchmarkName Bench.Sort(N:1) --job Default"),
            Some("Bench.Sort(N:1)".into())
        );
        assert_eq!(name("dotnet x-1.dll --benchmarkName"), None);
        assert_eq!(name("dotnet x-1.dll"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_process_is_told_from_a_later_one_with_its_number() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let identity = Identity::of(child.id());
        assert!(identity.is_there());
        let earlier = Identity { began: identity.began.map(|began| began - 1), ..identity };
        assert!(identity.began.is_some() && !earlier.is_there());
        child.kill().unwrap();
        assert!(child.wait().is_ok() && !identity.is_there());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_child_is_of_the_family() {
        let own = std::process::id();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(with_parents(own).contains(&(child.id(), Some(own))) && family(own).first() == Some(&own));
        // A process maps the C library shortly after its start.
        while mapped(child.id()).is_none_or(|files| !files.iter().any(|file| file.to_string_lossy().contains("libc"))) {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
