//! Names in a small made-up world: putting text together needs no runtime.

mod csharp;
mod world;

use corprof_sys as sys;

use super::spell::Speller;
use super::spelling::Spelling;
use super::{Name, file_name, known_or};
use crate::error::{E_FAIL, Error};
use crate::metadata::signature::MethodSignature;
use crate::metadata::{MethodDef, Token, TypeDef, TypeRef, TypeRefProps, TypeSpec};
use world::{CANON, INT32, STRING, World, class_id, function_id, method_def, module_id, type_def, world};

/// `void M(int32, string[])`
const SIMPLE: &[u8] = &[0x00, 0x02, 0x01, 0x08, 0x1d, 0x0e];
/// `void M()`
const NOTHING: &[u8] = &[0x20, 0x00, 0x01];

#[test]
fn a_plain_method() {
    let mut world = world();
    world.add_method(1, type_def(6), "Method", SIMPLE, &[]);
    world.add_method(2, type_def(6), ".ctor", NOTHING, &[]);
    world.function(1, Some(0x60), method_def(1), &[]);
    world.function(2, Some(0x60), method_def(2), &[]);
    assert_eq!(world.complete(1), "N.Plain.Method(int32, string[])");
    assert_eq!(world.complete(2), "N.Plain..ctor()");
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
        world.complete(1),
        "N.Outer<int32>+Inner<string>.M<System.__Canon>(int32, string&, System.__Canon[,], System.__Canon*)"
    );
    // Shared code without a frame: the runtime names no class.
    world.function(2, None, method_def(1), &[]);
    assert_eq!(world.complete(2), "N.Outer<T>+Inner<U>.M<V>(T, U&, V[,], V*)");
    assert_eq!(
        Speller::new(&world, Spelling::Il).method_def(module_id(), method_def(1)),
        "N.Outer<T>+Inner<U>.M<V>(T, U&, V[,], V*)"
    );
}

#[test]
fn types_of_signatures() {
    let mut world = world();
    world.refs.insert(
        TypeRef::from_raw(0x0100_0001),
        TypeRefProps { scope: Token::from_raw(0x2300_0001), name: "X.Dict`2".to_owned() },
    );
    world.refs.insert(
        TypeRef::from_raw(0x0100_0002),
        TypeRefProps { scope: Token::from_raw(0x0100_0001), name: "Entry".to_owned() },
    );
    world.specs.insert(TypeSpec::from_raw(0x1b00_0001), vec![0x1d, 0x08]);
    let cases: [(&[u8], &str); 15] = [
        (&[0x15, 0x11, 0x09, 0x02, 0x08, 0x1c], "X.Dict<int32, object>+Entry"),
        (&[0x12, 0x05], "X.Dict`2"),
        (&[0x15, 0x12, 0x10, 0x01, 0x15, 0x12, 0x10, 0x01, 0x0d], "N.Outer<N.Outer<float64>>"),
        (&[0x1d, 0x1d, 0x18], "native int[][]"),
        (&[0x14, 0x08, 0x03, 0x01, 0x04, 0x00], "int32[,,]"),
        (&[0x1f, 0x05, 0x10, 0x20, 0x05, 0x02], "bool&"),
        (&[0x12, 0x06], "int32[]"),
        (&[0x0f, 0x0f, 0x01], "void**"),
        (&[0x1b, 0x00, 0x02, 0x01, 0x08, 0x0e], "method void *(int32, string)"),
        (&[0x1b, 0x01, 0x01, 0x08, 0x0f, 0x01], "method unmanaged cdecl int32 *(void*)"),
        (&[0x1b, 0x09, 0x00, 0x01], "method unmanaged void *()"),
        (&[0x13, 0x07], "!7"),
        (&[0x1e, 0x00], "!!0"),
        (&[0x16], "typedref"),
        (&[0x11, 0x18], "N.Plain"),
    ];
    for (at, (parameter, expected)) in (1..).zip(cases) {
        let signature = [&[0x00, 0x01, 0x01][..], parameter].concat();
        world.add_method(at, type_def(6), "M", &signature, &[]);
        world.function(at as usize, Some(0x60), method_def(at), &[]);
        assert_eq!(world.complete(at as usize), format!("N.Plain.M({expected})"));
    }
}

