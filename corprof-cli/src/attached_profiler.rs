//! An attached profiler: `corprof` attaches a built-in one to a running process, and the profiler detaches when its
//! work is done.
//!
//! The profiler reports its progress by files in a temporary folder: `NAME.PID` when its work is done, `NAME.PID.left`
//! after the detach. It renames each file into place, so that a file is complete as soon as it exists. If the folder is
//! gone, the command has ended, and the profiler detaches. So it does when nobody has the lock of the folder any more:
//! the command was killed.

pub(crate) mod folder;
pub(crate) mod overdue;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use corprof_diagnostics::Process;
use corprof_launch::checks;
use corprof_launch::environment::{self, Configured};
use corprof_launch::processes::{self, Identity};

use self::folder::Folder;
use crate::attach_request::{self, Occupied};
use crate::embedded;
use crate::exit::{self, Failure};
use crate::inspect;
use crate::profiler_choice;
use crate::signals::Signals;

/// The time limit for the runtime to load the profiler, and for the detach.
const PATIENCE: Duration = Duration::from_secs(120);
/// The interval between two looks for a file.
pub(crate) const LOOK: Duration = Duration::from_millis(20);

/// The folder and the process.
#[derive(Debug)]
pub(crate) struct Place {
    folder: Folder,
    pid: u32,
    identity: Identity,
    inner_pid: u32,
}

/// How the profiler ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// The profiler has detached: another one can attach.
    Gone,
    /// The process has ended.
    Ended,
    /// The profiler has not detached, for this reason.
    Stays(String),
    /// Ctrl-C ended the wait.
    Interrupted,
}

impl Place {
    /// A folder that the process can write to.
    ///
    /// # Errors
    /// If the folder cannot be made.
    pub(crate) fn new(process: &Process) -> Result<Self, Failure> {
        let pid = process.pid();
        let identity = Identity::of(pid);
        Ok(Self { folder: Folder::new(process)?, pid, identity, inner_pid: process.inner_pid() })
    }

    /// The folder.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.here()
    }

    /// A file in it.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.here().join(name)
    }

    /// Whether the process has the files and the user of this command.
    pub(crate) fn is_shared(&self) -> bool {
        self.folder.is_shared()
    }

    /// A file of this command or of the folder, by its path for the process, in a setting: `%p` means the process id
    /// there.
    pub(crate) fn pattern_for_process(&self, file: &Path) -> PathBuf {
        let path = if self.is_shared() { file.to_owned() } else { self.path_for_process(file) };
        let name = path.file_name().unwrap_or_default().to_string_lossy().replace('%', "%%");
        path.with_file_name(name)
    }

    /// The same file, by its path for the process.
    pub(crate) fn path_for_process(&self, file: &Path) -> PathBuf {
        self.folder.inside().join(file.file_name().unwrap_or_default())
    }

    /// The profiler's file that belongs to `file`: with the process id and this ending.
    pub(crate) fn of_process(&self, file: &Path, ending: &str) -> PathBuf {
        let mut name = file.file_name().map(OsStr::to_owned).unwrap_or_default();
        name.push(format!(".{}{ending}", self.inner_pid));
        file.with_file_name(name)
    }

    /// Whether the process has ended.
    pub(crate) fn has_ended(&self) -> bool {
        !self.identity.is_there()
    }

    /// Attaches a built-in profiler with these settings.
    ///
    /// # Errors
    /// If the process could not load it, or the runtime refuses.
    pub(crate) fn attach(&self, process: &Process, name: &str, settings: &[(&str, &OsStr)]) -> Result<(), Failure> {
        attach_request::leave_alone_if_stopped(self.pid)?;
        attach_request::leave_alone_if_compiled_ahead(self.pid)?;
        leave_alone_if_profiled(self.pid)?;
        let chosen = profiler_choice::choose(Path::new(name), None)?;
        let library = self.folder.library(&embedded::for_process(chosen.library.clone(), self.pid)?)?;
        attach_request::leave_alone_if_unloadable(process, &library)?;
        if let Some((name, value)) = settings.iter().find(|(_, value)| value.as_encoded_bytes().contains(&b'\n')) {
            let why = "a running process is told its settings line by line: choose a name without a line break";
            return Err(Failure::new(exit::USAGE, anyhow!("{name}={value:?}: {why}")));
        }
        let lines: String = settings.iter().map(|(name, value)| format!("{name}={}\n", value.display())).collect();
        attach_request::attach(process, &chosen, &library, lines.as_bytes(), PATIENCE)
    }

    /// Waits for the detach, or for Ctrl-C. Afterwards another profiler can attach.
    pub(crate) fn wait(&self, file: &Path, signals: &Signals) -> Left {
        self.wait_unless(file, || signals.is_interrupted())
    }

    /// The same, with another way to notice an interrupt.
    pub(crate) fn wait_unless(&self, file: &Path, mut is_interrupted: impl FnMut() -> bool) -> Left {
        let left = self.of_process(file, ".left");
        let start = Instant::now();
        loop {
            // Asked before the file: a process may create the file and end right afterwards.
            let has_ended = self.has_ended();
            match folder::read(&left) {
                Ok(why) if why.is_empty() => return Left::Gone,
                Ok(why) => return Left::Stays(why),
                Err(_) if has_ended => return Left::Ended,
                Err(_) if is_interrupted() => return Left::Interrupted,
                Err(_) if start.elapsed() > PATIENCE => {
                    let seconds = PATIENCE.as_secs();
                    return Left::Stays(format!(
                        "the runtime has not released it within {seconds} s. Is the process stopped?"
                    ));
                }
                Err(_) => thread::sleep(LOOK),
            }
        }
    }
}

