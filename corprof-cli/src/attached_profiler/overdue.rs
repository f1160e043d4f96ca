//! How long an attached profiler is waited for, once it has to answer.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use corprof_launch::processes;

use crate::inspect;

/// After this time it is asked whether the process is stopped.
const STOPPED: Duration = Duration::from_secs(10);
/// The interval between two such looks.
const LOOK: Duration = Duration::from_secs(1);
/// After this time nobody is waited for. An answer of much data takes some ten seconds on a busy machine.
const MOST: Duration = Duration::from_secs(300);

/// A profiler in a process that answers at some time.
#[derive(Debug)]
pub(crate) struct Overdue {
    pid: u32,
    /// When it has to answer, if that is known.
    due: Option<Instant>,
}

impl Overdue {
    /// For a profiler that answers by itself after this time, or else when it is asked.
    pub(crate) fn after(pid: u32, time: Option<Duration>) -> Self {
        Self { pid, due: time.and_then(|time| Instant::now().checked_add(time)) }
    }

    /// It was asked just now.
    pub(crate) fn asked(&mut self) {
        self.due = Some(Instant::now());
    }

    /// How long nothing has to be looked at; none until it is asked.
    pub(crate) fn pause(&self) -> Option<Duration> {
        let due = self.due?;
        Some((due + STOPPED).saturating_duration_since(Instant::now()).max(LOOK))
    }

    /// Whether it may still answer.
    ///
    /// # Errors
    /// If it is not waited for any longer, and why.
    pub(crate) fn check(&self) -> Result<()> {
        let Some(late) = self.due.map(|due| due.elapsed()).filter(|late| *late >= STOPPED) else { return Ok(()) };
        let Self { pid, .. } = *self;
        ensure!(!processes::is_stopped(pid), inspect::stopped(pid));
        ensure!(
            late < MOST,
            "process {pid} has not answered within {} s: is it frozen, as by `docker pause`?",
            MOST.as_secs()
        );
        Ok(())
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_that_is_stopped_is_not_waited_for() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let long_ago = Instant::now().checked_sub(STOPPED).unwrap();
        let overdue = Overdue { pid: child.id(), due: Some(long_ago) };
        assert!(overdue.check().is_ok());
        assert_eq!(overdue.pause(), Some(LOOK));
        let stop = Command::new("kill").args(["-STOP", &child.id().to_string()]).status().unwrap();
        assert!(stop.success());
        while !processes::is_stopped(child.id()) {
            std::thread::yield_now();
        }
        assert!(overdue.check().unwrap_err().to_string().contains("is stopped"));
        let mut overdue = Overdue::after(child.id(), None);
        assert!(overdue.check().is_ok() && overdue.pause().is_none());
        overdue.asked();
        assert!(overdue.check().is_ok() && overdue.pause().is_some());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