#[test]
fn variable_arguments() {
    let mut world = world();
    for (row, signature, expected) in [
        (1, &[0x05, 0x01, 0x01, 0x08][..], "N.Plain.M(int32, ...)"),
        (2, &[0x05, 0x02, 0x01, 0x08, 0x41, 0x0e], "N.Plain.M(int32, ..., string)"),
        (3, &[0x05, 0x00, 0x01], "N.Plain.M(...)"),
    ] {
        world.add_method(row, type_def(6), "M", signature, &[]);
        world.function(row as usize, Some(0x60), method_def(row), &[]);
        assert_eq!(world.complete(row as usize), expected);
    }
}

#[test]
fn classes_and_arrays() {
    let mut world = world();
    world.array(0x100, Some(STRING), sys::ELEMENT_TYPE_STRING, 1);
    world.array(0x101, Some(0x100), sys::ELEMENT_TYPE_SZARRAY, 2);
    world.array(0x102, None, sys::ELEMENT_TYPE_I4, 1);
    world.class(0x103, 4, &[0x100]);
    assert_eq!(world.class_name(0x50), "N.Outer<int32>+Inner<string>");
    assert_eq!(world.class_name(INT32), "System.Int32");
    assert_eq!(world.class_name(0x100), "string[]");
    assert_eq!(world.class_name(0x101), "string[][,]");
    assert_eq!(world.class_name(0x102), "int32[]");
    assert_eq!(world.class_name(0x103), "N.Outer<string[]>");
    assert_eq!(world.class_name(0xdead), "<unknown class 0xdead: CORPROF_E_DATAINCOMPLETE>");
}

#[test]
fn a_class_without_metadata_is_a_continuation_and_not_asked_about_again() {
    let mut world = world();
    world.bare.insert(class_id(0x70));
    world.class(0x71, 4, &[0x70]);
    assert_eq!(world.class_name(0x70), "System.Runtime.CompilerServices.Continuation");
    assert_eq!(world.class_name(0x71), "N.Outer<System.Runtime.CompilerServices.Continuation>");
    assert!(world.learnt.borrow().contains_key(&class_id(0x70)));
}

#[test]
fn known_classes_are_not_asked_again() {
    let world = world();
    assert_eq!(world.class_name(0x50), "N.Outer<int32>+Inner<string>");
    assert_eq!(world.learnt.borrow().len(), 3);
    let asked = world.asked.get();
    assert_eq!(world.class_name(0x50), "N.Outer<int32>+Inner<string>");
    assert_eq!(world.class_name(STRING), "System.String");
    assert_eq!(world.asked.get(), asked);
}

#[test]
fn functions_without_metadata() {
    let mut world = world();
    for id in 1..=4 {
        world.function(id, None, MethodDef::NIL, &[]);
    }
    world.dynamic.insert(function_id(1), "lambda_method".to_owned());
    world.dynamic.insert(function_id(2), "IL_STUB_PInvoke".to_owned());
    world.dynamic.insert(function_id(3), String::new());
    let expected = ["<dynamic method lambda_method>", "<stub IL_STUB_PInvoke>", "<dynamic method>", "<dynamic method>"];
    for (id, expected) in (1..).zip(expected) {
        // Never kept: the identifier may soon belong to another method.
        assert_eq!(world.name_of(id), (expected.to_owned(), false));
    }
}

#[test]
fn global_methods() {
    let mut world = world();
    world.add_method(1, TypeDef::NIL, "Main", NOTHING, &[]);
    world.function(1, None, method_def(1), &[]);
    assert_eq!(world.complete(1), "<Module>.Main()");
}

