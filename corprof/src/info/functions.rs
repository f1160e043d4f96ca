//! Functions.

use corprof_sys as sys;
use windows_core::HRESULT;

use crate::error::{Error, Result};
use crate::ffi::buffer::read_utf16;
use crate::generated::contract::contract;
use crate::id::FunctionId;
use crate::info::Info;
use crate::session::liveness::dead;
use crate::session::{FUNCTION_INFO, FrameInfo, FunctionInfo};

impl Info {
    /// Where `function` is defined, and with which type arguments.
    #[doc = contract!(GetFunctionInfo2)]
    #[doc(alias = "GetFunctionInfo2")]
    #[doc(alias = "GetFunctionInfo")]
    #[inline]
    pub fn function_info(&self, function: FunctionId) -> Result<FunctionInfo> {
        if self.liveness().is_sure_to_stay(function) {
            // Most have no type arguments; those that have are asked about again, so that the others do not pay for them.
            match self.runtime().ask_function_into(function, 0, &mut []) {
                Ok((info, 0)) => return Ok(info),
                Ok(_) => {}
                Err(code) => return Err(Error::new(code, FUNCTION_INFO)),
            }
        }
        // Taken apart: what is handed on as it is would be in memory in the usual case as well, where registers do.
        match self.function_info_slow(function) {
            Ok(FunctionInfo { class, module, token, type_args }) => {
                Ok(FunctionInfo { class, module, token, type_args })
            }
            Err(sys::COR_E_OBJECTDISPOSED) => Err(dead::<FunctionId>(FUNCTION_INFO)),
            Err(code) => Err(Error::new(code, FUNCTION_INFO)),
        }
    }

    /// As [`function_info`](Self::function_info), for any function.
    #[cold]
    fn function_info_slow(&self, function: FunctionId) -> Result<FunctionInfo, HRESULT> {
        let held = self.pin(function, FUNCTION_INFO).map_err(|error| error.code())?;
        let info = self.runtime().ask_function(function)?;
        self.note_classes_of(&info);
        drop(held); // They are alive as long as it is, so they are noted before.
        Ok(info)
    }

    /// Where the function of a frame is defined, and with which type arguments: also those that only the frame knows, if the
    /// function is shared between instantiations and the frame was asked for in a place that keeps them.
    ///
    /// The frames of [`walk_own_stack`](crate::InCallback::walk_own_stack) do not keep them: the runtime
    /// puts the function into the frame info of a stack walk and nothing else. Those of enter/leave hooks do.
    ///
    /// # Errors
    /// As [`function_info`](Self::function_info).
    pub fn function_info_in_frame(&self, frame: FrameInfo<'_>) -> Result<FunctionInfo> {
        let info = self.runtime().ask_function_of(frame.function(), frame.as_raw());
        let info = info.map_err(|code| Error::new(code, FUNCTION_INFO))?;
        self.note_classes_of(&info);
        Ok(info)
    }

    fn note_classes_of(&self, function: &FunctionInfo) {
        function.class.iter().chain(&function.type_args).for_each(|&class| self.note_class(class));
    }

    /// The name of a dynamic method: one without metadata.
    #[doc = contract!(GetDynamicFunctionInfo)]
    ///
    /// `E_INVALIDARG`: the function has metadata, and its name there. `CORPROF_E_INCONSISTENT_WITH_FLAGS`:
    /// `MONITOR_JIT_COMPILATION` was off when it was compiled or has been since, so that it may have ended unheard.
    #[doc(alias = "GetDynamicFunctionInfo")]
    pub fn dynamic_function_name(&self, function: FunctionId) -> Result<String> {
        const CALL: &str = "GetDynamicFunctionInfo";
        let function = self.pin(function, CALL)?;
        let info = self.as_version::<sys::ICorProfilerInfo8>(CALL)?;
        if !self.liveness().is_watched(function.id()) && self.is_function_dynamic(function.id())? {
            return Err(Error::new(sys::CORPROF_E_INCONSISTENT_WITH_FLAGS, CALL).about(
                "function",
                "a dynamic method may end at any time, and only with MONITOR_JIT_COMPILATION on from before its compilation \
                 is that heard of",
            ));
        }
        let _name = self.liveness().pin_dynamic_method(function.id(), CALL)?;
        read_utf16(CALL, |start, room, count| {
            let (mut module, mut signature, mut signature_size) = (0, std::ptr::null(), 0);
            // SAFETY: the call writes the three locals, the count, and at most `room` units of text.
            unsafe {
                info.GetDynamicFunctionInfo(
                    function.as_raw(),
                    &mut module,
                    &mut signature,
                    &mut signature_size,
                    room,
                    count,
                    start,
                )
            }
        })
    }
}
