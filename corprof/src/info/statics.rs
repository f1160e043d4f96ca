//! Static fields: their kinds, and the addresses of their values.
//!
//! Addresses are numbers. A value may be read as long as its field is alive: not after its class is unloaded or its
//! thread has ended, and for a field of a reference type not after the next collection.

use corprof_sys as sys;

use crate::context::InNoGc;
use crate::error::{E_INVALIDARG, Error, Result};
use crate::generated::contract::contract;
use crate::id::{AppDomainId, ClassId, ThreadId};
use crate::metadata::FieldDef;
use crate::session::ReleaseFact;
use crate::session::liveness::Pinned;

/// Explains an error of [`static_field_info`](InNoGc::static_field_info).
fn explain_kind(error: Error) -> Error {
    if error.code() != E_INVALIDARG {
        return error;
    }
    error.about(
        "field",
        "the runtime has no such field: the token belongs to another module, or to a constant, whose value is in the metadata",
    )
}

impl InNoGc<'_> {
    /// Explains an error about the address of a field.
    fn explain_address(&self, class: ClassId, error: Error) -> Error {
        if error.code() != sys::CORPROF_E_DATAINCOMPLETE {
            return error;
        }
        if self.class_info(class).is_ok_and(|info| !info.type_args.is_empty()) {
            return error.about(
                "generic class",
                "the runtime checks the open class, which is never initialized: no call returns the address of a static field of \
                 a generic class",
            );
        }
        error.about(
            "static field",
            "the class is not initialized yet, or the thread has not used the field yet: ask again after the application has",
        )
    }

    /// Refuses to read the fields of another thread where that thread may replace them meanwhile.
    fn refuse_other_thread(&self, thread: ThreadId, call: &'static str) -> Result<()> {
        if self.current_thread()? == Some(thread) || self.runtime_info()?.has(ReleaseFact::LocksStaticsOfThreads) {
            return Ok(());
        }
        Err(Error::new(sys::CORPROF_E_UNSUPPORTED_CALL_SEQUENCE, call).about(
            "another thread",
            "this runtime would read a table of fields that the thread may be freeing: ask on the thread itself",
        ))
    }

    /// The kind of the static field `field` of `class`; empty for an instance field.
    #[doc = contract!(GetStaticFieldInfo)]
    ///
    /// `E_INVALIDARG`: a constant, which is not a field at run time: its value is in the metadata
    /// ([`FieldProps::constant`](crate::metadata::FieldProps::constant)).
    #[doc(alias = "GetStaticFieldInfo")]
    pub fn static_field_info(&self, class: ClassId, field: FieldDef) -> Result<sys::COR_PRF_STATIC_TYPE> {
        const CALL: &str = "GetStaticFieldInfo";
        let class = self.pin(class, CALL)?;
        let info = self.as_version::<sys::ICorProfilerInfo3>(CALL)?;
        let mut kind = sys::COR_PRF_FIELD_NOT_A_STATIC;
        // SAFETY: the class is pinned; the call writes one number and keeps nothing (fact: pinned, outputs).
        let code = unsafe { info.GetStaticFieldInfo(class.as_raw(), field.as_raw(), &mut kind) };
        Error::check(code, CALL).map_err(explain_kind)?;
        Ok(kind)
    }

    /// The address of a static field whose value is in the module's file.
    #[doc = contract!(GetRVAStaticAddress)]
    ///
    /// `E_INVALIDARG`: the field is of another kind, see [`static_field_info`](Self::static_field_info).
    /// `CORPROF_E_DATAINCOMPLETE`: the class is not initialized yet. `COR_E_OBJECTDISPOSED`: the class is gone; or the
    /// application has emitted it, and its assembly has begun to unload, with the data.
    #[doc(alias = "GetRVAStaticAddress")]
    pub fn rva_static_address(&self, class: ClassId, field: FieldDef) -> Result<usize> {
        const CALL: &str = "GetRVAStaticAddress";
        let class = self.pin(class, CALL)?;
        let _emitted = self.pin_emitted(self.class_info(class.id())?.module, CALL)?;
        let info = self.as_version::<sys::ICorProfilerInfo2>(CALL)?;
        let mut address = std::ptr::null_mut();
        // SAFETY: the class and its data are pinned; the call writes one address and keeps nothing (fact: pinned,
        // emitted, outputs).
        let code = unsafe { info.GetRVAStaticAddress(class.as_raw(), field.as_raw(), &mut address) };
        Error::check(code, CALL)?;
        Ok(address.addr())
    }

    /// The address of an ordinary static field.
    #[doc = contract!(GetAppDomainStaticAddress)]
    ///
    /// `E_INVALIDARG`: the field is of another kind, see [`static_field_info`](Self::static_field_info).
    /// `CORPROF_E_DATAINCOMPLETE`: the class is not initialized yet, or is generic: the runtime then checks the open
    /// class, which is never initialized. `CORPROF_E_LITERALS_HAVE_NO_ADDRESS`: a constant.
    #[doc(alias = "GetAppDomainStaticAddress")]
    pub fn app_domain_static_address(&self, class: ClassId, field: FieldDef, app_domain: AppDomainId) -> Result<usize> {
        const CALL: &str = "GetAppDomainStaticAddress";
        let class = self.pin(class, CALL)?;
        let info = self.as_version::<sys::ICorProfilerInfo2>(CALL)?;
        let mut address = std::ptr::null_mut();
        // SAFETY: the class is pinned; the call writes one address and keeps nothing (fact: pinned, outputs).
        let code = unsafe {
            info.GetAppDomainStaticAddress(class.as_raw(), field.as_raw(), app_domain.as_raw(), &mut address)
        };
        Error::check(code, CALL).map_err(|error| self.explain_address(class.id(), error))?;
        Ok(address.addr())
    }

    /// The address of a thread-static field for `thread`; without `thread`, for the calling thread.
    #[doc = contract!(GetThreadStaticAddress2)]
    ///
    /// `E_INVALIDARG`: the field is of another kind, see [`static_field_info`](Self::static_field_info), or the thread
    /// has ended, as the main one does at the end of the process. `CORPROF_E_DATAINCOMPLETE`: the class is not
    /// initialized yet, or is generic, or the thread does not have the field yet. Up to .NET 8 a field of a generic
    /// class gets `E_INVALIDARG`. `CORPROF_E_UNSUPPORTED_CALL_SEQUENCE`: before .NET 10, of another thread than the
    /// calling one.
    #[doc(alias = "GetThreadStaticAddress2")]
    #[doc(alias = "GetThreadStaticAddress")]
    pub fn thread_static_address(
        &self,
        class: ClassId,
        field: FieldDef,
        app_domain: AppDomainId,
        thread: Option<ThreadId>,
    ) -> Result<usize> {
        const CALL: &str = "GetThreadStaticAddress2";
        let class = self.pin(class, CALL)?;
        let info = self.as_version::<sys::ICorProfilerInfo3>(CALL)?;
        if let Some(thread) = thread {
            self.refuse_other_thread(thread, CALL)?;
        }
        let thread = thread.map(|thread| self.pin(thread, CALL)).transpose()?;
        let thread = thread.as_ref().map_or(0, Pinned::as_raw);
        let mut address = std::ptr::null_mut();
        // SAFETY: the class and the thread are pinned, and the thread is this one or its fields have a lock (test: live
        // attacks::differs::fields_of_threads_are_found_while_they_use_more); the call writes one address and keeps
        // nothing (fact: pinned, outputs).
        let code = unsafe {
            info.GetThreadStaticAddress2(class.as_raw(), field.as_raw(), app_domain.as_raw(), thread, &mut address)
        };
        Error::check(code, CALL).map_err(|error| self.explain_address(class.id(), error))?;
        Ok(address.addr())
    }
}
