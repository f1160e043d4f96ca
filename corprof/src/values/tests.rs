//! Reads values from memory that a test has laid out.

use corprof_sys::COR_PRF_FUNCTION_ARGUMENT_RANGE as Range;

use super::plan::{FieldNode, Node, Parameter, Plan, StringClass, StructNode};
use super::*;
use crate::id::ClassId;
use crate::info::StringLayout;
use crate::metadata::FieldDef;
use crate::metadata::signature::Primitive;

fn id(number: usize) -> ClassId {
    ClassId::from_raw(number).unwrap()
}

/// The class of the strings of these tests.
fn strings() -> StringClass {
    let class = StringClass::default();
    class.learn(id(1));
    class
}

/// The range of a value, as the runtime would return it.
fn range<T>(value: &T) -> Range {
    Range { startAddress: std::ptr::from_ref(value).expose_provenance(), length: size_of::<T>() as u32 }
}

fn plan(this: Option<Node>, parameters: impl IntoIterator<Item = Node>) -> Plan {
    let named = |(at, node)| Parameter { name: (at == 0).then(|| "first".into()), node };
    Plan {
        this,
        parameters: parameters.into_iter().enumerate().map(named).collect(),
        result: None,
        unreadable: None,
        assemblies: Box::default(),
    }
}

/// The text of the arguments.
fn text(plan: &Plan, ranges: &[Range]) -> String {
    // SAFETY: the tests' ranges hold values of the nodes' types, or are too short.
    unsafe { Arguments::new(plan, Ok(ranges), STRING) }.to_string()
}

/// As in a runtime: a word for the class, the length, the text.
const STRING: StringLayout = StringLayout { length_offset: 8, buffer_offset: 12 };

#[repr(C)]
struct Text {
    class: usize,
    length: u32,
    units: [u16; 6],
}

#[test]
fn numbers_are_read_to_the_last_bit() {
    let numbers = [
        Primitive::Bool,
        Primitive::Char,
        Primitive::Int8,
        Primitive::UInt8,
        Primitive::Int16,
        Primitive::UInt16,
        Primitive::Int32,
        Primitive::UInt32,
        Primitive::Int64,
        Primitive::UInt64,
        Primitive::Float32,
        Primitive::Float64,
        Primitive::NativeInt,
        Primitive::NativeUInt,
    ];
    let plan = plan(None, numbers.map(Node::Primitive));
    // All other values are constants, which live as long as the program.
    let letter = u16::from(b'x');
    let ranges = [
        range(&true),
        range(&letter),
        range(&i8::MIN),
        range(&u8::MAX),
        range(&i16::MIN),
        range(&u16::MAX),
        range(&i32::MIN),
        range(&u32::MAX),
        range(&i64::MIN),
        range(&u64::MAX),
        range(&-0.5_f32),
        range(&1e300_f64),
        range(&isize::MIN),
        range(&usize::MAX),
    ];
    let expected = format!(
        "(true, 'x', -128, 255, -32768, 65535, -2147483648, 4294967295, {}, {}, -0.5, {}, {}, {})",
        i64::MIN,
        u64::MAX,
        1e300_f64,
        isize::MIN,
        usize::MAX
    );
    assert_eq!(text(&plan, &ranges), expected);
}

#[test]
fn strings_objects_and_structs_are_read_where_they_lie() {
    #[repr(C)]
    struct Inner {
        small: u8,
        text: usize,
    }
    let string = Text { class: 1, length: 3, units: [u16::from(b'a'), 0xd83d, 0xde00, 0xdead, 0xdead, 0xdead] };
    let string = std::ptr::from_ref(&string).expose_provenance();
    let value = Inner { small: 7, text: string };
    let field = |name: &str, offset, node| FieldNode {
        token: FieldDef::from_raw(0x0400_0001),
        name: name.into(),
        offset,
        node,
    };
    let inner = || {
        let fields = [
            field("E", 0, Node::Enum { class: id(5), underlying: Primitive::UInt8 }),
            field("T", 8, Node::String(strings())),
            field("<P>k__BackingField", 8, Node::Pointer),
        ];
        Node::Struct(Box::new(StructNode { class: id(6), size: 16, fields: Box::new(fields) }))
    };
    let plan = plan(
        Some(Node::Object),
        [inner(), Node::String(strings()), Node::String(StringClass::default()), Node::ByRef(Box::new(inner()))],
    );
    let none = 0_usize;
    let place = std::ptr::from_ref(&value).expose_provenance();
    let ranges = [range(&string), range(&value), range(&string), range(&none), range(&place)];
    // Behind the by-ref the number is read, and the reference is not trusted.
    let expected = format!(
        "({{ E: 7, T: \"a😀\", P: {string:#x} }}, \"a😀\", null, ref {{ E: 7, T: <{}>, P: {string:#x} }})",
        Unreadable::ObjectBehindByRef
    );
    assert_eq!(text(&plan, &ranges), expected);

    // SAFETY: as in `text`.
    let args = unsafe { Arguments::new(&plan, Ok(&ranges), STRING) };
    assert!(matches!(args.this(), Some(Value::Object(Some(object))) if object.as_raw() == string));
    assert_eq!((args.len(), args.name(0), args.name(1)), (4, Some("first"), None));
    let Some(Value::Struct(found)) = args.get(0) else { panic!("no struct") };
    assert_eq!((found.class(), found.size(), found.fields().len()), (id(6), 16, 3));
    assert!(matches!(found.field("E").unwrap().value(), Value::Enum(member) if member.class() == id(5)));
    assert!(found.field("X").is_none());
    let Some(Value::ByRef(by_ref)) = args.get(3) else { panic!("no by-ref") };
    // SAFETY: it leads to the struct above.
    assert_eq!(unsafe { by_ref.value_unchecked() }.to_string(), Value::Struct(found).to_string());
    assert!(args.get(4).is_none());
}

