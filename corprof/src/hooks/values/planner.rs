//! From a signature to a [`Plan`].
//!
//! Signatures name types; their layouts come from the classes that are loaded for them. What is asked of the runtime for
//! that is a [`Source`], so that tests can play it. Nothing here is trusted: signatures and layouts may say what they like,
//! and fields that do not lie within their struct, or nest without end, become unreadable.

use crate::error::Result;
use crate::id::{ClassId, ModuleId};
use crate::metadata::signature::{CallingConvention, MethodSignature, Primitive, Type};
use crate::metadata::{FieldDef, TypeDefOrRef};

use super::Unreadable;
use super::plan::{FieldNode, Node, Parameter, Plan, StructNode};

#[cfg(test)]
mod tests;

/// How deep structs may nest.
const MOST_DEPTH: usize = 16;

/// How many types the values of one function may consist of, fields of fields included.
const MOST_NODES: usize = 4096;

/// What is asked about types.
pub(super) trait Source {
    /// What the class is.
    fn kind(&mut self, class: ClassId) -> Result<Kind>;
    /// The class that a token of a module stands for, with these type arguments; loaded if need be.
    fn class(&mut self, module: ModuleId, token: TypeDefOrRef, type_args: &[ClassId]) -> Result<ClassId, Unreadable>;
    /// The class that a type with an element of its own stands for.
    fn core_class(&mut self, primitive: Primitive) -> Result<ClassId, Unreadable>;
    /// Where the instance fields of a value type are.
    fn shape(&mut self, class: ClassId) -> Result<Shape>;
}

/// The kinds of classes.
pub(super) enum Kind {
    /// A class, an interface, an array.
    Reference,
    /// The class of strings, and no other.
    String,
    /// One of the value types that have an element of their own.
    Primitive(Primitive),
    /// An enumeration over this.
    Enum(Primitive),
    /// Any other value type.
    Struct,
}

/// Where the instance fields of a value type are.
pub(super) struct Shape {
    /// In bytes.
    pub(super) size: usize,
    /// The module that defines it, in which the tokens of the fields' types are.
    pub(super) module: ModuleId,
    pub(super) type_args: Vec<ClassId>,
    pub(super) fields: Vec<ShapeField>,
}

pub(super) struct ShapeField {
    pub(super) token: FieldDef,
    pub(super) name: String,
    pub(super) offset: usize,
    /// None if its signature is damaged.
    pub(super) of: Option<Type>,
}

/// What the tokens and type parameters of a signature stand for.
pub(super) struct Scope<'a> {
    pub(super) module: ModuleId,
    /// The type arguments of the class; none of them if only a frame would tell.
    pub(super) class_args: &'a [ClassId],
    /// Those of the method.
    pub(super) method_args: &'a [ClassId],
}

/// What a plan is made of beside the signature.
pub(super) struct Method<'a> {
    pub(super) scope: Scope<'a>,
    pub(super) signature: &'a MethodSignature,
    /// What `this` is, if the method has one.
    pub(super) this: Owner,
    /// The names of the parameters that have one, with their numbers from 1 on.
    pub(super) names: Vec<(u32, String)>,
    /// The runtime shows of a struct that is returned in registers the first integer register.
    pub(super) shows_one_register: bool,
}

/// The type that a method belongs to.
#[derive(Clone, Copy)]
pub(super) enum Owner {
    /// Its class.
    Class(ClassId),
    /// Only a frame would tell, but it is a reference type or not.
    Shared { is_value_type: bool },
}

/// Makes the plan of a function.
pub(super) fn plan(source: &mut impl Source, method: Method<'_>) -> Plan {
    let signature = method.signature;
    if signature.convention != CallingConvention::Default || signature.explicit_this {
        return Plan::unreadable(Unreadable::CallingConvention);
    }
    let mut planner = Planner { source, nodes: 0 };
    let scope = &method.scope;
    let this = signature.has_this.then(|| planner.this(method.this));
    let name_of = |index: usize| {
        let found = method.names.iter().find(|(sequence, _)| *sequence as usize == index + 1);
        found.map(|(_, name)| name.as_str().into())
    };
    let parameter = |(index, of): (usize, &Type)| Parameter { name: name_of(index), node: planner.node(of, scope, 0) };
    let parameters = signature.parameters.iter().enumerate().map(parameter).collect();
    let result = match signature.return_type.unmodified() {
        Type::Primitive(Primitive::Void) => None,
        of => Some(planner.node(of, scope, 0)),
    };
    let result = result.map(|node| {
        let is_struct = matches!(node, Node::Struct(_));
        let is_in_registers = node.size().is_some_and(|size| size <= 2 * size_of::<usize>());
        // By the System V ABI eight bytes are in an integer register if anything in them is no floating-point number.
        let is_in_integer = !node.may_hold_float() || node.holds_integer();
        let is_whole = node.size().is_some_and(|size| size <= size_of::<usize>()) && is_in_integer;
        if method.shows_one_register && is_struct && is_in_registers && !is_whole {
            Node::Unreadable(Unreadable::ReturnedInRegisters)
        } else {
            node
        }
    });
    Plan { this, parameters, result, unreadable: None }
}

