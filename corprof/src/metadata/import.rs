//! [`MetadataImport`]: the runtime's reader of one module's metadata.
//!
//! Each method asks about one token and answers with owned values: the runtime's memory goes away with the module. Here is
//! what naming things needs; `IMetaDataImport2` itself, for the rest, is behind [`MetadataImport::as_raw`].

use std::fmt;
use std::marker::PhantomData;

use corprof_sys as sys;

use super::{GenericParam, MemberRef, MethodDef, Token, TypeDef, TypeDefOrRef, TypeRef, TypeSpec};
use crate::buffer::read_utf16;
use crate::error::{Error, Result};

/// The metadata of one module, to read.
///
/// From [`InCallback::metadata`](crate::context::InCallback::metadata). It reads the module's own memory, and so cannot
/// outlive the callback that it was asked for in; asking again is cheap.
pub struct MetadataImport<'cb> {
    raw: sys::IMetaDataImport2,
    _module: PhantomData<&'cb ()>,
}

// SAFETY: the runtime makes this object with `MDThreadSafetyOn` (GetMDPublicInterfaceFromInternal, coreclr/md/enc/
// mdinternalrw.cpp): every IMetaDataImport method takes the reader's side of its lock, which it shares with the writers of
// the same metadata, and the reference count is interlocked (RegMeta::AddRef). Nothing in it belongs to a thread.
unsafe impl Send for MetadataImport<'_> {}
// SAFETY: as above.
unsafe impl Sync for MetadataImport<'_> {}

/// What the metadata says about a type that the module defines.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TypeDefProps {
    /// Its name: with the namespace, without the enclosing types, with the arity suffix (`` List`1 ``).
    pub name: String,
    /// Visibility, layout, semantics.
    pub flags: sys::CorTypeAttr,
    /// What it derives from; none for interfaces, `<Module>` and `System.Object`.
    pub extends: Option<TypeDefOrRef>,
}

impl TypeDefProps {
    /// Whether another type encloses it.
    pub fn is_nested(&self) -> bool {
        // The visibilities of nested types are the greater values of this field.
        (self.flags & sys::tdVisibilityMask).bits() >= sys::tdNestedPublic.bits()
    }
}

/// What the metadata says about a type of another module or assembly.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TypeRefProps {
    /// Where it is: an assembly or module reference, the module itself, or the reference to the type that encloses it.
    pub scope: Token,
    /// Its name: with the namespace, without the enclosing types, with the arity suffix.
    pub name: String,
}

/// What the metadata says about a method that the module defines.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct MethodProps {
    /// The type that declares it; nil for a global method.
    pub class: TypeDef,
    /// Its name.
    pub name: String,
    /// Accessibility, static, virtual and so on.
    pub flags: sys::CorMethodAttr,
    /// How it is implemented.
    pub impl_flags: sys::CorMethodImpl,
    /// Where its body lies in the module, as a relative virtual address; 0 if it has none.
    pub code_rva: u32,
    /// Its signature: see [`MethodSignature`](super::signature::MethodSignature).
    pub signature: Vec<u8>,
}

/// What the metadata says about a method or field of another type.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct MemberRefProps {
    /// The type or module that it belongs to, or the method definition for a variable-argument call.
    pub parent: Token,
    /// Its name.
    pub name: String,
    /// Its signature: see [`Signature`](super::signature::Signature).
    pub signature: Vec<u8>,
}

/// What the metadata says about a generic parameter.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct GenericParamProps {
    /// Its token.
    pub token: GenericParam,
    /// Its place, counted from 0.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Variance and special constraints.
    pub flags: sys::CorGenericParamAttr,
    /// The type or method that it belongs to.
    pub owner: Token,
}

