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
    /// The definition of `function`, with its type arguments.
    #[doc = contract!(GetFunctionInfo2)]
    #[doc(alias = "GetFunctionInfo2")]
    #[doc(alias = "GetFunctionInfo")]
    #[inline]
    pub fn function_info(&self, function: FunctionId) -> Result<FunctionInfo> {
        if self.liveness().is_sure_to_stay(function) {
            // Most functions have no type arguments; for the others the runtime is asked again, so that the most common
            // case pays nothing.
            match self.runtime().ask_function_into(function, 0, &mut []) {
                Ok((info, 0)) => return Ok(info),
                Ok(_) => {}
                Err(code) => return Err(Error::new(code, FUNCTION_INFO)),
            }
        }
        self.function_info_slow(function).map_err(|code| match code {
            sys::COR_E_OBJECTDISPOSED => dead::<FunctionId>(FUNCTION_INFO),
            code => Error::new(code, FUNCTION_INFO),
        })
    }

    /// Like [`function_info`](Self::function_info), for any function.
    #[cold]
    fn function_info_slow(&self, function: FunctionId) -> Result<FunctionInfo, HRESULT> {
        let held = self.pin(function, FUNCTION_INFO).map_err(|error| error.code())?;
        let info = self.runtime().ask_function(function)?;
        self.note_classes_of(&info);
        drop(held); // Held until they are recorded: they live as long as it.
        Ok(info)
    }

    /// The definition of a frame's function, with its type arguments. This includes type arguments that only the frame
    /// knows, for a function that is shared between instantiations, if the frame comes from a call that keeps them.
    ///
    /// Frames of enter/leave hooks keep them. Frames of [`walk_own_stack`](crate::InNoGc::walk_own_stack) do not: the
    /// runtime puts only the function into the frame info of a stack walk.
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

    /// The name of a dynamic method, which has no metadata.
    #[doc = contract!(GetDynamicFunctionInfo)]
    ///
    /// `E_INVALIDARG`: the function has metadata, with its name. `CORPROF_E_INCONSISTENT_WITH_FLAGS`:
    /// `MONITOR_JIT_COMPILATION` was off when it was compiled or later, so that its end may have gone unreported. After
    /// an attach with this flag, older methods have names too, once
    /// [`function_version_from_ip`](crate::InCallback::function_version_from_ip) has found them; not in the first
    /// moments, as long as the runtime may be ending one unreported.
    #[doc(alias = "GetDynamicFunctionInfo")]
    pub fn dynamic_function_name(&self, function: FunctionId) -> Result<String> {
        const CALL: &str = "GetDynamicFunctionInfo";
        let function = self.pin(function, CALL)?;
        let info = self.as_version::<sys::ICorProfilerInfo8>(CALL)?;
        if !self.liveness().is_watched(function.id()) && self.is_function_dynamic(function.id())? {
            return Err(Error::new(sys::CORPROF_E_INCONSISTENT_WITH_FLAGS, CALL).about(
                "function",
                "a dynamic method may end at any time, and the runtime reports that only with MONITOR_JIT_COMPILATION on \
                 since before its compilation: turn it on in `initialize`",
            ));
        }
        let _name = self.liveness().pin_dynamic_method(function.id(), CALL)?;
        read_utf16(CALL, |start, room, count| {
            let mut module = 0;
            let mut signature = std::ptr::null();
            let mut signature_size = 0;
            // SAFETY: the function is pinned, and so is its name, which a dynamic method takes along; the call writes
            // the three locals, the count, and at most `room` units of text (fact: pinned, outputs).
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