#[test]
fn what_is_no_string_in_the_place_of_one_is_an_object() {
    let other = Text { class: 2, length: u32::MAX, units: [0; 6] };
    let other = std::ptr::from_ref(&other).expose_provenance();
    let plan = plan(None, [Node::String(strings()), Node::String(StringClass::default())]);
    let expected = format!("(object at {other:#x}, object at {other:#x})");
    assert_eq!(text(&plan, &[range(&other), range(&other)]), expected);
}

#[test]
#[cfg(any(target_os = "linux", windows))]
fn a_by_ref_to_nowhere_says_so() {
    let to = |node| Node::ByRef(Box::new(node));
    let plan = plan(None, [to(Node::Primitive(Primitive::Int64)), to(Node::Primitive(Primitive::UInt8))]);
    for nowhere in [8_usize, usize::MAX - 3] {
        let ranges = [range(&nowhere), range(&0_usize)];
        assert_eq!(text(&plan, &ranges), format!("(ref <{}>, ref null)", Unreadable::NoMemory));
    }
}

/// The application may have entered a sandbox that forbids the calls with which memory is probed.
#[test]
#[cfg(target_os = "linux")]
fn a_by_ref_in_a_sandbox_says_so() {
    let plan = plan(None, [Node::ByRef(Box::new(Node::Primitive(Primitive::Int64)))]);
    let number = 42_i64;
    let place = std::ptr::from_ref(&number).expose_provenance();
    assert_eq!(text(&plan, &[range(&place)]), "(ref 42)");
    // On a thread of its own: the seccomp filter ends with the thread.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            crate::system::forbid(libc::SYS_process_vm_readv);
            // The other way, which refuses what is not there just as well.
            assert_eq!(text(&plan, &[range(&place)]), "(ref 42)");
            let nowhere = 16_usize;
            assert_eq!(text(&plan, &[range(&nowhere)]), format!("(ref <{}>)", Unreadable::NoMemory));
            crate::system::forbid(libc::SYS_pipe2);
            assert_eq!(text(&plan, &[range(&place)]), format!("(ref <{}>)", Unreadable::NoMemory));
        });
    });
}

#[test]
fn what_does_not_fit_the_signature_is_not_read() {
    let plan = plan(None, [Node::Primitive(Primitive::Int64), Node::Object]);
    let mismatch = format!("<{}>", Unreadable::Mismatch);
    let short = [range(&1_u32), Range { startAddress: 0, length: 8 }];
    assert_eq!(text(&plan, &short), format!("({mismatch}, {mismatch})"));
    // One range too few, and one too many.
    for ranges in [&[range(&1_u64)][..], &[range(&1_u64), range(&0_usize), range(&0_usize)]] {
        assert_eq!(text(&plan, ranges), format!("({mismatch}, {mismatch})"));
    }
    // SAFETY: nothing is read.
    let args = unsafe { Arguments::new(&plan, Err(Unreadable::TooManyArguments), STRING) };
    assert_eq!(args.unreadable(), Some(Unreadable::TooManyArguments));
    let none = Plan::unreadable(Unreadable::CallingConvention);
    // SAFETY: the same.
    let args = unsafe { Arguments::new(&none, Ok(&[]), STRING) };
    assert_eq!((args.len(), args.unreadable()), (0, Some(Unreadable::CallingConvention)));
}

#[test]
fn a_result_is_a_value_or_none() {
    let returns = |node| Plan { result: node, ..Plan::default() };
    let number = returns(Some(Node::Primitive(Primitive::Int32)));
    let void = returns(None);
    let answer = 42_i32;
    // SAFETY: the range holds a number of this type.
    let value = |plan, range| unsafe { ReturnValue::new(plan, range, STRING) }.to_string();
    assert_eq!(value(&number, Ok(range(&answer))), "42");
    assert_eq!(value(&void, Ok(Range { startAddress: 0, length: 0 })), "void");
    assert_eq!(value(&number, Ok(Range { startAddress: 0, length: 4 })), format!("<{}>", Unreadable::Mismatch));
    assert_eq!(value(&number, Err(Unreadable::NoMemory)), format!("<{}>", Unreadable::NoMemory));
}
