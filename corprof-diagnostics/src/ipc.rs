//! Messages of the diagnostics protocol, as bytes: `DOTNET_IPC_V1`.
//!
//! This module only converts bytes, so that a test server, or a tool with its own connections, can
//! use it. [`Client`](crate::Client) communicates with a runtime. The protocol is described in `ipc-protocol.md` of
//! dotnet/diagnostics; where runtimes differ from it, they are followed and the code says so.

use uuid::Uuid;

use crate::hresult::HResult;
use corprof_nettrace::bytes::{Cursor, Malformed};

/// How every message begins.
pub const MAGIC: [u8; 14] = *b"DOTNET_IPC_V1\0";

/// The size of a message's header.
pub const HEADER_SIZE: usize = 20;

/// A message has at most so many bytes, its header among them: its size is written in 16 bits.
pub const MAX_MESSAGE: usize = u16::MAX as usize;

/// A command: its set and its number in there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Command {
    /// The set.
    pub set: u8,
    /// The number.
    pub id: u8,
}

#[expect(missing_docs, reason = "the names are those of ipc-protocol.md")]
impl Command {
    pub const STOP_TRACING: Self = Self { set: 2, id: 1 };
    pub const COLLECT_TRACING_2: Self = Self { set: 2, id: 3 };
    pub const COLLECT_TRACING_3: Self = Self { set: 2, id: 4 };
    pub const COLLECT_TRACING_4: Self = Self { set: 2, id: 5 };
    pub const COLLECT_TRACING_5: Self = Self { set: 2, id: 6 };
    pub const COLLECT_TRACING_6: Self = Self { set: 2, id: 7 };
    pub const ATTACH_PROFILER: Self = Self { set: 3, id: 1 };
    pub const STARTUP_PROFILER: Self = Self { set: 3, id: 2 };
    pub const PROCESS_INFO: Self = Self { set: 4, id: 0 };
    pub const RESUME_RUNTIME: Self = Self { set: 4, id: 1 };
    pub const PROCESS_ENVIRONMENT: Self = Self { set: 4, id: 2 };
    pub const SET_ENVIRONMENT_VARIABLE: Self = Self { set: 4, id: 3 };
    pub const PROCESS_INFO_2: Self = Self { set: 4, id: 4 };
    pub const PROCESS_INFO_3: Self = Self { set: 4, id: 8 };
    /// An answer that it was done.
    pub const OK: Self = Self { set: 0xff, id: 0 };
    /// An answer that it was not, with a code.
    pub const ERROR: Self = Self { set: 0xff, id: 0xff };
}

/// The header of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The payload.
    pub command: Command,
    /// How many bytes follow the header.
    pub payload_size: usize,
}

/// The reason why bytes are not a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Invalid(pub &'static str);

impl Header {
    /// Reads a header.
    ///
    /// # Errors
    /// If it begins otherwise than a message does, or its size is smaller than itself.
    pub fn decode(bytes: &[u8; HEADER_SIZE]) -> Result<Self, Invalid> {
        let mut cursor = Cursor::new(bytes);
        let short = |_| Invalid("it is too short");
        if cursor.array().map_err(short)? != MAGIC {
            return Err(Invalid("it does not begin with DOTNET_IPC_V1"));
        }
        let size = usize::from(cursor.u16().map_err(short)?);
        let command = Command { set: cursor.u8().map_err(short)?, id: cursor.u8().map_err(short)? };
        let payload_size = size.checked_sub(HEADER_SIZE).ok_or(Invalid("its size is smaller than its header"))?;
        Ok(Self { command, payload_size })
    }
}

/// A message as bytes, ready to be sent in one piece.
///
/// # Errors
/// If it is too long; the error is its size.
pub fn encode(command: Command, payload: &[u8]) -> Result<Vec<u8>, usize> {
    let size = HEADER_SIZE + payload.len();
    let written = u16::try_from(size).map_err(|_| size)?;
    let mut message = Vec::with_capacity(size);
    message.extend(MAGIC);
    message.extend(written.to_le_bytes());
    message.extend([command.set, command.id, 0, 0]);
    message.extend(payload);
    Ok(message)
}

/// The content of an answer: its payload, or the runtime's code.
///
/// # Errors
/// If it is not an answer.
pub fn reply(command: Command, payload: &[u8]) -> Result<Result<&[u8], HResult>, Invalid> {
    match command {
        Command::OK => Ok(Ok(payload)),
        Command::ERROR => {
            let code = Cursor::new(payload).u32().map_err(|_| Invalid("it is an error without a code"))?;
            Ok(Err(HResult(code)))
        }
        _ => Err(Invalid("it is neither a success nor an error")),
    }
}

/// Writes payloads.
#[derive(Debug, Default)]
pub(crate) struct Payload(Vec<u8>);

impl Payload {
    pub(crate) fn u8(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn uuid(&mut self, value: &Uuid) -> &mut Self {
        self.0.extend(value.to_bytes_le());
        self
    }

    /// A count; one that does not fit makes the message too long anyway.
    pub(crate) fn count(&mut self, count: usize) -> &mut Self {
        self.u32(u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// A string, with its length in units of UTF-16 and a terminating zero.
    pub(crate) fn string(&mut self, text: &str) -> &mut Self {
        let units: Vec<u16> = text.encode_utf16().chain([0]).collect();
        self.count(units.len());
        self.0.extend(units.into_iter().flat_map(u16::to_le_bytes));
        self
    }

    /// Bytes after their length.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.count(bytes.len());
        self.0.extend(bytes);
        self
    }

    pub(crate) fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0)
    }
}

/// How a runtime introduces itself when it connects to a port of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Advertise {
    /// Generated by the runtime at its start. Distinguishes runtimes where process ids do not.
    pub cookie: Uuid,
    /// Its process, as it calls itself: in a container that is another number than outside.
    pub pid: u64,
}

impl Advertise {
    /// The size of an introduction.
    pub const SIZE: usize = 34;

    /// Reads an introduction.
    ///
    /// # Errors
    /// If it is none.
    pub fn decode(bytes: &[u8; Self::SIZE]) -> Result<Self, Invalid> {
        let mut cursor = Cursor::new(bytes);
        let read = |cursor: &mut Cursor<'_>| {
            let magic: [u8; 8] = cursor.array()?;
            let cookie = Uuid::from_bytes_le(cursor.array()?);
            let pid = cursor.u64()?;
            Ok::<_, Malformed>((magic, Self { cookie, pid }))
        };
        match read(&mut cursor) {
            Ok((magic, advertise)) if &magic == b"ADVR_V1\0" => Ok(advertise),
            _ => Err(Invalid("it does not begin with ADVR_V1")),
        }
    }
}
