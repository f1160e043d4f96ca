//! The module's own assembly, and the assemblies, modules and native functions that it refers to.

use corprof_sys as sys;
use windows_core::{HRESULT, Interface};

use super::import::MetadataImport;
use super::raw::{Blob, Loaded, found, tokens, wide};
use super::{Assembly, AssemblyRef, ExportedType, Module, ModuleRef, Token, TypeDef};
use crate::error::{E_NOINTERFACE, Error, Result};
use crate::ffi::buffer::read_utf16;

/// The identity of an assembly, in its own manifest or in a reference to it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AssemblyIdentity {
    /// Its simple name.
    pub name: String,
    /// Major, minor, build, revision.
    pub version: [u16; 4],
    /// The culture of a satellite assembly; empty for all others.
    pub culture: String,
    /// Its public key in its own manifest; in a reference usually the key's token of eight bytes. Empty if it has no
    /// key.
    pub public_key: Vec<u8>,
    /// Flags; one says whether `public_key` is the whole key.
    pub flags: sys::CorAssemblyFlags,
}

/// A type that the assembly exports but another module defines.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ExportedTypeProps {
    /// Its name with the namespace, without the enclosing types.
    pub name: String,
    /// Its location: the assembly that it was moved to, a file of this assembly, or the exported type that encloses it.
    pub implementation: Token,
    /// Its token in that file, only a hint; nil for a type in another assembly.
    pub definition: TypeDef,
    /// Visibility, and whether it was moved to another assembly.
    pub flags: sys::CorTypeAttr,
}

/// The native function behind a method.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PinvokeMap {
    /// Character set, calling convention, handling of errors.
    pub flags: sys::CorPinvokeMap,
    /// The function's name.
    pub name: String,
    /// The library's token.
    pub module: ModuleRef,
}

