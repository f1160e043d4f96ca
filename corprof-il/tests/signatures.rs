//! Signatures, decoded and encoded: bytes at random, bytes that look like signatures, signatures of all shapes.
//!
//! `corprof-il/fuzz` searches the same space for longer.

use std::time::Duration;

use corprof_il::signature::{
    ArrayShape, CallingConvention, MethodSignature, Primitive, PropertySignature, Signature, Type,
};
use corprof_il::token::{TypeDef, TypeDefOrRef, TypeRef, TypeSpec};
use proptest::collection::vec;
use proptest::prelude::*;

fn primitive() -> impl Strategy<Value = Primitive> {
    any::<u8>().prop_filter_map("no element type of its own", Primitive::from_element)
}

fn token() -> impl Strategy<Value = TypeDefOrRef> {
    (1..=0x00ff_ffff_u32, 0..3).prop_map(|(row, table)| match table {
        0 => TypeDefOrRef::Def(TypeDef::from_raw(TypeDef::NIL.as_raw() | row)),
        1 => TypeDefOrRef::Ref(TypeRef::from_raw(TypeRef::NIL.as_raw() | row)),
        _ => TypeDefOrRef::Spec(TypeSpec::from_raw(TypeSpec::NIL.as_raw() | row)),
    })
}

/// Numbers of every width.
fn number() -> impl Strategy<Value = u32> {
    prop_oneof![0..0x80_u32, 0x80..0x4000_u32, 0x4000..0x2000_0000_u32]
}

fn bound() -> impl Strategy<Value = i32> {
    prop_oneof![-0x50..0x50_i32, -0x2010..0x2010_i32, -0x1000_0000..0x1000_0000_i32]
}

fn shape() -> impl Strategy<Value = ArrayShape> {
    (1..=32_u32, vec(number(), 0..4), vec(bound(), 0..4)).prop_map(|(rank, sizes, lower_bounds)| ArrayShape {
        rank,
        sizes,
        lower_bounds,
    })
}

fn convention() -> impl Strategy<Value = CallingConvention> {
    prop::sample::select(vec![
        CallingConvention::Default,
        CallingConvention::C,
        CallingConvention::StdCall,
        CallingConvention::ThisCall,
        CallingConvention::FastCall,
        CallingConvention::VarArg,
        CallingConvention::Unmanaged,
        CallingConvention::NativeVarArg,
    ])
}

fn method(one: impl Strategy<Value = Type> + Clone) -> impl Strategy<Value = MethodSignature> {
    let sentinel = prop::option::of(any::<prop::sample::Index>());
    let flags = (any::<bool>(), any::<bool>(), prop_oneof![Just(0), number()]);
    (convention(), flags, one.clone(), vec(one, 0..4), sentinel).prop_map(
        |(convention, (has_this, explicit_this, generic_parameters), return_type, parameters, sentinel)| {
            let sentinel = sentinel.filter(|_| !parameters.is_empty()).map(|at| at.index(parameters.len()));
            MethodSignature {
                convention,
                has_this,
                explicit_this,
                generic_parameters,
                return_type,
                parameters,
                sentinel,
            }
        },
    )
}

fn one_type() -> impl Strategy<Value = Type> + Clone {
    let leaf = prop_oneof![
        primitive().prop_map(Type::Primitive),
        token().prop_map(Type::Class),
        token().prop_map(Type::ValueType),
        number().prop_map(Type::TypeParameter),
        number().prop_map(Type::MethodParameter),
        any::<usize>().prop_map(Type::Internal),
    ];
    leaf.prop_recursive(6, 40, 4, |inner| {
        let boxed = inner.clone().prop_map(Box::new);
        prop_oneof![
            boxed.clone().prop_map(Type::Pointer),
            boxed.clone().prop_map(Type::ByRef),
            boxed.clone().prop_map(Type::SzArray),
            boxed.clone().prop_map(Type::Pinned),
            (boxed.clone(), shape()).prop_map(|(inner, shape)| Type::Array(inner, shape)),
            (any::<bool>(), token(), boxed.clone()).prop_map(|(required, modifier, inner)| Type::Modified {
                required,
                modifier,
                inner
            }),
            (any::<bool>(), any::<usize>(), boxed)
                .prop_map(|(required, modifier, inner)| { Type::InternalModified { required, modifier, inner } }),
            (any::<bool>(), token(), vec(inner.clone(), 0..4)).prop_map(|(value_type, definition, arguments)| {
                Type::Generic { value_type, definition, arguments }
            }),
            method(inner).prop_map(|signature| Type::FunctionPointer(Box::new(signature))),
        ]
    })
}

fn signature() -> impl Strategy<Value = Signature> {
    prop_oneof![
        method(one_type()).prop_map(Signature::Method),
        one_type().prop_map(Signature::Field),
        vec(one_type(), 0..6).prop_map(Signature::Locals),
        vec(one_type(), 0..6).prop_map(Signature::MethodSpec),
        (any::<bool>(), one_type(), vec(one_type(), 0..4)).prop_map(|(has_this, value, parameters)| {
            Signature::Property(PropertySignature { has_this, value, parameters })
        }),
    ]
}

