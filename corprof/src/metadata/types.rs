//! Types: those of the module, and those of other modules that it refers to.

use corprof_sys as sys;

use super::import::MetadataImport;
use super::raw::{Blob, found, wide};
use super::signature::Type;
use super::{InterfaceImpl, Token, TypeDef, TypeDefOrRef, TypeRef, TypeSpec};
use crate::error::{Error, Result};
use crate::ffi::buffer::{Units, read_units};

/// A type that the module defines.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TypeDefProps {
    /// Its name with the namespace, without the enclosing types, with the arity suffix (`` List`1 ``).
    pub name: String,
    /// Visibility, layout, semantics.
    pub flags: sys::CorTypeAttr,
    /// Its base type; none for interfaces, `<Module>` and `System.Object`.
    pub extends: Option<TypeDefOrRef>,
}

impl TypeDefProps {
    /// Whether it is a nested type.
    pub fn is_nested(&self) -> bool {
        is_nested(self.flags)
    }
}

/// Whether these are the flags of a nested type.
pub(crate) fn is_nested(flags: sys::CorTypeAttr) -> bool {
    // The visibilities of nested types are the greater values of this field.
    (flags & sys::tdVisibilityMask).bits() >= sys::tdNestedPublic.bits()
}

/// A reference to a type of another module or assembly.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TypeRefProps {
    /// Its location: an assembly or module reference, the module itself, or the reference to its enclosing type.
    pub scope: Token,
    /// Its name with the namespace, without the enclosing types, with the arity suffix.
    pub name: String,
}

/// An interface that a type implements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct InterfaceImplProps {
    /// The type that implements it.
    pub class: TypeDef,
    /// The interface.
    pub interface: Token,
}

