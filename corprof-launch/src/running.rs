//! Waits for the end of a child process, with a time limit and without polling.
//!
//! A thread waits for the end and announces it. On Unix it leaves the ended process in the system's table (`WNOWAIT`),
//! so until the owner has taken the exit status the process id means no other process, and the owner may send signals
//! to it.

use std::convert::Infallible;
use std::io;
use std::process::{Child, ExitStatus};
use std::sync::mpsc::{self, Receiver, RecvError, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// A child process. Dropping this value lets the process run on, as with [`Child`].
#[derive(Debug)]
pub struct Running {
    child: Child,
    /// Disconnected by the end of the process.
    end: Receiver<Infallible>,
}

impl Running {
    /// Watches `child`, which nobody has waited for.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn new(child: Child) -> io::Result<Self> {
        let (alive, end) = mpsc::channel();
        at_end(&child, move || drop(alive))?;
        Ok(Self { child, end })
    }

    /// The process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the end of the process; none if it still runs after `limit`.
    ///
    /// # Errors
    /// If the exit status cannot be read.
    pub fn wait_for(&mut self, limit: Duration) -> io::Result<Option<ExitStatus>> {
        match self.end.recv_timeout(limit) {
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => self.child.wait().map(Some),
        }
    }

    /// Waits for the end of the process without a limit.
    ///
    /// # Errors
    /// If the exit status cannot be read.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        // The thread must see the end before the status is taken: afterwards the id may mean another process.
        let Err(RecvError) = self.end.recv();
        self.child.wait()
    }

    /// Kills the process, and waits for its end.
    ///
    /// # Errors
    /// If it cannot be killed.
    pub fn kill(&mut self) -> io::Result<ExitStatus> {
        self.child.kill()?;
        self.wait()
    }
}

/// Calls `on_end` on a thread of its own when `child` has ended.
pub(crate) fn at_end(child: &Child, on_end: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let wait = system::end_of(child)?;
    thread::Builder::new().name("corprof-wait".to_owned()).spawn(move || {
        wait();
        on_end();
    })?;
    Ok(())
}

#[cfg(unix)]
mod system {
    use std::io;
    use std::process::Child;

    use rustix::io::retry_on_intr;
    use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

    /// A function that returns when `child` has ended.
    pub(super) fn end_of(child: &Child) -> io::Result<impl FnOnce() + use<>> {
        let pid = Pid::from_child(child);
        Ok(move || {
            // It fails only if the status has been taken already: the process has ended then, too.
            let _ = retry_on_intr(|| waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT));
        })
    }
}

#[cfg(windows)]
mod system {
    use std::io;
    use std::os::windows::io::{AsHandle, AsRawHandle};
    use std::process::Child;

    use windows_sys::Win32::System::Threading::{INFINITE, WaitForSingleObject};

    /// A function that returns when `child` has ended.
    pub(super) fn end_of(child: &Child) -> io::Result<impl FnOnce() + use<>> {
        let process = child.as_handle().try_clone_to_owned()?;
        Ok(move || {
            // SAFETY: `process` is an open handle, which this closure owns until the call has returned.
            unsafe { WaitForSingleObject(process.as_raw_handle(), INFINITE) };
        })
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;
    use std::time::Instant;

    use rustix::process::{Pid, Signal, kill_process};

    use super::*;

    fn start(script: &str) -> io::Result<Running> {
        Running::new(Command::new("sh").args(["-c", script]).spawn()?)
    }

    /// Longer than any machine takes, shorter than a person waits.
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn the_end_is_seen_at_once_and_again() {
        let mut running = start("exit 3").unwrap();
        let start = Instant::now();
        assert_eq!(running.wait_for(LONG).unwrap().and_then(|status| status.code()), Some(3));
        assert!(start.elapsed() < LONG);
        assert_eq!(running.wait_for(Duration::ZERO).unwrap().and_then(|status| status.code()), Some(3));
    }

    #[test]
    fn a_process_that_runs_on_is_killed() {
        let mut running = start("exec sleep 600").unwrap();
        assert_eq!(running.wait_for(Duration::from_millis(20)).unwrap(), None);
        assert_eq!(running.kill().unwrap().signal(), Some(9));
        assert_eq!(running.wait_for(Duration::ZERO).unwrap().and_then(|status| status.signal()), Some(9));
        assert_eq!(running.kill().unwrap().signal(), Some(9), "no other process is killed");
    }

    #[test]
    fn a_stopped_process_has_not_ended() {
        let mut running = start("kill -STOP $$; exit 5").unwrap();
        assert_eq!(running.wait_for(Duration::from_millis(200)).unwrap(), None);
        let pid = Pid::from_raw(running.id() as i32).unwrap();
        kill_process(pid, Signal::CONT).unwrap();
        assert_eq!(running.wait_for(LONG).unwrap().and_then(|status| status.code()), Some(5));
    }
}