#[test]
fn what_is_missing_is_said_and_not_kept() {
    let mut world = world();
    let incomplete = |world: &World, id: usize| {
        let (name, complete) = world.name_of(id);
        assert!(!complete, "{name}");
        name
    };
    assert_eq!(incomplete(&world, 0x99), "<unknown function 0x99: CORPROF_E_DATAINCOMPLETE>");

    world.function(1, Some(0x60), method_def(1), &[]);
    assert_eq!(incomplete(&world, 1), "N.Plain.<unknown method 0x06000001: CORPROF_E_DATAINCOMPLETE>");

    // The class is not loaded far enough, but the metadata have its name.
    world.add_method(2, type_def(4), "M", NOTHING, &[]);
    world.function(2, Some(0xdead), method_def(2), &[]);
    assert_eq!(incomplete(&world, 2), "N.Outer<T>.M()");

    world.add_method(3, type_def(6), "M", &[0x00, 0x02, 0x01, 0x12, 0x05, 0x11, 0x7c], &[]);
    world.function(3, Some(0x60), method_def(3), &[]);
    assert_eq!(
        incomplete(&world, 3),
        "N.Plain.M(<unknown type 0x01000001: CORPROF_E_DATAINCOMPLETE>, <unknown type 0x0200001f: \
         CORPROF_E_DATAINCOMPLETE>)"
    );

    world.add_method(4, type_def(6), "M", &[0x00, 0x01, 0x01], &[]);
    world.function(4, Some(0x60), method_def(4), &[]);
    assert_eq!(incomplete(&world, 4), "N.Plain.M(<bad signature at offset 3: the blob ends here>)");

    world.class(0x70, 4, &[0xdead]);
    assert_eq!(world.class_name(0x70), "N.Outer<<unknown class 0xdead: CORPROF_E_DATAINCOMPLETE>>");
    assert!(!world.learnt.borrow().contains_key(&class_id(0x70)));
    // A failed argument does not prevent keeping its neighbours.
    world.class(0x71, 5, &[0xdead, STRING]);
    world.learnt.borrow_mut().clear();
    world.class_name(0x71);
    assert_eq!(world.learnt.borrow().keys().copied().collect::<Vec<_>>(), [class_id(STRING)]);
    assert_eq!(
        known_or(Err(Error::new(E_FAIL, "Test")), "module", 0x1f),
        ("<unknown module 0x1f: E_FAIL>".into(), false)
    );
}

#[test]
fn circles_in_broken_metadata_end() {
    let mut world = world();
    // A type inside itself, a reference inside itself, a spec that is itself, and a spec that doubles itself.
    world.define(7, "Loop", Some(7), &[]);
    world.refs.insert(
        TypeRef::from_raw(0x0100_0001),
        TypeRefProps { scope: Token::from_raw(0x0100_0001), name: "Ref".to_owned() },
    );
    world.specs.insert(TypeSpec::from_raw(0x1b00_0001), vec![0x1d, 0x12, 0x06]);
    world.specs.insert(TypeSpec::from_raw(0x1b00_0002), vec![0x15, 0x12, 0x10, 0x02, 0x12, 0x0a, 0x12, 0x0a]);
    for (row, parameter) in [(1, [0x12, 0x1c]), (2, [0x12, 0x05]), (3, [0x12, 0x06]), (4, [0x12, 0x0a])] {
        let signature = [&[0x00, 0x01, 0x01][..], &parameter].concat();
        world.add_method(row, type_def(6), "M", &signature, &[]);
        world.function(row as usize, Some(0x60), method_def(row), &[]);
        let name = world.complete(row as usize);
        assert!(name.contains('…') && name.len() < 1000, "{name}");
    }
}

