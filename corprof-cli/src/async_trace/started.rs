//! An application that is started to be listened to: the runtime waits before its first managed code until the session
//! is open.
//!
//! The variable that has it do so is inherited, so each .NET process that the application starts waits as well. A
//! thread lets them go on for as long as the application runs.

use std::ffi::OsString;
use std::mem;
use std::process::{ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use corprof_diagnostics::{PortServer, Runtime, Start};
use corprof_launch::application::{Application, Wait};
use corprof_launch::folder::Folder;
use corprof_launch::launch::{self, Changes};
use corprof_launch::processes::Program;
use corprof_launch::signals::Interrupt;

use crate::exit::{self, Failure, Outcome};

/// The variable with the ports that runtimes connect to.
const PORTS: &str = "DOTNET_DiagnosticPorts";
/// How long one look for a runtime, or for the end of the application, waits.
const LOOK: Duration = Duration::from_millis(50);

/// A running application.
pub(super) struct Started {
    application: Application,
    port: Port,
    status: Option<ExitStatus>,
    is_interrupted: bool,
    /// Whether Ctrl-C was pressed, and nobody has asked since.
    is_news: bool,
    /// When the application was last asked for news.
    looked: Instant,
}

impl Started {
    /// Starts the application by this command, with these variables.
    pub(super) fn start(command: &[OsString], mut changes: Changes) -> Result<Self, Failure> {
        let port = Port::open()?;
        let mut value = port.server.variable(Start::Suspended);
        if let Some(others) = launch::value_of(&changes, PORTS).filter(|others| !others.is_empty()) {
            value.push(";");
            value.push(others);
        }
        changes.insert(PORTS.to_owned(), Some(value));
        let (program, arguments) = command.split_first().context("no command")?;
        let program = launch::find(program, launch::value_of(&changes, "PATH").as_deref())?;
        let mut command = Interrupt::Stop.command(&program);
        command.args(arguments);
        launch::set(&mut command, &changes);
        let application = Application::start(&mut command, &program, Interrupt::Stop)?;
        Ok(Self { application, port, status: None, is_interrupted: false, is_news: false, looked: Instant::now() })
    }

    /// The application's first runtime that is not of the SDK. It waits for `resume_runtime`.
    pub(super) fn runtime(&mut self) -> Result<Runtime, Failure> {
        loop {
            if let Ok(runtime) = self.port.found.recv_timeout(LOOK) {
                return Ok(runtime);
            }
            self.look()?;
            if self.is_interrupted {
                self.kill();
                return Err(anyhow!("interrupted before a .NET process of the application had started").into());
            }
            if let Some(status) = self.status {
                let why = "it has ended without a .NET process, or DOTNET_EnableDiagnostics forbids to ask";
                let code = corprof_launch::exit::code(status);
                let code = if code == exit::OK { exit::NOT_LOADED } else { code };
                return Err(Failure::new(code, anyhow!("nobody was listened to in the application: {why}")));
            }
        }
    }

    /// Whether there was a Ctrl-C since the last call. At the end of the application its stream ends.
    pub(super) fn is_to_stop(&mut self) -> bool {
        if self.looked.elapsed() >= LOOK {
            self.looked = Instant::now();
            if self.look().is_err() {
                return true;
            }
        }
        mem::take(&mut self.is_news)
    }

    /// Takes note of what has happened to the application.
    fn look(&mut self) -> Result<(), Failure> {
        match self.application.wait(Duration::ZERO).context("cannot wait for the application")? {
            Wait::Ended(status) => self.status = Some(status),
            Wait::Signal => {
                self.is_interrupted = true;
                self.is_news = true;
            }
            Wait::Woken | Wait::TimedOut => {}
        }
        Ok(())
    }

    /// Ends the application at once.
    pub(super) fn kill(&mut self) {
        if self.status.is_none() {
            launch::end(self.application.id(), true);
            // It is gone, or nobody can end it.
            let _ = self.application.kill();
        }
    }

    /// Waits for the end of the application, after the answer. Ctrl-C before has it end now; another one at once. The
    /// exit code is the application's, or success if Ctrl-C has ended it.
    pub(super) fn finish(mut self) -> Outcome {
        if self.is_interrupted && self.status.is_none() {
            launch::end(self.application.id(), false);
        }
        loop {
            match self.application.wait(Duration::MAX).context("cannot wait for the application")? {
                Wait::Ended(status) if self.is_interrupted => {
                    self.status = Some(status);
                    return Ok(ExitCode::from(exit::OK));
                }
                Wait::Ended(status) => return Ok(exit::of_application(status)),
                Wait::Signal => {
                    launch::end(self.application.id(), self.is_interrupted);
                    self.is_interrupted = true;
                }
                Wait::Woken | Wait::TimedOut => {}
            }
        }
    }
}

/// The port that the runtimes of the application connect to.
struct Port {
    server: Arc<PortServer>,
    found: Receiver<Runtime>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    _folder: Folder,
}

impl Port {
    fn open() -> Result<Self, Failure> {
        let folder = Folder::new().context("cannot make a folder")?;
        let server = Arc::new(PortServer::bind(&folder.path().join("port"))?);
        let (sender, found) = mpsc::channel();
        let is_over = Arc::new(AtomicBool::new(false));
        let serves = Arc::clone(&server);
        let ends = Arc::clone(&is_over);
        let thread = thread::spawn(move || serve(&serves, &sender, &ends));
        Ok(Self { server, found, is_over, thread: Some(thread), _folder: folder })
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Hands over the first runtime that is not of the SDK, and lets all others go on.
fn serve(server: &PortServer, found: &Sender<Runtime>, is_over: &AtomicBool) {
    let mut is_found = false;
    while !is_over.load(Ordering::Relaxed) {
        let begin = Instant::now();
        let Ok(runtime) = server.accept(LOOK) else {
            // Usually the time is over. Other errors must not make it busy.
            thread::sleep(LOOK.saturating_sub(begin.elapsed()));
            continue;
        };
        let pid = u32::try_from(runtime.advertise().pid).ok();
        let is_of_sdk = pid.and_then(Program::of).is_some_and(|program| program.is_of_sdk);
        if !is_found && !is_of_sdk {
            is_found = found.send(runtime.clone()).is_ok();
            continue;
        }
        // One that has ended meanwhile does not wait.
        let _ = runtime.client().resume_runtime();
    }
}