impl MetadataImport<'_> {
    /// The types that the module defines, including nested ones, in the order of their tokens; without `<Module>`.
    ///
    /// # Errors
    /// The runtime's error about broken metadata (`CLDB_E_…`).
    #[doc(alias = "EnumTypeDefs")]
    pub fn type_defs(&self) -> Result<Vec<TypeDef>> {
        let raw = self.raw()?;
        self.tokens("EnumTypeDefs", TypeDef::from_raw, |handle, start, room, count| {
            // SAFETY: as `tokens` asks; the call keeps nothing but its own handle.
            unsafe { raw.EnumTypeDefs(handle, start, room, count) }
        })
    }

    /// The name of a type's base type.
    pub(crate) fn base_name(&self, definition: TypeDef) -> Result<Option<String>> {
        Ok(match self.type_def(definition)?.extends {
            Some(TypeDefOrRef::Def(base)) => Some(self.type_def(base)?.name),
            Some(TypeDefOrRef::Ref(base)) => Some(self.type_ref(base)?.name),
            _ => None,
        })
    }

    /// The class with a name that a token of a class means: of an instantiation, its definition. None for an array.
    pub(crate) fn named_class(&self, token: Token) -> Option<TypeDefOrRef> {
        let class = TypeDefOrRef::from_token(token)?;
        let TypeDefOrRef::Spec(spec) = class else { return Some(class) };
        match Type::decode(&self.type_spec(spec).ok()?).ok()?.unmodified() {
            Type::Generic { definition, .. } => Some(*definition),
            Type::Class(class) | Type::ValueType(class) => Some(*class),
            _ => None,
        }
    }

    /// The type that the module defines under this name, which includes the namespace but not `enclosing`; none if it
    /// does not exist.
    ///
    /// # Errors
    /// The runtime's error about broken metadata (`CLDB_E_…`); `E_INVALIDARG` for a name that contains a NUL or is too
    /// long.
    #[doc(alias = "FindTypeDefByName")]
    pub fn find_type_def(&self, name: &str, enclosing: Option<TypeDef>) -> Result<Option<TypeDef>> {
        let raw = self.raw()?;
        const CALL: &str = "FindTypeDefByName";
        let name = wide(CALL, name)?;
        let enclosing = enclosing.map_or(0, TypeDef::as_raw);
        let mut token = 0;
        // SAFETY: the name ends with a NUL; the call writes the local and keeps nothing (fact: inputs, outputs).
        let code = unsafe { raw.FindTypeDefByName(name.as_ptr(), enclosing, &mut token) };
        found(code, CALL, TypeDef::from_raw(token))
    }

    /// The name, flags and base of a type that the module defines.
    ///
    /// # Errors
    /// `CLDB_E_…` or `E_INVALIDARG` for a token that this module does not have.
    #[doc(alias = "GetTypeDefProps")]
    pub fn type_def(&self, definition: TypeDef) -> Result<TypeDefProps> {
        let mut units = Units::new();
        let (flags, extends) = self.read_type_def(definition, &mut units)?;
        let mut name = String::new();
        units.push_to(&mut name);
        Ok(TypeDefProps { name, flags, extends: TypeDefOrRef::from_token(extends) })
    }

    /// Like [`type_def`](Self::type_def): returns the flags and the base; writes the name to `name`, which is empty.
    #[inline]
    pub(crate) fn read_type_def(&self, definition: TypeDef, name: &mut Units) -> Result<(sys::CorTypeAttr, Token)> {
        let raw = self.raw()?;
        let mut flags = 0;
        let mut extends = 0;
        // SAFETY: the call writes the two locals, the count, and as many units of text as there are, at most `room`; it
        // keeps nothing (fact: outputs).
        unsafe {
            read_units("GetTypeDefProps", name, |start, room, count| {
                raw.GetTypeDefProps(definition.as_raw(), start, room, count, &mut flags, &mut extends)
            })?;
        }
        Ok((sys::CorTypeAttr::from_bits_retain(flags), Token::from_raw(extends)))
    }

    /// The enclosing type of a nested type; none if it is not nested.
    ///
    /// # Errors
    /// `CLDB_E_…` or `E_INVALIDARG` for a token that this module does not have.
    #[doc(alias = "GetNestedClassProps")]
    pub fn enclosing_class(&self, nested: TypeDef) -> Result<Option<TypeDef>> {
        let raw = self.raw()?;
        let mut enclosing = 0;
        // SAFETY: the call writes the local and keeps nothing (fact: outputs).
        let code = unsafe { raw.GetNestedClassProps(nested.as_raw(), &mut enclosing) };
        let enclosing = found(code, "GetNestedClassProps", TypeDef::from_raw(enclosing))?;
        Ok(enclosing.filter(|enclosing| !enclosing.is_nil()))
    }

    /// The interfaces that a type declares: call [`interface_impl`](Self::interface_impl) for each.
    ///
    /// # Errors
    /// `CLDB_E_…` or `E_INVALIDARG` for a token that this module does not have.
    #[doc(alias = "EnumInterfaceImpls")]
    pub fn interface_impls(&self, class: TypeDef) -> Result<Vec<InterfaceImpl>> {
        let raw = self.raw()?;
        self.tokens("EnumInterfaceImpls", InterfaceImpl::from_raw, |handle, start, room, count| {
            // SAFETY: as `tokens` asks; the call keeps nothing but its own handle.
            unsafe { raw.EnumInterfaceImpls(handle, class.as_raw(), start, room, count) }
        })
    }

    /// The type and the interface of an implementation.
    ///
    /// # Errors
    /// `CLDB_E_…` or `E_INVALIDARG` for a token that this module does not have.
    #[doc(alias = "GetInterfaceImplProps")]
    pub fn interface_impl(&self, implementation: InterfaceImpl) -> Result<InterfaceImplProps> {
        let raw = self.raw()?;
        let mut class = 0;
        let mut interface = 0;
        // SAFETY: the call writes the two locals and keeps nothing (fact: outputs).
        let code = unsafe { raw.GetInterfaceImplProps(implementation.as_raw(), &mut class, &mut interface) };
        Error::check(code, "GetInterfaceImplProps")?;
        Ok(InterfaceImplProps { class: TypeDef::from_raw(class), interface: Token::from_raw(interface) })
    }

    /// The types of other modules that the module refers to.
    ///
    /// # Errors
    /// The runtime's error about broken metadata (`CLDB_E_…`).
    #[doc(alias = "EnumTypeRefs")]
    pub fn type_refs(&self) -> Result<Vec<TypeRef>> {
        let raw = self.raw()?;
        self.tokens("EnumTypeRefs", TypeRef::from_raw, |handle, start, room, count| {
            // SAFETY: as `tokens` asks; the call keeps nothing but its own handle.
            unsafe { raw.EnumTypeRefs(handle, start, room, count) }
        })
    }

    /// The reference to a type with this name, which includes the namespace, in `scope`: an assembly or module
    /// reference, or the reference to the enclosing type; none if the module has no such reference.
    ///
    /// # Errors
    /// The runtime's error about broken metadata (`CLDB_E_…`); `E_INVALIDARG` for a name that contains a NUL or is too
    /// long.
    #[doc(alias = "FindTypeRef")]
    pub fn find_type_ref(&self, scope: impl Into<Token>, name: &str) -> Result<Option<TypeRef>> {
        let raw = self.raw()?;
        const CALL: &str = "FindTypeRef";
        let name = wide(CALL, name)?;
        let mut token = 0;
        // SAFETY: the name ends with a NUL; the call writes the local and keeps nothing (fact: inputs, outputs).
        let code = unsafe { raw.FindTypeRef(scope.into().as_raw(), name.as_ptr(), &mut token) };
        found(code, CALL, TypeRef::from_raw(token))
    }

    /// The name and location of a type of another module.
    ///
    /// # Errors
    /// `CLDB_E_…` or `E_INVALIDARG` for a token that this module does not have.
    #[doc(alias = "GetTypeRefProps")]
    pub fn type_ref(&self, reference: TypeRef) -> Result<TypeRefProps> {
        let mut units = Units::new();
        let scope = self.read_type_ref(reference, &mut units)?;
        let mut name = String::new();
        units.push_to(&mut name);
        Ok(TypeRefProps { scope, name })
    }

    /// Like [`type_ref`](Self::type_ref): returns the scope; writes the name to `name`, which is empty.
    pub(crate) fn read_type_ref(&self, reference: TypeRef, name: &mut Units) -> Result<Token> {
        let raw = self.raw()?;
        let mut scope = 0;
        // SAFETY: as in `read_type_def`, with one local.
        unsafe {
            read_units("GetTypeRefProps", name, |start, room, count| {
                raw.GetTypeRefProps(reference.as_raw(), &mut scope, start, room, count)
            })?;
        }
        Ok(Token::from_raw(scope))
    }

    /// The types that only a signature can express.
    ///
    /// # Errors
    /// The runtime's error about broken metadata (`CLDB_E_…`).
    #[doc(alias = "EnumTypeSpecs")]
    pub fn type_specs(&self) -> Result<Vec<TypeSpec>> {
        let raw = self.raw()?;
        self.tokens("EnumTypeSpecs", TypeSpec::from_raw, |handle, start, room, count| {
            // SAFETY: as `tokens` asks; the call keeps nothing but its own handle.
            unsafe { raw.EnumTypeSpecs(handle, start, room, count) }
        })
    }

    /// The signature of a type that only a signature can express: see [`Type::decode`](super::signature::Type::decode).
    ///
    /// # Errors
    /// `CLDB_E_…` or `E_INVALIDARG` for a token that this module does not have.
    #[doc(alias = "GetTypeSpecFromToken")]
    pub fn type_spec(&self, spec: TypeSpec) -> Result<Vec<u8>> {
        let raw = self.raw()?;
        let mut blob = Blob::default();
        // SAFETY: the call writes the two halves of the blob and keeps nothing (fact: outputs).
        let code = unsafe { raw.GetTypeSpecFromToken(spec.as_raw(), &mut blob.start, &mut blob.size) };
        Error::check(code, "GetTypeSpecFromToken")?;
        // SAFETY: the successful call above has filled it in, and the module is still loaded.
        Ok(unsafe { blob.copy() })
    }
}