impl MetadataImport<'_> {
    /// The other modules that the module refers to, including native libraries.
    ///
    /// # Errors
    /// The runtime's error about broken metadata (`CLDB_E_…`).
    #[doc(alias = "EnumModuleRefs")]
    pub fn module_refs(&self) -> Result<Vec<ModuleRef>> {
        let raw = self.raw()?;
        self.tokens("EnumModuleRefs", ModuleRef::from_raw, |handle, start, room, count| {
            // SAFETY: as `tokens` asks; the call keeps nothing but its own handle.
            unsafe { raw.EnumModuleRefs(handle, start, room, count) }
        })
    }

    /// The name of a module that the module refers to.
    ///
    /// # Errors
    /// `CLDB_E_…` or `E_INVALIDARG` for a token that this module does not have.
    #[doc(alias = "GetModuleRefProps")]
    pub fn module_ref(&self, reference: ModuleRef) -> Result<String> {
        let raw = self.raw()?;
        read_utf16("GetModuleRefProps", |start, room, count| {
            // SAFETY: the call writes the count and at most `room` units of text, and keeps nothing (fact: outputs).
            unsafe { raw.GetModuleRefProps(reference.as_raw(), start, room, count) }
        })
    }

    /// The token of the module itself.
    ///
    /// # Errors
    /// The runtime's error about broken metadata (`CLDB_E_…`).
    #[doc(alias = "GetModuleFromScope")]
    pub fn module(&self) -> Result<Module> {
        let raw = self.raw()?;
        let mut token = 0;
        // SAFETY: the call writes the local and keeps nothing (fact: outputs).
        let code = unsafe { raw.GetModuleFromScope(&mut token) };
        Error::check(code, "GetModuleFromScope")?;
        Ok(Module::from_raw(token))
    }

    /// The native function behind a method; none for other methods.
    ///
    /// # Errors
    /// `CLDB_E_…` or `E_INVALIDARG` for a token that this module does not have.
    #[doc(alias = "GetPinvokeMap")]
    pub fn pinvoke_map(&self, method: impl Into<Token>) -> Result<Option<PinvokeMap>> {
        let raw = self.raw()?;
        let method = method.into().as_raw();
        let mut flags = 0;
        let mut module = 0;
        let name = read_utf16("GetPinvokeMap", |start, room, count| {
            // SAFETY: the call writes the locals, the count, and at most `room` units of text, and keeps nothing
            // (fact: outputs).
            unsafe { raw.GetPinvokeMap(method, &mut flags, start, room, count, &mut module) }
        });
        match name {
            Ok(name) => {
                let flags = sys::CorPinvokeMap::from_bits_retain(flags);
                Ok(Some(PinvokeMap { flags, name, module: ModuleRef::from_raw(module) }))
            }
            Err(error) => found(error.code(), error.call(), None).map(Option::flatten),
        }
    }

    /// The assembly, if this module has its manifest.
    ///
    /// # Errors
    /// The runtime's error about broken metadata (`CLDB_E_…`).
    #[doc(alias = "GetAssemblyFromScope")]
    pub fn assembly(&self) -> Result<Option<Assembly>> {
        let mut token = 0;
        // SAFETY: the call writes the local and keeps nothing (fact: outputs).
        let code = unsafe { self.assembly_import()?.0.GetAssemblyFromScope(&mut token) };
        found(code, "GetAssemblyFromScope", Assembly::from_raw(token))
    }

    /// The identity of an assembly in its own manifest.
    ///
    /// # Errors
    /// `CLDB_E_…` or `E_INVALIDARG` for a token that this module does not have.
    #[doc(alias = "GetAssemblyProps")]
    pub fn assembly_identity(&self, assembly: Assembly) -> Result<AssemblyIdentity> {
        let (import, _loaded) = self.assembly_import()?;
        identity("GetAssemblyProps", |start, room, count, data, key, size, flags| {
            let mut hash = 0;
            // SAFETY: the call writes the local, the outputs of `identity`, and at most `room` units of text; it keeps
            // nothing (fact: outputs).
            unsafe { import.GetAssemblyProps(assembly.as_raw(), key, size, &mut hash, start, room, count, data, flags) }
        })
    }

    /// The assemblies that the module refers to.
    ///
    /// # Errors
    /// The runtime's error about broken metadata (`CLDB_E_…`).
    #[doc(alias = "EnumAssemblyRefs")]
    pub fn assembly_refs(&self) -> Result<Vec<AssemblyRef>> {
        let (import, _loaded) = self.assembly_import()?;
        tokens(
            "EnumAssemblyRefs",
            AssemblyRef::from_raw,
            |handle, start, room, count| {
                // SAFETY: as `tokens` asks; the call keeps nothing but its own handle.
                unsafe { import.EnumAssemblyRefs(handle, start, room, count) }
            },
            // SAFETY: the handle comes from an enumeration of this very object, and has no other user.
            |handle| unsafe { import.CloseEnum(handle) },
        )
    }

    /// The identity of an assembly that the module refers to.
    ///
    /// # Errors
    /// `CLDB_E_…` or `E_INVALIDARG` for a token that this module does not have.
    #[doc(alias = "GetAssemblyRefProps")]
    pub fn assembly_ref(&self, reference: AssemblyRef) -> Result<AssemblyIdentity> {
        let (import, _loaded) = self.assembly_import()?;
        identity("GetAssemblyRefProps", |start, room, count, data, key, size, flags| {
            let reference = reference.as_raw();
            let mut hash = std::ptr::null();
            let mut hash_size = 0;
            // SAFETY: the call writes the locals, the outputs of `identity`, and at most `room` units of text; it keeps
            // nothing (fact: outputs).
            unsafe {
                import.GetAssemblyRefProps(
                    reference,
                    key,
                    size,
                    start,
                    room,
                    count,
                    data,
                    &mut hash,
                    &mut hash_size,
                    flags,
                )
            }
        })
    }

    /// The types that the assembly exports but other modules define: mostly types that were moved to another assembly.
    ///
    /// # Errors
    /// The runtime's error about broken metadata (`CLDB_E_…`).
    #[doc(alias = "EnumExportedTypes")]
    pub fn exported_types(&self) -> Result<Vec<ExportedType>> {
        let (import, _loaded) = self.assembly_import()?;
        tokens(
            "EnumExportedTypes",
            ExportedType::from_raw,
            |handle, start, room, count| {
                // SAFETY: as `tokens` asks; the call keeps nothing but its own handle.
                unsafe { import.EnumExportedTypes(handle, start, room, count) }
            },
            // SAFETY: the handle comes from an enumeration of this very object, and has no other user.
            |handle| unsafe { import.CloseEnum(handle) },
        )
    }

    /// The exported type with this name, which includes the namespace but not `enclosing`; none if it does not exist.
    ///
    /// # Errors
    /// The runtime's error about broken metadata (`CLDB_E_…`); `E_INVALIDARG` for a name that contains a NUL or is too
    /// long.
    #[doc(alias = "FindExportedTypeByName")]
    pub fn find_exported_type(&self, name: &str, enclosing: Option<ExportedType>) -> Result<Option<ExportedType>> {
        const CALL: &str = "FindExportedTypeByName";
        let name = wide(CALL, name)?;
        let enclosing = enclosing.map_or(0, ExportedType::as_raw);
        let mut token = 0;
        // SAFETY: the name ends with a NUL; the call writes the local and keeps nothing (fact: inputs, outputs).
        let code = unsafe { self.assembly_import()?.0.FindExportedTypeByName(name.as_ptr(), enclosing, &mut token) };
        found(code, CALL, ExportedType::from_raw(token))
    }

    /// The name and location of an exported type.
    ///
    /// # Errors
    /// `CLDB_E_…` or `E_INVALIDARG` for a token that this module does not have.
    #[doc(alias = "GetExportedTypeProps")]
    pub fn exported_type(&self, exported: ExportedType) -> Result<ExportedTypeProps> {
        let (import, _loaded) = self.assembly_import()?;
        let mut implementation = 0;
        let mut definition = 0;
        let mut flags = 0;
        let name = read_utf16("GetExportedTypeProps", |start, room, count| {
            let exported = exported.as_raw();
            // SAFETY: the call writes the locals, the count, and at most `room` units of text, and keeps nothing
            // (fact: outputs).
            unsafe {
                import.GetExportedTypeProps(
                    exported,
                    start,
                    room,
                    count,
                    &mut implementation,
                    &mut definition,
                    &mut flags,
                )
            }
        })?;
        Ok(ExportedTypeProps {
            name,
            implementation: Token::from_raw(implementation),
            definition: TypeDef::from_raw(definition),
            flags: sys::CorTypeAttr::from_bits_retain(flags),
        })
    }

    fn assembly_import(&self) -> Result<(sys::IMetaDataAssemblyImport, Loaded<'_, sys::IMetaDataImport2>)> {
        let loaded = self.raw()?;
        let import = loaded.cast().map_err(|_| Error::new(E_NOINTERFACE, "IMetaDataAssemblyImport"))?;
        Ok((import, loaded))
    }
}

