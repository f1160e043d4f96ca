//! The same names in C#.

use corprof_sys as sys;

use super::super::Name;
use super::world::{CANON, INT32, STRING, World, class_id, function_id, method_def, module_id, type_def, world};
use crate::metadata::{Token, TypeRef, TypeRefProps};
use crate::names::spell::Speller;
use crate::names::spelling::Spelling;

fn function(world: &World, id: usize) -> Name {
    // A kept name may be in the other spelling: the runtime's tables are separate, the made-up world has one.
    world.learnt.borrow_mut().clear();
    let mut speller = Speller::new(world, Spelling::CSharp);
    let name = speller.function(function_id(id));
    assert!(speller.is_lasting(), "{name}");
    name
}

fn class(world: &World, id: usize) -> Name {
    world.learnt.borrow_mut().clear();
    Speller::new(world, Spelling::CSharp).new_class(class_id(id))
}

#[test]
fn generic_arguments_of_class_and_method() {
    let mut world = world();
    // instance void M<V>(!0, !1&, !!0[,], !!0*)
    let signature =
        [0x30, 0x01, 0x04, 0x01, 0x13, 0x00, 0x10, 0x13, 0x01, 0x14, 0x1e, 0x00, 0x02, 0x00, 0x00, 0x0f, 0x1e, 0x00];
    world.add_method(1, type_def(5), "M", &signature, &["V"]);
    world.function(1, Some(0x50), method_def(1), &[CANON]);
    assert_eq!(
        function(&world, 1),
        "N.Outer<int>.Inner<string>.M<System.__Canon>(int, ref string, System.__Canon[,], System.__Canon*)"
    );
    world.function(2, None, method_def(1), &[]);
    assert_eq!(function(&world, 2), "N.Outer<T>.Inner<U>.M<V>(T, ref U, V[,], V*)");
    assert_eq!(
        Speller::new(&world, Spelling::CSharp).method_def(module_id(), method_def(1)),
        "N.Outer<T>.Inner<U>.M<V>(T, ref U, V[,], V*)"
    );
}

#[test]
fn types_of_signatures() {
    let mut world = world();
    let mut refer = |row: u32, name: &str| {
        let props = TypeRefProps { scope: Token::from_raw(0x2300_0001), name: name.to_owned() };
        world.refs.insert(TypeRef::from_raw(0x0100_0000 | row), props);
    };
    refer(1, "System.Nullable`1");
    refer(2, "System.Decimal");
    refer(3, "X.Dict`2");
    let cases: [(&[u8], &str); 16] = [
        (&[0x10, 0x08], "ref int"),
        (&[0x1d, 0x0e], "string[]"),
        (&[0x15, 0x11, 0x05, 0x01, 0x0c], "float?"),
        (&[0x1d, 0x15, 0x11, 0x05, 0x01, 0x11, 0x09], "decimal?[]"),
        (&[0x11, 0x09], "decimal"),
        (&[0x15, 0x12, 0x0d, 0x02, 0x04, 0x1d, 0x05], "X.Dict<sbyte, byte[]>"),
        (&[0x12, 0x0d], "X.Dict<,>"),
        // An array of two dimensions, of lines.
        (&[0x14, 0x1d, 0x0e, 0x02, 0x00, 0x00], "string[,][]"),
        (&[0x1d, 0x1d, 0x18], "nint[][]"),
        (&[0x1d, 0x0f, 0x03], "char*[]"),
        (&[0x0f, 0x0f, 0x01], "void**"),
        (&[0x1b, 0x00, 0x02, 0x01, 0x08, 0x0e], "delegate*<int, string, void>"),
        (&[0x1b, 0x01, 0x01, 0x08, 0x0f, 0x01], "delegate* unmanaged[Cdecl]<void*, int>"),
        (&[0x1b, 0x09, 0x00, 0x01], "delegate* unmanaged<void>"),
        (&[0x16], "System.TypedReference"),
        (&[0x0b], "ulong"),
    ];
    for (at, (parameter, expected)) in (1..).zip(cases) {
        let signature = [&[0x00, 0x01, 0x01][..], parameter].concat();
        world.add_method(at, type_def(6), "M", &signature, &[]);
        world.function(at as usize, Some(0x60), method_def(at), &[]);
        assert_eq!(function(&world, at as usize), format!("N.Plain.M({expected})").as_str());
    }
    world.add_method(99, type_def(6), "M", &[0x05, 0x01, 0x01, 0x08], &[]);
    world.function(99, Some(0x60), method_def(99), &[]);
    assert_eq!(function(&world, 99), "N.Plain.M(int, __arglist)");
}

#[test]
fn classes_and_arrays() {
    let mut world = world();
    world.array(0x100, Some(STRING), sys::ELEMENT_TYPE_STRING, 1);
    world.array(0x101, Some(0x100), sys::ELEMENT_TYPE_SZARRAY, 2);
    world.array(0x102, None, sys::ELEMENT_TYPE_I4, 1);
    world.class(0x103, 4, &[0x101]);
    world.define(7, "System.Nullable`1", None, &["T"]);
    world.class(0x104, 7, &[INT32]);
    world.class(0x105, 4, &[0x104]);
    assert_eq!(class(&world, INT32), "System.Int32");
    assert_eq!(class(&world, 0x100), "string[]");
    assert_eq!(class(&world, 0x101), "string[,][]");
    assert_eq!(class(&world, 0x102), "int[]");
    assert_eq!(class(&world, 0x103), "N.Outer<string[,][]>");
    assert_eq!(class(&world, 0x104), "System.Nullable<int>");
    assert_eq!(class(&world, 0x105), "N.Outer<int?>");
}
