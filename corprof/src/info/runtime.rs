//! The runtime itself.

use std::fmt;

use corprof_sys as sys;

use crate::context::InCallback;
use crate::error::{Error, Result};
use crate::generated::contract::contract;

/// The family of a runtime.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum RuntimeKind {
    /// .NET Framework.
    Framework,
    /// .NET Core, and .NET from 5 on.
    Core,
    /// A family that corprof does not know.
    Unknown(i32),
}

/// The family and version of a runtime.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct RuntimeInfo {
    /// Its family.
    pub kind: RuntimeKind,
    /// The major version: 8 for .NET 8, but 4 for .NET Core 3.1 and before.
    pub major: u16,
    /// The minor version.
    pub minor: u16,
    /// The build number.
    pub build: u16,
}

impl InCallback<'_> {
    /// The family and version of this runtime.
    ///
    /// To find out what it can do, check for the feature rather than the version: use [`Info::version`](crate::Info::version)
    /// or try the call itself.
    #[doc = contract!(GetRuntimeInformation)]
    #[doc(alias = "GetRuntimeInformation")]
    pub fn runtime_info(&self) -> Result<RuntimeInfo> {
        const CALL: &str = "GetRuntimeInformation";
        let mut instance = 0;
        let mut kind = sys::COR_PRF_RUNTIME_TYPE::default();
        let (mut major, mut minor, mut build, mut fix) = (0, 0, 0, 0);
        // SAFETY: the call writes the six locals; there is no room for the version as text.
        let code = unsafe {
            self.as_version::<sys::ICorProfilerInfo3>(CALL)?.GetRuntimeInformation(
                &mut instance,
                &mut kind,
                &mut major,
                &mut minor,
                &mut build,
                &mut fix,
                0,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
            )
        };
        Error::check(code, CALL)?;
        let kind = match kind {
            sys::COR_PRF_DESKTOP_CLR => RuntimeKind::Framework,
            sys::COR_PRF_CORE_CLR => RuntimeKind::Core,
            other => RuntimeKind::Unknown(other.0),
        };
        Ok(RuntimeInfo { kind, major, minor, build })
    }
}

impl fmt::Display for RuntimeInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = match self.kind {
            RuntimeKind::Framework => ".NET Framework",
            // Up to .NET Core 3.1 this is the runtime's own version, not the product's.
            RuntimeKind::Core if self.major < 5 => "CoreCLR",
            RuntimeKind::Core => ".NET",
            RuntimeKind::Unknown(_) => "unknown runtime",
        };
        write!(f, "{family} {}.{}.{}", self.major, self.minor, self.build)
    }
}
