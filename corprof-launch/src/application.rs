//! A running application that gets the signals of this process.

use std::fmt;
use std::io;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};

use crate::exit::{self, Failure};
use crate::running;
use crate::signals::{Forwarding, Interrupt, Requests};

/// What other threads report.
enum Event {
    Ended,
    Signal(i32),
    Woken,
}

/// A running application. As long as this value exists, signals do not end this process: they go to the application.
pub struct Application {
    child: Child,
    interrupt: Interrupt,
    events: Receiver<Event>,
    /// For [`Application::waker`].
    sender: Sender<Event>,
    requests: Requests,
    status: Option<ExitStatus>,
    _forwarding: Forwarding,
}

/// Why a wait for an application has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// The application has ended.
    Ended(ExitStatus),
    /// A signal has come, and was passed on; with [`Interrupt::Stop`]: Ctrl-C, SIGTERM or SIGHUP has come, and was not
    /// passed on.
    Signal,
    /// Another thread has ended the wait, by [`Application::waker`].
    Woken,
    /// Nothing of this has happened.
    TimedOut,
}

impl Application {
    /// Starts `command`, which was made by [`Interrupt::command`] for `program`.
    ///
    /// # Errors
    /// If it cannot be started, with the exit code that a shell has for it.
    pub fn start(command: &mut Command, program: &Path, interrupt: Interrupt) -> Result<Self, Failure> {
        let (sender, events) = mpsc::channel();
        let signals = sender.clone();
        // After the end of the application there is no receiver.
        let forwarding = Forwarding::start(move |signal| _ = signals.send(Event::Signal(signal)));
        let forwarding = forwarding.context("cannot catch signals")?;
        let child = command.spawn().map_err(|error| {
            let code = if error.kind() == io::ErrorKind::NotFound { exit::NOT_FOUND } else { exit::CANNOT_START };
            Failure::new(code, anyhow!("cannot start {}: {error}", program.display()))
        })?;
        let at_end = sender.clone();
        running::at_end(&child, move || _ = at_end.send(Event::Ended)).context("cannot watch the application")?;
        let requests = Requests::default();
        Ok(Self { child, interrupt, events, sender, requests, status: None, _forwarding: forwarding })
    }

    /// The process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// A function for another thread, which ends a wait.
    pub fn waker(&self) -> impl Fn() + Send + use<> {
        let sender = self.sender.clone();
        // After the end of the application there is no receiver.
        move || _ = sender.send(Event::Woken)
    }

    /// Waits for the end of the application or a signal, at most for `limit`.
    ///
    /// # Errors
    /// If the exit status cannot be read.
    pub fn wait(&mut self, limit: Duration) -> io::Result<Wait> {
        if let Some(status) = self.status {
            return Ok(Wait::Ended(status));
        }
        let start = Instant::now();
        loop {
            match self.events.recv_timeout(limit.saturating_sub(start.elapsed())) {
                Ok(Event::Ended) => {
                    let status = self.child.wait()?;
                    self.status = Some(status);
                    return Ok(Wait::Ended(status));
                }
                Ok(Event::Signal(signal)) if self.interrupt.pass_on(signal, self.id()) => {
                    let is_repeated = self.interrupt == Interrupt::Stop && !self.requests.is_new(signal);
                    if !is_repeated {
                        return Ok(Wait::Signal);
                    }
                }
                Ok(Event::Signal(_)) => {}
                Ok(Event::Woken) => return Ok(Wait::Woken),
                Err(_) => return Ok(Wait::TimedOut),
            }
        }
    }

    /// Kills the application, and waits for its end.
    ///
    /// # Errors
    /// If it cannot be killed.
    pub fn kill(&mut self) -> io::Result<ExitStatus> {
        self.child.kill()?;
        loop {
            if let Wait::Ended(status) = self.wait(Duration::MAX)? {
                return Ok(status);
            }
        }
    }
}

impl fmt::Debug for Application {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Application")
            .field("child", &self.child)
            .field("interrupt", &self.interrupt)
            .finish_non_exhaustive()
    }
}
