//! [`MetadataEmit`]: adds rows to the metadata of a module, for rewritten code to refer to.

use std::fmt;
use std::marker::PhantomData;

use corprof_sys as sys;
use windows_core::{HRESULT, Interface};

use super::raw::{Loaded, Metadata, length, wide};
use super::references::NO_DATA;
use super::signature_checks;
use super::{
    AssemblyIdentity, AssemblyRef, CustomAttribute, FieldDef, MemberRef, MetadataImport, MethodDef, MethodSpec,
    ModuleRef, ParamDef, StandAloneSignature, Token, TypeDef, TypeDefOrRef, TypeRef, TypeSpec, UserString,
};
use crate::error::{E_INVALIDARG, E_NOINTERFACE, Error, Result};
use crate::session::liveness::Lifeline;

/// Adds to the metadata of one module.
///
/// Get it from [`InNoGc::metadata_emit`](crate::context::InNoGc::metadata_emit). Rows are added and never removed.
/// Names and signatures are copied. That they name what exists is not checked: such errors appear when code that refers
/// to them is compiled. The runtime's own reader and [`import`](Self::import) see a new row at once; types that the
/// runtime has already loaded do not change.
///
/// # The effect on existing code
///
/// References, specs, signatures and strings have no effect until code refers to them, and the author of that code is
/// responsible for it ([`set_il_function_body`](crate::InCallback::set_il_function_body) is `unsafe`). The application
/// can see them only by `Assembly.GetReferencedAssemblies`, which lists a new assembly reference; a reference that
/// cannot be resolved breaks an application that loads all of them.
///
/// **Definitions** are different, so the methods that add them are `unsafe`. The runtime reads them when it next loads
/// the type that they belong to, or when the application uses reflection:
///
/// - a field changes the layout of its class. Precompiled code of the same module still uses the old offsets, native
///   code that receives the class still reads the old layout, and the runtime itself has copies in C++ of the layouts
///   of many classes in System.Private.CoreLib: all of these read and write the wrong memory;
/// - a virtual method changes the method table of its class, and may override or implement a method in place of
///   another. An abstract method, or one without a body, makes the class fail with a `TypeLoadException` wherever the
///   application uses it;
/// - the runtime acts on some attributes: `InlineArray`, `ThreadStatic`, `UnmanagedCallersOnly`;
/// - `Assembly.GetTypes` finds a new type, and fails as a whole with a `ReflectionTypeLoadException` if the type cannot
///   be loaded: because it extends a sealed class, names a missing base, or has the name of another type;
/// - a map lets managed code call any native function with any arguments.
///
/// A type that is already loaded does not change: then the metadata and the loaded type differ.
///
/// Add rows in `module_load_finished`, before the runtime uses the module. Rows added later need a call of
/// `ApplyMetaData` (`ICorProfilerInfo7`) before any code refers to them; that works for references, specs and strings,
/// for types, and for methods that are not virtual.
///
/// ```
/// # use corprof::prelude::*;
/// # use corprof::metadata::{MemberRef, UserString};
/// /// Defines the rows for a call of `Console.WriteLine("here")`.
/// fn prepare(cx: &InNoGc<'_>, module: ModuleId) -> Result<Option<(UserString, MemberRef)>> {
///     let emit = cx.metadata_emit(module)?;
///     for reference in emit.import()?.assembly_refs()? {
///         if emit.import()?.assembly_ref(reference)?.name == "mscorlib" {
///             let console = emit.define_type_ref(reference, "System.Console")?;
///             let write_line = emit.define_member_ref(console, "WriteLine", &[0x00, 0x01, 0x01, 0x0e])?;
///             return Ok(Some((emit.define_user_string("here")?, write_line)));
///         }
///     }
///     Ok(None)
/// }
/// ```
///
/// # Errors
/// Of all methods: `E_INVALIDARG` for a name that has a NUL inside or more than 4,095 UTF-16 units, or a blob of more
/// than 4 GiB or one that is not a signature or contains a type handle (`Type::Internal`), `CLDB_E_…` for a token that
/// the module does not have or that may not stand in this place, `E_OUTOFMEMORY`.
pub struct MetadataEmit<'cb> {
    metadata: Metadata<sys::IMetaDataEmit2>,
    _cb: PhantomData<&'cb ()>,
}

