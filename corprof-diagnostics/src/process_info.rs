//! The runtime's information about its process.

use uuid::Uuid;

use crate::ipc::Invalid;
use corprof_nettrace::bytes::{Cursor, Malformed};

/// A process as its runtime describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProcessInfo {
    /// The process as it calls itself: in a container that is another number than outside.
    pub pid: u64,
    /// Made up by the runtime when it started, and the same in its [`Advertise`](crate::ipc::Advertise).
    pub cookie: Uuid,
    /// The command line, its words in one text. Of a suspended runtime only its first word.
    pub command_line: String,
    /// The system, such as `Linux`.
    pub os: String,
    /// The architecture of the process, such as `x64`.
    pub architecture: String,
    /// The name of the assembly that was started.
    pub entry_assembly: String,
    /// The runtime's version, such as `8.0.4`.
    pub clr_version: String,
    /// The runtime's identifier of the platform, such as `linux-x64`.
    pub portable_rid: String,
}

impl ProcessInfo {
    /// Reads the payload of an answer. The fields are in the order in which runtimes write them, which is not that of
    /// the document.
    ///
    /// # Errors
    /// If it is too short.
    pub fn decode(payload: &[u8]) -> Result<Self, Invalid> {
        Self::read(payload).map_err(|_| Invalid("its process information is too short"))
    }

    fn read(payload: &[u8]) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(payload);
        // The version of the following data; later versions only add to it.
        cursor.u32()?;
        let pid = cursor.u64()?;
        let cookie = Uuid::from_bytes_le(cursor.array()?);
        let mut text = || cursor.counted_utf16().map(Option::unwrap_or_default);
        Ok(Self {
            pid,
            cookie,
            command_line: text()?,
            os: text()?,
            architecture: text()?,
            entry_assembly: text()?,
            clr_version: text()?,
            portable_rid: text()?,
        })
    }

    /// The number before the first dot of the runtime's version.
    #[must_use]
    pub fn clr_major(&self) -> Option<u32> {
        self.clr_version.split('.').next()?.parse().ok()
    }
}
