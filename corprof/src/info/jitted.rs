//! Functions that have been compiled just in time: the lists of them.

use corprof_sys as sys;

use super::code::FunctionVersion;
use crate::context::{InCallback, InTriggers};
use crate::error::{Error, Result};
use crate::ffi::enumerate::read_all;
use crate::generated::contract::contract;
use crate::id::{FunctionId, ReJitId};

impl InCallback<'_> {
    /// The functions that have been compiled just in time so far, and those that are being compiled.
    ///
    /// Bodies that came of ReJIT requests are left out: see
    /// [`jitted_function_versions`](InTriggers::jitted_function_versions).
    #[doc = contract!(EnumJITedFunctions)]
    ///
    /// `CORPROF_E_UNSUPPORTED_CALL_SEQUENCE`: from .NET 10 on, while an assembly is being unloaded; ask once more in a moment.
    #[doc(alias = "EnumJITedFunctions")]
    pub fn jitted_functions(&self) -> Result<Vec<FunctionId>> {
        let liveness = self.liveness();
        let look_up = liveness.look_up();
        let is_all_gone = liveness.is_all_gone(self.runtime());
        // No module begins to go during the look-up; one that has begun must be through.
        if !is_all_gone && self.runtime_info()?.major >= 10 {
            return Err(Error::new(sys::CORPROF_E_UNSUPPORTED_CALL_SEQUENCE, "EnumJITedFunctions").about(
                "while code is unloaded",
                "an assembly is being unloaded, and this runtime would crash later: ask once more in a moment",
            ));
        }
        let functions = self.runtime().ask_jitted_functions()?;
        Ok(functions.into_iter().filter_map(|function| self.found_function(function, is_all_gone, &look_up)).collect())
    }
}

impl InTriggers<'_> {
    /// The functions that have been compiled just in time so far, each in every body that it was compiled from.
    ///
    /// Once an assembly has been unloaded, the answer is put together function by function, for the runtime's own follows what was
    /// freed. That takes longer, and the codes are those of [`jitted_functions`](InCallback::jitted_functions) and
    /// [`rejit_ids`](Self::rejit_ids).
    #[doc = contract!(EnumJITedFunctions2)]
    #[doc(alias = "EnumJITedFunctions2")]
    pub fn jitted_function_versions(&mut self) -> Result<Vec<FunctionVersion>> {
        const CALL: &str = "EnumJITedFunctions2";
        let look_up = self.liveness().look_up();
        if self.liveness().has_unloaded() {
            drop(look_up);
            return self.held_function_versions();
        }
        let info = self.as_version::<sys::ICorProfilerInfo4>(CALL)?;
        read_all(
            CALL,
            // SAFETY: for the body, the runtime follows each function that has code to its module and type arguments. They are in
            // memory: no module has begun to go, and none does during the look-up. The call writes one reference and keeps nothing.
            |functions| unsafe { info.EnumJITedFunctions2(functions) },
            |version: sys::COR_PRF_FUNCTION| {
                let function = self.found_function(version.functionId, true, &look_up)?;
                Some(FunctionVersion { function, rejit: ReJitId(version.reJitId) })
            },
        )
    }

    /// The same, each function being kept alive while it is asked about.
    fn held_function_versions(&mut self) -> Result<Vec<FunctionVersion>> {
        let mut functions = self.jitted_functions()?;
        functions.sort_unstable();
        functions.dedup(); // one for each tier
        let mut versions = Vec::with_capacity(functions.len());
        for function in functions {
            let rejits = match self.rejit_ids(function) {
                Err(error) if error.code() == sys::COR_E_OBJECTDISPOSED => continue,
                rejits => rejits?,
            };
            let all = rejits.into_iter().map(|rejit| FunctionVersion { function, rejit });
            // The body that it was loaded with is only left out if it was never compiled.
            versions.extend(all.filter(|&version| self.native_code(version).is_ok_and(|code| !code.is_empty())));
        }
        Ok(versions)
    }
}
