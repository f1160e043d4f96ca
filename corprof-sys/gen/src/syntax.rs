//! The parser's output: declarations as they stand, with unresolved names.

use crate::expr::Expr;

/// A name and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// How it is written.
    pub text: String,
    /// Where.
    pub offset: usize,
}

/// A declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// `interface`, `enum`, `struct` or `union` and a name: it is declared elsewhere.
    Forward(Name),
    /// An enumeration: name, enumerators.
    Enum(Name, Vec<Enumerator>),
    /// A structure or (if set) a union.
    Record {
        /// Its name.
        name: Name,
        /// It is a union.
        union: bool,
        /// Its fields.
        fields: Vec<Declaration>,
    },
    /// A name for a type.
    Alias(Declaration),
    /// A name for a function, or (if set) a pointer to one.
    Function {
        /// Its name.
        name: Name,
        /// The name stands for a pointer to the function.
        pointer: bool,
        /// The type that it returns.
        returns: TypeRef,
        /// Its parameters.
        params: Vec<Declaration>,
    },
    /// An interface.
    Interface {
        /// Its name.
        name: Name,
        /// `uuid(...)`, if there.
        uuid: Option<Name>,
        /// The interface it extends.
        parent: Option<Name>,
        /// Its methods.
        methods: Vec<Method>,
    },
    /// Something that declares nothing here: an import, a stray semicolon, a macro that defines a GUID.
    Nothing,
}

/// An enumerator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enumerator {
    /// Its name.
    pub name: Name,
    /// Its value, if it is given.
    pub value: Option<Expr>,
}

/// A method of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Method {
    /// Its name.
    pub name: Name,
    /// The type that it returns.
    pub returns: TypeRef,
    /// Its parameters.
    pub params: Vec<Declaration>,
}

/// A type, a name, and their attributes: a field, a parameter, an alias.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declaration {
    /// Attributes and annotations.
    pub attributes: Vec<Attribute>,
    /// The type before the name.
    pub ty: TypeRef,
    /// The name.
    pub name: Name,
    /// `[]` (`Some(None)`) or `[n]` (`Some(Some(n))`) after it.
    pub array: Option<Option<Expr>>,
}

/// An attribute, with its arguments as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribute {
    /// Its name.
    pub name: Name,
    /// The text in its parentheses.
    pub arguments: Option<String>,
}

/// A type as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeRef {
    /// The named type.
    pub base: Name,
    /// `const` stands with it.
    pub constant: bool,
    /// How many `*` follow.
    pub pointers: usize,
}
