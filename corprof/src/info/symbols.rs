//! Symbols that were loaded from memory with their modules.

use corprof_sys as sys;
use windows_core::HRESULT;

use crate::context::InNoGc;
use crate::error::{Error, Result};
use crate::generated::contract::contract;
use crate::id::ModuleId;

/// The success code for a dynamic module.
const IS_DYNAMIC: HRESULT = HRESULT(sys::COR_PRF_MODULE_DYNAMIC.bits().cast_signed());

impl InNoGc<'_> {
    /// The size in bytes of the symbols that were loaded from memory with `module`; none for a dynamic module, whose
    /// symbols change.
    #[doc = contract!(GetInMemorySymbolsLength)]
    ///
    /// `CORPROF_E_DATAINCOMPLETE`: before `module_load_finished`. `E_INVALIDARG`: the module has been unloaded.
    #[doc(alias = "GetInMemorySymbolsLength")]
    pub fn in_memory_symbols_length(&self, module: ModuleId) -> Result<Option<u32>> {
        const CALL: &str = "GetInMemorySymbolsLength";
        let module = self.pin(module, CALL)?;
        let info = self.as_version::<sys::ICorProfilerInfo7>(CALL)?;
        let mut length = 0;
        // SAFETY: the module is pinned; the call writes one number and keeps nothing (fact: pinned, outputs).
        let code = unsafe { info.GetInMemorySymbolsLength(module.as_raw(), &mut length) };
        Error::check(code, CALL)?;
        Ok((code != IS_DYNAMIC).then_some(length))
    }

    /// Reads symbols of `module` from `offset` on into `bytes`, and returns how many bytes it has read.
    #[doc = contract!(ReadInMemorySymbols)]
    ///
    /// `CORPROF_E_DATAINCOMPLETE`: before `module_load_finished`. `E_INVALIDARG`: the offset is beyond the symbols, or
    /// the module has been unloaded.
    #[doc(alias = "ReadInMemorySymbols")]
    pub fn read_in_memory_symbols(&self, module: ModuleId, offset: u32, bytes: &mut [u8]) -> Result<usize> {
        const CALL: &str = "ReadInMemorySymbols";
        let module = self.pin(module, CALL)?;
        let info = self.as_version::<sys::ICorProfilerInfo7>(CALL)?;
        let room = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let mut read = 0;
        // SAFETY: the module is pinned; the call writes the count, and at most `room` bytes (fact: pinned, outputs).
        let code = unsafe { info.ReadInMemorySymbols(module.as_raw(), offset, bytes.as_mut_ptr(), room, &mut read) };
        Error::check(code, CALL)?;
        Ok(read.min(room) as usize)
    }
}