/// Refuses a process that was started under a profiler: the runtime would map the library of a second one before it
/// refuses it.
fn leave_alone_if_profiled(pid: u32) -> Result<(), Failure> {
    let (Some(variables), Some(mapped)) = (inspect::started_with(pid), processes::mapped(pid)) else { return Ok(()) };
    let major = processes::version_by_path(&mapped).as_deref().and_then(checks::major);
    let configured = Configured::read(environment::families(major), |name| inspect::value_in(&variables, name));
    if !configured.is_enabled() {
        return Ok(());
    }
    for library in configured.libraries() {
        let real = processes::file_of(pid, library).canonicalize().unwrap_or_else(|_| library.to_owned());
        if mapped.contains(&real) {
            let text =
                "was started under a profiler, and a process has one profiler at a time. Start it without the profiler";
            return Err(Failure::new(exit::NO, Occupied(format!("process {pid} {text}: {}", library.display()))));
        }
    }
    Ok(())
}

/// What is said of a profiler that `what` has change code.
pub(crate) fn stays(what: &str) -> String {
    format!(
        "the runtime does not release a profiler that has changed code, as {what} does: in the end it stays in the \
         process, at rest, and no other one can attach before the process ends"
    )
}

/// Prints why a profiler has not detached.
pub(crate) fn tell(name: &str, pid: u32, left: &Left) {
    if let Left::Stays(why) = left {
        eprintln!("corprof: the profiler `{name}` has not detached from process {pid}, which runs on: {why}");
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_visit_ends_by_a_file_or_with_the_process() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let folder = Folder::of_test();
        let place = Place { folder, pid: child.id(), identity: Identity::of(child.id()), inner_pid: 7 };
        let signals = Signals::catch().unwrap();
        let stop = place.file("stop");
        assert_eq!(place.of_process(&stop, ""), place.file("stop.7"));
        assert!(!place.has_ended());
        fs::write(place.file("stop.7.left"), "why").unwrap();
        assert_eq!(place.wait(&stop, &signals), Left::Stays("why".to_owned()));
        fs::write(place.file("stop.7.left"), "").unwrap();
        assert_eq!(place.wait(&stop, &signals), Left::Gone);
        // Nobody has waited for it, so its number is there still.
        child.kill().unwrap();
        assert_eq!(place.wait(&place.file("other"), &signals), Left::Ended);
        assert!(place.has_ended());
        child.wait().unwrap();
    }
}
