//! Runs a program to its end; if it hangs, collects the stacks of its threads before killing it.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use corprof_launch::exit;
use corprof_launch::running::Running;

use crate::process::shown;
use crate::stacks;

/// How long the debugger may take for the stacks.
const DUMP: Duration = Duration::from_secs(60);

/// The result of a run.
#[derive(Debug)]
pub(super) struct Run {
    /// None if it did not end and was killed.
    pub(super) status: Option<ExitStatus>,
    pub(super) stdout: String,
    pub(super) stderr: String,
    pub(super) duration: Duration,
    /// The stacks of the threads of a program that did not end.
    pub(super) threads: Option<String>,
}

impl Run {
    /// Whether no code of the program was run. On a busy machine Wine ends this way now and then, once in a thousand
    /// starts or less; the runtime takes longer to start, and prints the reason if it fails.
    pub(super) fn has_not_begun(&self) -> bool {
        let is_silent = self.stdout.is_empty() && self.stderr.is_empty();
        is_silent && self.status.map(exit::code) == Some(1) && self.duration < Duration::from_millis(200)
    }
}

/// Runs `command`, with its output in files in `folder`, for `limit` at most.
pub(super) fn run(command: &mut Command, folder: &Path, limit: Duration) -> Result<Run> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let [out, err] = ["stdout.txt", "stderr.txt"].map(|name| folder.join(name));
    let file = |path: &Path| File::create(path).with_context(|| format!("cannot make {}", path.display()));
    command.stdin(Stdio::null()).stdout(file(&out)?).stderr(file(&err)?);
    let start = Instant::now();
    let child = command.spawn().with_context(|| format!("cannot start `{}`", shown(command)))?;
    let mut running = Running::new(child).context("cannot watch the program")?;
    let status = running.wait_for(limit).context("cannot wait for the program")?;
    let duration = start.elapsed();
    let threads = status.is_none().then(|| stacks::of(running.id(), DUMP));
    if status.is_none() {
        running.kill().context("cannot kill the program")?;
    }
    let text = |path: &Path| {
        let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        // Windows ends lines its own way.
        anyhow::Ok(String::from_utf8_lossy(&bytes).replace("\r\n", "\n"))
    };
    Ok(Run { status, stdout: text(&out)?, stderr: text(&err)?, duration, threads })
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    #![allow(clippy::unwrap_used, reason = "that is how a test fails")]

    use super::*;

    fn shell(script: &str, limit: Duration) -> Run {
        let folder = tempfile::tempdir().unwrap();
        run(Command::new("sh").args(["-c", script]), folder.path(), limit).unwrap()
    }

    #[test]
    fn a_program_that_ends_is_told_of() {
        let run = shell("echo out; echo err >&2; exit 3", Duration::from_secs(30));
        assert_eq!(run.status.unwrap().code(), Some(3));
        assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("out\n", "err\n"));
        assert!(run.threads.is_none());
    }

    #[test]
    fn a_program_that_hangs_is_killed_and_its_threads_are_listed() {
        let run = shell("echo begun; exec sleep 1000", Duration::from_millis(300));
        assert!(run.status.is_none());
        assert_eq!(run.stdout, "begun\n");
        assert!(!run.threads.unwrap().is_empty());
        assert!(run.duration < Duration::from_secs(100));
    }
}
