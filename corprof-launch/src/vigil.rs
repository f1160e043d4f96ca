//! Waits for what happens to a process of somebody else, without looking again and again: its end, by a descriptor of
//! the process, and new files in a folder, both of which Linux reports. Elsewhere, and with a kernel before Linux 5.3,
//! it looks five times a second.

use std::path::Path;
use std::time::Duration;

/// The interval between two looks where the system reports nothing.
const LOOK: Duration = Duration::from_millis(200);

/// A wait. Nothing that happens after [`new`](Vigil::new) is missed.
#[derive(Debug)]
pub struct Vigil {
    #[cfg(target_os = "linux")]
    reports: Option<system::Reports>,
}

impl Vigil {
    /// For this process and this folder, and for requests to end this process: SIGINT, SIGTERM, SIGHUP and SIGQUIT,
    /// which others must catch.
    #[must_use]
    pub fn new(pid: u32, folder: &Path) -> Self {
        #[cfg(target_os = "linux")]
        return Self { reports: system::Reports::of(pid, folder).ok() };
        #[cfg(not(target_os = "linux"))]
        {
            let _ = (pid, folder);
            Self {}
        }
    }

    /// Returns when something may have happened, at the latest after `limit`.
    pub fn wait(&mut self, limit: Option<Duration>) {
        #[cfg(target_os = "linux")]
        if let Some(reports) = &mut self.reports
            && reports.wait(limit).is_ok()
        {
            return;
        }
        std::thread::sleep(limit.map_or(LOOK, |limit| limit.min(LOOK)));
    }
}

#[cfg(target_os = "linux")]
mod system {
    use std::io::{self, Read};
    use std::mem::MaybeUninit;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::path::Path;
    use std::time::Duration;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
    use rustix::io::Errno;
    use rustix::process::{Pid, PidfdFlags, pidfd_open};
    use signal_hook::SigId;
    use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    use signal_hook::low_level;

    /// The descriptors by which the system reports.
    #[derive(Debug)]
    pub(super) struct Reports {
        process: OwnedFd,
        files: OwnedFd,
        signals: UnixStream,
        handlers: Vec<SigId>,
    }

    impl Reports {
        pub(super) fn of(pid: u32, folder: &Path) -> io::Result<Self> {
            let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
            let process = pidfd_open(pid, PidfdFlags::empty())?;
            let files = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
            inotify::add_watch(&files, folder, WatchFlags::CREATE | WatchFlags::MOVED_TO)?;
            let (signals, writer) = UnixStream::pair()?;
            signals.set_nonblocking(true)?;
            let mut reports = Self { process, files, signals, handlers: Vec::new() };
            for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT] {
                reports.handlers.push(low_level::pipe::register(signal, writer.try_clone()?)?);
            }
            Ok(reports)
        }

        pub(super) fn wait(&mut self, limit: Option<Duration>) -> io::Result<()> {
            // One that is too long for the system is as good as none.
            let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
            let mut all = [
                PollFd::new(&self.process, PollFlags::IN),
                PollFd::new(&self.files, PollFlags::IN),
                PollFd::new(&self.signals, PollFlags::IN),
            ];
            match poll(&mut all, limit.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            // What has been reported is not reported again.
            let mut buffer = [MaybeUninit::uninit(); 4096];
            let mut reader = Reader::new(&self.files, &mut buffer);
            while reader.next().is_ok() {}
            let mut bytes = [0; 64];
            while matches!((&self.signals).read(&mut bytes), Ok(1..)) {}
            Ok(())
        }
    }

    impl Drop for Reports {
        fn drop(&mut self) {
            for handler in self.handlers.drain(..) {
                low_level::unregister(handler);
            }
        }
    }

    #[cfg(test)]
    mod tests {
        use std::process::Command;
        use std::sync::mpsc::{self, RecvTimeoutError};
        use std::thread;
        use std::time::Duration;

        use super::*;

        #[test]
        fn files_signals_and_the_end_of_the_process_end_a_wait() {
            let long = Duration::from_secs(60);
            let mut child = Command::new("sleep").arg("600").spawn().unwrap();
            let folder = tempfile::tempdir().unwrap();
            let mut reports = Reports::of(child.id(), folder.path()).unwrap();
            let (sender, waits) = mpsc::channel();
            let (next, nexts) = mpsc::channel::<()>();
            let waiting = thread::spawn(move || {
                while nexts.recv().is_ok() {
                    reports.wait(None).unwrap();
                    sender.send(()).unwrap();
                }
            });
            next.send(()).unwrap();
            assert_eq!(
                waits.recv_timeout(Duration::from_millis(50)),
                Err(RecvTimeoutError::Timeout),
                "nothing has happened"
            );
            std::fs::write(folder.path().join("file"), "").unwrap();
            waits.recv_timeout(long).unwrap();
            next.send(()).unwrap();
            assert_eq!(
                waits.recv_timeout(Duration::from_millis(50)),
                Err(RecvTimeoutError::Timeout),
                "not reported again"
            );
            low_level::raise(SIGHUP).unwrap();
            waits.recv_timeout(long).unwrap();
            next.send(()).unwrap();
            child.kill().unwrap();
            waits.recv_timeout(long).unwrap();
            drop(next);
            waiting.join().unwrap();
            child.wait().unwrap();
        }
    }
}