#[test]
fn endless_arguments_end() {
    let mut world = world();
    world.define(7, "Pair`2", None, &["A", "B"]);
    // A class that is its own argument, twice.
    world.class(0x80, 7, &[0x80, 0x80]);
    let name = world.class_name(0x80);
    assert!(name.starts_with("Pair<Pair<") && name.contains('…'));
    assert!(world.asked.get() < 1000);
    // Doubling forty times: more text than memory, in few identifiers.
    for level in 0..40 {
        world.class(0x200 + level, 7, &[0x201 + level, 0x201 + level]);
    }
    world.class(0x200 + 40, 6, &[]);
    world.asked.set(0);
    let name = world.class_name(0x200);
    assert!(name.len() < 100_000 && name.contains('…'));
    assert!(world.asked.get() < 1000);
    // Many parameters that are all a long argument.
    world.define(8, &"x".repeat(10_000), None, &[]);
    world.class(0x90, 8, &[]);
    world.class(0x91, 4, &[0x90]);
    let signature = [&[0x00, 0x80, 0xff, 0x01][..], &[0x13, 0x00].repeat(0xff)].concat();
    world.add_method(1, type_def(4), "M", &signature, &[]);
    world.function(1, Some(0x91), method_def(1), &[]);
    let (name, complete) = world.name_of(1);
    assert!(
        complete
            && name.starts_with("N.Outer<xxx")
            && name.contains(".M(xxx")
            && name.ends_with("…)")
            && name.len() < 100_000
    );
}

#[test]
fn a_type_handle_from_a_file_is_not_followed() {
    let mut world = world();
    let signature = [&[0x00, 0x01, 0x01, 0x21][..], &STRING.to_ne_bytes()].concat();
    world.add_method(1, type_def(6), "M", &signature, &[]);
    world.function(1, Some(0x60), method_def(1), &[]);
    assert_eq!(world.complete(1), "N.Plain.M(<type handle 0x30>)");
}

#[test]
fn hostile_signatures_only_make_odd_names() {
    let mut world = world();
    world.function(1, Some(0x50), method_def(1), &[INT32]);
    let mut state = 0x1234_5678_9abc_def1_u64;
    let mut broken = 0;
    let fertile = [0x00, 0x05, 0x10, 0x12, 0x13, 0x14, 0x15, 0x1b, 0x1d, 0x1e, 0x20, 0x41, 0x01, 0x02, 0x08];
    for _ in 0..20_000 {
        let mut signature = Vec::new();
        state = state.rotate_left(9).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut bits = state;
        for _ in 0..bits % 24 {
            bits = bits.rotate_right(5).wrapping_mul(0x2545_f491_4f6c_dd1d);
            signature.push(fertile[(bits >> 40) as usize % fertile.len()]);
        }
        world.add_method(1, type_def(5), "M", &signature, &["V"]);
        let (name, _) = world.name_of(1);
        assert!(name.starts_with("N.Outer<int32>+Inner<string>.M"), "{signature:x?}: {name}");
        // The error has the decoder's text, unless it lies behind the part that did not fit.
        if !name.contains('…') {
            let problem = MethodSignature::decode(&signature).err().map(|error| format!("(<{error}>)"));
            let said = name.find("(<bad signature").and_then(|at| name.get(at..));
            assert_eq!(said, problem.as_deref(), "{signature:x?}: {name}");
        }
        broken += usize::from(name.contains("(<bad signature"));
    }
    assert!((1..20_000).contains(&broken), "{broken}");
}

#[test]
fn module_names_drop_the_directory() {
    assert_eq!(file_name("/opt/app/App.dll"), "App.dll");
    assert_eq!(file_name(r"C:\app\App.dll"), "App.dll");
    assert_eq!(file_name("App.dll"), "App.dll");
    assert_eq!(file_name(""), "");
    assert_eq!(known_or(Ok(String::new()), "module", 0x1f), ("<nameless module 0x1f>".into(), true));
}

#[test]
fn names_are_shared_text() {
    let name = Name::from("N.Type.M()");
    let again = name.clone();
    assert!(std::ptr::eq(name.as_str(), again.as_str()));
    assert_eq!(name, "N.Type.M()");
    assert_eq!(format!("{name:>12}|{name:?}"), "  N.Type.M()|\"N.Type.M()\"");
    assert!(name.starts_with("N."));
}
