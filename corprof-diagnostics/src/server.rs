//! A port that runtimes connect to (`DOTNET_DiagnosticPorts`), so that they can be asked from their very start.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::client::Client;
use crate::connections::Connections;
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::ipc::Advertise;
use crate::transport::Listener;

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
    /// It waits before it runs managed code until [`Client::resume_runtime`] is called. Without that call it waits for
    /// ever; the same holds for each child process.
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
    /// Listens at a socket, or on Windows at a pipe (`\\.\pipe\NAME`). The socket's folder should be one that only this
    /// user may enter. The socket is removed with this value and the last client of it.
    ///
    /// # Errors
    /// If there is such a file, the folder cannot be written to, or the path cannot be named in the variable.
    pub fn bind(path: &Path) -> Result<Self> {
        let listener = check(path).and_then(|()| Listener::bind(path));
        let listener = listener.map_err(|source| Error::Listen { endpoint: path.display().to_string(), source })?;
        Ok(Self { connections: Arc::new(Connections::new(listener)) })
    }

    /// The value of `DOTNET_DiagnosticPorts` for runtimes that are to connect here.
    #[must_use]
    pub fn variable(&self, start: Start) -> OsString {
        let path = self.connections.path();
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
    /// [`TimedOut`](Error::TimedOut) if none does in time. Connections that are not runtimes are closed.
    pub fn accept(&self, timeout: Duration) -> Result<Runtime> {
        let accepted = self.connections.next_unknown(Deadline::after(timeout));
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