impl<'cb> MetadataEmit<'cb> {
    pub(crate) fn new(raw: sys::IMetaDataEmit2, module: Lifeline) -> Self {
        Self { metadata: Metadata { raw, module }, _cb: PhantomData }
    }

    /// The runtime's interface itself, for calls that have no safe form yet.
    ///
    /// # Safety
    /// Do not keep a copy: it reads the memory of the module.
    pub unsafe fn as_raw(&self) -> &sys::IMetaDataEmit2 {
        &self.metadata.raw
    }

    /// Reads the same metadata, including the added rows.
    ///
    /// # Errors
    /// `E_NOINTERFACE` if the runtime does not allow reading; all known runtimes do.
    pub fn import(&self) -> Result<MetadataImport<'cb>> {
        let raw = self.raw()?.cast().map_err(|_| Error::new(E_NOINTERFACE, "IMetaDataImport2"))?;
        Ok(MetadataImport::new(raw, self.metadata.module.clone()))
    }

    fn raw(&self) -> Result<Loaded<'_, sys::IMetaDataEmit2>> {
        self.metadata.loaded()
    }

    /// A literal string, for `ldstr`.
    ///
    /// # Errors
    /// See [`MetadataEmit`]; also if the module's strings take more than 16 MiB.
    #[doc(alias = "DefineUserString")]
    pub fn define_user_string(&self, text: &str) -> Result<UserString> {
        let raw = self.raw()?;
        const CALL: &str = "DefineUserString";
        let units: Vec<u16> = text.encode_utf16().collect();
        let count = length(CALL, &units)?;
        define(CALL, UserString::from_raw, |token| {
            // SAFETY: the call reads `count` units, writes the token and keeps neither (fact: inputs, outputs).
            unsafe { raw.DefineUserString(units.as_ptr(), count, token) }
        })
    }

    /// A stand-alone signature: of a method's local variables, or for `calli`.
    ///
    /// # Errors
    /// See [`MetadataEmit`].
    #[doc(alias = "GetTokenFromSig")]
    pub fn define_signature(&self, signature: &[u8]) -> Result<StandAloneSignature> {
        const CALL: &str = "GetTokenFromSig";
        signature_checks::check_any(CALL, signature)?;
        let raw = self.raw()?;
        let size = length(CALL, signature)?;
        define(CALL, StandAloneSignature::from_raw, |token| {
            // SAFETY: the call reads `size` bytes, writes the token and keeps neither (fact: inputs, outputs).
            unsafe { raw.GetTokenFromSig(signature.as_ptr(), size, token) }
        })
    }

    /// A type that only a signature can spell: an instantiation, an array, a generic parameter.
    ///
    /// # Errors
    /// See [`MetadataEmit`].
    #[doc(alias = "GetTokenFromTypeSpec")]
    pub fn define_type_spec(&self, signature: &[u8]) -> Result<TypeSpec> {
        const CALL: &str = "GetTokenFromTypeSpec";
        signature_checks::check_type(CALL, signature)?;
        let raw = self.raw()?;
        let size = length(CALL, signature)?;
        define(CALL, TypeSpec::from_raw, |token| {
            // SAFETY: the call reads `size` bytes, writes the token and keeps neither (fact: inputs, outputs).
            unsafe { raw.GetTokenFromTypeSpec(signature.as_ptr(), size, token) }
        })
    }

    /// A reference to a type by its name with the namespace. `scope` says where the type is: an assembly or module
    /// reference, or the reference to its enclosing type.
    ///
    /// # Errors
    /// See [`MetadataEmit`].
    #[doc(alias = "DefineTypeRefByName")]
    pub fn define_type_ref(&self, scope: impl Into<Token>, name: &str) -> Result<TypeRef> {
        let raw = self.raw()?;
        const CALL: &str = "DefineTypeRefByName";
        let scope = scope.into().as_raw();
        let name = wide(CALL, name)?;
        define(CALL, TypeRef::from_raw, |token| {
            // SAFETY: the name ends with a NUL; the call writes the token and keeps neither (fact: inputs, outputs).
            unsafe { raw.DefineTypeRefByName(scope, name.as_ptr(), token) }
        })
    }

    /// A reference to a method or field of `parent`: a type reference, definition or spec, or a module reference.
    ///
    /// # Errors
    /// See [`MetadataEmit`].
    #[doc(alias = "DefineMemberRef")]
    pub fn define_member_ref(&self, parent: impl Into<Token>, name: &str, signature: &[u8]) -> Result<MemberRef> {
        const CALL: &str = "DefineMemberRef";
        signature_checks::check_any(CALL, signature)?;
        let raw = self.raw()?;
        let parent = parent.into().as_raw();
        let name = wide(CALL, name)?;
        let size = length(CALL, signature)?;
        define(CALL, MemberRef::from_raw, |token| {
            // SAFETY: the name ends with a NUL; the call reads `size` bytes, writes the token and keeps none of them
            // (fact: inputs, outputs).
            unsafe { raw.DefineMemberRef(parent, name.as_ptr(), signature.as_ptr(), size, token) }
        })
    }

    /// A generic method with type arguments; `parent` is its definition or a reference to it.
    ///
    /// # Errors
    /// See [`MetadataEmit`].
    #[doc(alias = "DefineMethodSpec")]
    pub fn define_method_spec(&self, parent: impl Into<Token>, signature: &[u8]) -> Result<MethodSpec> {
        const CALL: &str = "DefineMethodSpec";
        signature_checks::check_method_spec(CALL, signature)?;
        let raw = self.raw()?;
        let parent = parent.into().as_raw();
        let size = length(CALL, signature)?;
        define(CALL, MethodSpec::from_raw, |token| {
            // SAFETY: the call reads `size` bytes, writes the token and keeps neither (fact: inputs, outputs).
            unsafe { raw.DefineMethodSpec(parent, signature.as_ptr(), size, token) }
        })
    }

    /// A reference to another assembly. The call does not search for an existing one.
    ///
    /// # Errors
    /// See [`MetadataEmit`].
    #[doc(alias = "DefineAssemblyRef")]
    pub fn define_assembly_ref(&self, assembly: &AssemblyIdentity) -> Result<AssemblyRef> {
        let raw = self.raw()?;
        const CALL: &str = "DefineAssemblyRef";
        let emit: sys::IMetaDataAssemblyEmit =
            raw.cast().map_err(|_| Error::new(E_NOINTERFACE, "IMetaDataAssemblyEmit"))?;
        let name = wide(CALL, &assembly.name)?;
        let mut culture = wide(CALL, &assembly.culture)?;
        let key = &assembly.public_key;
        let key_size = length(CALL, key)?;
        let key_start = if key.is_empty() { std::ptr::null() } else { key.as_ptr() };
        let [major, minor, build, revision] = assembly.version;
        let data = sys::ASSEMBLYMETADATA {
            usMajorVersion: major,
            usMinorVersion: minor,
            usBuildNumber: build,
            usRevisionNumber: revision,
            szLocale: if assembly.culture.is_empty() { std::ptr::null_mut() } else { culture.as_mut_ptr() },
            cbLocale: if assembly.culture.is_empty() { 0 } else { length(CALL, &culture)? },
            ..NO_DATA
        };
        define(CALL, AssemblyRef::from_raw, |token| {
            // SAFETY: name and culture end with a NUL, the key has `key_size` bytes and the hash none; the call reads
            // them, writes the token and keeps nothing (fact: inputs, outputs).
            unsafe {
                emit.DefineAssemblyRef(
                    key_start.cast(),
                    key_size,
                    name.as_ptr(),
                    &data,
                    std::ptr::null(),
                    0,
                    assembly.flags.bits(),
                    token,
                )
            }
        })
    }

    /// A reference to another module, or to a native library.
    ///
    /// # Errors
    /// See [`MetadataEmit`].
    #[doc(alias = "DefineModuleRef")]
    pub fn define_module_ref(&self, name: &str) -> Result<ModuleRef> {
        let raw = self.raw()?;
        const CALL: &str = "DefineModuleRef";
        let name = wide(CALL, name)?;
        define(CALL, ModuleRef::from_raw, |token| {
            // SAFETY: the name ends with a NUL; the call writes the token and keeps neither (fact: inputs, outputs).
            unsafe { raw.DefineModuleRef(name.as_ptr(), token) }
        })
    }

    /// Defines a type of the module. The name includes the namespace, except for a nested type, which has an enclosing
    /// type.
    ///
    /// # Safety
    /// No other type of the module has this name, the runtime can load the type as described, and only code that this
    /// profiler writes uses it. See [`MetadataEmit`] for the consequences otherwise.
    ///
    /// # Errors
    /// See [`MetadataEmit`].
    #[doc(alias = "DefineTypeDef")]
    #[doc(alias = "DefineNestedType")]
    pub unsafe fn define_type(
        &self,
        name: &str,
        flags: sys::CorTypeAttr,
        extends: Option<TypeDefOrRef>,
        interfaces: &[TypeDefOrRef],
        enclosing: Option<TypeDef>,
    ) -> Result<TypeDef> {
        let raw = self.raw()?;
        const CALL: &str = "DefineTypeDef";
        let name = wide(CALL, name)?;
        let extends = extends.map_or(0, |base| base.token().as_raw());
        // A nil token ends the list.
        let interfaces: Vec<u32> = interfaces.iter().map(|interface| interface.token().as_raw()).chain([0]).collect();
        define(CALL, TypeDef::from_raw, |token| {
            let name = name.as_ptr();
            let flags = flags.bits();
            let interfaces = interfaces.as_ptr();
            // SAFETY: the name ends with a NUL and the list with a nil token; the call writes the token and keeps
            // nothing (fact: inputs, outputs).
            unsafe {
                match enclosing {
                    None => raw.DefineTypeDef(name, flags, extends, interfaces, token),
                    Some(outer) => raw.DefineNestedType(name, flags, extends, interfaces, outer.as_raw(), token),
                }
            }
        })
    }

    /// Defines a method of `class`, without a body: `SetILFunctionBody` adds one, unless the method needs none.
    ///
    /// # Safety
    /// `class` is a type that this profiler has defined, or the runtime can load it with the method as well as without;
    /// and the method does not override, implement or hide another that existing code calls. See [`MetadataEmit`] for
    /// the consequences otherwise.
    ///
    /// # Errors
    /// See [`MetadataEmit`].
    #[doc(alias = "DefineMethod")]
    pub unsafe fn define_method(
        &self,
        class: TypeDef,
        name: &str,
        flags: sys::CorMethodAttr,
        impl_flags: sys::CorMethodImpl,
        signature: &[u8],
    ) -> Result<MethodDef> {
        let raw = self.raw()?;
        const CALL: &str = "DefineMethod";
        let name = wide(CALL, name)?;
        let size = length(CALL, signature)?;
        define(CALL, MethodDef::from_raw, |token| {
            let flags = flags.bits();
            let impl_flags = impl_flags.bits();
            // SAFETY: the name ends with a NUL; the call reads `size` bytes, writes the token and keeps none of them.
            // Address 0 means that the file has no body (fact: inputs, outputs).
            unsafe {
                let class = class.as_raw();
                let blob = signature.as_ptr();
                raw.DefineMethod(class, name.as_ptr(), flags, blob, size, 0, impl_flags, token)
            }
        })
    }

    /// Defines the name and flags of a method's parameter; `sequence` counts from 1, and 0 is the return value.
    ///
    /// # Safety
    /// This profiler has defined `method`; or this parameter has no row yet, and no code depends on that. See
    /// [`MetadataEmit`] for the consequences otherwise.
    ///
    /// # Errors
    /// See [`MetadataEmit`].
    #[doc(alias = "DefineParam")]
    pub unsafe fn define_param(
        &self,
        method: MethodDef,
        sequence: u32,
        name: &str,
        flags: sys::CorParamAttr,
    ) -> Result<ParamDef> {
        let raw = self.raw()?;
        const CALL: &str = "DefineParam";
        let name = wide(CALL, name)?;
        define(CALL, ParamDef::from_raw, |token| {
            let method = method.as_raw();
            let flags = flags.bits();
            // SAFETY: the name ends with a NUL, and no default value is given; the call writes the token and keeps
            // nothing (fact: inputs, outputs).
            unsafe { raw.DefineParam(method, sequence, name.as_ptr(), flags, NO_VALUE, std::ptr::null(), 0, token) }
        })
    }

    /// Defines a field of `class`, without a constant value.
    ///
    /// # Safety
    /// This profiler has defined `class`; or no code and no native structure depends on its layout: it is not in
    /// System.Private.CoreLib, not passed to native code, and its module is not precompiled. See [`MetadataEmit`] for
    /// the consequences otherwise.
    ///
    /// # Errors
    /// See [`MetadataEmit`].
    #[doc(alias = "DefineField")]
    pub unsafe fn define_field(
        &self,
        class: TypeDef,
        name: &str,
        flags: sys::CorFieldAttr,
        signature: &[u8],
    ) -> Result<FieldDef> {
        let raw = self.raw()?;
        const CALL: &str = "DefineField";
        let name = wide(CALL, name)?;
        let size = length(CALL, signature)?;
        define(CALL, FieldDef::from_raw, |token| {
            let class = class.as_raw();
            let flags = flags.bits();
            let blob = signature.as_ptr();
            let no_value = std::ptr::null();
            // SAFETY: the name ends with a NUL, and no value is given; the call reads `size` bytes, writes the token
            // and keeps none of them (fact: inputs, outputs).
            unsafe { raw.DefineField(class, name.as_ptr(), flags, blob, size, NO_VALUE, no_value, 0, token) }
        })
    }

    /// Attaches a custom attribute to `owner`. The constructor is a method definition or a member reference; the value
    /// is encoded as in ECMA-335 II.23.3.
    ///
    /// # Safety
    /// The runtime and all readers of the attribute learn nothing from it that contradicts the assumptions of existing
    /// code, and the value fits the constructor. See [`MetadataEmit`] for the consequences otherwise.
    ///
    /// # Errors
    /// See [`MetadataEmit`].
    #[doc(alias = "DefineCustomAttribute")]
    pub unsafe fn define_custom_attribute(
        &self,
        owner: impl Into<Token>,
        constructor: impl Into<Token>,
        value: &[u8],
    ) -> Result<CustomAttribute> {
        let raw = self.raw()?;
        const CALL: &str = "DefineCustomAttribute";
        let owner = owner.into().as_raw();
        let constructor = constructor.into().as_raw();
        let size = length(CALL, value)?;
        define(CALL, CustomAttribute::from_raw, |token| {
            // SAFETY: the call reads `size` bytes, writes the token and keeps neither (fact: inputs, outputs).
            unsafe { raw.DefineCustomAttribute(owner, constructor, value.as_ptr().cast(), size, token) }
        })
    }

    /// Maps a method without a body to a native function.
    ///
    /// # Safety
    /// Managed code that can call `method` can call `function` with all arguments that the method's signature allows:
    /// the function must have that signature and be safe to call with any of these arguments. Existing code that
    /// already calls the method must work with the function, too. See [`MetadataEmit`] for the consequences otherwise.
    ///
    /// # Errors
    /// See [`MetadataEmit`].
    #[doc(alias = "DefinePinvokeMap")]
    pub unsafe fn define_pinvoke_map(
        &self,
        method: MethodDef,
        flags: sys::CorPinvokeMap,
        function: &str,
        library: ModuleRef,
    ) -> Result<()> {
        let raw = self.raw()?;
        const CALL: &str = "DefinePinvokeMap";
        let name = wide(CALL, function)?;
        // SAFETY: the name ends with a NUL, and the call does not keep it (fact: inputs).
        let code = unsafe { raw.DefinePinvokeMap(method.as_raw(), flags.bits(), name.as_ptr(), library.as_raw()) };
        Error::check(code, CALL)
    }
}

impl fmt::Debug for MetadataEmit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetadataEmit").finish_non_exhaustive()
    }
}

/// `ELEMENT_TYPE_END`: the type of a field or parameter without a constant.
const NO_VALUE: u32 = 0;

/// Makes a call that defines a token, and checks the token.
fn define<T>(call: &'static str, kind: impl Fn(u32) -> T, ask: impl Fn(*mut u32) -> HRESULT) -> Result<T> {
    let mut token = 0;
    Error::check(ask(&mut token), call)?;
    // Otherwise a success without a token would be noticed only when the code runs.
    if Token::from_raw(token).is_nil() {
        return Err(Error::new(E_INVALIDARG, call));
    }
    Ok(kind(token))
}
