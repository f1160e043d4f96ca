//! Methods, fields and parameters of the module, and the members of other types that it refers to.

use corprof_sys as sys;

use super::constant::RawConstant;
use super::import::MetadataImport;
use super::raw::{Blob, wide};
use super::{Constant, FieldDef, MemberRef, MethodDef, MethodSpec, ParamDef, Token, TypeDef};
use crate::error::{Error, Result};
use crate::ffi::buffer::{Units, read_units, read_utf16};

/// A method that the module defines.
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
    /// The relative virtual address of its body in the module; 0 if it has none.
    pub code_rva: u32,
    /// Its signature: see [`MethodSignature`](super::signature::MethodSignature).
    pub signature: Vec<u8>,
}

/// A reference to a method or field of another type.
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

/// A field that the module defines.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct FieldProps {
    /// The type that declares it; nil for a global field.
    pub class: TypeDef,
    /// Its name.
    pub name: String,
    /// Accessibility, static, literal and so on.
    pub flags: sys::CorFieldAttr,
    /// Its signature: see [`Type::decode_field`](super::signature::Type::decode_field).
    pub signature: Vec<u8>,
    /// Its value, if it is a constant.
    pub constant: Option<Constant>,
}

/// A parameter in the metadata.
///
/// Only named parameters need a row; others may have none.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct ParamProps {
    /// The method that takes it.
    pub method: MethodDef,
    /// Its index: 0 is the return value, 1 the first parameter (not `this`).
    pub sequence: u32,
    /// Its name.
    pub name: String,
    /// In, out, optional and so on.
    pub flags: sys::CorParamAttr,
    /// Its default value, if it has one.
    pub constant: Option<Constant>,
}

/// A generic method with its type arguments.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct MethodSpecProps {
    /// The generic method: a definition or a reference.
    pub parent: Token,
    /// Its type arguments: see [`Type::decode_method_spec`](super::signature::Type::decode_method_spec).
    pub signature: Vec<u8>,
}

/// [`MethodProps`], borrowed from the results of the call.
pub(crate) struct MethodRow<'a> {
    pub(crate) class: TypeDef,
    pub(crate) name: &'a Units,
    flags: sys::CorMethodAttr,
    impl_flags: sys::CorMethodImpl,
    code_rva: u32,
    pub(crate) signature: &'a [u8],
}

