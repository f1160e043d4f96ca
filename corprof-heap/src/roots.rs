//! Roots: references from outside of the heap that keep objects alive.

use std::fmt::{self, Display, Formatter};

use crate::ObjectId;

/// Why the collector starts from an object.
///
/// Weak handles are not roots: they keep nothing alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum RootKind {
    /// A static field.
    Static,
    /// A local variable or a register.
    Stack,
    /// A strong handle.
    Handle,
    /// A handle that pins.
    PinnedHandle,
    /// A handle that native code counts references of.
    RefCountedHandle,
    /// The queue of objects to be finalized.
    Finalizer,
    /// Anything else that the runtime names.
    Other,
    /// The object is never collected: a string literal, or a type's own object, in the heap that is not collected.
    Frozen,
}

impl RootKind {
    /// All kinds, in their order.
    pub const ALL: [Self; 8] = [
        Self::Static,
        Self::Stack,
        Self::Handle,
        Self::PinnedHandle,
        Self::RefCountedHandle,
        Self::Finalizer,
        Self::Other,
        Self::Frozen,
    ];

    /// The kind in words, such as `pinned handle`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Static => "static field",
            Self::Stack => "stack",
            Self::Handle => "handle",
            Self::PinnedHandle => "pinned handle",
            Self::RefCountedHandle => "reference-counted handle",
            Self::Finalizer => "finalizer queue",
            Self::Other => "other",
            Self::Frozen => "never collected",
        }
    }
}

/// A root: one object, and the kind of the reference to it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Root {
    /// The object that is held.
    pub object: ObjectId,
    /// The kind of the reference.
    pub kind: RootKind,
    /// Which one it is, such as the static field's name.
    pub name: Option<Box<str>>,
}

impl Display for Root {
    /// The kind, and the name if it has one: `static field Shop.Catalogue.items`.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name())?;
        self.name.as_ref().map_or(Ok(()), |name| write!(f, " {name}"))
    }
}
