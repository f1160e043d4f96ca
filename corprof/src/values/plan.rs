//! The types of the values in a call of one function: made when it is compiled, read by its hooks.

use std::sync::{Arc, OnceLock};

use crate::context::InNoGc;
use crate::id::{ClassId, ModuleId};
use crate::info::SoleAssembly;
use crate::metadata::FieldDef;
use crate::metadata::signature::Primitive;
use crate::session::{Info, Observer};

use super::Unreadable;

/// The class of strings, once it is known: one for a session.
#[derive(Clone, Debug, Default)]
pub(super) struct StringClass(Arc<OnceLock<ClassId>>);

impl Observer for StringClass {}

impl StringClass {
    pub(super) fn of(info: &Info) -> Self {
        info.extension::<Self>().clone()
    }

    pub(super) fn get(&self) -> Option<ClassId> {
        self.0.get().copied()
    }

    pub(super) fn learn(&self, class: ClassId) {
        let _ = self.0.set(class); // always the same
    }

    /// Finds it in the core library, without loading anything.
    pub(super) fn find(&self, cx: &InNoGc<'_>, core: ModuleId) {
        if self.get().is_some() {
            return;
        }
        let methods = || {
            let metadata = cx.metadata(core).ok()?;
            metadata.methods(metadata.find_type_def("System.String", None).ok()??).ok()
        };
        let class_of = |method| cx.function_info(cx.function_from_token(core, method).ok()?).ok()?.class;
        methods().into_iter().flatten().find_map(class_of).into_iter().for_each(|class| self.learn(class));
    }
}

impl PartialEq for StringClass {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

/// The values of a function.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// The type of `this`, for an instance method.
    pub(super) this: Option<Node>,
    /// The parameters, without `this`.
    pub(super) parameters: Box<[Parameter]>,
    /// The type of the result; none for `void`.
    pub(super) result: Option<Node>,
    /// The reason if nothing is known about the parameters.
    pub(super) unreadable: Option<Unreadable>,
    /// The assemblies that types were found in by name.
    pub(super) assemblies: Box<[Arc<SoleAssembly>]>,
}

/// A parameter.
#[derive(Debug)]
pub(super) struct Parameter {
    /// Its name, if the metadata have it.
    pub(super) name: Option<Box<str>>,
    pub(super) node: Node,
}

/// A type, as detailed as reading its values needs.
#[derive(Debug, PartialEq)]
pub(super) enum Node {
    /// A truth value, a character, an integer or a floating-point number; other [`Primitive`]s do not occur here.
    Primitive(Primitive),
    Enum {
        class: ClassId,
        /// An integer, a truth value or a character.
        underlying: Primitive,
    },
    /// A reference to a string, or to any object: whatever code has no proof may have put there. Strings are told by
    /// their class; while that is not known, none is read.
    String(StringClass),
    /// A reference to any object.
    Object,
    /// An unmanaged pointer or a function pointer.
    Pointer,
    /// A managed reference to a place with a value of this type.
    ByRef(Box<Node>),
    Struct(Box<StructNode>),
    Unreadable(Unreadable),
}

/// A value type.
#[derive(Debug, PartialEq)]
pub(super) struct StructNode {
    pub(super) class: ClassId,
    /// In bytes.
    pub(super) size: usize,
    /// Its instance fields. Each lies within the size.
    pub(super) fields: Box<[FieldNode]>,
}

/// A field of a value type.
#[derive(Debug, PartialEq)]
pub(super) struct FieldNode {
    pub(super) token: FieldDef,
    pub(super) name: Box<str>,
    /// In bytes, from the start of the value.
    pub(super) offset: usize,
    pub(super) node: Node,
}

impl FieldNode {
    /// The name of the property that the C# compiler has made the field for, by the field's name in the metadata.
    pub(super) fn property(&self) -> Option<&str> {
        self.name.strip_prefix('<')?.strip_suffix(">k__BackingField")
    }

    /// Whether this is its name, or that of its property.
    pub(super) fn is_called(&self, name: &str) -> bool {
        *self.name == *name || self.property() == Some(name)
    }
}

impl Plan {
    /// The number of values that the runtime shows when the function begins.
    pub(crate) fn ranges(&self) -> usize {
        usize::from(self.this.is_some()) + self.parameters.len()
    }

    /// Whether the function returns a value.
    pub(crate) fn has_result(&self) -> bool {
        self.result.is_some()
    }

    /// The reason if nothing can be read now.
    #[inline]
    pub(super) fn unreadable_now(&self) -> Option<Unreadable> {
        let has_namesakes = self.assemblies.iter().any(|assembly| assembly.has_namesake());
        self.unreadable.or(has_namesakes.then_some(Unreadable::AmbiguousType))
    }

    /// A plan of which nothing can be read, for this reason.
    pub(super) fn unreadable(why: Unreadable) -> Self {
        let result = Some(Node::Unreadable(why));
        Self { this: None, parameters: Box::default(), result, unreadable: Some(why), assemblies: Box::default() }
    }
}

impl Node {
    /// The size of a value in bytes; none if it is unknown.
    pub(super) fn size(&self) -> Option<usize> {
        Some(match self {
            Self::Primitive(primitive) | Self::Enum { underlying: primitive, .. } => size_of_number(*primitive)?,
            Self::String(_) | Self::Object | Self::Pointer | Self::ByRef(_) => size_of::<usize>(),
            Self::Struct(of) => of.size,
            Self::Unreadable(_) => return None,
        })
    }
}

/// The size of a primitive that is a number.
#[inline]
pub(super) fn size_of_number(primitive: Primitive) -> Option<usize> {
    Some(match primitive {
        Primitive::Bool | Primitive::Int8 | Primitive::UInt8 => 1,
        Primitive::Char | Primitive::Int16 | Primitive::UInt16 => 2,
        Primitive::Int32 | Primitive::UInt32 | Primitive::Float32 => 4,
        Primitive::Int64 | Primitive::UInt64 | Primitive::Float64 => 8,
        Primitive::NativeInt | Primitive::NativeUInt => size_of::<usize>(),
        Primitive::Void | Primitive::String | Primitive::Object | Primitive::TypedRef => return None,
    })
}
