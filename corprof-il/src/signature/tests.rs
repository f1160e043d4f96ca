//! Known signatures, all their prefixes, and bytes that mean no good.

use super::*;
use crate::token::{TypeDef, TypeRef};

const INT32: Type = Type::Primitive(Primitive::Int32);
const STRING: Type = Type::Primitive(Primitive::String);
const VOID: Type = Type::Primitive(Primitive::Void);

fn class_ref(row: u32) -> TypeDefOrRef {
    TypeDefOrRef::Ref(TypeRef::from_raw(0x0100_0000 | row))
}

fn type_def(row: u32) -> TypeDefOrRef {
    TypeDefOrRef::Def(TypeDef::from_raw(0x0200_0000 | row))
}

fn problem(blob: &[u8]) -> (usize, SignatureProblem) {
    let error = Signature::decode(blob).expect_err("decodes");
    (error.offset, error.problem)
}

/// `static void M(int, string[])`
const SIMPLE: &[u8] = &[0x00, 0x02, 0x01, 0x08, 0x1d, 0x0e];
/// `instance !!0 M<T, U>(List<!0>, ref int[,], int modopt(X)*)`
const GENERIC: &[u8] = &[
    0x30, 0x02, 0x03, 0x1e, 0x00, 0x15, 0x12, 0x05, 0x01, 0x13, 0x00, 0x10, 0x14, 0x08, 0x02, 0x01, 0x04, 0x02, 0x00,
    0x7b, 0x0f, 0x20, 0x08, 0x08,
];
/// `vararg void M(int, ..., string, object)`
const VARARG: &[u8] = &[0x05, 0x03, 0x01, 0x08, 0x41, 0x0e, 0x1c];
/// `void M(method unmanaged cdecl int *(native int), typedref)`
const POINTER: &[u8] = &[0x00, 0x02, 0x01, 0x1b, 0x01, 0x01, 0x08, 0x18, 0x16];
const FIELD: &[u8] = &[0x06, 0x1f, 0x09, 0x11, 0x08];
const LOCALS: &[u8] = &[0x07, 0x03, 0x08, 0x45, 0x10, 0x05, 0x1d, 0x1d, 0x0d];
const PROPERTY: &[u8] = &[0x28, 0x01, 0x0e, 0x08];
const METHOD_SPEC: &[u8] = &[0x0a, 0x02, 0x0e, 0x15, 0x11, 0x04, 0x01, 0x08];

const ALL: [&[u8]; 8] = [SIMPLE, GENERIC, VARARG, POINTER, FIELD, LOCALS, PROPERTY, METHOD_SPEC];

#[test]
fn a_simple_method() {
    let method = MethodSignature::decode(SIMPLE).unwrap();
    assert_eq!(method.convention, CallingConvention::Default);
    assert!(!method.has_this && !method.explicit_this);
    assert_eq!(method.generic_parameters, 0);
    assert_eq!(method.return_type, VOID);
    assert_eq!(method.parameters, [INT32, Type::SzArray(Box::new(STRING))]);
    assert_eq!(method.sentinel, None);
}

#[test]
fn a_generic_method_with_everything_nested() {
    let method = MethodSignature::decode(GENERIC).unwrap();
    assert!(method.has_this);
    assert_eq!(method.generic_parameters, 2);
    assert_eq!(method.return_type, Type::MethodParameter(0));
    let list = Type::Generic { value_type: false, definition: class_ref(1), arguments: vec![Type::TypeParameter(0)] };
    let shape = ArrayShape { rank: 2, sizes: vec![4], lower_bounds: vec![0, -3] };
    let matrix = Type::ByRef(Box::new(Type::Array(Box::new(INT32), shape)));
    let modified = Type::Modified { required: false, modifier: type_def(2), inner: Box::new(INT32) };
    assert_eq!(method.parameters, [list, matrix, Type::Pointer(Box::new(modified))]);
}

