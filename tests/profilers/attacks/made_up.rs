//! Signatures made up: each is handed to the runtime, or refused.

use corprof::metadata::signature::{ArrayShape, CallingConvention, MethodSignature, Primitive, Type};
use corprof::metadata::{MetadataEmit, Token, TypeDefOrRef};
use fastrand::Rng;

/// A type that may be nonsense; `depth` is how deep it may still be.
pub(crate) fn some_type(random: &mut Rng, depth: u32) -> Type {
    const PRIMITIVES: [Primitive; 8] = [
        Primitive::Bool,
        Primitive::Int32,
        Primitive::Int64,
        Primitive::Float64,
        Primitive::String,
        Primitive::Object,
        Primitive::NativeInt,
        Primitive::TypedRef,
    ];
    let inner = |random: &mut Rng| Box::new(some_type(random, depth.saturating_sub(1)));
    match random.u32(0..if depth == 0 { 6 } else { 15 }) {
        0 | 1 => Type::Primitive(PRIMITIVES[random.usize(0..PRIMITIVES.len())]),
        2 => Type::Class(some_token(random)),
        3 => Type::ValueType(some_token(random)),
        4 => Type::MethodParameter(random.u32(0..3)),
        5 => Type::TypeParameter(random.u32(0..3)),
        6 => Type::Pointer(inner(random)),
        7 => Type::ByRef(inner(random)),
        8 | 9 => Type::SzArray(inner(random)),
        10 => {
            let shape = ArrayShape { rank: random.u32(1..33), sizes: Vec::new(), lower_bounds: Vec::new() };
            Type::Array(inner(random), shape)
        }
        11 | 12 => Type::Generic {
            value_type: random.bool(),
            definition: some_token(random),
            arguments: (0..random.usize(1..4)).map(|_| some_type(random, depth - 1)).collect(),
        },
        13 => Type::FunctionPointer(Box::new(MethodSignature {
            convention: CallingConvention::Default,
            has_this: random.bool(),
            explicit_this: false,
            generic_parameters: 0,
            return_type: some_type(random, depth - 1),
            parameters: (0..random.usize(0..3)).map(|_| some_type(random, depth - 1)).collect(),
            sentinel: None,
        })),
        _ => match random.u32(0..3) {
            0 => Type::Internal(random.usize(..)),
            1 => Type::Pinned(inner(random)),
            _ => Type::Modified { required: random.bool(), modifier: some_token(random), inner: inner(random) },
        },
    }
}

/// A definition, a reference or a spec, which the module may lack.
fn some_token(random: &mut Rng) -> TypeDefOrRef {
    let table = [0x01, 0x02, 0x1b][random.usize(0..3)];
    let row = if random.u32(0..20) == 0 { random.u32(1..0x100_0000) } else { random.u32(1..24) };
    TypeDefOrRef::from_token(Token::from_raw(table << 24 | row)).unwrap()
}

/// Hands over random bytes, and whole signatures with one byte changed; returns how many were taken.
pub(crate) fn define_nonsense(random: &mut Rng, emit: &MetadataEmit<'_>) -> u64 {
    let mut defined = 0;
    for _ in 0..20 {
        let mut blob: Vec<u8> = match some_type(random, 4).encode() {
            Ok(blob) if random.bool() => blob,
            _ => (0..random.usize(0..12)).map(|_| random.u8(0..0x46)).collect(),
        };
        if let Some(at) = (!blob.is_empty()).then(|| random.usize(0..blob.len())) {
            blob[at] = random.u8(..);
        }
        defined += u64::from(emit.define_type_spec(&blob).is_ok());
        defined += u64::from(emit.define_signature(&blob).is_ok());
        let parent = some_token(random).token();
        defined += u64::from(emit.define_member_ref(parent, "Nonsense", &blob).is_ok());
        defined += u64::from(emit.define_method_spec(parent, &blob).is_ok());
    }
    defined
}
