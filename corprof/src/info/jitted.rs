//! Lists of the functions that have been compiled just in time.

use std::time::{Duration, Instant};

use corprof_sys as sys;

use super::code::FunctionVersion;
use crate::context::{InCallback, InNoGc};
use crate::error::{Error, Result};
use crate::ffi::enumerate::read_all;
use crate::generated::contract::contract;
use crate::id::{FunctionId, ReJitId};
use crate::session::ReleaseFact;

/// The time between two attempts to list functions.
pub(crate) const PAUSE: Duration = Duration::from_millis(1);

/// Whether to ask for a list again: it was refused because something is being unloaded, and `begin` is not long ago.
pub(crate) fn is_passing(error: &Error, begin: Instant) -> bool {
    /// An unload takes milliseconds, but the machine may be busy.
    const PATIENCE: Duration = Duration::from_secs(10);
    error.code() == sys::CORPROF_E_UNSUPPORTED_CALL_SEQUENCE && begin.elapsed() < PATIENCE
}

impl InNoGc<'_> {
    /// The functions that have been or are being compiled just in time.
    ///
    /// Bodies of ReJIT requests are left out: see [`jitted_function_versions`](InCallback::jitted_function_versions).
    #[doc = contract!(EnumJITedFunctions)]
    ///
    /// `CORPROF_E_UNSUPPORTED_CALL_SEQUENCE`: from .NET 10 on, while an assembly is being unloaded; ask again a moment
    /// later, as [`wait_for_jitted_functions`](crate::profiler_thread::ProfilerThread::wait_for_jitted_functions) does.
    /// On each runtime, after an attach to an application that has assemblies which can be unloaded: until
    /// [`profiler_attach_complete`](crate::Callbacks::profiler_attach_complete) is called, an unload may be under way
    /// that the runtime does not announce.
    #[doc(alias = "EnumJITedFunctions")]
    pub fn jitted_functions(&self) -> Result<Vec<FunctionId>> {
        const CALL: &str = "EnumJITedFunctions";
        let liveness = self.liveness();
        let look_up = liveness.look_up();
        let is_all_gone = liveness.is_all_gone(self.runtime());
        liveness.refuse_after_attach(self.runtime(), CALL)?;
        // No module begins to unload during the look-up; an unload that has begun must be complete.
        if !is_all_gone && self.runtime_info()?.has(ReleaseFact::CrashesAfterListsDuringUnloads) {
            return Err(Error::new(sys::CORPROF_E_UNSUPPORTED_CALL_SEQUENCE, CALL).about(
                "while code is unloaded",
                "an assembly is being unloaded, and this runtime would crash later: ask again a moment later",
            ));
        }
        let functions = self.runtime().ask_jitted_functions()?;
        // Something that can be unloaded may have been loaded meanwhile.
        liveness.refuse_after_attach(self.runtime(), CALL)?;
        Ok(functions.into_iter().filter_map(|function| self.found_function(function, is_all_gone, &look_up)).collect())
    }
}

impl InCallback<'_> {
    /// The functions that have been compiled just in time so far, each with every body that it was compiled from.
    ///
    /// Once an assembly has been unloaded, corprof collects the result function by function, because the runtime's own
    /// call follows freed memory. That takes longer, and the errors are those of
    /// [`jitted_functions`](InNoGc::jitted_functions) and [`rejit_ids`](Self::rejit_ids).
    #[doc = contract!(EnumJITedFunctions2)]
    #[doc(alias = "EnumJITedFunctions2")]
    pub fn jitted_function_versions(&mut self) -> Result<Vec<FunctionVersion>> {
        const CALL: &str = "EnumJITedFunctions2";
        let look_up = self.liveness().look_up();
        if self.liveness().has_unloaded() || self.liveness().may_miss_unloads(self.runtime()) {
            drop(look_up);
            return self.held_function_versions();
        }
        let info = self.as_version::<sys::ICorProfilerInfo4>(CALL)?;
        read_all(
            CALL,
            // SAFETY: to find the body, the runtime reads the module and type arguments of each compiled function. They
            // are in memory: no module has begun to unload, and none does during the look-up. The call writes one
            // reference and keeps nothing (fact: outputs, pinned).
            |functions| unsafe { info.EnumJITedFunctions2(functions) },
            |version: sys::COR_PRF_FUNCTION| {
                let function = self.found_function(version.functionId, true, &look_up)?;
                Some(FunctionVersion { function, rejit: ReJitId(version.reJitId) })
            },
        )
    }

    /// The same, pinning each function while it is asked about.
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
            // The body that it was loaded with is left out only if it was never compiled.
            versions.extend(all.filter(|&version| self.native_code(version).is_ok_and(|code| !code.is_empty())));
        }
        Ok(versions)
    }
}