#[test]
fn variable_arguments_and_function_pointers() {
    let method = MethodSignature::decode(VARARG).unwrap();
    assert_eq!(method.convention, CallingConvention::VarArg);
    assert_eq!(method.sentinel, Some(1));
    assert_eq!(method.parameters, [INT32, STRING, Type::Primitive(Primitive::Object)]);

    let method = MethodSignature::decode(POINTER).unwrap();
    let [Type::FunctionPointer(pointer), Type::Primitive(Primitive::TypedRef)] = &method.parameters[..] else {
        panic!("{method:?}");
    };
    assert_eq!(pointer.convention, CallingConvention::C);
    assert_eq!(pointer.return_type, INT32);
    assert_eq!(pointer.parameters, [Type::Primitive(Primitive::NativeInt)]);
}

#[test]
fn fields_locals_properties_and_specs() {
    let field = Type::decode_field(FIELD).unwrap();
    assert_eq!(
        field,
        Type::Modified { required: true, modifier: class_ref(2), inner: Box::new(Type::ValueType(type_def(2))) }
    );
    assert_eq!(field.unmodified(), &Type::ValueType(type_def(2)));

    let locals = Type::decode_locals(LOCALS).unwrap();
    assert_eq!(locals.len(), 3);
    assert_eq!(locals[1].unmodified(), &Type::ByRef(Box::new(Type::Primitive(Primitive::UInt8))));

    let property = PropertySignature::decode(PROPERTY).unwrap();
    assert_eq!(property, PropertySignature { has_this: true, value: STRING, parameters: vec![INT32] });

    let arguments = Type::decode_method_spec(METHOD_SPEC).unwrap();
    let nullable = Type::Generic { value_type: true, definition: type_def(1), arguments: vec![INT32] };
    assert_eq!(arguments, [STRING, nullable.clone()]);
    assert_eq!(Type::decode(&METHOD_SPEC[3..]), Ok(nullable));
}

#[test]
fn every_byte_says_its_own_kind() {
    assert!(matches!(Signature::decode(SIMPLE), Ok(Signature::Method(_))));
    assert!(matches!(Signature::decode(FIELD), Ok(Signature::Field(_))));
    assert!(matches!(Signature::decode(LOCALS), Ok(Signature::Locals(_))));
    assert!(matches!(Signature::decode(PROPERTY), Ok(Signature::Property(_))));
    assert!(matches!(Signature::decode(METHOD_SPEC), Ok(Signature::MethodSpec(_))));
    let wrong = MethodSignature::decode(FIELD).unwrap_err();
    assert_eq!(wrong.to_string(), "bad signature at offset 0: 0x06 does not begin a method signature");
}

#[test]
fn type_handles_of_the_runtime() {
    let handle = 0x1234_5678_usize;
    let mut blob = vec![0x22, 0x01];
    blob.extend(handle.to_ne_bytes());
    blob.push(0x21);
    blob.extend(handle.to_ne_bytes());
    let inner = Box::new(Type::Internal(handle));
    assert_eq!(Type::decode(&blob), Ok(Type::InternalModified { required: true, modifier: handle, inner }));
}

#[test]
fn every_primitive_is_one_byte() {
    let all: Vec<_> = (0..=u8::MAX).filter_map(Primitive::from_element).collect();
    assert_eq!(all.len(), 18);
    for byte in 0..=u8::MAX {
        if let Some(primitive) = Primitive::from_element(byte) {
            assert_eq!(Type::decode(&[byte]), Ok(Type::Primitive(primitive)));
            assert!(!primitive.il_name().is_empty());
        }
    }
}

#[test]
fn primitives_are_the_standards() {
    let same = [
        (0x01, Primitive::Void),
        (0x04, Primitive::Int8),
        (0x0b, Primitive::UInt64),
        (0x0d, Primitive::Float64),
        (0x0e, Primitive::String),
        (0x16, Primitive::TypedRef),
        (0x18, Primitive::NativeInt),
        (0x19, Primitive::NativeUInt),
        (0x1c, Primitive::Object),
    ];
    for (element, primitive) in same {
        assert_eq!(Primitive::from_element(element), Some(primitive));
        assert_eq!(primitive.as_element(), element);
    }
}

