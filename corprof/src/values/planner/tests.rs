//! Plans of signatures, good and bad, over made-up classes.

use std::collections::HashMap;

use super::*;
use crate::error::{E_INVALIDARG, Error};
use crate::metadata::{TypeDef, TypeRef};
use crate::values::plan::size_of_number;

/// Classes by number. A token of row `n` stands for class `n`, whatever its type arguments.
#[derive(Default)]
struct World {
    classes: HashMap<usize, Class>,
    asked: usize,
}

enum Class {
    Reference,
    Enum(Primitive),
    Struct(usize, Vec<(&'static str, usize, Type)>),
}

const OURS: usize = 1;

fn strings() -> StringClass {
    let class = StringClass::default();
    class.learn(id(1002));
    class
}

fn id(number: usize) -> ClassId {
    ClassId::from_raw(number).unwrap()
}

fn module() -> ModuleId {
    ModuleId::from_raw(OURS).unwrap()
}

impl World {
    fn with(classes: impl IntoIterator<Item = (usize, Class)>) -> Self {
        Self { classes: classes.into_iter().collect(), asked: 0 }
    }
}

impl Source for World {
    fn kind(&mut self, class: ClassId) -> Result<Kind> {
        self.asked += 1;
        if let Some(&primitive) = class.as_raw().checked_sub(1000).and_then(|place| CORE.get(place)) {
            return Ok(if primitive == Primitive::String { Kind::String } else { Kind::Primitive(primitive) });
        }
        match self.classes.get(&class.as_raw()) {
            Some(Class::Reference) => Ok(Kind::Reference),
            Some(Class::Enum(underlying)) => Ok(Kind::Enum(*underlying)),
            Some(Class::Struct(..)) => Ok(Kind::Struct),
            None => Err(Error::new(E_INVALIDARG, "kind")),
        }
    }

    fn class(&mut self, home: ModuleId, token: TypeDefOrRef, _type_args: &[ClassId]) -> Result<ClassId, Unreadable> {
        assert_eq!(home, module());
        let row = token.token().row() as usize;
        if self.classes.contains_key(&row) { Ok(id(row)) } else { Err(Unreadable::AmbiguousType) }
    }

    fn core_class(&mut self, primitive: Primitive) -> Result<ClassId, Unreadable> {
        let place = CORE.iter().position(|&of| of == primitive).ok_or(Unreadable::TypedReference)?;
        Ok(id(1000 + place))
    }

    fn string_class(&mut self) -> StringClass {
        strings()
    }

    fn shape(&mut self, class: ClassId) -> Result<Shape> {
        let Some(Class::Struct(size, fields)) = self.classes.get(&class.as_raw()) else {
            return Err(Error::new(E_INVALIDARG, "shape"));
        };
        let field = |(name, offset, of): &(&str, usize, Type)| ShapeField {
            token: FieldDef::from_raw(0x0400_0001),
            name: (*name).to_owned(),
            offset: *offset,
            of: Some(of.clone()),
        };
        let fields = fields.iter().map(field).collect();
        Ok(Shape { size: *size, module: module(), type_args: vec![id(1000)], fields })
    }
}

/// The primitives in the world's core library.
const CORE: [Primitive; 3] = [Primitive::Int32, Primitive::Float64, Primitive::String];

const INT: Type = Type::Primitive(Primitive::Int32);
const DOUBLE: Type = Type::Primitive(Primitive::Float64);

fn named(row: u32) -> Type {
    Type::ValueType(TypeDefOrRef::Ref(TypeRef::from_raw(0x0100_0000 | row)))
}

fn signature(result: Type, parameters: Vec<Type>) -> MethodSignature {
    MethodSignature {
        convention: CallingConvention::Default,
        has_this: false,
        explicit_this: false,
        generic_parameters: 0,
        return_type: result,
        parameters,
        sentinel: None,
    }
}

fn plan_of(world: &mut World, signature: &MethodSignature, class_args: &[ClassId]) -> Plan {
    let scope = Scope { module: module(), class_args, method_args: &[] };
    let this = Owner::Class(id(7));
    plan(world, Method { scope, signature, this, names: Vec::new() })
}

/// The node of the only parameter, which has this type.
fn node(world: &mut World, of: Type) -> Node {
    let plan = plan_of(world, &signature(Type::Primitive(Primitive::Void), vec![of]), &[]);
    plan.parameters.into_iter().next().unwrap().node
}

#[test]
fn simple_types_are_what_their_names_say() {
    let mut world = World::default();
    let boxed = |of: Type| Box::new(of);
    let class = TypeDefOrRef::Def(TypeDef::from_raw(0x0200_0005));
    let cases = [
        (INT, Node::Primitive(Primitive::Int32)),
        (Type::Primitive(Primitive::String), Node::String(strings())),
        (Type::Primitive(Primitive::Object), Node::Object),
        (Type::Class(class), Node::Object),
        (Type::SzArray(boxed(INT)), Node::Object),
        (Type::Generic { value_type: false, definition: class, arguments: vec![INT] }, Node::Object),
        (Type::Pointer(boxed(named(99))), Node::Pointer),
        (Type::FunctionPointer(Box::new(signature(INT, vec![]))), Node::Pointer),
        (Type::ByRef(boxed(DOUBLE)), Node::ByRef(Box::new(Node::Primitive(Primitive::Float64)))),
        (Type::Modified { required: true, modifier: class, inner: boxed(INT) }, Node::Primitive(Primitive::Int32)),
        (Type::Primitive(Primitive::TypedRef), Node::Unreadable(Unreadable::TypedReference)),
        (Type::Internal(0x1234), Node::Unreadable(Unreadable::InternalType)),
        (Type::TypeParameter(0), Node::Unreadable(Unreadable::TypeParameter)),
        (Type::MethodParameter(3), Node::Unreadable(Unreadable::TypeParameter)),
        (named(99), Node::Unreadable(Unreadable::AmbiguousType)),
    ];
    for (of, expected) in cases {
        assert_eq!(node(&mut world, of.clone()), expected, "{of:?}");
    }
    assert_eq!(world.asked, 0, "references and numbers need no question");
}

#[test]
fn a_struct_is_read_field_by_field_with_its_own_type_arguments() {
    let inner = Class::Struct(8, vec![("A", 0, Type::TypeParameter(0)), ("B", 4, INT)]);
    let outer = Class::Struct(24, vec![("In", 0, named(2)), ("E", 8, named(3)), ("O", 16, named(4))]);
    let mut world = World::with([(1, outer), (2, inner), (3, Class::Enum(Primitive::UInt8)), (4, Class::Reference)]);
    let Node::Struct(outer) = node(&mut world, named(1)) else { panic!("no struct") };
    assert_eq!((outer.class, outer.size), (id(1), 24));
    let [first, second, third] = &*outer.fields else { panic!("{outer:?}") };
    let Node::Struct(inner) = &first.node else { panic!("{first:?}") };
    let parts: Vec<_> = inner.fields.iter().map(|field| (&*field.name, field.offset, field.node.size())).collect();
    assert_eq!(parts, [("A", 0, Some(4)), ("B", 4, Some(4))]);
    assert_eq!((second.offset, &second.node), (8, &Node::Enum { class: id(3), underlying: Primitive::UInt8 }));
    assert_eq!((third.offset, &third.node), (16, &Node::Object));
}

#[test]
fn type_parameters_are_what_the_class_was_made_with() {
    let mut world = World::with([(5, Class::Reference)]);
    let parameters = [0, 1, 2].map(Type::TypeParameter).to_vec();
    let signature = signature(Type::TypeParameter(1), parameters);
    let plan = plan_of(&mut world, &signature, &[id(1001), id(5)]);
    let nodes: Vec<_> = plan.parameters.iter().map(|parameter| &parameter.node).collect();
    let unknown = Node::Unreadable(Unreadable::TypeParameter);
    assert_eq!(nodes, [&Node::Primitive(Primitive::Float64), &Node::Object, &unknown]);
    assert_eq!(plan.result, Some(Node::Object));
}

#[test]
fn fields_beyond_their_struct_are_not_read() {
    let lies = vec![("Over", 4, DOUBLE), ("Far", usize::MAX, INT), ("Good", 4, INT)];
    let mut world = World::with([(1, Class::Struct(8, lies))]);
    let Node::Struct(of) = node(&mut world, named(1)) else { panic!("no struct") };
    let nodes: Vec<_> = of.fields.iter().map(|field| &field.node).collect();
    let mismatch = Node::Unreadable(Unreadable::Mismatch);
    assert_eq!(nodes[..2], [&mismatch, &mismatch]);
    assert_eq!(nodes[2], &Node::Primitive(Primitive::Int32));
}

#[test]
fn structs_without_end_come_to_an_end() {
    // One struct contains itself, and one contains two of another, which contains two of the next, and so on.
    let mut world = World::with([(1, Class::Struct(8, vec![("Self", 0, named(1))]))]);
    let mut deepest = &node(&mut world, named(1));
    let mut depth = 0;
    while let Node::Struct(of) = deepest {
        deepest = &of.fields[0].node;
        depth += 1;
    }
    assert_eq!(deepest, &Node::Unreadable(Unreadable::TooComplex));
    assert!(depth <= MOST_DEPTH + 1, "{depth}");

    let wide = |next: u32| Class::Struct(8, (0..64).map(|_| ("F", 0, named(next))).collect());
    let mut world = World::with((1..16).map(|number| (number, wide(number as u32 + 1))));
    let Node::Struct(_) = node(&mut world, named(1)) else { panic!("no struct") };
    assert!(world.asked <= MOST_NODES, "{} questions", world.asked);
}

#[test]
fn generic_arguments_nest_to_a_bound() {
    let definition = TypeDefOrRef::Def(TypeDef::from_raw(0x0200_0001));
    let nest = |of: Type| Type::Generic { value_type: true, definition, arguments: vec![of] };
    let mut world = World::with([(1, Class::Struct(4, vec![("T", 0, Type::TypeParameter(0))]))]);
    assert!(matches!(node(&mut world, nest(nest(INT))), Node::Struct(_)));
    let deep = (0..40).fold(INT, |inner, _| nest(inner));
    assert_eq!(node(&mut world, deep), Node::Unreadable(Unreadable::TooComplex));
    let of_array = nest(Type::SzArray(Box::new(INT)));
    assert_eq!(node(&mut world, of_array), Node::Unreadable(Unreadable::TypeArgument));
}

#[test]
fn this_is_an_object_or_a_place() {
    let mut world = World::with([(1, Class::Struct(4, vec![("F", 0, INT)])), (2, Class::Reference)]);
    let this = |world: &mut World, this: Owner| {
        let scope = Scope { module: module(), class_args: &[], method_args: &[] };
        let signature = MethodSignature { has_this: true, ..signature(INT, vec![]) };
        plan(world, Method { scope, signature: &signature, this, names: Vec::new() }).this
    };
    assert_eq!(this(&mut world, Owner::Class(id(2))), Some(Node::Object));
    let Some(Node::ByRef(of)) = this(&mut world, Owner::Class(id(1))) else { panic!("no by-ref") };
    assert!(matches!(*of, Node::Struct(_)));
    assert_eq!(this(&mut world, Owner::Shared { is_value_type: false }), Some(Node::Object));
    let place = Node::ByRef(Box::new(Node::Unreadable(Unreadable::TypeParameter)));
    assert_eq!(this(&mut world, Owner::Shared { is_value_type: true }), Some(place));
}

#[test]
fn other_conventions_tell_nothing() {
    let mut world = World::default();
    let varargs = MethodSignature { convention: CallingConvention::VarArg, ..signature(INT, vec![INT]) };
    let explicit = MethodSignature { has_this: true, explicit_this: true, ..signature(INT, vec![INT]) };
    for signature in [varargs, explicit] {
        let plan = plan_of(&mut world, &signature, &[]);
        assert_eq!(plan.unreadable, Some(Unreadable::CallingConvention));
        assert_eq!((plan.ranges(), plan.result), (0, Some(Node::Unreadable(Unreadable::CallingConvention))));
    }
}

#[test]
fn every_primitive_that_is_a_number_has_a_size() {
    let numbers = (0..=u8::MAX).filter_map(Primitive::from_element).filter(|&of| size_of_number(of).is_some());
    assert_eq!(numbers.count(), 14);
}

proptest::proptest! {
    /// Any bytes as a method's signature give a plan, and one within the limits.
    #[test]
    fn any_bytes_come_to_a_plan(blob in proptest::collection::vec(proptest::num::u8::ANY, 0..64)) {
        let Ok(signature) = MethodSignature::decode(&blob) else { return Ok(()) };
        let classes = [
            (1, Class::Struct(8, vec![("Self", 0, named(1)), ("T", 0, Type::TypeParameter(0))])),
            (2, Class::Reference),
            (3, Class::Enum(Primitive::Int16)),
        ];
        let mut world = World::with(classes);
        let plan = plan_of(&mut world, &signature, &[id(1), id(2), id(1000)]);
        proptest::prop_assert!(world.asked <= 2 * MOST_NODES);
        proptest::prop_assert!(plan.unreadable.is_some() || plan.parameters.len() == signature.parameters.len());
    }
}