/// The numbers and pointers of an assembly's identity, all empty.
pub(super) const NO_DATA: sys::ASSEMBLYMETADATA = sys::ASSEMBLYMETADATA {
    usMajorVersion: 0,
    usMinorVersion: 0,
    usBuildNumber: 0,
    usRevisionNumber: 0,
    szLocale: std::ptr::null_mut(),
    cbLocale: 0,
    rProcessor: std::ptr::null_mut(),
    ulProcessor: 0,
    rOS: std::ptr::null_mut(),
    ulOS: 0,
};

/// Reads an identity by a call that takes (name, room, out count, out data, out key, out size of the key, out flags).
fn identity(
    call: &'static str,
    ask: impl Fn(
        *mut u16,
        u32,
        *mut u32,
        *mut sys::ASSEMBLYMETADATA,
        *mut *const std::ffi::c_void,
        *mut u32,
        *mut u32,
    ) -> HRESULT,
) -> Result<AssemblyIdentity> {
    let mut data = NO_DATA;
    let mut key = std::ptr::null();
    let mut size = 0;
    let mut flags = 0;
    let name = read_utf16(call, |start, room, count| {
        data = NO_DATA;
        ask(start, room, count, &mut data, &mut key, &mut size, &mut flags)
    })?;
    // The culture has a buffer of its own inside the structure, and so needs a separate read.
    let culture = read_utf16(call, |start, room, count| {
        data = sys::ASSEMBLYMETADATA { szLocale: start, cbLocale: room, ..NO_DATA };
        let mut unused = 0;
        let code = ask(std::ptr::null_mut(), 0, &mut unused, &mut data, &mut key, &mut size, &mut flags);
        // SAFETY: `read_utf16` passes its local.
        unsafe { *count = data.cbLocale };
        code
    })?;
    let blob = Blob { start: key.cast(), size };
    Ok(AssemblyIdentity {
        name,
        version: [data.usMajorVersion, data.usMinorVersion, data.usBuildNumber, data.usRevisionNumber],
        culture,
        // SAFETY: the successful call above has filled it in, and the module is still loaded.
        public_key: unsafe { blob.copy() },
        flags: sys::CorAssemblyFlags::from_bits_retain(flags),
    })
}
