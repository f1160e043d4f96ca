//! The result of `get_rejit_parameters`.

use corprof_sys as sys;

use super::FunctionControl;
use crate::error::{Error, Result};
use crate::il_body::{IlMapEntry, check_body};

/// The calls belong to `get_rejit_parameters`, which receives the only `FunctionControl`.
impl FunctionControl<'_> {
    /// Sets how the function is compiled: without inlining, without optimizations.
    ///
    /// # Errors
    /// `E_INVALIDARG`: a flag that the runtime does not know.
    #[doc(alias = "SetCodegenFlags")]
    pub fn set_codegen_flags(self, flags: sys::COR_PRF_CODEGEN_FLAGS) -> Result<()> {
        // SAFETY: the call takes a number.
        let code = unsafe { self.as_raw().SetCodegenFlags(flags.bits()) };
        Error::check(code, "ICorProfilerFunctionControl::SetCodegenFlags")
    }

    /// Sets the new body of the function: header, code, and the sections with its exception clauses. The bytes are copied.
    ///
    /// Without this call the function is compiled again from the body that it was loaded with.
    ///
    /// # Safety
    /// As for [`InTriggers::set_il_function_body`](crate::InTriggers::set_il_function_body): the code must be valid for the
    /// function in its module, because the runtime does not verify it.
    ///
    /// # Errors
    /// `E_INVALIDARG`: the body is shorter or longer than its header says. `E_OUTOFMEMORY`: there is no room for it.
    #[doc(alias = "SetILFunctionBody")]
    pub unsafe fn set_il_function_body(self, body: &[u8]) -> Result<()> {
        const CALL: &str = "ICorProfilerFunctionControl::SetILFunctionBody";
        let size = check_body(body, CALL)?;
        // SAFETY: the call reads `size` bytes and keeps a copy; the body ends where they do, and its code is valid by the
        // caller's promise.
        let code = unsafe { self.as_raw().SetILFunctionBody(size, body.as_ptr()) };
        Error::check(code, CALL)
    }

    /// Gives debuggers a map from the instructions of the new body to those of the body that the function was loaded with.
    ///
    /// # Errors
    /// `CORPROF_E_DEBUGGING_DISABLED`: the runtime runs without its debugger support.
    #[doc(alias = "SetILInstrumentedCodeMap")]
    pub fn set_il_instrumented_code_map(self, map: &[IlMapEntry]) -> Result<()> {
        const CALL: &str = "ICorProfilerFunctionControl::SetILInstrumentedCodeMap";
        let (entries, count) = IlMapEntry::to_wire(map, CALL)?;
        // SAFETY: the call reads `count` entries and keeps a copy.
        let code = unsafe { self.as_raw().SetILInstrumentedCodeMap(count, entries.as_ptr()) };
        Error::check(code, CALL)
    }
}