/// Bytes that begin, nest and count things, so that decoding goes far.
fn fertile() -> impl Strategy<Value = Vec<u8>> {
    let bytes = [
        0x00, 0x01, 0x02, 0x05, 0x06, 0x07, 0x08, 0x0a, 0x0e, 0x0f, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x1b, 0x1d,
        0x1e, 0x1f, 0x20, 0x21, 0x22, 0x28, 0x30, 0x41, 0x45, 0x7f, 0x80, 0xbf, 0xc0, 0xdf, 0xff,
    ];
    vec(prop::sample::select(bytes.to_vec()), 0..300)
}

/// Decodes the blob as everything that it might be.
fn decode_as_all(blob: &[u8]) {
    let _ = Signature::decode(blob);
    let _ = MethodSignature::decode(blob);
    let _ = PropertySignature::decode(blob);
    let _ = Type::decode(blob);
    let _ = Type::decode_field(blob);
    let _ = Type::decode_locals(blob);
    let _ = Type::decode_method_spec(blob);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_bytes_decode_or_fail(blob in vec(any::<u8>(), 0..300)) {
        decode_as_all(&blob);
    }

    #[test]
    fn any_fertile_bytes_decode_or_fail(blob in fertile()) {
        decode_as_all(&blob);
    }

    #[test]
    fn what_decodes_is_no_larger_than_its_blob(blob in fertile()) {
        if let Ok(decoded) = Signature::decode(&blob) {
            // Every type takes a byte at least; encoded in its shortest form it takes no more than it did.
            let again = decoded.encode().unwrap();
            prop_assert!(again.len() <= blob.len());
            prop_assert_eq!(Signature::decode(&again), Ok(decoded));
        }
    }

    #[test]
    fn what_is_encoded_decodes_to_the_same(signature in signature()) {
        let blob = signature.encode().unwrap();
        prop_assert_eq!(Signature::decode(&blob), Ok(signature));
    }

    #[test]
    fn a_signature_cut_short_fails_within_its_length(signature in signature(), at in any::<prop::sample::Index>()) {
        let blob = signature.encode().unwrap();
        let cut = &blob[..at.index(blob.len())];
        match Signature::decode(cut) {
            Err(error) => prop_assert!(error.offset <= cut.len(), "{error}"),
            Ok(decoded) => prop_assert!(false, "{cut:x?} decodes to {decoded:?}"),
        }
    }
}

/// Counts that promise much and nesting as deep as allowed take time in proportion to the length: sixteen times as much
/// for sixteen times the bytes, where a square would take 256 times.
#[test]
fn long_blobs_take_time_in_proportion() {
    const SHORT: usize = 1 << 14;
    const LONG: usize = 16 * SHORT;
    let few_deep = [vec![0x1d; 60], vec![0x08]].concat();
    // A count of nearly as many as there are bytes, so that it is believed.
    let count = |of: usize| [0xc0, (of >> 16) as u8, (of >> 8) as u8, of as u8];
    let locals =
        |length: usize, pattern: &[u8]| repeated([&[0x07][..], &count(length / 16 * 15)].concat(), pattern, length);
    let field = |length: usize, pattern: &[u8]| repeated(vec![0x06], pattern, length);
    let inner = |length: usize, head: &[u8]| [head, &count(length / 8 * 7)].concat();
    let blobs = |length: usize| {
        [
            locals(length, &[0x08]),
            locals(length, &few_deep),
            // Locals of generic types with counts of their own, and none of the arguments.
            locals(length, &inner(length, &[0x15, 0x12, 0x05])),
            field(length, &[0x1b, 0x00, 0x7f]),
            field(length, &inner(length, &[0x14, 0x08, 0x02])),
            vec![0x1d; length],
            vec![0xff; length],
        ]
    };
    for (short, long) in blobs(SHORT).into_iter().zip(blobs(LONG)) {
        let of_short = fastest(&short).max(Duration::from_millis(1));
        let of_long = fastest(&long);
        let head = long.get(..12);
        assert!(of_long < 64 * of_short, "{head:x?}: {of_long:?} for {LONG} bytes, {of_short:?} for {SHORT}");
    }
}

/// A blob of that length: `head`, then the pattern again and again.
fn repeated(mut head: Vec<u8>, pattern: &[u8], length: usize) -> Vec<u8> {
    while head.len() < length {
        head.extend(pattern);
    }
    head
}

/// The shortest time of several: the first one warms caches.
fn fastest(blob: &[u8]) -> Duration {
    let times = (0..3).map(|_| {
        let start = time();
        decode_as_all(blob);
        time().saturating_sub(start)
    });
    times.min().unwrap_or_default()
}

/// The processor time of this thread: what the machine does otherwise does not count.
#[cfg(unix)]
fn time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// The time.
#[cfg(not(unix))]
fn time() -> Duration {
    static START: std::sync::LazyLock<std::time::Instant> = std::sync::LazyLock::new(std::time::Instant::now);
    START.elapsed()
}
