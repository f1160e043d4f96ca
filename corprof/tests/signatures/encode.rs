//! The decoder's opposite, as small as it can be: every number in its shortest form, nothing checked.
//!
//! Shared with the fuzz target, which includes this file.

use corprof::metadata::TypeDefOrRef;
use corprof::metadata::signature::{
    ArrayShape, CallingConvention, MethodSignature, Primitive, PropertySignature, Signature, Type,
};

/// The bytes of a signature.
pub(crate) fn signature(signature: &Signature) -> Vec<u8> {
    let mut blob = Vec::new();
    match signature {
        Signature::Method(signature) => method(&mut blob, signature),
        Signature::Field(inner) => {
            blob.push(0x06);
            one_type(&mut blob, inner);
        }
        Signature::Locals(types) => {
            blob.push(0x07);
            all_types(&mut blob, types);
        }
        Signature::Property(PropertySignature { has_this, value, parameters }) => {
            blob.push(0x08 | u8::from(*has_this) << 5);
            unsigned(&mut blob, parameters.len() as u32);
            one_type(&mut blob, value);
            parameters.iter().for_each(|parameter| one_type(&mut blob, parameter));
        }
        Signature::MethodSpec(types) => {
            blob.push(0x0a);
            all_types(&mut blob, types);
        }
        other => unimplemented!("{other:?}"),
    }
    blob
}

fn method(blob: &mut Vec<u8>, signature: &MethodSignature) {
    let convention = match signature.convention {
        CallingConvention::Default => 0x0,
        CallingConvention::C => 0x1,
        CallingConvention::StdCall => 0x2,
        CallingConvention::ThisCall => 0x3,
        CallingConvention::FastCall => 0x4,
        CallingConvention::VarArg => 0x5,
        CallingConvention::Unmanaged => 0x9,
        CallingConvention::NativeVarArg => 0xb,
        other => unimplemented!("{other:?}"),
    };
    let generic = signature.generic_parameters > 0;
    let flags = u8::from(generic) << 4 | u8::from(signature.has_this) << 5 | u8::from(signature.explicit_this) << 6;
    blob.push(convention | flags);
    if generic {
        unsigned(blob, signature.generic_parameters);
    }
    unsigned(blob, signature.parameters.len() as u32);
    one_type(blob, &signature.return_type);
    for (at, parameter) in signature.parameters.iter().enumerate() {
        if signature.sentinel == Some(at) {
            blob.push(0x41);
        }
        one_type(blob, parameter);
    }
}

fn all_types(blob: &mut Vec<u8>, types: &[Type]) {
    unsigned(blob, types.len() as u32);
    types.iter().for_each(|one| one_type(blob, one));
}

fn one_type(blob: &mut Vec<u8>, spelling: &Type) {
    match spelling {
        Type::Primitive(primitive) => blob.push(element(*primitive)),
        Type::Class(token) => wrapped(blob, 0x12, *token),
        Type::ValueType(token) => wrapped(blob, 0x11, *token),
        Type::Pointer(inner) => within(blob, 0x0f, inner),
        Type::ByRef(inner) => within(blob, 0x10, inner),
        Type::SzArray(inner) => within(blob, 0x1d, inner),
        Type::Pinned(inner) => within(blob, 0x45, inner),
        Type::Array(inner, ArrayShape { rank, sizes, lower_bounds }) => {
            within(blob, 0x14, inner);
            unsigned(blob, *rank);
            unsigned(blob, sizes.len() as u32);
            sizes.iter().for_each(|&size| unsigned(blob, size));
            unsigned(blob, lower_bounds.len() as u32);
            lower_bounds.iter().for_each(|&bound| signed(blob, bound));
        }
        Type::Generic { value_type, definition, arguments } => {
            blob.push(0x15);
            wrapped(blob, if *value_type { 0x11 } else { 0x12 }, *definition);
            all_types(blob, arguments);
        }
        Type::TypeParameter(at) => {
            blob.push(0x13);
            unsigned(blob, *at);
        }
        Type::MethodParameter(at) => {
            blob.push(0x1e);
            unsigned(blob, *at);
        }
        Type::FunctionPointer(signature) => {
            blob.push(0x1b);
            method(blob, signature);
        }
        Type::Modified { required, modifier, inner } => {
            wrapped(blob, if *required { 0x1f } else { 0x20 }, *modifier);
            one_type(blob, inner);
        }
        Type::Internal(handle) => {
            blob.push(0x21);
            blob.extend(handle.to_ne_bytes());
        }
        Type::InternalModified { required, modifier, inner } => {
            blob.extend([0x22, u8::from(*required)]);
            blob.extend(modifier.to_ne_bytes());
            one_type(blob, inner);
        }
        other => unimplemented!("{other:?}"),
    }
}

fn within(blob: &mut Vec<u8>, byte: u8, inner: &Type) {
    blob.push(byte);
    one_type(blob, inner);
}

fn wrapped(blob: &mut Vec<u8>, byte: u8, token: TypeDefOrRef) {
    let tag = match token {
        TypeDefOrRef::Def(_) => 0,
        TypeDefOrRef::Ref(_) => 1,
        TypeDefOrRef::Spec(_) => 2,
    };
    blob.push(byte);
    unsigned(blob, token.token().row() << 2 | tag);
}

fn element(primitive: Primitive) -> u8 {
    let is_this = |&byte: &u8| Primitive::from_element(byte) == Some(primitive);
    (0..=u8::MAX).find(is_this).unwrap_or_else(|| unimplemented!("{primitive:?}"))
}

fn unsigned(blob: &mut Vec<u8>, value: u32) {
    match value {
        0..0x80 => blob.push(value as u8),
        0x80..0x4000 => blob.extend((value as u16 | 0x8000).to_be_bytes()),
        0x4000..0x2000_0000 => blob.extend((value | 0xc000_0000).to_be_bytes()),
        _ => unimplemented!("{value:#x}"),
    }
}

fn signed(blob: &mut Vec<u8>, value: i32) {
    let rotated = |bits: u32| {
        let mask = (1_u32 << bits) - 1;
        ((value.cast_unsigned() << 1) & mask) | u32::from(value < 0)
    };
    match value {
        -0x40..0x40 => blob.push(rotated(7) as u8),
        -0x2000..0x2000 => blob.extend((rotated(14) as u16 | 0x8000).to_be_bytes()),
        -0x1000_0000..0x1000_0000 => blob.extend((rotated(29) | 0xc000_0000).to_be_bytes()),
        _ => unimplemented!("{value}"),
    }
}
