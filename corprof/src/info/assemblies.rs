//! Assemblies.

use crate::context::InNoGc;
use crate::error::Result;
use crate::ffi::buffer::read_utf16;
use crate::generated::contract::contract;
use crate::id::{AppDomainId, AssemblyId, ModuleId};

/// The name of an assembly, its application domain and its module.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct AssemblyInfo {
    /// Its simple name, without version and culture.
    pub name: String,
    /// The application domain that it was loaded into.
    pub app_domain: Option<AppDomainId>,
    /// The module with its manifest.
    pub module: Option<ModuleId>,
}

impl InNoGc<'_> {
    /// The name of `assembly`, its application domain and its module.
    #[doc = contract!(GetAssemblyInfo)]
    ///
    /// `CORPROF_E_DATAINCOMPLETE`: before `assembly_load_finished`.
    #[doc(alias = "GetAssemblyInfo")]
    pub fn assembly_info(&self, assembly: AssemblyId) -> Result<AssemblyInfo> {
        const CALL: &str = "GetAssemblyInfo";
        let assembly = self.pin(assembly, CALL)?;
        let info = self.first_version(CALL)?;
        let mut app_domain = 0;
        let mut module = 0;
        let name = read_utf16(CALL, |start, room, count| {
            // SAFETY: the assembly is pinned; the call writes the two locals, the count, and at most `room` units of
            // text (fact: pinned, outputs).
            unsafe { info.GetAssemblyInfo(assembly.as_raw(), room, count, start, &mut app_domain, &mut module) }
        })?;
        Ok(AssemblyInfo { name, app_domain: AppDomainId::from_raw(app_domain), module: ModuleId::from_raw(module) })
    }
}

impl InNoGc<'_> {
    /// A module is attached to its assembly: `module_attached_to_assembly` is under way.
    pub(crate) fn note_assembly(&self, module: usize) {
        if !self.loaded_assemblies().is_any_relied_on() {
            return;
        }
        let assembly = ModuleId::from_raw(module).and_then(|module| self.runtime().ask_module(module).ok()?.0);
        let name = assembly.and_then(|assembly| self.assembly_info(assembly).ok()).map(|info| info.name);
        self.loaded_assemblies().loaded(name.as_deref(), module);
    }
}
