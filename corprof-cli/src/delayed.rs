//! Runs an application without a profiler, attaches one later, and may ask it to detach: `corprof attach --wait`, and
//! `corprof run --delay` or `--duration`.

use std::ffi::OsString;
use std::process::ExitStatus;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use corprof_diagnostics::{Error, HResult, Process};
use corprof_launch::application::{Application, Wait};
use corprof_launch::environment::{self, Chosen};
use corprof_launch::launch::{self, Changes};
use corprof_launch::processes::{self, Program};
use corprof_launch::signals::Interrupt;

use crate::exit::Failure;
use crate::{attach_request, detach};

/// The first pause between two looks for a process. Each is twice as long as the one before, up to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LAST_PAUSE: Duration = Duration::from_millis(100);
/// The time limit for the runtime to load the profiler, and for the profiler to detach.
const PATIENCE: Duration = Duration::from_secs(120);

/// An application, and a profiler that comes later.
#[derive(Debug)]
pub struct DelayedAttach<'a> {
    /// The profiler.
    pub profiler: Chosen,
    /// The bytes for its `initialize_for_attach`.
    pub data: Vec<u8>,
    /// The time from the start of the application to the attach, at least.
    pub delay: Duration,
    /// The time from the attach to the detach.
    pub duration: Option<Duration>,
    /// Variables of the application.
    pub changes: Changes,
    /// The command that starts the application.
    pub command: &'a [OsString],
    /// Whether only errors are printed.
    pub is_quiet: bool,
}

/// What became of it.
#[derive(Debug)]
pub struct Ended {
    /// How the application ended.
    pub status: ExitStatus,
    /// The process that the profiler was attached to, if it was.
    pub attached: Option<u32>,
}

impl DelayedAttach<'_> {
    /// Runs the application to its end. Failures of the attach and the detach are printed: the application runs on.
    ///
    /// # Errors
    /// If the application is not started.
    pub fn run(self) -> Result<Ended, Failure> {
        let Self { profiler, data, delay, duration, mut changes, command, is_quiet } = self;
        for name in environment::profiler_variables() {
            changes.insert(name, None);
        }
        let (program, arguments) = command.split_first().context("no command")?;
        let program = launch::find(program, launch::value_of(&changes, "PATH").as_deref())?;
        launch::refuse(std::slice::from_ref(&profiler), &program, &changes)?;
        let mut command = Interrupt::PassOn.command(&program);
        command.args(arguments);
        launch::set(&mut command, &changes);
        let start = Instant::now();
        let mut application = Application::start(&mut command, &program, Interrupt::PassOn)?;

        let pid = application.id();
        // Dropping `is_running` at the end of the application ends the waits of the thread.
        let (is_running, ended) = mpsc::channel::<()>();
        let attaching = thread::spawn(move || {
            let visitor = Visitor { pid, profiler, data, is_quiet, ended };
            visitor.attach_and_detach(start + delay, duration)
        });
        let status = loop {
            if let Wait::Ended(status) = application.wait(Duration::MAX).context("cannot wait for the application")? {
                break status;
            }
        };
        drop(is_running);
        let attached = attaching.join().map_err(|_| anyhow!("the thread that attaches the profiler has panicked"))?;
        Ok(Ended { status, attached })
    }
}

/// The thread that attaches and detaches.
struct Visitor {
    pid: u32,
    profiler: Chosen,
    data: Vec<u8>,
    is_quiet: bool,
    ended: mpsc::Receiver<()>,
}

impl Visitor {
    fn attach_and_detach(&self, from: Instant, duration: Option<Duration>) -> Option<u32> {
        let name = &self.profiler.name;
        let pid = match self.attach(from) {
            Ok(Some(pid)) => pid,
            Ok(None) => {
                eprintln!("corprof: {name} was NOT attached: the application ended first, or had no .NET process");
                return None;
            }
            Err(failure) => {
                eprintln!("corprof: {name} was NOT attached: {:#}", failure.error);
                return None;
            }
        };
        self.say(&format!("{name} is attached to process {pid}"));
        if let Some(duration) = duration
            && self.is_running_after(duration)
        {
            match detach::request(pid, PATIENCE) {
                Ok(()) => self.say(&format!("{name} has detached from process {pid}")),
                Err(_) if !processes::is_there(pid) => {}
                Err(failure) => eprintln!("corprof: {name} was NOT detached: {:#}", failure.error),
            }
        }
        Some(pid)
    }

    fn say(&self, text: &str) {
        if !self.is_quiet {
            eprintln!("corprof: {text}");
        }
    }

    /// Waits; `false` if the application ends meanwhile.
    fn is_running_after(&self, time: Duration) -> bool {
        self.ended.recv_timeout(time) == Err(RecvTimeoutError::Timeout)
    }

    /// The process that the profiler was attached to; none if the application ended before there was one.
    fn attach(&self, from: Instant) -> Result<Option<u32>, Failure> {
        let mut wait = from.saturating_duration_since(Instant::now());
        let mut pause = FIRST_PAUSE;
        while self.is_running_after(wait) {
            let start = Instant::now();
            if let Some(process) = processes::family(self.pid).into_iter().find_map(application) {
                attach_request::leave_alone_if_unloadable(&process, &self.profiler.library)?;
                match attach_request::send(&process, &self.profiler, &self.profiler.library, &self.data, PATIENCE)? {
                    Err(error) if is_early(&error) => {}
                    Err(error) => return Err(attach_request::refusal(&error, process.pid(), &self.profiler)),
                    Ok(()) => return Ok(Some(process.pid())),
                }
            }
            // On a busy machine looks take their time.
            wait = pause.max(start.elapsed() * 4);
            pause = LAST_PAUSE.min(pause * 2);
        }
        Ok(None)
    }
}

/// The process, if it has a port and is not a tool of the SDK.
fn application(pid: u32) -> Option<Process> {
    let process = Process::open(pid).ok()?;
    Program::of(pid).is_none_or(|program| !program.is_of_sdk).then_some(process)
}

/// Whether the runtime was asked before it was ready.
fn is_early(error: &Error) -> bool {
    matches!(error.code(), Some(HResult::NOT_YET_AVAILABLE | HResult::RUNTIME_UNINITIALIZED))
}

/// The settings of a profiler, for its `initialize_for_attach`: a line for each variable of the application.
pub fn settings<'a>(changes: impl Iterator<Item = (&'a String, &'a Option<OsString>)>) -> Vec<u8> {
    let line = |(name, value): (&String, &Option<OsString>)| Some(format!("{name}={}\n", value.as_ref()?.display()));
    changes.filter_map(line).collect::<String>().into_bytes()
}
