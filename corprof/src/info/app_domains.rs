//! Application domains. CoreCLR has two: one for its core library, and one for everything else.

use corprof_sys as sys;

use crate::context::InCallback;
use crate::error::Result;
use crate::ffi::buffer::{read_list_from, read_utf16};
use crate::generated::contract::contract;
use crate::id::{AppDomainId, ModuleId};

/// The name and process of an application domain.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct AppDomainInfo {
    /// Its name; `DefaultDomain` for the domain of a CoreCLR application.
    pub name: String,
    /// The process that it is in.
    pub process_id: usize,
}

impl InCallback<'_> {
    /// The name and process of `app_domain`.
    #[doc = contract!(GetAppDomainInfo)]
    ///
    /// `CORPROF_E_DATAINCOMPLETE`: before `app_domain_creation_finished`.
    #[doc(alias = "GetAppDomainInfo")]
    pub fn app_domain_info(&mut self, app_domain: AppDomainId) -> Result<AppDomainInfo> {
        const CALL: &str = "GetAppDomainInfo";
        let info = self.first_version(CALL)?;
        let mut process_id = 0;
        let name = read_utf16(CALL, |start, room, count| {
            // SAFETY: the one domain of CoreCLR ends with the process (test: live
            // catch_up::all_that_was_there_and_all_that_comes_is_reported_once); the call writes the process id, the
            // count, and at most `room` units of text (fact: outputs).
            unsafe { info.GetAppDomainInfo(app_domain.as_raw(), room, count, start, &mut process_id) }
        })?;
        Ok(AppDomainInfo { name, process_id })
    }

    /// The application domains that have loaded `module`.
    #[doc = contract!(GetAppDomainsContainingModule)]
    ///
    /// `CORPROF_E_DATAINCOMPLETE`: before `module_load_finished`. `E_INVALIDARG`: the module has been unloaded.
    #[doc(alias = "GetAppDomainsContainingModule")]
    pub fn app_domains_containing_module(&mut self, module: ModuleId) -> Result<Vec<AppDomainId>> {
        const CALL: &str = "GetAppDomainsContainingModule";
        let module = self.pin(module, CALL)?;
        let info = self.as_version::<sys::ICorProfilerInfo3>(CALL)?;
        let app_domains = read_list_from(CALL, 1, |room, count, start| {
            // SAFETY: the module is pinned; the call writes the count and at most `room` ids (fact: pinned, outputs).
            unsafe { info.GetAppDomainsContainingModule(module.as_raw(), room, count, start) }
        })?;
        Ok(app_domains.into_iter().filter_map(AppDomainId::from_raw).collect())
    }
}
