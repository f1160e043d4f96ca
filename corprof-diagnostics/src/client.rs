//! The client of a runtime.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::connections::Connections;
use crate::deadline::Deadline;
use crate::environment::{self, Environment};
use crate::error::{Error, Result};
use crate::hresult::HResult;
use crate::ipc::{self, Command, HEADER_SIZE, Header, Payload};
use crate::owner::Owner;
use crate::process_info::ProcessInfo;
use crate::transport::Stream;

/// The default time limit for an answer. A runtime answers within milliseconds, unless a collection or another tool's
/// request delays it.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);

/// Asks one runtime, over a connection for each question: a runtime closes it with its answer.
///
/// Every call ends within the time-out, answered or not. A call that timed out may have been carried out all the same.
#[derive(Debug, Clone)]
pub struct Client {
    endpoint: Endpoint,
    timeout: Duration,
    /// It has been resumed by this client or a clone of it.
    is_resumed: Arc<AtomicBool>,
}

#[derive(Debug, Clone)]
enum Endpoint {
    /// The runtime listens.
    Port { path: PathBuf, pid: Option<u32> },
    /// The runtime connects, anew after each question.
    Connections(Arc<Connections>, Uuid),
}

impl Client {
    fn new(endpoint: Endpoint) -> Self {
        Self { endpoint, timeout: DEFAULT_TIMEOUT, is_resumed: Arc::default() }
    }

    /// Of the runtime that listens at this socket or pipe.
    #[must_use]
    pub fn at(port: &Path) -> Self {
        Self::new(Endpoint::Port { path: port.to_owned(), pid: None })
    }

    /// Of the runtime of a process, which listens at this socket or pipe.
    pub(crate) fn of_process(pid: u32, port: &Path) -> Self {
        Self::new(Endpoint::Port { path: port.to_owned(), pid: Some(pid) })
    }

    pub(crate) fn of_connections(connections: Arc<Connections>, cookie: Uuid) -> Self {
        Self::new(Endpoint::Connections(connections, cookie))
    }

    /// With another time-out than [`DEFAULT_TIMEOUT`], from connecting to the end of the answer.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The time-out of each call.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The runtime's information about its process.
    ///
    /// # Errors
    /// If it does not answer in time, or not properly; [`Unsupported`](Error::Unsupported) by a runtime older than .NET
    /// 8.
    pub fn process_info(&self) -> Result<ProcessInfo> {
        const ACTION: &str = "query the process information";
        let asked = self.ask(ACTION, Command::PROCESS_INFO_3, &[], self.timeout);
        let (_, payload) = unsupported(asked, "process information", ".NET 8")?;
        ProcessInfo::decode(&payload).map_err(|invalid| Error::BadReply { action: ACTION, what: invalid.0 })
    }

    /// The environment variables of the process.
    ///
    /// # Errors
    /// If the runtime does not answer in time, or not properly.
    pub fn environment(&self) -> Result<Environment> {
        const ACTION: &str = "ask for the environment";
        let deadline = Deadline::after(self.timeout);
        let (mut stream, payload) = self.ask(ACTION, Command::PROCESS_ENVIRONMENT, &[], self.timeout)?;
        let bad = |what| Error::BadReply { action: ACTION, what };
        let size = payload.first_chunk().map(|size| u32::from_le_bytes(*size) as usize);
        let size = size.ok_or_else(|| bad("it does not say how large the environment is"))?;
        if size > environment::LARGEST {
            return Err(bad("it says that the environment has more than 4 MB"));
        }
        let mut bytes = Vec::new();
        // It grows with the received bytes, not by the announced size.
        while bytes.len() < size {
            let start = bytes.len();
            bytes.resize((start + 64 * 1024).min(size), 0);
            let part = bytes.get_mut(start..).unwrap_or_default();
            stream.read_exact(part, deadline).map_err(|error| Error::from_io(ACTION, self.timeout, error))?;
        }
        Environment::decode(&bytes).map_err(|invalid| bad(invalid.0))
    }

