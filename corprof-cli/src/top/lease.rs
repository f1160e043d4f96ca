//! The permission for the profiler to stay: a file that this command rewrites each second.
//!
//! If the command is killed or stopped, the profiler notices after 30 seconds, removes the file and detaches. If the
//! command removes the file, the profiler detaches at once.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::attached_profiler::folder::{make, overwrite};

/// The interval at which the lease is renewed.
const RENEW: Duration = Duration::from_secs(1);

/// A lease. Dropping this value ends it.
#[derive(Debug)]
pub(super) struct Lease {
    file: PathBuf,
    is_lost: Arc<AtomicBool>,
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Lease {
    /// Renews this file from now on, on a thread of its own: a slow terminal must not end the lease.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(super) fn new(file: PathBuf) -> io::Result<Self> {
        make(&file)?.write_all(b"0")?;
        let (end, ends) = channel();
        let is_lost = Arc::new(AtomicBool::new(false));
        let renewed = file.clone();
        let is_lost_there = Arc::clone(&is_lost);
        let thread = thread::spawn(move || {
            for time in 1u64.. {
                match ends.recv_timeout(RENEW) {
                    Err(RecvTimeoutError::Timeout) => {}
                    _ => return,
                }
                // A missing file means that the profiler has left. A full disk may have room again in a second.
                if renew(&renewed, time).is_err_and(|error| error.kind() == ErrorKind::NotFound) {
                    return is_lost_there.store(true, Ordering::Relaxed);
                }
            }
        });
        Ok(Self { file, is_lost, end: Some(end), thread: Some(thread) })
    }

    /// Whether the profiler has left, because the lease was not renewed in time.
    pub(super) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }
}

/// Changes the content of the file, which must exist.
fn renew(file: &Path, time: u64) -> io::Result<()> {
    overwrite(file)?.write_all(time.to_string().as_bytes())
}

impl Drop for Lease {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = fs::remove_file(&self.file);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// Waits for a condition.
    fn wait_for(mut is_met: impl FnMut() -> bool) {
        let start = Instant::now();
        while !is_met() {
            assert!(start.elapsed() < Duration::from_secs(120), "never");
            thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn a_lease_is_renewed_until_it_ends() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("lease");
        let lease = Lease::new(file.clone()).unwrap();
        wait_for(|| fs::read_to_string(&file).is_ok_and(|text| text == "2"));
        assert!(!lease.is_lost());
        drop(lease);
        assert!(!file.exists());
    }

    #[test]
    fn a_lease_that_the_profiler_has_ended_is_lost() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("lease");
        let lease = Lease::new(file.clone()).unwrap();
        fs::remove_file(&file).unwrap();
        wait_for(|| lease.is_lost());
        assert!(!file.exists(), "it is not made again");
    }
}
