//! Passes signals on to the application of `corprof run`.

use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The effect of Ctrl-C on the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interrupt {
    /// The same as without `corprof`.
    PassOn,
    /// None: `corprof` first has the profiler write its file, and then ends the application.
    Stop,
}

impl Interrupt {
    /// A command that runs `program` under these rules.
    pub(crate) fn command(self, program: &Path) -> Command {
        self.command_of(program)
    }
}

#[cfg(unix)]
mod system {
    use std::fs::File;
    use std::io;
    use std::path::Path;
    use std::process::Command;

    use rustix::process::{Pid, Signal, getpgrp, kill_process};
    use rustix::termios::tcgetpgrp;
    use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
    use signal_hook::iterator::Signals;

    use super::Interrupt;

    /// The signals that users and supervisors send to an application.
    const PASSED_ON: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];

    pub(super) struct Caught(Signals);

    impl Caught {
        pub(super) fn new() -> io::Result<Self> {
            Signals::new(PASSED_ON).map(Self)
        }

        pub(super) fn is_interrupted(&mut self) -> bool {
            self.0.pending().any(|signal| [SIGINT, SIGTERM, SIGHUP, SIGQUIT].contains(&signal))
        }

        pub(super) fn pass_on(&mut self, pid: u32, interrupt: Interrupt) -> bool {
            let mut some = false;
            for signal in self.0.pending() {
                if [SIGINT, SIGTERM].contains(&signal) && interrupt == Interrupt::Stop {
                    some = true;
                    continue;
                }
                some |= interrupt == Interrupt::PassOn;
                // A terminal sends these to the application as well, which would get them twice.
                let is_shared = [SIGINT, SIGQUIT, SIGHUP].contains(&signal) && is_in_foreground();
                let target = i32::try_from(pid).ok().and_then(Pid::from_raw);
                if let (false, Some(target), Some(signal)) = (is_shared, target, Signal::from_named_raw(signal)) {
                    // It may have just ended; it has not been waited for, so no other process has its id.
                    let _ = kill_process(target, signal);
                }
            }
            some
        }
    }

    impl Interrupt {
        /// A command that runs `program` and does on Ctrl-C what this says.
        pub(super) fn command_of(self, program: &Path) -> Command {
            match self {
                Self::PassOn => Command::new(program),
                Self::Stop => {
                    // A terminal sends Ctrl-C to the application too, and a .NET program without a handler of its own dies of
                    // it, and loses the unwritten data of its profiler. A signal that a shell ignores stays ignored after `exec`.
                    let mut command = Command::new("/bin/sh");
                    command.args(["-c", "trap '' INT; exec \"$0\" \"$@\""]).arg(program);
                    command
                }
            }
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
    use std::path::Path;
    use std::process::Command;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::Interrupt;

    impl Interrupt {
        /// A command that runs `program`, which a console sends Ctrl-C.
        pub(super) fn command_of(self, program: &Path) -> Command {
            Command::new(program)
        }
    }

    /// A console sends Ctrl-C to the application as well; this process must survive it.
    pub(super) struct Caught(Arc<AtomicBool>);

    impl Caught {
        pub(super) fn new() -> io::Result<Self> {
            let flag = Arc::new(AtomicBool::new(false));
            signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(&flag))?;
            Ok(Self(flag))
        }

        pub(super) fn is_interrupted(&mut self) -> bool {
            self.0.swap(false, std::sync::atomic::Ordering::Relaxed)
        }

        pub(super) fn pass_on(&mut self, _pid: u32, _interrupt: Interrupt) -> bool {
            self.is_interrupted()
        }
    }
}

/// A flag that Ctrl-C, or another request to end, sets from now on. The second one ends this process.
pub(crate) fn stop_requests() -> io::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // In this order the first only sets the flag.
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&flag))?;
        signal_hook::flag::register(signal, Arc::clone(&flag))?;
    }
    Ok(flag)
}

/// From now on signals do not end this process.
pub(crate) struct Signals(system::Caught);

impl Signals {
    pub(crate) fn catch() -> io::Result<Self> {
        system::Caught::new().map(Self)
    }

    /// Whether a signal requested the end of this process.
    pub(crate) fn is_interrupted(&mut self) -> bool {
        self.0.is_interrupted()
    }

    /// Sends to the process what was sent to this one since the last time. Whether there was anything; with [`Interrupt::Stop`]:
    /// whether somebody wants an end.
    pub(crate) fn pass_on(&mut self, pid: u32, interrupt: Interrupt) -> bool {
        self.0.pass_on(pid, interrupt)
    }
}
