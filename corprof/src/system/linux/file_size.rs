//! A limit of the size of files (`RLIMIT_FSIZE`, `ulimit -f`): the system sends SIGXFSZ to a thread whose write goes
//! beyond it, which ends the process unless it is blocked. .NET leaves it alone, as its own files are small.

use std::mem::MaybeUninit;

/// As long as this exists, a write of the calling thread that goes beyond the limit fails with an error, and no more.
pub(crate) struct FileSizeErrors {
    /// The signals that the thread did not receive before.
    before: libc::sigset_t,
}

impl FileSizeErrors {
    pub(crate) fn begin() -> Self {
        let signal = signal();
        let mut before = MaybeUninit::zeroed();
        // SAFETY: both sets are whole: the call reads the first and writes the second.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const signal, before.as_mut_ptr()) };
        // SAFETY: the call has written it; zeroes, if it has failed, are the empty set.
        Self { before: unsafe { before.assume_init() } }
    }
}

impl Drop for FileSizeErrors {
    fn drop(&mut self) {
        let signal = signal();
        // SAFETY: the set is whole.
        let was_blocked = unsafe { libc::sigismember(&raw const self.before, libc::SIGXFSZ) } == 1;
        if was_blocked {
            return;
        }
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the calls read whole sets and a time. The first takes the thread's own signal, if it is pending, which
        // would come as soon as it is no longer blocked.
        unsafe {
            libc::sigtimedwait(&raw const signal, std::ptr::null_mut(), &raw const now);
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const signal, std::ptr::null_mut());
        }
    }
}

/// The set of this signal alone.
fn signal() -> libc::sigset_t {
    let mut set = MaybeUninit::zeroed();
    // SAFETY: the first call makes the set empty, the second adds a signal that there is.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGXFSZ);
        set.assume_init()
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// The limit is one of processes, so this test runs itself in another one.
    const UNDER_A_LIMIT: &str = "CORPROF_TEST_UNDER_A_LIMIT";

    #[test]
    fn a_write_beyond_the_limit_is_an_error() {
        let file = std::env::temp_dir().join(format!("corprof-limit-{}", std::process::id()));
        if std::env::var_os(UNDER_A_LIMIT).is_some() {
            let errors = FileSizeErrors::begin();
            let inner = FileSizeErrors::begin();
            assert!(std::fs::write(&file, [0; 4096]).is_err());
            drop(inner);
            assert!(std::fs::write(&file, [0; 4096]).is_err());
            drop(errors);
            let _ = std::fs::remove_file(&file);
            return;
        }
        let mut command = Command::new("sh");
        let program = std::env::current_exe().unwrap();
        // In blocks of 512 bytes.
        command.args(["-c", "ulimit -f 1; exec \"$0\" a_write_beyond_the_limit_is_an_error"]).arg(program);
        let output = command.env(UNDER_A_LIMIT, "1").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{output:?}");
    }
}
