//! The runtime's information about its process.

use uuid::Uuid;

use crate::bytes::{Cursor, Malformed};
use crate::ipc::Invalid;

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
    /// The name of the assembly that was started. From .NET 6 on.
    pub entry_assembly: Option<String>,
    /// The runtime's version, such as `8.0.4`. From .NET 6 on.
    pub clr_version: Option<String>,
    /// The runtime's identifier of the platform, such as `linux-x64`. From .NET 8 on.
    pub portable_rid: Option<String>,
}

/// Which form of the answer it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProcessInfoVersion {
    /// .NET 5 and later.
    V1,
    /// .NET 6 and later: the entry assembly and the runtime's version as well.
    V2,
    /// .NET 8 and later: the platform as well.
    V3,
}

impl ProcessInfo {
    /// Reads the payload of an answer. The fields are in the order in which runtimes write them, which is not that of
    /// the document.
    ///
    /// # Errors
    /// If it is too short.
    pub fn decode(payload: &[u8], version: ProcessInfoVersion) -> Result<Self, Invalid> {
        Self::read(payload, version).map_err(|_| Invalid("its process information is too short"))
    }

    fn read(payload: &[u8], version: ProcessInfoVersion) -> Result<Self, Malformed> {
        use ProcessInfoVersion::{V2, V3};
        let mut cursor = Cursor::new(payload);
        if version == V3 {
            // The version of the following data; later versions only add to it.
            cursor.u32()?;
        }
        let pid = cursor.u64()?;
        let cookie = Uuid::from_bytes_le(cursor.array()?);
        let mut text = || cursor.counted_utf16().map(Option::unwrap_or_default);
        let (command_line, os, architecture) = (text()?, text()?, text()?);
        let mut since = |first| if version >= first { text().map(Some) } else { Ok(None) };
        let (entry_assembly, clr_version, portable_rid) = (since(V2)?, since(V2)?, since(V3)?);
        Ok(Self { pid, cookie, command_line, os, architecture, entry_assembly, clr_version, portable_rid })
    }

    /// The number before the first dot of the runtime's version, if the runtime reports it.
    #[must_use]
    pub fn clr_major(&self) -> Option<u32> {
        self.clr_version.as_ref()?.split('.').next()?.parse().ok()
    }
}
