//! A port that runtimes connect to (`DOTNET_DiagnosticPorts`), so that they can be asked from their very start.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use uuid::Uuid;

use crate::client::Client;
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::ipc::Advertise;
use crate::transport::{Listener, Stream};

/// The time limit for a new connection to identify itself. Runtimes do so at once.
const INTRODUCTION: Duration = Duration::from_millis(500);

/// The time that a thread listens before it checks the connections that others have accepted.
const SLICE: Duration = Duration::from_millis(20);

/// The limit of connections kept for later, and of runtimes remembered as known. A runtime with a dropped connection
/// connects again.
const MOST: usize = 1024;

/// A port that runtimes connect to. They do so when they start, with the variable `DOTNET_DiagnosticPorts` set to
/// [`variable`](Self::variable); so do their children, which inherit it.
///
/// ```no_run
/// use std::time::Duration;
/// use corprof_diagnostics::{PortServer, Start};
///
/// let folder = tempfile::tempdir()?; // accessible to this user only
/// let server = PortServer::bind(&folder.path().join("port"))?;
/// let mut command = std::process::Command::new("dotnet");
/// command.arg("App.dll").env("DOTNET_DiagnosticPorts", server.variable(Start::Suspended));
/// let mut child = command.spawn()?;
/// let runtime = server.accept(Duration::from_secs(10))?;
/// println!("{:?}", runtime.client().process_info()?);
/// runtime.client().resume_runtime()?;
/// # child.wait()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct PortServer {
    connections: Arc<Connections>,
}

/// How a runtime starts that connects to a [`PortServer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// It waits before it runs managed code until [`Client::resume_runtime`] is called. Without that call it waits for ever;
    /// the same holds for each child process.
    Suspended,
    /// It runs, and connects meanwhile.
    Running,
}

/// A runtime that has connected.
#[derive(Debug, Clone)]
pub struct Runtime {
    advertise: Advertise,
    client: Client,
}

impl Runtime {
    /// How it has introduced itself.
    #[must_use]
    pub fn advertise(&self) -> &Advertise {
        &self.advertise
    }

    /// A client of the runtime. Each query uses one connection, and the runtime then connects again.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }
}

impl PortServer {
    /// Listens at a socket, or on Windows at a pipe (`\\.\pipe\NAME`). The socket's folder should be one that only this user
    /// may enter. The socket is removed with this value and the last client of it.
    ///
    /// # Errors
    /// If there is such a file, the folder cannot be written to, or the path cannot be named in the variable.
    pub fn bind(path: &Path) -> Result<Self> {
        let listener = check(path).and_then(|()| Listener::bind(path));
        let listener = listener.map_err(|source| Error::Listen { endpoint: path.display().to_string(), source })?;
        Ok(Self { connections: Arc::new(Connections { listener, state: Mutex::default() }) })
    }

    /// The value of `DOTNET_DiagnosticPorts` for runtimes that are to connect here.
    #[must_use]
    pub fn variable(&self, start: Start) -> OsString {
        let path = self.connections.listener.path();
        let name = path.to_str().and_then(|path| path.strip_prefix(r"\\.\pipe\"));
        let mut variable = name.map_or_else(|| path.as_os_str().to_owned(), OsString::from);
        variable.push(match start {
            Start::Suspended => ",connect,suspend",
            Start::Running => ",connect,nosuspend",
        });
        variable
    }

    /// The next runtime that connects for the first time.
    ///
    /// # Errors
    /// [`TimedOut`](Error::TimedOut) if none does in time. Connections that are no runtimes are closed.
    pub fn accept(&self, timeout: Duration) -> Result<Runtime> {
        let accepted = self.connections.wait(Deadline::after(timeout), State::next_unknown);
        let advertise = accepted.map_err(|error| Error::from_io("wait for a runtime to connect", timeout, error))?;
        let client = Client::of_connections(Arc::clone(&self.connections), advertise.cookie);
        Ok(Runtime { advertise, client })
    }
}

fn check(path: &Path) -> io::Result<()> {
    let separators = path.as_os_str().as_encoded_bytes().iter().any(|byte| b",;".contains(byte));
    if separators {
        let what = "a comma or semicolon ends the path in DOTNET_DiagnosticPorts: use a folder without them";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    if !path.is_absolute() {
        let what = "the path is not absolute: runtimes would look for it in folders of their own";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    Ok(())
}

/// The listener, and the connections that have been made and not been used.
#[derive(Debug)]
pub(crate) struct Connections {
    listener: Listener,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<(Advertise, Stream)>,
    known: VecDeque<Uuid>,
}

impl State {
    /// A runtime that was not returned yet. Its connection stays open.
    fn next_unknown(&mut self) -> Option<Advertise> {
        let mut runtimes = self.waiting.iter().map(|(advertise, _)| *advertise);
        let unknown = runtimes.find(|advertise| !self.known.contains(&advertise.cookie))?;
        push_bounded(&mut self.known, unknown.cookie);
        Some(unknown)
    }

    /// The newest connection of a runtime; older ones are of no use any more.
    fn take(&mut self, cookie: Uuid) -> Option<Stream> {
        let mut newest = None;
        let mut others = VecDeque::with_capacity(self.waiting.len());
        for (advertise, stream) in self.waiting.drain(..) {
            if advertise.cookie == cookie {
                newest = Some(stream);
            } else {
                others.push_back((advertise, stream));
            }
        }
        self.waiting = others;
        newest
    }
}

fn push_bounded<T>(queue: &mut VecDeque<T>, value: T) {
    if queue.len() >= MOST {
        queue.pop_front();
    }
    queue.push_back(value);
}

impl Connections {
    /// A connection of this runtime.
    pub(crate) fn take(&self, cookie: Uuid, deadline: Deadline) -> io::Result<Stream> {
        self.wait(deadline, |state| state.take(cookie))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts connections until `wanted` accepts one of them. Several threads may call this.
    fn wait<T>(&self, deadline: Deadline, mut wanted: impl FnMut(&mut State) -> Option<T>) -> io::Result<T> {
        loop {
            if let Some(found) = wanted(&mut self.state()) {
                return Ok(found);
            }
            let slice = Deadline::after(deadline.left_at_most(SLICE)?);
            let mut stream = match self.listener.accept(slice) {
                Ok(stream) => stream,
                Err(error) if error.kind() == io::ErrorKind::TimedOut => continue,
                Err(error) => return Err(error),
            };
            let mut bytes = [0; Advertise::SIZE];
            // One that says nothing, or something else, is no runtime, and is closed.
            let introduction = Deadline::after(deadline.left_at_most(INTRODUCTION)?);
            let read = stream.read_exact(&mut bytes, introduction);
            if let (Ok(()), Ok(advertise)) = (read, Advertise::decode(&bytes)) {
                push_bounded(&mut self.state().waiting, (advertise, stream));
            }
        }
    }
}
