//! Static fields: which kind they are, and where their values lie.
//!
//! Addresses are numbers. What stands there may be read while the field is alive: not after its class or its thread is gone,
//! and for a field of a reference type not beyond the next collection.

use corprof_sys as sys;

use crate::alive::Held;
use crate::context::InCallback;
use crate::error::{Error, Result};
use crate::generated::contract::contract;
use crate::id::{AppDomainId, ClassId, ThreadId};
use crate::metadata::FieldDef;

impl InCallback<'_> {
    /// Which kind of static field `field` of `class` is; empty for one that is not static.
    #[doc = contract!(GetStaticFieldInfo)]
    #[doc(alias = "GetStaticFieldInfo")]
    pub fn static_field_info(&self, class: ClassId, field: FieldDef) -> Result<sys::COR_PRF_STATIC_TYPE> {
        const CALL: &str = "GetStaticFieldInfo";
        let class = self.hold(class, CALL)?;
        let info = self.as_version::<sys::ICorProfilerInfo3>(CALL)?;
        let mut kind = sys::COR_PRF_FIELD_NOT_A_STATIC;
        // SAFETY: the call writes one number and keeps nothing.
        let code = unsafe { info.GetStaticFieldInfo(class.as_raw(), field.as_raw(), &mut kind) };
        Error::check(code, CALL)?;
        Ok(kind)
    }

    /// The address of a static field whose value stands in the module's file.
    #[doc = contract!(GetRVAStaticAddress)]
    ///
    /// `E_INVALIDARG`: the field is of another kind, see [`static_field_info`](Self::static_field_info).
    /// `CORPROF_E_DATAINCOMPLETE`: the class is not initialized yet.
    #[doc(alias = "GetRVAStaticAddress")]
    pub fn rva_static_address(&self, class: ClassId, field: FieldDef) -> Result<usize> {
        const CALL: &str = "GetRVAStaticAddress";
        let class = self.hold(class, CALL)?;
        let info = self.as_version::<sys::ICorProfilerInfo2>(CALL)?;
        let mut address = std::ptr::null_mut();
        // SAFETY: the call writes one address and keeps nothing.
        let code = unsafe { info.GetRVAStaticAddress(class.as_raw(), field.as_raw(), &mut address) };
        Error::check(code, CALL)?;
        Ok(address.addr())
    }

    /// The address of an ordinary static field.
    #[doc = contract!(GetAppDomainStaticAddress)]
    ///
    /// `E_INVALIDARG`: the field is of another kind, see [`static_field_info`](Self::static_field_info).
    /// `CORPROF_E_DATAINCOMPLETE`: the class is not initialized yet. `CORPROF_E_LITERALS_HAVE_NO_ADDRESS`: a constant.
    #[doc(alias = "GetAppDomainStaticAddress")]
    pub fn app_domain_static_address(&self, class: ClassId, field: FieldDef, app_domain: AppDomainId) -> Result<usize> {
        const CALL: &str = "GetAppDomainStaticAddress";
        let class = self.hold(class, CALL)?;
        let info = self.as_version::<sys::ICorProfilerInfo2>(CALL)?;
        let mut address = std::ptr::null_mut();
        // SAFETY: the call writes one address and keeps nothing.
        let code = unsafe {
            info.GetAppDomainStaticAddress(class.as_raw(), field.as_raw(), app_domain.as_raw(), &mut address)
        };
        Error::check(code, CALL)?;
        Ok(address.addr())
    }

    /// The address of a static field that each thread has to itself; that of the calling thread without `thread`.
    #[doc = contract!(GetThreadStaticAddress2)]
    ///
    /// `E_INVALIDARG`: the field is of another kind, see [`static_field_info`](Self::static_field_info).
    /// `CORPROF_E_DATAINCOMPLETE`: the class is not initialized yet, or the thread has no such field yet.
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
        let class = self.hold(class, CALL)?;
        let info = self.as_version::<sys::ICorProfilerInfo3>(CALL)?;
        let thread = thread.map(|thread| self.hold(thread, CALL)).transpose()?;
        let thread = thread.as_ref().map_or(0, Held::as_raw);
        let mut address = std::ptr::null_mut();
        // SAFETY: the call writes one address and keeps nothing.
        let code = unsafe {
            info.GetThreadStaticAddress2(class.as_raw(), field.as_raw(), app_domain.as_raw(), thread, &mut address)
        };
        Error::check(code, CALL)?;
        Ok(address.addr())
    }
}
