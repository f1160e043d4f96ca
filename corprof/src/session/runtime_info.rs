//! [`RuntimeInfo`]: the version of the runtime.

use std::fmt;

use corprof_sys as sys;

use crate::error::{Error, Result};

/// The version of a runtime.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct RuntimeInfo {
    /// The major version: 8 for .NET 8.
    pub major: u16,
    /// The minor version.
    pub minor: u16,
    /// The build number.
    pub build: u16,
}

impl RuntimeInfo {
    /// Asks the runtime for its family and version.
    pub(crate) fn read(info: &sys::ICorProfilerInfo3) -> Result<(sys::COR_PRF_RUNTIME_TYPE, Self)> {
        Self::read_with_number(info).map(|(_, family, version)| (family, version))
    }

    /// The same, and the number by which the runtime differs from others in the process.
    pub(super) fn read_with_number(info: &sys::ICorProfilerInfo3) -> Result<(u16, sys::COR_PRF_RUNTIME_TYPE, Self)> {
        let mut instance = 0;
        let mut family = sys::COR_PRF_RUNTIME_TYPE::default();
        let mut major = 0;
        let mut minor = 0;
        let mut build = 0;
        let mut fix = 0;
        // SAFETY: the call writes the six locals; there is no room for the version as text (fact: outputs).
        let code = unsafe {
            info.GetRuntimeInformation(
                &mut instance,
                &mut family,
                &mut major,
                &mut minor,
                &mut build,
                &mut fix,
                0,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
            )
        };
        Error::check(code, "GetRuntimeInformation")?;
        Ok((instance, family, Self { major, minor, build }))
    }
}

impl fmt::Display for RuntimeInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ".NET {}.{}.{}", self.major, self.minor, self.build)
    }
}