#[test]
fn signatures_come_back_identical() {
    for blob in ALL {
        assert_eq!(Signature::decode(blob).unwrap().encode().unwrap(), blob);
    }
    let mut deep = vec![0x06];
    deep.extend([0x0f; MAX_DEPTH - 1]);
    deep.push(0x08);
    let ty = Type::decode_field(&deep).unwrap();
    assert_eq!(ty.encode_field().unwrap(), deep);
    assert_eq!(Type::Pointer(Box::new(ty)).encode(), Err(EncodeError::TooDeep));
}

#[test]
fn numbers_of_every_width_come_back() {
    for number in [0, 0x7f, 0x80, 0x3fff, 0x4000, 0x1fff_ffff] {
        let blob = Type::TypeParameter(number).encode().unwrap();
        assert_eq!(Type::decode(&blob), Ok(Type::TypeParameter(number)));
    }
    assert_eq!(Type::MethodParameter(0x2000_0000).encode(), Err(EncodeError::TooLarge(0x2000_0000)));
    let array = |bound| {
        let shape = ArrayShape { rank: 1, sizes: vec![], lower_bounds: vec![bound] };
        Type::Array(Box::new(INT32), shape)
    };
    for bound in [0, 1, -1, 63, 64, -64, -65, 8191, 8192, -8192, -8193, 0x0fff_ffff, -0x1000_0000] {
        assert_eq!(Type::decode(&array(bound).encode().unwrap()), Ok(array(bound)), "{bound}");
    }
    assert_eq!(array(0x1000_0000).encode(), Err(EncodeError::BoundTooLarge(0x1000_0000)));
    assert_eq!(array(i32::MIN).encode(), Err(EncodeError::BoundTooLarge(i32::MIN)));
}

#[test]
fn types_are_shown_as_il_spells_them() {
    let text = MethodSignature::decode(GENERIC).unwrap().to_string();
    let expected = "instance !!0 (class 0x01000001<!0>, int32[,]&, int32 modopt(0x02000002)*)";
    assert!(text.starts_with("instance !!0 (class 0x01000001<!0>, int32[,]&"), "{text} {expected}");
    assert_eq!(MethodSignature::decode(VARARG).unwrap().to_string(), "vararg void (int32, ..., string, object)");
}

#[test]
fn every_prefix_is_truncated_and_says_so() {
    for blob in ALL {
        assert!(Signature::decode(blob).is_ok());
        for end in 0..blob.len() {
            let (offset, problem) = problem(&blob[..end]);
            assert!(offset <= end, "{blob:x?} cut to {end}: at {offset}");
            let expected = matches!(problem, SignatureProblem::Truncated | SignatureProblem::CountTooLarge(_));
            assert!(expected, "{blob:x?} cut to {end}: {problem:?}");
        }
    }
}

#[test]
fn bytes_after_the_signature_are_ignored() {
    for blob in ALL {
        let longer = [blob, &[0xff, 0x00]].concat();
        assert_eq!(Signature::decode(&longer), Signature::decode(blob));
    }
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    assert_eq!(problem(&[]), (0, SignatureProblem::Truncated));
    assert_eq!(problem(&[0x0c, 0, 1]), (0, SignatureProblem::WrongKind { wanted: "method", found: 0x0c }));
    assert_eq!(problem(&[0x06, 0x17]), (1, SignatureProblem::BadElement(0x17)));
    assert_eq!(problem(&[0x06, 0x41]), (1, SignatureProblem::BadElement(0x41)));
    assert_eq!(problem(&[0x06, 0x12, 0x07]), (2, SignatureProblem::BadToken(7)));
    assert_eq!(problem(&[0x06, 0x15, 0x08]), (2, SignatureProblem::BadElement(8)));
    assert_eq!(problem(&[0x06, 0x14, 0x08, 0x00]), (3, SignatureProblem::BadRank(0)));
    assert_eq!(problem(&[0x06, 0x14, 0x08, 0xbf, 0xff]), (3, SignatureProblem::BadRank(0x3fff)));
    assert_eq!(problem(&[0x06, 0x13, 0xff]), (2, SignatureProblem::BadInteger(0xff)));
    assert_eq!(problem(&[0x00, 0xdf, 0xff, 0xff, 0xff, 1]), (1, SignatureProblem::CountTooLarge(0x1fff_ffff)));
    // A second sentinel is not a type.
    assert_eq!(problem(&[0x05, 0x02, 0x01, 0x41, 0x08, 0x41, 0x08]), (5, SignatureProblem::BadElement(0x41)));
}