    /// Sets an environment variable of the process, or removes it. The runtime's own settings are read at its start: a
    /// runtime that runs takes no notice of most.
    ///
    /// # Errors
    /// If the runtime does not answer in time, or not properly.
    pub fn set_environment_variable(&self, name: &str, value: Option<&str>) -> Result<()> {
        const ACTION: &str = "set an environment variable";
        if name.is_empty() || name.contains(['=', '\0']) || value.is_some_and(|value| value.contains('\0')) {
            return Err(Error::BadRequest { action: ACTION, what: "no variable has such a name or such a value" });
        }
        let mut payload = Payload::default();
        payload.string(name);
        match value {
            Some(value) => payload.string(value),
            None => payload.count(0),
        };
        self.ask(ACTION, Command::SET_ENVIRONMENT_VARIABLE, &payload.finish(), self.timeout).map(drop)
    }

    /// Lets a runtime go on that was started with a port that suspends it. One that is not suspended answers as well.
    ///
    /// # Errors
    /// If the runtime does not answer in time, or not properly.
    pub fn resume_runtime(&self) -> Result<()> {
        self.ask("resume the runtime", Command::RESUME_RUNTIME, &[], self.timeout)?;
        self.is_resumed.store(true, Ordering::Release);
        Ok(())
    }

    /// Attaches a profiler and waits until its `ProfilerAttachComplete` has returned.
    ///
    /// `library` is its path as the process sees it; `data` is handed to its `InitializeForAttach`. The runtime gives
    /// up after `timeout`, and the call a little later. While a runtime attaches or detaches it answers no other
    /// question.
    ///
    /// A library that was refused may stay loaded: nothing is a mere test.
    ///
    /// # Errors
    /// If the runtime refuses, with its reason ([`Error::code`]), or does not answer in time.
    pub fn attach_profiler(&self, clsid: Uuid, library: &Path, data: &[u8], timeout: Duration) -> Result<()> {
        const ACTION: &str = "attach the profiler";
        let millis = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
        let mut payload = Payload::default();
        payload.u32(millis).uuid(&clsid).string(absolute(ACTION, library)?).bytes(data);
        self.ask(ACTION, Command::ATTACH_PROFILER, &payload.finish(), timeout.saturating_add(self.timeout)).map(drop)
    }

    /// Has a suspended runtime load a profiler when it is resumed, as the variables `CORECLR_…` would.
    ///
    /// Only a runtime that is suspended does: see [`Start::Suspended`](crate::Start). One that runs answers that all is
    /// well and does nothing, and there is no asking whether it runs. One that has connected and is not suspended yet
    /// is asked again, for half of the time-out.
    ///
    /// # Errors
    /// [`BadRequest`](Error::BadRequest) if this client, or a clone of it, has resumed the runtime; `E_INVALIDARG`
    /// after half of the time-out if another tool has. If it refuses, or does not answer in time.
    pub fn startup_profiler(&self, clsid: Uuid, library: &Path) -> Result<()> {
        const ACTION: &str = "have the profiler loaded at start-up";
        if self.is_resumed.load(Ordering::Acquire) {
            let what =
                "the runtime has been resumed, and would answer that all is well and do nothing: attach the profiler";
            return Err(Error::BadRequest { action: ACTION, what });
        }
        let mut payload = Payload::default();
        payload.uuid(&clsid).string(absolute(ACTION, library)?);
        let payload = payload.finish();
        let start = Instant::now();
        loop {
            let left = self.timeout.saturating_sub(start.elapsed());
            match self.ask(ACTION, Command::STARTUP_PROFILER, &payload, left) {
                // A runtime answers before it has come to where it waits to be resumed, and until then with this.
                Err(Error::Refused { code: HResult::INVALID_ARGUMENT, .. }) if start.elapsed() < self.timeout / 2 => {
                    thread::sleep(Duration::from_millis(10));
                }
                asked => return asked.map(drop),
            }
        }
    }

