//! What stands in a signature: the types that it names, and `void`.

use super::{MethodSignature, Primitive, Signature, Type};
use crate::token::TypeDefOrRef;

impl Signature {
    /// Calls `visit` with each named type in it, and whether the signature says that it is a value type.
    pub fn for_each_named(&self, visit: &mut dyn FnMut(TypeDefOrRef, bool)) {
        match self {
            Self::Method(method) => method.for_each_named(visit),
            Self::Field(ty) => ty.for_each_named(visit),
            Self::Locals(types) | Self::MethodSpec(types) => types.iter().for_each(|ty| ty.for_each_named(visit)),
            Self::Property(property) => {
                property.parameters.iter().chain([&property.value]).for_each(|ty| ty.for_each_named(visit));
            }
        }
    }
}

impl MethodSignature {
    /// As [`Signature::for_each_named`].
    pub fn for_each_named(&self, visit: &mut dyn FnMut(TypeDefOrRef, bool)) {
        self.parameters.iter().chain([&self.return_type]).for_each(|ty| ty.for_each_named(visit));
    }

    /// Replaces each named type in it, as for the tokens of another module. Modifiers are left out.
    pub fn rename(&mut self, name: &mut dyn FnMut(TypeDefOrRef) -> TypeDefOrRef) {
        self.parameters.iter_mut().chain([&mut self.return_type]).for_each(|ty| ty.rename(name));
    }

    /// Whether `void` stands for something other than what is returned or pointed to, as no runtime allows.
    pub fn has_misplaced_void(&self) -> bool {
        let is_bad = |ty: &Type| ty.is_void() || ty.has_misplaced_void();
        self.parameters.iter().any(is_bad) || self.return_type.has_misplaced_void()
    }
}

impl Type {
    /// As [`Signature::for_each_named`]. Modifiers are left out, because compilers do not distinguish them.
    pub fn for_each_named(&self, visit: &mut dyn FnMut(TypeDefOrRef, bool)) {
        match self {
            Self::Class(token) => visit(*token, false),
            Self::ValueType(token) => visit(*token, true),
            Self::Generic { value_type, definition, arguments } => {
                visit(*definition, *value_type);
                arguments.iter().for_each(|ty| ty.for_each_named(visit));
            }
            Self::FunctionPointer(method) => method.for_each_named(visit),
            Self::Pointer(inner)
            | Self::ByRef(inner)
            | Self::SzArray(inner)
            | Self::Array(inner, _)
            | Self::Modified { inner, .. }
            | Self::InternalModified { inner, .. }
            | Self::Pinned(inner) => inner.for_each_named(visit),
            Self::Primitive(_) | Self::TypeParameter(_) | Self::MethodParameter(_) | Self::Internal(_) => {}
        }
    }

    /// As [`MethodSignature::rename`].
    pub fn rename(&mut self, name: &mut dyn FnMut(TypeDefOrRef) -> TypeDefOrRef) {
        match self {
            Self::Class(token) | Self::ValueType(token) => *token = name(*token),
            Self::Generic { definition, arguments, .. } => {
                *definition = name(*definition);
                arguments.iter_mut().for_each(|ty| ty.rename(name));
            }
            Self::FunctionPointer(method) => method.rename(name),
            Self::Pointer(inner)
            | Self::ByRef(inner)
            | Self::SzArray(inner)
            | Self::Array(inner, _)
            | Self::Modified { inner, .. }
            | Self::InternalModified { inner, .. }
            | Self::Pinned(inner) => inner.rename(name),
            Self::Primitive(_) | Self::TypeParameter(_) | Self::MethodParameter(_) | Self::Internal(_) => {}
        }
    }

    /// Whether it is `void`, with modifiers or without.
    pub fn is_void(&self) -> bool {
        *self.unmodified() == Self::Primitive(Primitive::Void)
    }

    /// Whether `void` stands inside of it for something other than what is returned or pointed to, as no runtime
    /// allows: for elements of an array, an argument of a generic type, a parameter of a function, or behind a managed
    /// reference.
    pub fn has_misplaced_void(&self) -> bool {
        let is_bad = |ty: &Self| ty.is_void() || ty.has_misplaced_void();
        match self {
            Self::ByRef(inner) | Self::SzArray(inner) | Self::Array(inner, _) => is_bad(inner),
            Self::Generic { arguments, .. } => arguments.iter().any(is_bad),
            Self::FunctionPointer(method) => method.has_misplaced_void(),
            Self::Pointer(inner)
            | Self::Modified { inner, .. }
            | Self::InternalModified { inner, .. }
            | Self::Pinned(inner) => inner.has_misplaced_void(),
            Self::Primitive(_)
            | Self::Class(_)
            | Self::ValueType(_)
            | Self::TypeParameter(_)
            | Self::MethodParameter(_)
            | Self::Internal(_) => false,
        }
    }
}
