//! Modules, and access to their metadata.

use corprof_sys as sys;
use windows_core::{IUnknown, Interface};

use crate::context::{InCallback, InNoGc};
use crate::error::{E_INVALIDARG, E_NOINTERFACE, E_NOTIMPL, Error, Result};
use crate::ffi::buffer::read_utf16;
use crate::ffi::enumerate::read_all;
use crate::generated::contract::contract;
use crate::id::{AssemblyId, ModuleId};
use crate::info::Info;
use crate::info::manifest;
use crate::metadata::{MetadataEmit, MetadataImport};
use crate::session::liveness::Lifeline;

/// The file and address of a module.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ModuleInfo {
    /// Its address in memory; 0 for a module that was never mapped, such as a dynamic one.
    pub base: usize,
    /// Its file, or the name of an in-memory module.
    pub path: String,
    /// Its assembly; none before `module_attached_to_assembly`.
    pub assembly: Option<AssemblyId>,
    /// On disk, dynamic, collectible and so on.
    pub flags: sys::COR_PRF_MODULE_FLAGS,
}

impl Info {
    /// The file and address of `module`.
    #[doc = contract!(GetModuleInfo2)]
    ///
    /// `CORPROF_E_DATAINCOMPLETE`: before `module_load_finished`.
    #[doc(alias = "GetModuleInfo2")]
    #[doc(alias = "GetModuleInfo")]
    pub fn module_info(&self, module: ModuleId) -> Result<ModuleInfo> {
        const CALL: &str = "GetModuleInfo2";
        let module = self.pin(module, CALL)?;
        let info = self.as_version::<sys::ICorProfilerInfo3>(CALL)?;
        let mut base = std::ptr::null();
        let mut assembly = 0;
        let mut flags = 0;
        let path = read_utf16(CALL, |start, room, count| {
            // SAFETY: the module is pinned; the call writes the three locals, the count, and at most `room` units of
            // text (fact: pinned, outputs).
            unsafe { info.GetModuleInfo2(module.as_raw(), &mut base, room, count, start, &mut assembly, &mut flags) }
        })?;
        Ok(ModuleInfo {
            base: base.addr(),
            path,
            assembly: AssemblyId::from_raw(assembly),
            flags: sys::COR_PRF_MODULE_FLAGS::from_bits_retain(flags),
        })
    }
}

impl InNoGc<'_> {
    /// Reads the metadata of `module`.
    ///
    /// The first call for a module makes the runtime convert its metadata to a growable form, for good, even if nobody
    /// adds to it. The runtime's own look-ups are slower in that form: a service that compiled all its code then needed
    /// 7 % more processor time until its first answer. [Names](crate::names) are read from metadata as well.
    #[doc = contract!(GetModuleMetaData)]
    ///
    /// `CORPROF_E_DATAINCOMPLETE`: before `module_load_finished`.
    #[doc(alias = "GetModuleMetaData")]
    pub fn metadata(&self, module: ModuleId) -> Result<MetadataImport<'_>> {
        self.kept_metadata(module)
    }

    /// Adds to the metadata of `module`: rows that rewritten code will refer to.
    ///
    /// The contract is that of [`metadata`](Self::metadata): **sync**, allowed after attach, never starts a GC.
    ///
    /// # Errors
    /// As [`metadata`](Self::metadata). `CORPROF_E_MODULE_IS_ENC`: the application may change the module by hot reload
    /// (`dotnet watch` sets `DOTNET_MODIFIABLE_ASSEMBLIES` to `debug`, and the module is of a debug build). Added rows
    /// would have the numbers of those that such a change brings, and the application would read the one for the other.
    #[doc(alias = "GetModuleMetaData")]
    pub fn metadata_emit(&self, module: ModuleId) -> Result<MetadataEmit<'_>> {
        const RULE: &str = "the application may change it by hot reload, which added metadata and replaced bodies would \
                            break: start it without DOTNET_MODIFIABLE_ASSEMBLIES (`dotnet watch` sets it), or use a \
                            release build";
        let (metadata, lifeline) = self.metadata_interface(module, sys::ofRead | sys::ofWrite)?;
        let emit = MetadataEmit::new(metadata, lifeline);
        if self.may_be_changed(&emit.import()?)? {
            let error = Error::new(sys::CORPROF_E_MODULE_IS_ENC, "metadata_emit");
            return Err(error.about("the module", RULE));
        }
        Ok(emit)
    }

    /// The metadata of `module`, for a cache that releases it with the module.
    pub(crate) fn kept_metadata(&self, module: ModuleId) -> Result<MetadataImport<'static>> {
        let (metadata, lifeline) = self.metadata_interface(module, sys::ofRead)?;
        Ok(MetadataImport::new(metadata, lifeline))
    }

    fn metadata_interface<I: Interface>(&self, module: ModuleId, access: sys::CorOpenFlags) -> Result<(I, Lifeline)> {
        const CALL: &str = "GetModuleMetaData";
        let module = self.pin(module, CALL)?;
        let mut metadata: Option<IUnknown> = None;
        // SAFETY: the module is pinned; the call writes one reference to the requested interface, and every interface
        // is an `IUnknown` (fact: pinned, outputs).
        let code = unsafe {
            self.first_version(CALL)?.GetModuleMetaData(module.as_raw(), access.bits(), &I::IID, &mut metadata)
        };
        Error::check(code, CALL)?;
        // S_FALSE: the module has no metadata; a resource, for example.
        let metadata = metadata.ok_or(Error::new(E_INVALIDARG, CALL))?;
        let metadata = metadata.cast().map_err(|_| Error::new(E_NOINTERFACE, CALL))?;
        Ok((metadata, Lifeline::of(self.liveness(), &module)))
    }
}