    /// Sends a question in one piece.
    pub(crate) fn send(
        &self,
        action: &'static str,
        command: Command,
        payload: &[u8],
        deadline: Deadline,
        waited: Duration,
    ) -> Result<Stream> {
        let message = ipc::encode(command, payload).map_err(|size| Error::TooLong { action, size })?;
        let mut stream = self.connect(action, deadline, waited)?;
        stream.write_all(&message, deadline).map_err(|error| Error::from_io(action, waited, error))?;
        Ok(stream)
    }

    /// Asks, and answers with the connection, which may have more to come, and the payload of the answer.
    pub(crate) fn ask(
        &self,
        action: &'static str,
        command: Command,
        payload: &[u8],
        timeout: Duration,
    ) -> Result<(Stream, Vec<u8>)> {
        let deadline = Deadline::after(timeout);
        let mut stream = self.send(action, command, payload, deadline, timeout)?;
        let payload = read_reply(&mut stream, action, deadline, timeout)?;
        Ok((stream, payload))
    }

    fn connect(&self, action: &'static str, deadline: Deadline, waited: Duration) -> Result<Stream> {
        use std::io::ErrorKind as K;
        match &self.endpoint {
            Endpoint::Connections(connections, cookie) => {
                connections.take(*cookie, deadline).map_err(|error| Error::from_io(action, waited, error))
            }
            Endpoint::Port { path, pid } => {
                Stream::connect(path, deadline).map_err(|source| match (source.kind(), pid) {
                    (K::TimedOut, _) => Error::TimedOut { action, waited },
                    (K::ConnectionRefused, _) => Error::Stale { path: path.clone() },
                    (K::PermissionDenied, Some(pid)) => Error::NotPermitted { pid: *pid, owner: Owner::of(*pid) },
                    (K::NotFound, Some(pid)) => Error::NoProcess { pid: *pid },
                    _ => Error::Connect { endpoint: path.display().to_string(), source },
                })
            }
        }
    }
}

/// Reads an answer: its payload, or the runtime's refusal.
pub(crate) fn read_reply(
    stream: &mut Stream,
    action: &'static str,
    deadline: Deadline,
    waited: Duration,
) -> Result<Vec<u8>> {
    let failed = |error| Error::from_io(action, waited, error);
    let bad = |invalid: ipc::Invalid| Error::BadReply { action, what: invalid.0 };
    let mut header = [0; HEADER_SIZE];
    stream.read_exact(&mut header, deadline).map_err(failed)?;
    let header = Header::decode(&header).map_err(bad)?;
    // Checked before the payload: a message that is not an answer may never have one.
    if ![Command::OK, Command::ERROR].contains(&header.command) {
        return Err(bad(ipc::Invalid("it is neither a success nor an error")));
    }
    let mut payload = vec![0; header.payload_size];
    stream.read_exact(&mut payload, deadline).map_err(failed)?;
    match ipc::reply(header.command, &payload).map_err(bad)? {
        Ok(_) => Ok(payload),
        Err(code) => Err(Error::Refused { action, code }),
    }
}

/// A command that the runtime does not know, as the feature that it lacks.
pub(crate) fn unsupported<T>(asked: Result<T>, what: &'static str, needs: &'static str) -> Result<T> {
    asked.map_err(|error| match error {
        Error::Refused { action, code: HResult::UNKNOWN_COMMAND } => Error::Unsupported { action, what, needs },
        error => error,
    })
}

/// The path of a library as text.
fn absolute<'a>(action: &'static str, library: &'a Path) -> Result<&'a str> {
    if !library.is_absolute() {
        let what = "the path of the library is not absolute: the process would search for it in its own folder, not in this one";
        return Err(Error::BadRequest { action, what });
    }
    let text = library.to_str().filter(|text| !text.contains('\0'));
    text.ok_or(Error::BadRequest { action, what: "the path of the library is not text: the protocol has only Unicode" })
}
