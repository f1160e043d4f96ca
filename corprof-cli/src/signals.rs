//! Signals for the application that `corprof run` waits for.

use std::io;

#[cfg(unix)]
mod system {
    use std::fs::File;
    use std::io;

    use rustix::process::{Pid, Signal, getpgrp, kill_process};
    use rustix::termios::tcgetpgrp;
    use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
    use signal_hook::iterator::Signals;

    /// Those that people and supervisors send to an application.
    const PASSED_ON: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];

    pub(super) struct Caught(Signals);

    impl Caught {
        pub(super) fn new() -> io::Result<Self> {
            Signals::new(PASSED_ON).map(Self)
        }

        pub(super) fn pass_on(&mut self, pid: u32) -> bool {
            let mut some = false;
            for signal in self.0.pending() {
                some = true;
                // A terminal sends these to the application as well, which would get them twice.
                let is_shared = [SIGINT, SIGQUIT, SIGHUP].contains(&signal) && is_in_foreground();
                let target = i32::try_from(pid).ok().and_then(Pid::from_raw);
                if let (false, Some(target), Some(signal)) = (is_shared, target, Signal::from_named_raw(signal)) {
                    // It may have ended a moment ago; it has not been waited for, so no other process has its number.
                    let _ = kill_process(target, signal);
                }
            }
            some
        }
    }

    /// Whether a terminal sends Ctrl-C to this process and its children.
    fn is_in_foreground() -> bool {
        File::open("/dev/tty").is_ok_and(|terminal| tcgetpgrp(&terminal).is_ok_and(|group| group == getpgrp()))
    }
}

#[cfg(not(unix))]
mod system {
    use std::io;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    /// A console sends Ctrl-C to the application as well; this process has to live on.
    pub(super) struct Caught(Arc<AtomicBool>);

    impl Caught {
        pub(super) fn new() -> io::Result<Self> {
            let flag = Arc::new(AtomicBool::new(false));
            signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(&flag))?;
            Ok(Self(flag))
        }

        pub(super) fn pass_on(&mut self, _pid: u32) -> bool {
            self.0.swap(false, std::sync::atomic::Ordering::Relaxed)
        }
    }
}

/// From now on signals do not end this process.
pub(crate) struct Signals(system::Caught);

impl Signals {
    pub(crate) fn catch() -> io::Result<Self> {
        system::Caught::new().map(Self)
    }

    /// Sends to the process what was sent to this one since the last time; whether there was anything.
    pub(crate) fn pass_on(&mut self, pid: u32) -> bool {
        self.0.pass_on(pid)
    }
}
