//! Signals to this process while an application runs: they go to the application.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

pub(crate) use system::Forwarding;

/// The effect of Ctrl-C on the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interrupt {
    /// The same as without this process.
    PassOn,
    /// None: this process first has the profiler write its file, and then ends the application.
    Stop,
}

/// Requests to end that come this soon after one another are one, unless they are those of a user: `timeout` sends
/// SIGTERM to a process and to its group, and the system and a shell both tell that the terminal is gone.
pub const SAME_REQUEST: Duration = Duration::from_millis(500);

/// Tells a request to end from one that repeats it.
#[derive(Debug, Default)]
pub struct Requests {
    last: Option<Instant>,
}

impl Requests {
    /// A request has come now, by this signal. Whether it is another one than the last.
    pub fn is_new(&mut self, signal: i32) -> bool {
        if signal == signal_hook::consts::SIGINT {
            return true;
        }
        let is_same = self.last.is_some_and(|last| last.elapsed() < SAME_REQUEST);
        if !is_same {
            self.last = Some(Instant::now());
        }
        !is_same
    }
}

impl Interrupt {
    /// A command that runs `program` under these rules.
    #[must_use]
    pub fn command(self, program: &Path) -> Command {
        system::command(self, program)
    }

    /// Sends a signal to the application, unless this process keeps it or the system sends it to both. Whether the
    /// caller is to know of the signal.
    pub(crate) fn pass_on(self, signal: i32, pid: u32) -> bool {
        system::pass_on(self, signal, pid)
    }
}

#[cfg(unix)]
mod system {
    use std::fs::File;
    use std::io;
    use std::os::unix::process::CommandExt;
    use std::path::Path;
    use std::process::Command;
    use std::thread;

    use rustix::process::{Pid, Signal, getpgrp, kill_process};
    use rustix::termios::tcgetpgrp;
    use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
    use signal_hook::iterator::{Handle, Signals};

    use super::Interrupt;

    /// The signals that users and supervisors send to an application.
    const PASSED_ON: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];

    /// Signals are forwarded as long as this value exists. They do not end this process.
    pub(crate) struct Forwarding(Handle);

    impl Forwarding {
        /// Calls `receive` on another thread with each signal to this process.
        pub(crate) fn start(receive: impl Fn(i32) + Send + 'static) -> io::Result<Self> {
            let mut signals = Signals::new(PASSED_ON)?;
            let handle = signals.handle();
            thread::Builder::new().name("corprof-signals".to_owned()).spawn(move || {
                for signal in signals.forever() {
                    receive(signal);
                }
            })?;
            Ok(Self(handle))
        }
    }

    impl Drop for Forwarding {
        fn drop(&mut self) {
            self.0.close();
        }
    }

    pub(super) fn pass_on(interrupt: Interrupt, signal: i32, pid: u32) -> bool {
        if [SIGINT, SIGTERM, SIGHUP].contains(&signal) && interrupt == Interrupt::Stop {
            return true;
        }
        // A terminal sends these to the application as well, which would get them twice.
        let is_shared = [SIGINT, SIGQUIT, SIGHUP].contains(&signal) && is_in_foreground();
        let target = i32::try_from(pid).ok().and_then(Pid::from_raw);
        if let (false, Some(target), Some(signal)) = (is_shared, target, Signal::from_named_raw(signal)) {
            // It may have just ended; its status has not been taken, so no other process has its id.
            let _ = kill_process(target, signal);
        }
        interrupt == Interrupt::PassOn
    }

    pub(super) fn command(interrupt: Interrupt, program: &Path) -> Command {
        match interrupt {
            Interrupt::PassOn => Command::new(program),
            Interrupt::Stop if is_in_foreground() => {
                // A terminal sends Ctrl-C to the application too, and that it is gone, and a .NET program without a
                // handler of its own dies of it, and loses the unwritten data of its profiler. A signal that a shell
                // ignores stays ignored after `exec`. The application needs this group to read from the terminal.
                let mut command = Command::new("/bin/sh");
                command.args(["-c", "trap '' INT HUP; exec \"$0\" \"$@\""]).arg(program);
                command
            }
            Interrupt::Stop => {
                // Others, such as `timeout`, send SIGTERM to the group of this process. What is sent to the
                // application alone is meant for it, so that it ignores nothing.
                let mut command = Command::new(program);
                command.process_group(0);
                command
            }
        }
    }

    /// Whether a terminal sends Ctrl-C to this process and its children.
    fn is_in_foreground() -> bool {
        File::open("/dev/tty").is_ok_and(|terminal| tcgetpgrp(&terminal).is_ok_and(|group| group == getpgrp()))
    }
}

#[cfg(windows)]
mod system {
    use std::io;
    use std::path::Path;
    use std::process::Command;

    use signal_hook::SigId;
    use signal_hook::consts::SIGINT;
    use signal_hook::low_level;

    use super::Interrupt;

    /// Ctrl-C is forwarded as long as this value exists. It does not end this process.
    pub(crate) struct Forwarding(SigId);

    impl Forwarding {
        /// Calls `receive` on another thread for each Ctrl-C.
        pub(crate) fn start(receive: impl Fn(i32) + Send + Sync + 'static) -> io::Result<Self> {
            // SAFETY: Windows calls the handler of SIGINT on a new thread (documentation of `signal`), so nothing is
            // interrupted, and `receive` may allocate and lock.
            unsafe { low_level::register(SIGINT, move || receive(SIGINT)) }.map(Self)
        }
    }

    impl Drop for Forwarding {
        fn drop(&mut self) {
            low_level::unregister(self.0);
        }
    }

    /// A console sends Ctrl-C to the application as well.
    pub(super) fn pass_on(_interrupt: Interrupt, _signal: i32, _pid: u32) -> bool {
        true
    }

    pub(super) fn command(_interrupt: Interrupt, program: &Path) -> Command {
        Command::new(program)
    }
}
