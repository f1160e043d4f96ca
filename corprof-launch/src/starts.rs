//! Notices that .NET runtimes start, without polling.
//!
//! A runtime makes a socket for diagnostics in the folder for temporary files, and a file of its messages where
//! variables ask for one. The system reports new files in such a folder on Linux only; mapped files are visible there
//! only, too.

#[cfg(target_os = "linux")]
pub(crate) use system::Starts;

#[cfg(target_os = "linux")]
mod system {
    use std::io::{self, PipeWriter};
    use std::mem::MaybeUninit;
    use std::os::fd::OwnedFd;
    use std::path::Path;
    use std::thread;

    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
    use rustix::io::{Errno, retry_on_intr};

    /// Starts are noticed as long as this value exists.
    #[derive(Debug)]
    pub(crate) struct Starts {
        /// Its end ends the thread.
        _end: PipeWriter,
    }

    impl Starts {
        /// Calls `on_start` on another thread when a runtime has made a file in `folder`.
        ///
        /// # Errors
        /// If the folder cannot be watched, or no thread can be started.
        pub(crate) fn watch(folder: &Path, on_start: impl Fn() + Send + 'static) -> io::Result<Self> {
            let files = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
            inotify::add_watch(&files, folder, WatchFlags::CREATE)?;
            let (end, writer) = io::pipe()?;
            thread::Builder::new().name("corprof-starts".to_owned()).spawn(move || {
                while is_before_end(&files, &end) {
                    if has_runtime_file(&files) {
                        on_start();
                    }
                }
            })?;
            Ok(Self { _end: writer })
        }
    }

    /// Waits for new files; false at the end.
    fn is_before_end(files: &OwnedFd, end: &io::PipeReader) -> bool {
        let mut both = [PollFd::new(files, PollFlags::IN), PollFd::new(end, PollFlags::IN)];
        retry_on_intr(|| poll(&mut both, None)).is_ok() && both[1].revents().is_empty()
    }

    /// Whether one of the new files is a runtime's. Takes all of them.
    fn has_runtime_file(files: &OwnedFd) -> bool {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(files, &mut buffer);
        let mut is_found = false;
        loop {
            match reader.next() {
                Ok(event) => is_found |= event.file_name().is_some_and(|name| is_runtime_file(name.to_bytes())),
                Err(Errno::INTR) => {}
                Err(_) => return is_found,
            }
        }
    }

    fn is_runtime_file(name: &[u8]) -> bool {
        name.starts_with(b"dotnet-diagnostic-") || name.ends_with(b".nettrace")
    }

    #[cfg(test)]
    mod tests {
        use std::fs::File;
        use std::sync::mpsc::{self, RecvTimeoutError};
        use std::time::Duration;

        use super::*;

        #[test]
        fn files_of_runtimes_are_noticed_until_the_end() {
            let folder = tempfile::tempdir().unwrap();
            let (sender, notices) = mpsc::channel();
            let starts = Starts::watch(folder.path(), move || sender.send(()).unwrap()).unwrap();
            let notice = |name: &str, limit| {
                File::create(folder.path().join(name)).unwrap();
                notices.recv_timeout(limit)
            };
            let long = Duration::from_secs(60);
            assert_eq!(notice("other.txt", Duration::from_millis(50)), Err(RecvTimeoutError::Timeout));
            assert_eq!(notice("4711.nettrace", long), Ok(()));
            assert_eq!(notice("dotnet-diagnostic-4711-1-socket", long), Ok(()));
            drop(starts);
            assert_eq!(notices.recv_timeout(long), Err(RecvTimeoutError::Disconnected), "the thread has ended");
            assert!(Starts::watch(Path::new("/no/such/folder"), || {}).is_err());
        }
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) use elsewhere::Starts;

#[cfg(not(target_os = "linux"))]
mod elsewhere {
    use std::io;
    use std::path::Path;

    /// Never notices a start.
    #[derive(Debug)]
    pub(crate) struct Starts;

    impl Starts {
        pub(crate) fn watch(_folder: &Path, _on_start: impl Fn() + Send + 'static) -> io::Result<Self> {
            Ok(Self)
        }
    }
}