#[test]
fn nesting_ends_at_the_limit() {
    let nested = |depth: usize| [vec![0x0f; depth - 1], vec![0x08]].concat();
    assert!(Type::decode(&nested(MAX_DEPTH)).is_ok());
    let error = Type::decode(&nested(MAX_DEPTH + 1)).unwrap_err();
    assert_eq!(error, SignatureError { offset: MAX_DEPTH, problem: SignatureProblem::TooDeep });
    // Function pointers that return function pointers, generics of generics, arrays of arrays, modifiers without end.
    for unit in [&[0x1b, 0x00, 0x00][..], &[0x15, 0x12, 0x05, 0x01], &[0x14], &[0x1d], &[0x20, 0x05], &[0x45]] {
        let error = Type::decode(&unit.repeat(100_000)).unwrap_err();
        assert_eq!(error.problem, SignatureProblem::TooDeep, "{unit:x?}");
    }
}

/// How many types a tree holds.
fn size(of: &Type) -> usize {
    let inside = match of {
        Type::Pointer(inner) | Type::ByRef(inner) | Type::SzArray(inner) | Type::Pinned(inner) => size(inner),
        Type::Array(inner, shape) => size(inner) + shape.sizes.len() + shape.lower_bounds.len(),
        Type::Modified { inner, .. } | Type::InternalModified { inner, .. } => size(inner),
        Type::Generic { arguments, .. } => arguments.iter().map(size).sum(),
        Type::FunctionPointer(method) => method_size(method),
        _ => 0,
    };
    inside + 1
}

fn method_size(method: &MethodSignature) -> usize {
    size(&method.return_type) + method.parameters.iter().map(size).sum::<usize>()
}

fn check(blob: &[u8]) {
    let nodes = match Signature::decode(blob) {
        Ok(Signature::Method(method)) => method_size(&method),
        Ok(Signature::Field(of)) => size(&of),
        Ok(Signature::Locals(types) | Signature::MethodSpec(types)) => types.iter().map(size).sum(),
        Ok(Signature::Property(property)) => {
            size(&property.value) + property.parameters.iter().map(size).sum::<usize>()
        }
        Err(error) => {
            assert!(error.offset <= blob.len(), "{blob:x?}: {error}");
            0
        }
    };
    assert!(nodes <= blob.len(), "{blob:x?} made {nodes} types");
    if let Ok(of) = Type::decode(blob) {
        assert!(size(&of) <= blob.len());
    }
}

/// A small generator (xorshift), so that a failure repeats.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

#[test]
fn hostile_bytes_neither_panic_nor_swell() {
    let mut random = Random(0x5eed_0001_c0ff_ee11);
    // Bytes drawn evenly almost never get past the third; these begin something that goes on.
    let fertile =
        [0x00, 0x05, 0x0f, 0x10, 0x12, 0x13, 0x14, 0x15, 0x1b, 0x1d, 0x1e, 0x1f, 0x20, 0x22, 0x41, 0x45, 0x01, 0x08];
    let mut blob = Vec::new();
    for round in 0..200_000 {
        blob.clear();
        for _ in 0..random.below(48) {
            blob.push(if round % 4 == 0 { random.next() as u8 } else { fertile[random.below(fertile.len())] });
        }
        check(&blob);
    }
}

#[test]
fn valid_signatures_with_flipped_bytes() {
    let mut random = Random(0x0bad_5eed);
    for _ in 0..20_000 {
        for original in ALL {
            let mut blob = original.to_vec();
            for _ in 0..=random.below(3) {
                let at = random.below(blob.len());
                blob[at] = random.next() as u8;
            }
            check(&blob);
        }
    }
}
