//! Runs an application without a profiler, attaches one later, and may ask it to detach: `corprof attach --wait`, and
//! `corprof run --delay` or `--duration`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use anyhow::{Context, anyhow};
use corprof_diagnostics::Process;
use corprof_launch::application::{Application, Wait};
use corprof_launch::environment::{self, Chosen};
use corprof_launch::folder::Folder;
use corprof_launch::launch::{self, Changes};
use corprof_launch::processes::{self, Program};
use corprof_launch::signals::Interrupt;
use corprof_launch::stop_file::StopFile;
use corprof_profilers::table::Profiler;

use crate::attached_profiler::folder;
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
    /// The profiler, if it is a built-in one: at Ctrl-C or SIGTERM it answers before the application is ended. With
    /// another one the application gets these signals at once.
    pub built_in: Option<&'static Profiler>,
}

/// What became of it.
#[derive(Debug)]
pub struct Ended {
    /// How the application ended.
    pub status: ExitStatus,
    /// The process that the profiler was attached to, if it was.
    pub attached: Option<u32>,
    /// Whether the profiler has given its answer at Ctrl-C or SIGTERM.
    pub has_answered: bool,
}

impl DelayedAttach<'_> {
    /// Runs the application to its end. Failures of the attach and the detach are printed: the application runs on.
    ///
    /// # Errors
    /// If the application is not started.
    pub fn run(self) -> Result<Ended, Failure> {
        let Self { profiler, mut data, delay, duration, mut changes, command, is_quiet, built_in } = self;
        let answers = Answers::of(built_in, &mut data)?.map(Arc::new);
        for name in environment::profiler_variables() {
            changes.insert(name, None);
        }
        let (program, arguments) = command.split_first().context("no command")?;
        let program = launch::find(program, launch::value_of(&changes, "PATH").as_deref())?;
        launch::refuse(std::slice::from_ref(&profiler), &program, &changes)?;
        let interrupt = if answers.is_some() { Interrupt::Stop } else { Interrupt::PassOn };
        let mut command = interrupt.command(&program);
        command.args(arguments);
        launch::set(&mut command, &changes);
        let start = Instant::now();
        let mut application = Application::start(&mut command, &program, interrupt)?;

        let pid = application.id();
        // Dropping `is_running` at the end of the application ends the waits of the thread.
        let (is_running, ended) = mpsc::channel::<()>();
        let attached_to = Arc::new(Attached::default());
        let visitor = Visitor {
            pid,
            profiler,
            data,
            is_quiet,
            attached_to: Arc::clone(&attached_to),
            answers: answers.clone(),
            ended,
        };
        let attaching = thread::spawn(move || visitor.attach_and_detach(start + delay, duration));
        let mut answering = None;
        let status = loop {
            match application.wait(Duration::MAX).context("cannot wait for the application")? {
                Wait::Ended(status) => break status,
                Wait::Signal if answering.is_some() => launch::end(pid, true),
                Wait::Signal => {
                    let attached_to = attached_to.get();
                    let ask = |answers: Arc<Answers>| thread::spawn(move || answers.ask_and_end(attached_to, pid));
                    answering = answers.clone().map(ask);
                }
                Wait::Woken | Wait::TimedOut => {}
            }
        };
        drop(is_running);
        let attached = attaching.join().map_err(|_| anyhow!("the thread that attaches the profiler has panicked"))?;
        let has_answered = answering.is_some_and(|answering| answering.join().unwrap_or(false));
        if let Some(answers) = &answers {
            answers.print();
        }
        Ok(Ended { status, attached, has_answered })
    }
}

/// The process that a profiler is attached to now.
#[derive(Default)]
struct Attached(Mutex<Option<u32>>);

impl Attached {
    fn lock(&self) -> MutexGuard<'_, Option<u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self) -> Option<u32> {
        *self.lock()
    }

    fn set(&self, pid: Option<u32>) {
        *self.lock() = pid;
    }
}

/// How a built-in profiler is asked for its answer, and where it writes that.
struct Answers {
    stop: StopFile,
    folder: Folder,
}

impl Answers {
    /// Those of a profiler that can be asked; adds the setting for it to its data.
    fn of(profiler: Option<&'static Profiler>, data: &mut Vec<u8>) -> Result<Option<Self>, Failure> {
        let Some(setting) = profiler.and_then(|profiler| profiler.to_attach().stop()) else { return Ok(None) };
        let folder = Folder::new().context("cannot make a folder")?;
        let stop = StopFile::new(folder.path());
        data.extend(format!("\n{}={}\n", setting.variable, stop.path().display()).bytes());
        Ok(Some(Self { stop, folder }))
    }

    /// Has the profiler of a process answer, and then ends the application. Whether it has answered.
    fn ask_and_end(&self, attached_to: Option<u32>, application: u32) -> bool {
        let has_answered = attached_to.is_some_and(|pid| self.ask(pid));
        launch::end(application, false);
        has_answered
    }

    fn ask(&self, pid: u32) -> bool {
        if let Err(error) = self.stop.ask_and_wait(&[pid], launch::LAST_WORDS) {
            eprintln!("corprof: {error:#}");
        }
        self.stop.is_done(pid)
    }

    /// Prints what has been answered since the last call, where the profiler prints it if it was loaded at the start.
    fn print(&self) {
        let Ok(entries) = fs::read_dir(self.folder.path()) else { return };
        let files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        // The calls of a process come before its answer.
        for ending in ["calls", "answer"] {
            for file in files.iter().filter(|file| file.extension().is_some_and(|extension| extension == ending)) {
                let printed = folder::reader(file).and_then(|mut answer| io::copy(&mut answer, &mut io::stderr()));
                if let Err(error) = printed {
                    eprintln!("corprof: cannot print the answer of the profiler: {error}");
                }
                let _ = fs::remove_file(file);
            }
        }
    }
}

/// The thread that attaches and detaches.
struct Visitor {
    pid: u32,
    profiler: Chosen,
    data: Vec<u8>,
    is_quiet: bool,
    /// The process that the profiler is attached to.
    attached_to: Arc<Attached>,
    answers: Option<Arc<Answers>>,
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
        self.attached_to.set(Some(pid));
        self.say(&format!("{name} is attached to process {pid}"));
        if let Some(duration) = duration
            && self.is_running_after(duration)
        {
            let detached = detach::request(pid, PATIENCE);
            if let Some(answers) = &self.answers {
                answers.print();
            }
            match detached {
                Ok(()) => {
                    self.attached_to.set(None);
                    self.say(&format!("{name} has detached from process {pid}"));
                }
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
                    Err(error) if attach_request::is_early(&error) => {}
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

/// The settings of a profiler, for its `initialize_for_attach`: a line for each variable of the application.
pub fn settings<'a>(changes: impl Iterator<Item = (&'a String, &'a Option<OsString>)>) -> Vec<u8> {
    let line = |(name, value): (&String, &Option<OsString>)| Some(format!("{name}={}\n", value.as_ref()?.display()));
    changes.filter_map(line).collect::<String>().into_bytes()
}