impl MetadataImport<'_> {
    /// Whoever calls this vouches, by the lifetime, that the module stays loaded while the metadata is in use.
    pub(crate) fn from_raw(raw: sys::IMetaDataImport2) -> Self {
        Self { raw, _module: PhantomData }
    }

    /// The runtime's interface itself, for questions that have no safe form yet.
    pub fn as_raw(&self) -> &sys::IMetaDataImport2 {
        &self.raw
    }

    /// The module's name, as it was compiled: usually its file's name.
    ///
    /// # Errors
    /// What the runtime answers for metadata that is broken (`CLDB_E_…`).
    #[doc(alias = "GetScopeProps")]
    pub fn module_name(&self) -> Result<String> {
        read_utf16("GetScopeProps", |start, room, count| {
            let mut mvid = windows_core::GUID::zeroed();
            // SAFETY: the call writes the local, the count, and at most `room` units of text, and keeps nothing.
            unsafe { self.raw.GetScopeProps(start, room, count, &mut mvid) }
        })
    }

    /// The name, flags and base of a type that the module defines.
    ///
    /// # Errors
    /// `CLDB_E_…` or `E_INVALIDARG` for a token that this module does not have.
    #[doc(alias = "GetTypeDefProps")]
    pub fn type_def(&self, definition: TypeDef) -> Result<TypeDefProps> {
        let (mut flags, mut extends) = (0, 0);
        let name = read_utf16("GetTypeDefProps", |start, room, count| {
            // SAFETY: the call writes the two locals, the count, and at most `room` units of text, and keeps nothing.
            unsafe { self.raw.GetTypeDefProps(definition.as_raw(), start, room, count, &mut flags, &mut extends) }
        })?;
        Ok(TypeDefProps {
            name,
            flags: sys::CorTypeAttr::from_bits_retain(flags),
            extends: TypeDefOrRef::from_token(Token(extends)),
        })
    }

    /// The type that encloses a nested type; none if it is not nested.
    ///
    /// # Errors
    /// `CLDB_E_…` or `E_INVALIDARG` for a token that this module does not have.
    #[doc(alias = "GetNestedClassProps")]
    pub fn enclosing_class(&self, nested: TypeDef) -> Result<Option<TypeDef>> {
        let mut enclosing = 0;
        // SAFETY: the call writes the local and keeps nothing.
        let code = unsafe { self.raw.GetNestedClassProps(nested.as_raw(), &mut enclosing) };
        if code == sys::CLDB_E_RECORD_NOTFOUND {
            return Ok(None);
        }
        Error::check(code, "GetNestedClassProps")?;
        Ok(Some(TypeDef(enclosing)).filter(|enclosing| !enclosing.is_nil()))
    }

    /// The name and whereabouts of a type of another module.
    ///
    /// # Errors
    /// `CLDB_E_…` or `E_INVALIDARG` for a token that this module does not have.
    #[doc(alias = "GetTypeRefProps")]
    pub fn type_ref(&self, reference: TypeRef) -> Result<TypeRefProps> {
        let mut scope = 0;
        let name = read_utf16("GetTypeRefProps", |start, room, count| {
            // SAFETY: the call writes the local, the count, and at most `room` units of text, and keeps nothing.
            unsafe { self.raw.GetTypeRefProps(reference.as_raw(), &mut scope, start, room, count) }
        })?;
        Ok(TypeRefProps { scope: Token(scope), name })
    }

    /// The signature of a type that only a signature can spell: see [`Type::decode`](super::signature::Type::decode).
    ///
    /// # Errors
    /// `CLDB_E_…` or `E_INVALIDARG` for a token that this module does not have.
    #[doc(alias = "GetTypeSpecFromToken")]
    pub fn type_spec(&self, spec: TypeSpec) -> Result<Vec<u8>> {
        let mut blob = Blob::default();
        // SAFETY: the call writes the two halves of the blob and keeps nothing.
        let code = unsafe { self.raw.GetTypeSpecFromToken(spec.as_raw(), &mut blob.start, &mut blob.size) };
        Error::check(code, "GetTypeSpecFromToken")?;
        // SAFETY: the call that succeeded just now filled it in, and the module is still loaded.
        Ok(unsafe { blob.copy() })
    }

    /// The name, class, flags and signature of a method that the module defines.
    ///
    /// # Errors
    /// `CLDB_E_…` or `E_INVALIDARG` for a token that this module does not have.
    #[doc(alias = "GetMethodProps")]
    pub fn method(&self, method: MethodDef) -> Result<MethodProps> {
        let (mut class, mut flags, mut code_rva, mut impl_flags) = (0, 0, 0, 0);
        let mut blob = Blob::default();
        let name = read_utf16("GetMethodProps", |start, room, count| {
            // SAFETY: the call writes the locals, the count, and at most `room` units of text, and keeps nothing.
            unsafe {
                self.raw.GetMethodProps(
                    method.as_raw(),
                    &mut class,
                    start,
                    room,
                    count,
                    &mut flags,
                    &mut blob.start,
                    &mut blob.size,
                    &mut code_rva,
                    &mut impl_flags,
                )
            }
        })?;
        Ok(MethodProps {
            class: TypeDef(class),
            name,
            flags: sys::CorMethodAttr::from_bits_retain(flags),
            impl_flags: sys::CorMethodImpl::from_bits_retain(impl_flags),
            code_rva,
            // SAFETY: the call that succeeded just now filled it in, and the module is still loaded.
            signature: unsafe { blob.copy() },
        })
    }

    /// The name, parent and signature of a method or field of another type.
    ///
    /// # Errors
    /// `CLDB_E_…` or `E_INVALIDARG` for a token that this module does not have.
    #[doc(alias = "GetMemberRefProps")]
    pub fn member_ref(&self, reference: MemberRef) -> Result<MemberRefProps> {
        let mut parent = 0;
        let mut blob = Blob::default();
        let name = read_utf16("GetMemberRefProps", |start, room, count| {
            // SAFETY: the call writes the locals, the count, and at most `room` units of text, and keeps nothing.
            unsafe {
                self.raw.GetMemberRefProps(
                    reference.as_raw(),
                    &mut parent,
                    start,
                    room,
                    count,
                    &mut blob.start,
                    &mut blob.size,
                )
            }
        })?;
        // SAFETY: the call that succeeded just now filled it in, and the module is still loaded.
        Ok(MemberRefProps { parent: Token(parent), name, signature: unsafe { blob.copy() } })
    }

    /// The generic parameters of a type or method that the module defines, in their order. Those of a nested type include
    /// the ones of the types around it.
    ///
    /// # Errors
    /// `CLDB_E_…` or `E_INVALIDARG` for a token that this module does not have.
    #[doc(alias = "EnumGenericParams")]
    pub fn generic_params(&self, owner: impl Into<Token>) -> Result<Vec<GenericParamProps>> {
        /// Metadata counts them in 16 bits.
        const MOST: usize = 1 << 16;
        let owner = owner.into();
        let mut enumeration = Enumeration { import: &self.raw, handle: std::ptr::null_mut() };
        let mut params = Vec::new();
        while params.len() < MOST {
            let mut some = [0; 16];
            let mut count = 0;
            // SAFETY: the handle is null or comes from this call; the call writes it, the count, and at most as many tokens
            // as there is room for.
            let code = unsafe {
                self.raw.EnumGenericParams(
                    &mut enumeration.handle,
                    owner.as_raw(),
                    some.as_mut_ptr(),
                    some.len() as u32,
                    &mut count,
                )
            };
            Error::check(code, "EnumGenericParams")?;
            let found = some.get(..count as usize).unwrap_or(&some);
            if found.is_empty() {
                break;
            }
            for &param in found {
                params.push(self.generic_param(GenericParam(param))?);
            }
        }
        params.sort_by_key(|param| param.index);
        Ok(params)
    }

    /// The name, place and owner of a generic parameter.
    ///
    /// # Errors
    /// `CLDB_E_…` or `E_INVALIDARG` for a token that this module does not have.
    #[doc(alias = "GetGenericParamProps")]
    pub fn generic_param(&self, param: GenericParam) -> Result<GenericParamProps> {
        let (mut index, mut flags, mut owner, mut reserved) = (0, 0, 0, 0);
        let name = read_utf16("GetGenericParamProps", |start, room, count| {
            // SAFETY: the call writes the locals, the count, and at most `room` units of text, and keeps nothing.
            unsafe {
                self.raw.GetGenericParamProps(
                    param.as_raw(),
                    &mut index,
                    &mut flags,
                    &mut owner,
                    &mut reserved,
                    start,
                    room,
                    count,
                )
            }
        })?;
        Ok(GenericParamProps {
            token: param,
            index,
            name,
            flags: sys::CorGenericParamAttr::from_bits_retain(flags),
            owner: Token(owner),
        })
    }
}

impl fmt::Debug for MetadataImport<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetadataImport").finish_non_exhaustive()
    }
}

/// Bytes of the module, as the runtime points to them.
struct Blob {
    start: sys::PCCOR_SIGNATURE,
    size: u32,
}

impl Default for Blob {
    fn default() -> Self {
        Self { start: std::ptr::null(), size: 0 }
    }
}

impl Blob {
    /// The bytes themselves, which the module cannot take away.
    ///
    /// # Safety
    /// A metadata call filled both fields in, and the module is still loaded.
    unsafe fn copy(&self) -> Vec<u8> {
        if self.start.is_null() || self.size == 0 {
            return Vec::new();
        }
        // SAFETY: the metadata gives the start and size of a blob that lies wholly in the module's memory, and does not
        // change a blob that it has given out.
        unsafe { std::slice::from_raw_parts(self.start, self.size as usize) }.to_vec()
    }
}

/// An enumeration of the runtime's, closed however its use ends.
struct Enumeration<'a> {
    import: &'a sys::IMetaDataImport2,
    handle: sys::HCORENUM,
}

impl Drop for Enumeration<'_> {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: the handle comes from an enumeration of this very object, and is used by nobody else.
            unsafe { self.import.CloseEnum(self.handle) };
        }
    }
}
