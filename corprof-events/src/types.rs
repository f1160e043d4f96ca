//! How fields are written, as the manifest or an event's own description says.

pub(crate) mod described;

use crate::cursor::{Cursor, Truncated};
use crate::scalar::Scalar;
use crate::text::Text;

use described::Described;

/// The limit of nesting: no provider writes deeper types, and decoding them would overflow the stack.
pub(crate) const DEEPEST: u8 = 16;

/// A field of the manifest.
#[derive(Debug)]
pub(crate) struct ManifestField {
    pub(crate) name: &'static str,
    pub(crate) ty: ManifestType,
    /// Fields behind it have this many elements or bytes.
    pub(crate) is_count: bool,
}

/// The type of a field of the manifest.
#[derive(Debug)]
pub(crate) enum ManifestType {
    Scalar(Scalar),
    /// Two bytes that mean nothing.
    Padding16,
    /// Four bytes that mean nothing, where pointers have eight.
    Padding64,
    /// Bytes, as many as the count in front says.
    Bytes,
    /// As many as the count in front says.
    List(&'static ManifestType),
    /// Always as many.
    Fixed(&'static ManifestType, u16),
    Record(&'static [ManifestField]),
}

/// The type of a field.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Type<'a> {
    Manifest(&'static ManifestType),
    Described(Described<'a>),
}

/// How many elements a list has.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Count {
    /// As the field in front says that is a count.
    Before,
    /// The type says it.
    Fixed(u32),
    /// In the payload in front of the elements, a u16.
    Inline,
}

/// The structure of a type.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shape<'a> {
    Scalar(Scalar),
    Bytes,
    List(Type<'a>, Count),
    Record(Definitions<'a>),
}

impl<'a> Type<'a> {
    pub(crate) fn shape(self) -> Result<Shape<'a>, Truncated> {
        Ok(match self {
            Self::Manifest(ManifestType::Scalar(scalar)) => Shape::Scalar(*scalar),
            Self::Manifest(ManifestType::Padding16 | ManifestType::Padding64) => return Err(Truncated),
            Self::Manifest(ManifestType::Bytes) => Shape::Bytes,
            Self::Manifest(ManifestType::List(element)) => Shape::List(Self::Manifest(element), Count::Before),
            Self::Manifest(ManifestType::Fixed(element, count)) => {
                Shape::List(Self::Manifest(element), Count::Fixed((*count).into()))
            }
            Self::Manifest(ManifestType::Record(fields)) => Shape::Record(Definitions::Manifest(fields)),
            Self::Described(described) => described.shape()?,
        })
    }
}

/// The fields of an event or a structure that have not been looked at yet.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Definitions<'a> {
    Manifest(&'static [ManifestField]),
    /// So many, which the bytes describe.
    Described(u32, Described<'a>),
}

impl Type<'_> {
    /// How many bytes of padding it is, if it is that.
    pub(crate) fn padding(self, is_64_bit: bool) -> Option<usize> {
        match self {
            Self::Manifest(ManifestType::Padding16) => Some(2),
            Self::Manifest(ManifestType::Padding64) => Some(if is_64_bit { 4 } else { 0 }),
            _ => None,
        }
    }
}

/// Name and type of a field.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Definition<'a> {
    pub(crate) name: Text<'a>,
    pub(crate) ty: Type<'a>,
    pub(crate) is_count: bool,
}

impl<'a> Definitions<'a> {
    pub(crate) const NONE: Self = Self::Manifest(&[]);

    /// How many are left.
    pub(crate) fn len(self) -> usize {
        match self {
            Self::Manifest(fields) => fields.len(),
            Self::Described(count, _) => count as usize,
        }
    }

    /// The next, or nothing at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Definition<'a>>, Truncated> {
        match self {
            Self::Manifest(fields) => {
                let Some((first, rest)) = fields.split_first() else { return Ok(None) };
                *fields = rest;
                let name = Text::from(first.name);
                let ty = Type::Manifest(&first.ty);
                Ok(Some(Definition { name, ty, is_count: first.is_count }))
            }
            Self::Described(0, _) => Ok(None),
            Self::Described(count, described) => {
                *count -= 1;
                let (name, ty) = described.next_field()?;
                Ok(Some(Definition { name, ty: Type::Described(ty), is_count: false }))
            }
        }
    }
}

/// A payload's reader with the count that it has come by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Walk<'a> {
    pub(crate) cursor: Cursor<'a>,
    pub(crate) count: u32,
}
