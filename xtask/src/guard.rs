//! `cargo xtask guard`, hidden: what nextest starts instead of each test program.
//!
//! nextest ends a test that passes its limit (`.config/nextest.toml`) by a signal. The guard receives it: the test is
//! in a process group of its own. It shows where the threads of the test and of all that it has started stand, and ends
//! them. What a test that has ended leaves behind, it ends as well. At last it says how much processor time all of them
//! have had: how long a test takes is a matter of what runs beside it.

use std::ffi::OsString;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

/// Run a test program; if a signal ends it, show the stacks of all that it has started.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The program and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    command: Vec<OsString>,
}

/// What stands before the seconds of processor time, on a line of standard error.
pub(crate) const PROCESSOR_TIME: &str = "guard: processor time in seconds: ";

/// Runs the command.
///
/// # Errors
/// If the program does not start.
pub fn run(args: &Args) -> Result<ExitCode> {
    let (program, arguments) = args.command.split_first().context("no program")?;
    let mut command = Command::new(program);
    command.args(arguments);
    #[cfg(unix)]
    return unix::run(command);
    #[cfg(not(unix))]
    crate::process::status(&mut command).map(|status| corprof_launch::exit::code(status).into())
}

#[cfg(unix)]
mod unix {
    use std::os::unix::process::CommandExt;
    use std::process::{self, Command, ExitCode};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::{Duration, Instant};

    use anyhow::{Context, Result};
    use corprof_launch::exit;
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    use signal_hook::iterator::Signals;

    use super::PROCESSOR_TIME;
    use super::family::{self, Process};
    use crate::process::shown;
    use crate::stacks;

    /// How long all the stacks may take: less than the grace period of `.config/nextest.toml`.
    const STACKS: Duration = Duration::from_secs(40);
    /// How long those of one process may take.
    const OF_ONE: Duration = Duration::from_secs(15);

    /// A signal is about to end this process.
    static IS_ENDING: AtomicBool = AtomicBool::new(false);

    pub(super) fn run(mut command: Command) -> Result<ExitCode> {
        family::adopt_orphans();
        let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).context("cannot wait for signals")?;
        let mut child =
            command.process_group(0).spawn().with_context(|| format!("cannot start {}", shown(&command)))?;
        let test = child.id();
        thread::spawn(move || {
            if let Some(signal) = signals.forever().next() {
                IS_ENDING.store(true, Ordering::SeqCst);
                end_everything(test, signal);
            }
        });
        let status = child.wait().context("cannot wait for the test")?;
        while IS_ENDING.load(Ordering::SeqCst) {
            // The other thread has killed it, and ends this process.
            thread::park();
        }
        for left in family::of(process::id()) {
            eprintln!("guard: the test has left a process behind, which is ended now: {left}");
            left.kill();
        }
        if let Some(seconds) = family::processor_time() {
            eprintln!("{PROCESSOR_TIME}{seconds:.2}");
        }
        Ok(exit::code(status).into())
    }

    /// Ends the test and all that it has started; after the limit, which is the signal TERM, with their stacks.
    fn end_everything(test: u32, signal: i32) -> ! {
        let all = family::of(process::id());
        if signal == SIGTERM {
            eprintln!("guard: the test has passed its limit (.config/nextest.toml); where its threads stand:");
            show_stacks(&all);
        }
        family::kill_group(test);
        all.iter().for_each(Process::kill);
        // What they have started meanwhile.
        family::of(process::id()).iter().for_each(Process::kill);
        process::exit(128 + signal)
    }

    fn show_stacks(all: &[Process]) {
        let start = Instant::now();
        for one in all {
            let rest = STACKS.saturating_sub(start.elapsed());
            if rest.is_zero() {
                eprintln!("guard: no time is left for the stacks of {one}");
                continue;
            }
            eprintln!("guard: {one}\n{}", stacks::of_in_short(one.id, rest.min(OF_ONE)));
        }
    }
}

/// The processes that a process has started, and that these have started.
#[cfg(unix)]
mod family {
    use std::fmt;
    #[cfg(target_os = "linux")]
    use std::fs;

    use rustix::process::{Pid, Signal, kill_process, kill_process_group};
    #[cfg(target_os = "linux")]
    use rustix::process::{WaitOptions, wait};

    /// The clock of /proc ticks so often a second on every Linux that runs .NET.
    #[cfg(target_os = "linux")]
    const TICKS: f64 = 100.0;

    pub(super) struct Process {
        pub(super) id: u32,
        command: String,
    }

    impl Process {
        pub(super) fn kill(&self) {
            // It may have ended by itself.
            _ = pid(self.id).map(|id| kill_process(id, Signal::KILL));
        }
    }

    fn pid(id: u32) -> Option<Pid> {
        i32::try_from(id).ok().and_then(Pid::from_raw)
    }

    /// Ends the processes of a group.
    pub(super) fn kill_group(leader: u32) {
        _ = pid(leader).map(|leader| kill_process_group(leader, Signal::KILL));
    }

    impl fmt::Display for Process {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{} {}", self.id, self.command)
        }
    }

    /// Has processes whose parents end become children of this one, so that [`of`] finds them.
    #[cfg(target_os = "linux")]
    pub(super) fn adopt_orphans() {
        // Without it a daemon of a test that hangs would live on, and nothing worse.
        _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    }

    /// All processes that descend from `ancestor`, but for those of Wine's that tests share.
    #[cfg(target_os = "linux")]
    pub(super) fn of(ancestor: u32) -> Vec<Process> {
        let mut family = children(ancestor);
        let mut next = 0;
        while let Some(&one) = family.get(next) {
            family.extend(children(one));
            next += 1;
        }
        let processes = family.into_iter().map(|id| Process { id, command: command(id) });
        // A zombie has no command line.
        processes.filter(|one| !one.command.is_empty() && !is_of_wine(&one.command)).collect()
    }

    /// What all threads of a process have started. The kernel lists it; to look for parents among all processes took
    /// longer than many a test.
    #[cfg(target_os = "linux")]
    fn children(id: u32) -> Vec<u32> {
        let threads = fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
        let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
        lists.flat_map(|list| list.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>()).collect()
    }

    #[cfg(target_os = "linux")]
    fn command(id: u32) -> String {
        let words = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&words).replace('\0', " ").trim_end().to_owned()
    }

    /// What all that have ended have had, by the kernel, which counts those whose parents have waited for them.
    #[cfg(target_os = "linux")]
    pub(super) fn processor_time() -> Option<f64> {
        // Those that this process has adopted.
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        let (_, fields) = stat.rsplit_once(')')?;
        // User and system time of children, the 16th and 17th field, and what stands in brackets is the second.
        let ticks = fields.split_whitespace().skip(13).take(2).map(str::parse::<f64>);
        let ticks: f64 = ticks.sum::<Result<f64, _>>().ok()?;
        Some(ticks / TICKS)
    }

    /// Wine's server and its services: the first program in a prefix starts them, and all others use them.
    #[cfg(target_os = "linux")]
    fn is_of_wine(command: &str) -> bool {
        command.contains("wineserver") || command.to_ascii_lowercase().starts_with(r"c:\windows\")
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn adopt_orphans() {}

    #[cfg(not(target_os = "linux"))]
    pub(super) fn processor_time() -> Option<f64> {
        None
    }

    /// Where there is no /proc, only the group of the test is known.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn of(_: u32) -> Vec<Process> {
        Vec::new()
    }
}