impl MetadataImport<'_> {
    /// The methods that a type declares; for `TypeDef::NIL` the global ones.
    ///
    /// # Errors
    /// `CLDB_E_…` or `E_INVALIDARG` for a token that this module does not have.
    #[doc(alias = "EnumMethods")]
    pub fn methods(&self, class: TypeDef) -> Result<Vec<MethodDef>> {
        let raw = self.raw()?;
        self.tokens("EnumMethods", MethodDef::from_raw, |handle, start, room, count| {
            // SAFETY: as `tokens` asks; the call keeps nothing but its own handle.
            unsafe { raw.EnumMethods(handle, class.as_raw(), start, room, count) }
        })
    }

    /// The methods of this name that a type declares.
    ///
    /// # Errors
    /// `CLDB_E_…` or `E_INVALIDARG` for a token that this module does not have, or a name that contains a NUL or is too
    /// long.
    #[doc(alias = "EnumMethodsWithName")]
    pub fn methods_named(&self, class: TypeDef, name: &str) -> Result<Vec<MethodDef>> {
        let raw = self.raw()?;
        const CALL: &str = "EnumMethodsWithName";
        let name = wide(CALL, name)?;
        self.tokens(CALL, MethodDef::from_raw, |handle, start, room, count| {
            // SAFETY: as `tokens` asks; the name ends with a NUL, and the call keeps nothing but its own handle (fact:
            // inputs).
            unsafe { raw.EnumMethodsWithName(handle, class.as_raw(), name.as_ptr(), start, room, count) }
        })
    }

    /// The name, class, flags and signature of a method that the module defines.
    ///
    /// # Errors
    /// `CLDB_E_…` or `E_INVALIDARG` for a token that this module does not have.
    #[doc(alias = "GetMethodProps")]
    pub fn method(&self, method: MethodDef) -> Result<MethodProps> {
        self.read_method(method, |row| {
            let mut name = String::new();
            row.name.push_to(&mut name);
            MethodProps {
                class: row.class,
                name,
                flags: row.flags,
                impl_flags: row.impl_flags,
                code_rva: row.code_rva,
                signature: row.signature.to_vec(),
            }
        })
    }

    /// Like [`method`](Self::method), read in place: the module stays loaded until `read` returns.
    #[inline]
    pub(crate) fn read_method<R>(&self, method: MethodDef, read: impl FnOnce(&MethodRow<'_>) -> R) -> Result<R> {
        let raw = self.raw()?;
        let mut class = 0;
        let mut flags = 0;
        let mut code_rva = 0;
        let mut impl_flags = 0;
        let mut name = Units::new();
        let mut blob = Blob::default();
        // SAFETY: the call writes the locals, the count, and as many units of text as there are, at most `room`; it
        // keeps nothing (fact: outputs).
        unsafe {
            read_units("GetMethodProps", &mut name, |start, room, count| {
                raw.GetMethodProps(
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
            })?;
        }
        Ok(read(&MethodRow {
            class: TypeDef::from_raw(class),
            name: &name,
            flags: sys::CorMethodAttr::from_bits_retain(flags),
            impl_flags: sys::CorMethodImpl::from_bits_retain(impl_flags),
            code_rva,
            // SAFETY: the successful call above has filled it in, and `raw` keeps the module loaded to the end.
            signature: unsafe { blob.bytes() },
        }))
    }

    /// The fields that a type declares; for `TypeDef::NIL` the global ones.
    ///
    /// # Errors
    /// `CLDB_E_…` or `E_INVALIDARG` for a token that this module does not have.
    #[doc(alias = "EnumFields")]
    pub fn fields(&self, class: TypeDef) -> Result<Vec<FieldDef>> {
        let raw = self.raw()?;
        self.tokens("EnumFields", FieldDef::from_raw, |handle, start, room, count| {
            // SAFETY: as `tokens` asks; the call keeps nothing but its own handle.
            unsafe { raw.EnumFields(handle, class.as_raw(), start, room, count) }
        })
    }

    /// The name, class, flags, signature and constant value of a field that the module defines.
    ///
    /// # Errors
    /// `CLDB_E_…` or `E_INVALIDARG` for a token that this module does not have.
    #[doc(alias = "GetFieldProps")]
    pub fn field(&self, field: FieldDef) -> Result<FieldProps> {
        let raw = self.raw()?;
        let mut class = 0;
        let mut flags = 0;
        let mut blob = Blob::default();
        let mut constant = RawConstant::default();
        let name = read_utf16("GetFieldProps", |start, room, count| {
            // SAFETY: the call writes the locals, the count, and at most `room` units of text, and keeps nothing
            // (fact: outputs).
            unsafe {
                raw.GetFieldProps(
                    field.as_raw(),
                    &mut class,
                    start,
                    room,
                    count,
                    &mut flags,
                    &mut blob.start,
                    &mut blob.size,
                    &mut constant.element,
                    &mut constant.start,
                    &mut constant.units,
                )
            }
        })?;
        Ok(FieldProps {
            class: TypeDef::from_raw(class),
            name,
            flags: sys::CorFieldAttr::from_bits_retain(flags),
            // SAFETY: the successful call above has filled it in, and the module is still loaded.
            signature: unsafe { blob.copy() },
            // SAFETY: the same.
            constant: unsafe { constant.read() },
        })
    }

    /// The parameters of a method that have a row, in the order of their tokens.
    ///
    /// # Errors
    /// `CLDB_E_…` or `E_INVALIDARG` for a token that this module does not have.
    #[doc(alias = "EnumParams")]
    pub fn params(&self, method: MethodDef) -> Result<Vec<ParamDef>> {
        let raw = self.raw()?;
        self.tokens("EnumParams", ParamDef::from_raw, |handle, start, room, count| {
            // SAFETY: as `tokens` asks; the call keeps nothing but its own handle.
            unsafe { raw.EnumParams(handle, method.as_raw(), start, room, count) }
        })
    }

    /// The name, index, flags and default value of a parameter.
    ///
    /// # Errors
    /// `CLDB_E_…` or `E_INVALIDARG` for a token that this module does not have.
    #[doc(alias = "GetParamProps")]
    pub fn param(&self, param: ParamDef) -> Result<ParamProps> {
        let raw = self.raw()?;
        let mut method = 0;
        let mut sequence = 0;
        let mut flags = 0;
        let mut constant = RawConstant::default();
        let name = read_utf16("GetParamProps", |start, room, count| {
            // SAFETY: the call writes the locals, the count, and at most `room` units of text, and keeps nothing
            // (fact: outputs).
            unsafe {
                raw.GetParamProps(
                    param.as_raw(),
                    &mut method,
                    &mut sequence,
                    start,
                    room,
                    count,
                    &mut flags,
                    &mut constant.element,
                    &mut constant.start,
                    &mut constant.units,
                )
            }
        })?;
        Ok(ParamProps {
            method: MethodDef::from_raw(method),
            sequence,
            name,
            flags: sys::CorParamAttr::from_bits_retain(flags),
            // SAFETY: the successful call above has filled it in, and the module is still loaded.
            constant: unsafe { constant.read() },
        })
    }

    /// The methods and fields of `parent` that the module refers to. `parent` is a type reference, definition or spec,
    /// a module reference, or a method definition.
    ///
    /// # Errors
    /// `CLDB_E_…` or `E_INVALIDARG` for a token that this module does not have.
    #[doc(alias = "EnumMemberRefs")]
    pub fn member_refs(&self, parent: impl Into<Token>) -> Result<Vec<MemberRef>> {
        let raw = self.raw()?;
        let parent = parent.into().as_raw();
        self.tokens("EnumMemberRefs", MemberRef::from_raw, |handle, start, room, count| {
            // SAFETY: as `tokens` asks; the call keeps nothing but its own handle.
            unsafe { raw.EnumMemberRefs(handle, parent, start, room, count) }
        })
    }

    /// The name, parent and signature of a method or field of another type.
    ///
    /// # Errors
    /// `CLDB_E_…` or `E_INVALIDARG` for a token that this module does not have.
    #[doc(alias = "GetMemberRefProps")]
    pub fn member_ref(&self, reference: MemberRef) -> Result<MemberRefProps> {
        let raw = self.raw()?;
        let mut parent = 0;
        let mut blob = Blob::default();
        let name = read_utf16("GetMemberRefProps", |start, room, count| {
            // SAFETY: the call writes the locals, the count, and at most `room` units of text, and keeps nothing
            // (fact: outputs).
            unsafe {
                raw.GetMemberRefProps(
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
        // SAFETY: the successful call above has filled it in, and the module is still loaded.
        Ok(MemberRefProps { parent: Token::from_raw(parent), name, signature: unsafe { blob.copy() } })
    }

    /// The generic methods with type arguments that the module refers to.
    ///
    /// # Errors
    /// The runtime's error about broken metadata (`CLDB_E_…`).
    #[doc(alias = "EnumMethodSpecs")]
    pub fn method_specs(&self) -> Result<Vec<MethodSpec>> {
        let raw = self.raw()?;
        self.tokens("EnumMethodSpecs", MethodSpec::from_raw, |handle, start, room, count| {
            // SAFETY: as `tokens` asks; the call keeps nothing but its own handle. The nil token stands for all
            // methods.
            unsafe { raw.EnumMethodSpecs(handle, 0, start, room, count) }
        })
    }

    /// The method and the type arguments of a method spec.
    ///
    /// # Errors
    /// `CLDB_E_…` or `E_INVALIDARG` for a token that this module does not have.
    #[doc(alias = "GetMethodSpecProps")]
    pub fn method_spec(&self, spec: MethodSpec) -> Result<MethodSpecProps> {
        let raw = self.raw()?;
        let mut parent = 0;
        let mut blob = Blob::default();
        // SAFETY: the call writes the local and the two halves of the blob, and keeps nothing (fact: outputs).
        let code = unsafe { raw.GetMethodSpecProps(spec.as_raw(), &mut parent, &mut blob.start, &mut blob.size) };
        Error::check(code, "GetMethodSpecProps")?;
        // SAFETY: the successful call above has filled it in, and the module is still loaded.
        Ok(MethodSpecProps { parent: Token::from_raw(parent), signature: unsafe { blob.copy() } })
    }
}
