//! The environment variables of the application.
//!
//! Outside Windows the runtime keeps a copy of its own, so these differ from the variables of `std::env`.

use corprof_sys as sys;
use windows_core::HRESULT;

use crate::error::{Error, Result};
use crate::ffi::buffer::{read_utf16, to_utf16};
use crate::generated::contract::contract;
use crate::info::Info;

/// `HRESULT_FROM_WIN32(ERROR_ENVVAR_NOT_FOUND)`.
const NOT_FOUND: HRESULT = HRESULT(0x8007_00CB_u32 as i32);

impl Info {
    /// The value of the environment variable `name`, if it is set.
    #[doc = contract!(GetEnvironmentVariable)]
    #[doc(alias = "GetEnvironmentVariable")]
    pub fn environment_variable(&self, name: &str) -> Result<Option<String>> {
        const CALL: &str = "GetEnvironmentVariable";
        let info = self.as_version::<sys::ICorProfilerInfo11>(CALL)?;
        let name = to_utf16(CALL, name)?;
        let value = read_utf16(CALL, |start, room, count| {
            // SAFETY: the name ends with a NUL; the call writes the count and at most `room` units of text
            // (fact: inputs, outputs).
            unsafe { info.GetEnvironmentVariable(name.as_ptr(), room, count, start) }
        });
        match value {
            Err(error) if error.code() == NOT_FOUND => Ok(None),
            value => value.map(Some),
        }
    }

    /// Sets the environment variable `name`, or removes it.
    #[doc = contract!(SetEnvironmentVariable)]
    ///
    /// `E_INVALIDARG`: the name or the value contains a NUL.
    #[doc(alias = "SetEnvironmentVariable")]
    pub fn set_environment_variable(&self, name: &str, value: Option<&str>) -> Result<()> {
        const CALL: &str = "SetEnvironmentVariable";
        let info = self.as_version::<sys::ICorProfilerInfo11>(CALL)?;
        let name = to_utf16(CALL, name)?;
        let value = value.map(|value| to_utf16(CALL, value)).transpose()?;
        let value = value.as_ref().map_or(std::ptr::null(), |value| value.as_ptr());
        // SAFETY: both end with a NUL, and a value may be null; the call keeps nothing (fact: inputs).
        let code = unsafe { info.SetEnvironmentVariable(name.as_ptr(), value) };
        Error::check(code, CALL)
    }
}
