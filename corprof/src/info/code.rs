//! Native code: what has been compiled, and where it lies.

use corprof_sys as sys;

use crate::context::{InCallback, InTriggers};
use crate::enumerate::read_all;
use crate::error::Result;
use crate::generated::contract::contract;
use crate::id::{FunctionId, ReJitId};

/// A function in one of its bodies: as it was loaded, or as a ReJIT request made it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FunctionVersion {
    /// The function.
    pub function: FunctionId,
    /// Which of its bodies.
    pub rejit: ReJitId,
}

impl FunctionVersion {
    fn from_wire(version: sys::COR_PRF_FUNCTION) -> Option<Self> {
        FunctionId::from_raw(version.functionId).map(|function| Self { function, rejit: ReJitId(version.reJitId) })
    }
}

impl InCallback<'_> {
    /// The functions that have been compiled just in time so far, and those that are being compiled.
    ///
    /// Bodies that came of ReJIT requests are left out: see
    /// [`jitted_function_versions`](InTriggers::jitted_function_versions).
    #[doc = contract!(EnumJITedFunctions)]
    #[doc(alias = "EnumJITedFunctions")]
    pub fn jitted_functions(&self) -> Result<Vec<FunctionId>> {
        const CALL: &str = "EnumJITedFunctions";
        let info = self.as_version::<sys::ICorProfilerInfo3>(CALL)?;
        read_all(
            CALL,
            // SAFETY: the call writes one reference and keeps nothing.
            |functions| unsafe { info.EnumJITedFunctions(functions) },
            |function: sys::COR_PRF_FUNCTION| FunctionId::from_raw(function.functionId),
        )
    }
}

impl InTriggers<'_> {
    /// The functions that have been compiled just in time so far, each in every body that it was compiled from.
    #[doc = contract!(EnumJITedFunctions2)]
    #[doc(alias = "EnumJITedFunctions2")]
    pub fn jitted_function_versions(&mut self) -> Result<Vec<FunctionVersion>> {
        const CALL: &str = "EnumJITedFunctions2";
        let info = self.as_version::<sys::ICorProfilerInfo4>(CALL)?;
        read_all(
            CALL,
            // SAFETY: the call writes one reference and keeps nothing.
            |functions| unsafe { info.EnumJITedFunctions2(functions) },
            FunctionVersion::from_wire,
        )
    }
}
