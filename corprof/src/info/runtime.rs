//! The runtime itself.

use corprof_sys as sys;

use super::RuntimeInfo;
use crate::context::InNoGc;
use crate::error::Result;
use crate::generated::contract::contract;

impl InNoGc<'_> {
    /// The version of this runtime.
    ///
    /// To find out what it can do, check for the feature rather than the version: use
    /// [`Info::version`](crate::Info::version) or try the call itself.
    #[doc = contract!(GetRuntimeInformation)]
    #[doc(alias = "GetRuntimeInformation")]
    pub fn runtime_info(&self) -> Result<RuntimeInfo> {
        let info = self.as_version::<sys::ICorProfilerInfo3>("GetRuntimeInformation")?;
        let (_, version) = RuntimeInfo::read(&info)?;
        Ok(version)
    }
}
