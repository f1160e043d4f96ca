//! Errors between a tool and a runtime.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::hresult::HResult;
use crate::owner::Owner;

/// The answer, or why there is none.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why a process was not found, or did not perform a request.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such process.
    #[error("there is no process {pid}")]
    NoProcess {
        /// As it was given.
        pid: u32,
    },

    /// The process has no diagnostics port that this one can see.
    #[error(
        "process {pid} has no diagnostics port here: it is not a .NET process (or of a version before 3.0), it is only just \
         starting, DOTNET_EnableDiagnostics or DOTNET_EnableDiagnostics_IPC is 0 in its environment, its TMPDIR is \
         another one than {}, or it could not write there when it started", places.iter().map(|place| place.display().to_string()).collect::<Vec<_>>().join(", ")
    )]
    NoPort {
        /// The process.
        pid: u32,
        /// The folders that were searched.
        places: Vec<PathBuf>,
    },

    /// The process belongs to another user.
    #[error("process {pid} belongs to {owner}")]
    NotPermitted {
        /// The process.
        pid: u32,
        /// Its user.
        owner: Owner,
    },

    /// The socket is of a process that has ended.
    #[error("no process listens at {}: the process that made it was killed, and the file can be deleted", path.display())]
    Stale {
        /// The socket.
        path: PathBuf,
    },

    /// The port could not be connected to.
    #[error("cannot connect to {endpoint}: {source}")]
    Connect {
        /// The socket or pipe.
        endpoint: String,
        /// The error of the system.
        source: io::Error,
    },

    /// A port for runtimes to connect to could not be made.
    #[error("cannot listen at {endpoint}: {source}")]
    Listen {
        /// The socket or pipe.
        endpoint: String,
        /// The error of the system.
        source: io::Error,
    },

    /// The runtime did not do it in time.
    #[error(
        "{action}: no answer after {waited:?}. A runtime serves one client at a time, and waits for ever for one that says \
         nothing: is another tool at it, is the process stopped, or is it loaded so heavily that more time is needed?"
    )]
    TimedOut {
        /// The action that was requested.
        action: &'static str,
        /// How long it was waited for.
        waited: Duration,
    },

    /// The connection broke.
    #[error("{action}: the runtime closed the connection before it had answered: did the process end?")]
    Closed {
        /// The action that was requested.
        action: &'static str,
    },

    /// The connection failed.
    #[error("{action}: the connection failed: {source}")]
    Io {
        /// The action that was requested.
        action: &'static str,
        /// The error of the system.
        source: io::Error,
    },

    /// The answer violates the protocol.
    #[error("{action}: the answer is not that of a .NET runtime: {what}")]
    BadReply {
        /// The action that was requested.
        action: &'static str,
        /// The violation.
        what: &'static str,
    },

    /// The runtime refused.
    #[error("{action}: the runtime answered {code}{}", hint(*code))]
    Refused {
        /// The action that was requested.
        action: &'static str,
        /// Its answer.
        code: HResult,
    },

    /// The runtime is too old.
    #[error("{action}: this runtime cannot do it: {what} needs {needs}")]
    Unsupported {
        /// The action that was requested.
        action: &'static str,
        /// The missing feature.
        what: &'static str,
        /// The first version that can.
        needs: &'static str,
    },

    /// The request does not make sense, and was not sent.
    #[error("{action}: {what}")]
    BadRequest {
        /// The action that was requested.
        action: &'static str,
        /// The problem, and the cure.
        what: &'static str,
    },

    /// The request does not fit into a message, and was not sent.
    #[error(
        "{action}: the request has {size} bytes, and a message to a runtime has at most 65535: shorten its strings or data"
    )]
    TooLong {
        /// The action that was requested.
        action: &'static str,
        /// The size of the message.
        size: usize,
    },
}

fn hint(code: HResult) -> String {
    code.hint().map_or_else(String::new, |hint| format!(": {hint}"))
}

impl Error {
    /// The runtime's code, where it answered with one.
    #[must_use]
    pub fn code(&self) -> Option<HResult> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Whether the time was up.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::TimedOut { .. })
    }

    /// The meaning of `error` of a connection during a request.
    pub(crate) fn from_io(action: &'static str, waited: Duration, source: io::Error) -> Self {
        use io::ErrorKind as K;
        match source.kind() {
            K::TimedOut | K::WouldBlock => Self::TimedOut { action, waited },
            K::UnexpectedEof | K::BrokenPipe | K::ConnectionReset | K::ConnectionAborted => Self::Closed { action },
            _ => Self::Io { action, source },
        }
    }
}