impl InCallback<'_> {
    /// The loaded modules.
    #[doc = contract!(EnumModules)]
    ///
    /// `CORPROF_E_UNSUPPORTED_CALL_SEQUENCE`: also after an attach to an application that has assemblies which can be
    /// unloaded, until [`profiler_attach_complete`](crate::Callbacks::profiler_attach_complete) is called: an unload
    /// may be under way that the runtime does not announce. `InAttach::catch_up` reports the modules.
    #[doc(alias = "EnumModules")]
    pub fn enum_modules(&mut self) -> Result<Vec<ModuleId>> {
        let modules = self.list_modules()?;
        // Something that can be unloaded may have been loaded meanwhile.
        self.liveness().refuse_after_attach(self.runtime(), "EnumModules")?;
        self.note_modules(modules)
    }

    /// The modules that the runtime lists. They may be gone when this returns.
    pub(crate) fn list_modules(&mut self) -> Result<Vec<ModuleId>> {
        const CALL: &str = "EnumModules";
        let info = self.as_version::<sys::ICorProfilerInfo3>(CALL)?;
        // SAFETY: the call writes one interface pointer, whose reference the caller owns (fact: outputs).
        read_all(CALL, |modules| unsafe { info.EnumModules(modules) }, ModuleId::from_raw)
    }

    /// Records listed modules. Call it where the runtime announces each unload.
    pub(crate) fn note_modules(&mut self, modules: Vec<ModuleId>) -> Result<Vec<ModuleId>> {
        self.liveness().modules_listed(self.runtime(), &modules);
        Ok(modules)
    }

    /// Makes the runtime use definitions and references to assemblies that were added to the metadata of `module`.
    ///
    /// Other rows need no such call: types, members, signatures and strings that a body refers to are looked up when it
    /// is compiled.
    #[doc = contract!(ApplyMetaData)]
    ///
    /// `CORPROF_E_DATAINCOMPLETE`: before `module_load_finished`. `E_INVALIDARG`: the module is collectible or dynamic,
    /// or has been unloaded. `E_NOTIMPL`: precompiled code of the module names assemblies by a manifest of its own, as
    /// that of .NET 11 does wherever it awaits; after the runtime's call it would mean others, and the application
    /// would end.
    #[doc(alias = "ApplyMetaData")]
    pub fn apply_meta_data(&mut self, module: ModuleId) -> Result<()> {
        const CALL: &str = "ApplyMetaData";
        let info = self.module_info(module)?;
        if !info.flags.contains(sys::COR_PRF_MODULE_FLAT_LAYOUT) && manifest::has_references(info.base) {
            return Err(Error::new(E_NOTIMPL, CALL).about(
                "module",
                "its precompiled code names assemblies by a manifest of its own, and would mean others after this call: add no \
                 definitions and no references to assemblies",
            ));
        }
        let module = self.pin(module, CALL)?;
        let begun = self.defined_rows().begun(module.as_raw());
        // SAFETY: the module is pinned; the call takes an id (fact: pinned).
        let code = unsafe { self.as_version::<sys::ICorProfilerInfo7>(CALL)?.ApplyMetaData(module.as_raw()) };
        Error::check(code, CALL)?;
        self.defined_rows().applied(module.as_raw(), begun);
        Ok(())
    }
}