struct Planner<'s, S> {
    source: &'s mut S,
    nodes: usize,
}

impl<S: Source> Planner<'_, S> {
    fn this(&mut self, owner: Owner) -> Node {
        match owner {
            Owner::Class(class) => match self.source.kind(class) {
                Ok(Kind::Reference) => Node::Object,
                Ok(Kind::String) => Node::String,
                Ok(_) => Node::ByRef(Box::new(self.class_node(class, 0))),
                Err(error) => Node::Unreadable(Unreadable::Layout(error)),
            },
            Owner::Shared { is_value_type: false } => Node::Object,
            Owner::Shared { is_value_type: true } => Node::ByRef(Box::new(Node::Unreadable(Unreadable::TypeParameter))),
        }
    }

    fn node(&mut self, of: &Type, scope: &Scope<'_>, depth: usize) -> Node {
        self.nodes += 1;
        if depth > MOST_DEPTH || self.nodes > MOST_NODES {
            return Node::Unreadable(Unreadable::TooComplex);
        }
        match of.unmodified() {
            Type::Primitive(Primitive::String) => Node::String,
            Type::Primitive(Primitive::Object) => Node::Object,
            Type::Primitive(Primitive::TypedRef) => Node::Unreadable(Unreadable::TypedReference),
            Type::Primitive(Primitive::Void) => Node::Unreadable(Unreadable::Mismatch),
            Type::Primitive(number) => Node::Primitive(*number),
            Type::Class(_) | Type::SzArray(_) | Type::Array(..) | Type::Generic { value_type: false, .. } => {
                Node::Object
            }
            Type::Pointer(_) | Type::FunctionPointer(_) => Node::Pointer,
            Type::ByRef(inner) => Node::ByRef(Box::new(self.node(inner, scope, depth + 1))),
            value @ (Type::ValueType(_) | Type::Generic { .. } | Type::TypeParameter(_) | Type::MethodParameter(_)) => {
                match self.class(value, scope, depth) {
                    Ok(class) => self.class_node(class, depth),
                    Err(why) => Node::Unreadable(why),
                }
            }
            _ => Node::Unreadable(Unreadable::InternalType),
        }
    }

    /// What values of a class are.
    fn class_node(&mut self, class: ClassId, depth: usize) -> Node {
        match self.source.kind(class) {
            Ok(Kind::Reference) => Node::Object,
            Ok(Kind::String) => Node::String,
            Ok(Kind::Primitive(number)) => Node::Primitive(number),
            Ok(Kind::Enum(underlying)) => Node::Enum { class, underlying },
            Ok(Kind::Struct) => self.struct_node(class, depth),
            Err(error) => Node::Unreadable(Unreadable::Layout(error)),
        }
    }

    fn struct_node(&mut self, class: ClassId, depth: usize) -> Node {
        let shape = match self.source.shape(class) {
            Ok(shape) => shape,
            Err(error) => return Node::Unreadable(Unreadable::Layout(error)),
        };
        let scope = Scope { module: shape.module, class_args: &shape.type_args, method_args: &[] };
        let field = |field: ShapeField| {
            let node = match &field.of {
                Some(of) => self.node(of, &scope, depth + 1),
                None => Node::Unreadable(Unreadable::Mismatch),
            };
            let is_beyond = |size| field.offset.checked_add(size).is_none_or(|end| end > shape.size);
            let node = if node.size().is_some_and(is_beyond) { Node::Unreadable(Unreadable::Mismatch) } else { node };
            FieldNode { token: field.token, name: field.name.into(), offset: field.offset, node }
        };
        let fields = shape.fields.into_iter().map(field).collect();
        Node::Struct(Box::new(StructNode { class, size: shape.size, fields }))
    }

    /// The class of a type.
    fn class(&mut self, of: &Type, scope: &Scope<'_>, depth: usize) -> Result<ClassId, Unreadable> {
        self.nodes += 1;
        if depth > MOST_DEPTH || self.nodes > MOST_NODES {
            return Err(Unreadable::TooComplex);
        }
        let argument = |of: &[ClassId], index: u32| of.get(index as usize).copied().ok_or(Unreadable::TypeParameter);
        match of.unmodified() {
            Type::Primitive(primitive) => self.source.core_class(*primitive),
            Type::Class(token) | Type::ValueType(token) => self.source.class(scope.module, *token, &[]),
            Type::Generic { definition, arguments, .. } => {
                let arguments: Vec<_> =
                    arguments.iter().map(|of| self.class(of, scope, depth + 1)).collect::<Result<_, _>>()?;
                self.source.class(scope.module, *definition, &arguments)
            }
            Type::TypeParameter(index) => argument(scope.class_args, *index),
            Type::MethodParameter(index) => argument(scope.method_args, *index),
            // The API leads to no class of an array or a pointer.
            _ => Err(Unreadable::TypeArgument),
        }
    }
}
