//! Makes a [`Plan`] from a signature.
//!
//! Signatures name types; the layouts come from the loaded classes of these types. A [`Source`] asks the runtime for
//! them, so that tests can replace it. The input is not trusted: fields that do not lie within their struct, or nest
//! without end, become unreadable.

use crate::error::Result;
use crate::id::{ClassId, ModuleId};
use crate::metadata::signature::{CallingConvention, MethodSignature, Primitive, Type};
use crate::metadata::{FieldDef, TypeDefOrRef};

use super::Unreadable;
use super::plan::{FieldNode, Node, Parameter, Plan, StringClass, StructNode};

#[cfg(test)]
mod tests;

/// How deep structs may nest.
const MOST_DEPTH: usize = 16;

/// The most types that the values of one function may consist of, nested fields included.
const MOST_NODES: usize = 4096;

/// The questions about types.
pub(super) trait Source {
    /// The kind of the class.
    fn kind(&mut self, class: ClassId) -> Result<Kind>;
    /// The class for a token of a module with these type arguments; loads it if necessary.
    fn class(&mut self, module: ModuleId, token: TypeDefOrRef, type_args: &[ClassId]) -> Result<ClassId, Unreadable>;
    /// The class for a primitive type.
    fn core_class(&mut self, primitive: Primitive) -> Result<ClassId, Unreadable>;
    /// The class of strings.
    fn string_class(&mut self) -> StringClass;
    /// The number behind an enumeration, if its class is not to be had.
    fn enumeration(&mut self, _module: ModuleId, _token: TypeDefOrRef) -> Option<Primitive> {
        None
    }
    /// The layout of the instance fields of a class.
    fn shape(&mut self, class: ClassId) -> Result<Shape>;
}

/// The kinds of classes.
pub(super) enum Kind {
    /// A class, an interface, an array.
    Reference,
    /// The class of strings.
    String,
    /// A primitive value type.
    Primitive(Primitive),
    /// An enumeration with this underlying type.
    Enum(Primitive),
    /// Any other value type.
    Struct,
}

/// The layout of a class.
pub(super) struct Shape {
    /// In bytes; of a value type, that of its values.
    pub(super) size: usize,
    /// The module that defines it; the tokens of the fields' types refer to it.
    pub(super) module: ModuleId,
    pub(super) type_args: Vec<ClassId>,
    pub(super) fields: Vec<ShapeField>,
}

pub(super) struct ShapeField {
    pub(super) token: FieldDef,
    pub(super) name: String,
    pub(super) offset: usize,
    /// None if its signature is malformed.
    pub(super) of: Option<Type>,
}

/// The meaning of the tokens and type parameters of a signature.
pub(super) struct Scope<'a> {
    pub(super) module: ModuleId,
    /// The type arguments of the class; empty if only a frame could tell.
    pub(super) class_args: &'a [ClassId],
    /// The type arguments of the method.
    pub(super) method_args: &'a [ClassId],
}

/// The input of a plan.
pub(super) struct Method<'a> {
    pub(super) scope: Scope<'a>,
    pub(super) signature: &'a MethodSignature,
    /// The type of `this`, if the method has one.
    pub(super) this: Owner,
    /// The names of the parameters that have one, with their numbers from 1 on.
    pub(super) names: Vec<(u32, String)>,
}

/// The type that a method belongs to.
#[derive(Clone, Copy)]
pub(super) enum Owner {
    /// Its class.
    Class(ClassId),
    /// Only a frame could tell the class, but it is known whether it is a value type.
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
    Plan { this, parameters, result, unreadable: None, assemblies: Box::default() }
}

/// The node for values of a class.
pub(super) fn class_node(source: &mut impl Source, class: ClassId) -> Node {
    Planner { source, nodes: 0 }.class_node(class, 0)
}

/// The fields of an object of this size, which these classes declare.
pub(super) fn object_fields(source: &mut impl Source, classes: &[ClassId], size: usize) -> Result<Box<[FieldNode]>> {
    let mut planner = Planner { source, nodes: 0 };
    let mut fields = Vec::new();
    for &class in classes {
        let shape = Shape { size, ..planner.source.shape(class)? };
        fields.extend(planner.fields(shape, 0));
    }
    Ok(fields.into())
}

/// The class of a field that has a struct in it; none for other fields, and where it is not known.
pub(super) fn struct_class(source: &mut impl Source, of: &Type, scope: &Scope<'_>) -> Option<ClassId> {
    let is_value = matches!(of.unmodified(), Type::ValueType(_) | Type::Generic { value_type: true, .. });
    let class = Planner { source, nodes: 0 }.class(of, scope, 0).ok().filter(|_| is_value)?;
    matches!(source.kind(class), Ok(Kind::Struct)).then_some(class)
}

/// Whether a field has a reference in it.
pub(super) fn is_reference(source: &mut impl Source, of: &Type, scope: &Scope<'_>) -> bool {
    match of.unmodified() {
        Type::Primitive(Primitive::String | Primitive::Object) => true,
        Type::Class(_) | Type::SzArray(_) | Type::Array(..) | Type::Generic { value_type: false, .. } => true,
        Type::TypeParameter(index) => {
            let class = scope.class_args.get(*index as usize);
            class.is_some_and(|class| matches!(source.kind(*class), Ok(Kind::Reference | Kind::String)))
        }
        _ => false,
    }
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
                Ok(Kind::String) => Node::String(self.source.string_class()),
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
            Type::Primitive(Primitive::String) => Node::String(self.source.string_class()),
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
                    Err(why) => self.enumeration(value, scope).unwrap_or(Node::Unreadable(why)),
                }
            }
            _ => Node::Unreadable(Unreadable::InternalType),
        }
    }

    /// The node for an enumeration whose class is not to be had.
    fn enumeration(&mut self, of: &Type, scope: &Scope<'_>) -> Option<Node> {
        let Type::ValueType(token) = of.unmodified() else { return None };
        self.source.enumeration(scope.module, *token).map(Node::Primitive)
    }

    /// The node for values of a class.
    fn class_node(&mut self, class: ClassId, depth: usize) -> Node {
        match self.source.kind(class) {
            Ok(Kind::Reference) => Node::Object,
            Ok(Kind::String) => Node::String(self.source.string_class()),
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
        let size = shape.size;
        let fields = self.fields(shape, depth);
        Node::Struct(Box::new(StructNode { class, size, fields }))
    }

    fn fields(&mut self, shape: Shape, depth: usize) -> Box<[FieldNode]> {
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
        shape.fields.into_iter().map(field).collect()
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
            // The API cannot find the class of an array or a pointer.
            _ => Err(Unreadable::TypeArgument),
        }
    }
}
