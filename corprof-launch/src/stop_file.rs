//! Stops the bundled sampler: by a stop file, and a file by which the sampler confirms that its profile is written.
//!
//! A signal is not enough: from .NET 10 on SIGTERM ends an application without `shutdown` of its profiler, unless the
//! application has a handler of its own, as SIGINT always has.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

use crate::processes;

/// The interval at which it looks for answers.
const LOOK: Duration = Duration::from_millis(10);
/// How long processes that outlive the application may take to answer.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// The files of one recording. Dropping this value removes them.
#[derive(Debug)]
pub struct StopFile {
    folder: PathBuf,
    name: String,
}

impl StopFile {
    /// Files in a folder that the sampled processes can write to.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), name: format!(".corprof-{}.stop", std::process::id()) }
    }

    /// The path of the stop file.
    pub fn path(&self) -> PathBuf {
        self.folder.join(&self.name)
    }

    /// Makes the stop file: the samplers of all processes then write their profiles and end.
    ///
    /// # Errors
    /// If the file cannot be made.
    pub fn ask(&self) -> Result<()> {
        // The folder may be another user's, who must not choose by a link which file is written.
        match File::options().write(true).create_new(true).open(self.path()) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                Err(anyhow!(error).context(format!("cannot write {}", self.path().display())))
            }
            _ => Ok(()),
        }
    }

    /// Makes the stop file, and waits until the profiler of each of the processes has answered, or its process has
    /// ended. Whether that was within the limit.
    ///
    /// # Errors
    /// If the file cannot be made.
    pub fn ask_and_wait(&self, processes: &[u32], limit: Duration) -> Result<bool> {
        self.ask()?;
        let start = Instant::now();
        while processes.iter().any(|pid| !self.is_done(*pid) && processes::is_there(*pid)) {
            if start.elapsed() > limit {
                return Ok(false);
            }
            thread::sleep(LOOK);
        }
        Ok(true)
    }

    /// Has the processes that outlive the application, such as a server that it has started, answer now: at their end
    /// nobody would read it. Returns these of the processes that have loaded the profiler.
    ///
    /// # Errors
    /// If the file cannot be made.
    pub fn ask_survivors(&self, loaded: &BTreeSet<u32>) -> Result<Vec<u32>> {
        if cfg!(not(unix)) {
            // Other systems do not show whether a process lives.
            return Ok(Vec::new());
        }
        let alive: Vec<u32> = loaded.iter().copied().filter(|pid| processes::is_there(*pid)).collect();
        if alive.is_empty() {
            return Ok(alive);
        }
        self.ask_and_wait(&alive, LAST_WORDS)?;
        Ok(alive.into_iter().filter(|pid| processes::is_there(*pid)).collect())
    }

    /// Whether the sampler of a process has written its profile, for whatever reason.
    pub fn is_done(&self, pid: u32) -> bool {
        self.answer(pid).exists()
    }

    /// The file by which the sampler of a process confirms that. It contains what became of sent profiles.
    pub fn answer(&self, pid: u32) -> PathBuf {
        self.file_of(pid, "")
    }

    /// A file of a process for the command, with this ending.
    pub fn file_of(&self, pid: u32, ending: &str) -> PathBuf {
        self.folder.join(format!("{}.{pid}{ending}", self.name))
    }

    /// The processes that have written a file with one of these endings.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn answered(&self, endings: &[&str]) -> Result<BTreeSet<u32>> {
        let entries = fs::read_dir(&self.folder).context("cannot list the answers")?;
        let pid_of = |name: &str| {
            let rest = name.strip_prefix(&self.name)?.strip_prefix('.')?;
            endings.iter().find_map(|ending| rest.strip_suffix(ending))?.parse().ok()
        };
        Ok(entries.flatten().filter_map(|entry| pid_of(entry.file_name().to_str()?)).collect())
    }
}

impl Drop for StopFile {
    fn drop(&mut self) {
        let Ok(entries) = fs::read_dir(&self.folder) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let rest = name.to_str().and_then(|name| name.strip_prefix(&self.name));
            if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.')) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_asked_for_answered_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let stop = StopFile::new(folder.path());
        assert!(!stop.path().exists() && !stop.is_done(7));
        stop.ask().unwrap();
        fs::write(format!("{}.7", stop.path().display()), "").unwrap();
        assert!(stop.path().exists() && stop.is_done(7) && !stop.is_done(8));
        fs::write(stop.file_of(8, ".answer"), "").unwrap();
        fs::write(stop.file_of(9, ".calls"), "").unwrap();
        assert_eq!(stop.answered(&[".answer", ".calls"]).unwrap(), BTreeSet::from([8, 9]));
        fs::write(folder.path().join("profile.html"), "").unwrap();
        // That of a process which has ended, or of none, is not waited for.
        assert!(stop.ask_and_wait(&[7], Duration::ZERO).unwrap());
        assert!(!stop.ask_and_wait(&[7, std::process::id()], Duration::ZERO).unwrap());
        drop(stop);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
