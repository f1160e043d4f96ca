//! The result of `get_rejit_parameters`.

use std::fmt;
use std::marker::PhantomData;

use corprof_sys as sys;
use windows_core::Ref;

use crate::error::{Error, Result};
use crate::id::ModuleId;
use crate::il_body::{IlMapEntry, check_body};
use crate::metadata::MethodDef;

/// Takes the result of [`get_rejit_parameters`](crate::Callbacks::get_rejit_parameters); valid until the callback
/// returns.
#[derive(Clone, Copy)]
pub struct FunctionControl<'cb> {
    raw: &'cb sys::ICorProfilerFunctionControl,
    /// The method that the runtime asks about.
    module: usize,
    method: u32,
    _not_send: PhantomData<*mut ()>,
}

impl<'cb> FunctionControl<'cb> {
    pub(crate) fn new(raw: &'cb Ref<'_, sys::ICorProfilerFunctionControl>, module: usize, method: u32) -> Option<Self> {
        raw.as_ref().map(|raw| Self::of(raw, module, method))
    }

    /// The control of the callback about this method.
    pub(crate) const fn of(raw: &'cb sys::ICorProfilerFunctionControl, module: usize, method: u32) -> Self {
        Self { raw, module, method, _not_send: PhantomData }
    }

    /// The interface itself, for calls that have no safe form yet.
    ///
    /// # Safety
    /// Do not keep a copy: it ends with the callback.
    pub unsafe fn as_raw(self) -> &'cb sys::ICorProfilerFunctionControl {
        self.raw
    }

    /// Whether the runtime asks about this method.
    pub(crate) fn is_for(self, module: ModuleId, method: MethodDef) -> bool {
        self.module == module.as_raw() && self.method == method.as_raw()
    }
}

impl fmt::Debug for FunctionControl<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FunctionControl").finish_non_exhaustive()
    }
}

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

    /// Sets the new body of the function: header, code, and the sections with its exception clauses. The bytes are
    /// copied.
    ///
    /// Without this call the function is compiled again from the body that it was loaded with.
    ///
    /// # Safety
    /// As for [`InCallback::set_il_function_body`](crate::InCallback::set_il_function_body): the code must be valid for
    /// the function in its module, because the runtime does not verify it.
    ///
    /// # Errors
    /// `E_INVALIDARG`: the body is shorter or longer than its header says. `E_OUTOFMEMORY`: there is no room for it.
    #[doc(alias = "SetILFunctionBody")]
    pub unsafe fn set_il_function_body(self, body: &[u8]) -> Result<()> {
        const CALL: &str = "ICorProfilerFunctionControl::SetILFunctionBody";
        let size = check_body(body, CALL)?;
        // SAFETY: the call reads `size` bytes and keeps a copy; the body ends where they do, and its code is valid by
        // the caller's promise (fact: inputs).
        let code = unsafe { self.as_raw().SetILFunctionBody(size, body.as_ptr()) };
        Error::check(code, CALL)
    }

    /// Gives debuggers a map from the instructions of the new body to those of the body that the function was loaded
    /// with.
    ///
    /// # Errors
    /// `CORPROF_E_DEBUGGING_DISABLED`: the runtime runs without its debugger support.
    #[doc(alias = "SetILInstrumentedCodeMap")]
    pub fn set_il_instrumented_code_map(self, map: &[IlMapEntry]) -> Result<()> {
        const CALL: &str = "ICorProfilerFunctionControl::SetILInstrumentedCodeMap";
        let (entries, count) = IlMapEntry::to_wire(map, CALL)?;
        // SAFETY: the call reads `count` entries and keeps a copy (fact: inputs).
        let code = unsafe { self.as_raw().SetILInstrumentedCodeMap(count, entries.as_ptr()) };
        Error::check(code, CALL)
    }
}
