//! The queries of the verifier to metadata.

use crate::signature::{MethodSignature, Primitive, Signature, Type};
use crate::token::{Token, TypeDefOrRef};

/// The metadata of the module that a body belongs to: of a file, of a live module, or of a table in a test.
///
/// Answers may depend on the token alone, as the verifier keeps them.
pub trait Resolve {
    /// The facts about a type that is defined or named here; `None` if there is no such row.
    fn type_info(&self, token: Token) -> Option<TypeInfo>;

    /// The type that a type spec spells; `None` if there is no such row, or its blob is not a type.
    fn type_spec(&self, token: Token) -> Option<Type>;

    /// A method that is defined here or referred to by name; `None` if there is no such row, or it is not a method.
    fn method(&self, token: Token) -> Option<MethodInfo>;

    /// The generic method of a method spec, and its arguments; `None` if there is no such row.
    fn method_spec(&self, token: Token) -> Option<(Token, Vec<Type>)>;

    /// A field that is defined here or referred to by name; `None` if there is no such row, or it is not a field.
    fn field(&self, token: Token) -> Option<FieldInfo>;

    /// A stand-alone signature; `None` if there is no such row, or its blob is not a signature.
    fn signature(&self, token: Token) -> Option<Signature>;

    /// Whether a token names a literal string.
    fn has_string(&self, token: Token) -> bool;

    /// Whether a type that is defined or named here has generic parameters; `false` also if that could not be found
    /// out.
    fn is_generic(&self, token: Token) -> bool {
        let _ = token;
        false
    }

    /// Whether no object can be made of this type, as it is an abstract class or an interface; `false` also if that
    /// could not be found out.
    fn is_abstract(&self, token: Token) -> bool {
        let _ = token;
        false
    }

    /// The signature of `Invoke`, if this type is a delegate; `None` if it is none, or that could not be found out. A
    /// generic one has it in terms of its own parameters.
    ///
    /// Its tokens are those of this module: a value type that the module has no token for is `TypeRef::NIL`, of which
    /// nothing is known.
    fn delegate(&self, token: Token) -> Option<MethodSignature> {
        let _ = token;
        None
    }

    /// Whether values of a type that is defined or named here are on the stack only: a `ref struct`; `false` also if
    /// that could not be found out.
    fn is_by_ref_like(&self, token: Token) -> bool {
        let _ = token;
        false
    }

    /// How a virtual call of a method is carried out on a value of this type, which is a value type that is defined or
    /// named here; `None` stands for the argument of a generic parameter that may be one.
    fn dispatch(&self, value_type: Option<Token>, method: Token) -> Dispatch {
        let _ = (value_type, method);
        Dispatch::Unknown
    }

    /// The integer that the code takes a native int for: `int64` or `int32` if the module is for processors of one
    /// width only, as C++/CLI makes them. `None` if it runs on both.
    fn native_int(&self) -> Option<Primitive> {
        None
    }

    /// Whether the runtimes of this module have methods with a variable number of arguments: those of Windows do.
    fn has_varargs(&self) -> bool {
        cfg!(windows)
    }
}

/// How a virtual call is carried out on a value of a value type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dispatch {
    /// The type has the method itself, which is called with the value's address.
    Own,
    /// The value is boxed first: the method is of `Object`, `ValueType`, `Enum` or an interface, or it is the type's
    /// own and not virtual.
    Boxed,
    /// The method is of another class or value type: no such value has it.
    Unrelated,
    /// It could not be found out; nothing is refused because of it.
    Unknown,
}

/// The kind of a type on the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Category {
    /// A class, an interface, a delegate.
    Reference,
    /// A value type that is not an enumeration.
    Value,
    /// An enumeration over this primitive type.
    Enum(Primitive),
    /// A value type; whether it is an enumeration, and over which type, could not be found out.
    ValueOrEnum,
    /// It could not be found out; nothing is refused because of it.
    Unknown,
}

/// The properties of a named type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeInfo {
    /// Equal for two tokens if and only if they mean the same type.
    pub identity: u64,
    /// Its kind on the stack.
    pub category: Category,
    /// The type that has a meaning of its own for instructions, if it is one.
    pub well_known: Option<WellKnown>,
}

/// A type that instructions have a meaning for, though metadata may name it like any other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WellKnown {
    /// A type that has an element type of its own.
    Primitive(Primitive),
    /// `System.RuntimeTypeHandle`
    TypeHandle,
    /// `System.RuntimeMethodHandle`
    MethodHandle,
    /// `System.RuntimeFieldHandle`
    FieldHandle,
    /// `System.RuntimeArgumentHandle`
    ArgumentHandle,
}

impl WellKnown {
    /// The type with this name in the namespace `System` of the core library.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "RuntimeTypeHandle" => Self::TypeHandle,
            "RuntimeMethodHandle" => Self::MethodHandle,
            "RuntimeFieldHandle" => Self::FieldHandle,
            "RuntimeArgumentHandle" => Self::ArgumentHandle,
            _ => Self::Primitive(Primitive::from_name(name)?),
        })
    }
}

/// Whether the type with this name in the namespace `System` of the core library is a `ref struct` for
/// [`Resolve::is_by_ref_like`].
pub fn is_ref_struct_of_system(name: &str) -> bool {
    matches!(name, "Span`1" | "ReadOnlySpan`1" | "TypedReference" | "ArgIterator" | "RuntimeArgumentHandle")
}

/// A method as its callers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MethodInfo {
    /// The type that has it: a type, a type spec, or nothing for a method of the module.
    pub owner: Option<TypeDefOrRef>,
    /// Its signature, in terms of the owner's own generic parameters.
    pub signature: MethodSignature,
    /// Whether it is named `.ctor`.
    pub is_constructor: bool,
    /// Whether it has no body to call, as far as that is known.
    pub is_abstract: bool,
    /// Whether it is virtual; `None` if that could not be found out. A static one is an interface's.
    pub is_virtual: Option<bool>,
}

/// A field as its users see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldInfo {
    /// The type that has it: a type, a type spec, or nothing for a field of the module.
    pub owner: Option<TypeDefOrRef>,
    /// Its type, in terms of the owner's own generic parameters.
    pub ty: Type,
    /// Whether it is static; `None` if that could not be found out.
    pub is_static: Option<bool>,
}
