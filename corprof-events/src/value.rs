//! Values of fields.

use std::fmt::{self, Display, Formatter, Write};
use std::time::SystemTime;

use crate::cursor::{Cursor, Truncated};
use crate::file_time;
use crate::scalar::{Scalar, Widths};
use crate::text::Text;
use crate::types::{Count, DEEPEST, Definitions, Shape, Type, Walk};

/// The value of a field. It borrows from the payload.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Value<'a> {
    /// A truth value.
    Bool(bool),
    /// A number without a sign.
    UInt(u64),
    /// A number with a sign.
    Int(i64),
    /// A number with a fraction.
    Float(f64),
    /// An address, or a number of the same width.
    Pointer(u64),
    /// A GUID, as its bytes are in memory: the first three parts are little-endian.
    Guid([u8; 16]),
    /// A moment: units of 100 ns since the year 1601, in UTC.
    FileTime(u64),
    /// Text.
    Text(Text<'a>),
    /// Bytes, of which no more is known.
    Bytes(&'a [u8]),
    /// Several of a type.
    List(List<'a>),
    /// A structure.
    Record(Record<'a>),
}

impl<'a> Value<'a> {
    /// The number, where it is one that is not negative, or an address.
    #[must_use]
    pub fn as_u64(self) -> Option<u64> {
        match self {
            Self::UInt(value) | Self::Pointer(value) | Self::FileTime(value) => Some(value),
            Self::Int(value) => value.try_into().ok(),
            Self::Bool(value) => Some(value.into()),
            _ => None,
        }
    }

    /// The number, where it is one that has room.
    #[must_use]
    pub fn as_i64(self) -> Option<i64> {
        match self {
            Self::Int(value) => Some(value),
            other => other.as_u64()?.try_into().ok(),
        }
    }

    /// The number, where it is one.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "who asks for a fraction wants the nearest one")]
    pub fn as_f64(self) -> Option<f64> {
        match self {
            Self::Float(value) => Some(value),
            Self::UInt(value) => Some(value as f64),
            Self::Int(value) => Some(value as f64),
            _ => None,
        }
    }

    /// The moment, where it is one that `SystemTime` has room for.
    #[must_use]
    pub fn as_system_time(self) -> Option<SystemTime> {
        if let Self::FileTime(ticks) = self { file_time::to_system_time(ticks) } else { None }
    }

    /// The text, where it is one.
    #[must_use]
    pub fn as_text(self) -> Option<Text<'a>> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    /// The list, where it is one.
    #[must_use]
    pub fn as_list(self) -> Option<List<'a>> {
        if let Self::List(list) = self { Some(list) } else { None }
    }

    /// The structure, where it is one.
    #[must_use]
    pub fn as_record(self) -> Option<Record<'a>> {
        if let Self::Record(record) = self { Some(record) } else { None }
    }

    /// The value that the description calls `scalar`, as wide as the cursor has it.
    fn scalar(scalar: Scalar, cursor: &mut Cursor<'a>) -> Result<Self, Truncated> {
        let widths = cursor.widths();
        if widths == Widths::Unknown && !scalar.has_certain_width() {
            return Err(Truncated);
        }
        match scalar.convertible() {
            Some((size, is_signed)) if size < widths.least() => {
                Self::read_scalar(scalar, &mut cursor.widened(size, is_signed, widths.least())?)
            }
            _ => Self::read_scalar(widths.written(scalar), cursor),
        }
    }

    fn read_scalar(scalar: Scalar, cursor: &mut Cursor<'a>) -> Result<Self, Truncated> {
        Ok(match scalar {
            Scalar::Bool32 => Self::Bool(cursor.boolean()?),
            Scalar::Bool8 => Self::Bool(cursor.u8()? != 0),
            Scalar::Utf16Unit => Self::Text(Text::utf16(cursor.bytes(2)?)),
            Scalar::Utf8Unit => Self::Text(Text::utf8(cursor.bytes(1)?)),
            Scalar::I8 => Self::Int(cursor.i8()?.into()),
            Scalar::U8 => Self::UInt(cursor.u8()?.into()),
            Scalar::I16 => Self::Int(cursor.i16()?.into()),
            Scalar::U16 => Self::UInt(cursor.u16()?.into()),
            Scalar::I32 => Self::Int(cursor.i32()?.into()),
            Scalar::U32 => Self::UInt(cursor.u32()?.into()),
            Scalar::I64 => Self::Int(cursor.i64()?),
            Scalar::U64 => Self::UInt(cursor.u64()?),
            Scalar::F32 => Self::Float(cursor.f32()?.into()),
            Scalar::F64 => Self::Float(cursor.f64()?),
            Scalar::Pointer => Self::Pointer(cursor.pointer()?),
            Scalar::Guid => Self::Guid(cursor.array()?),
            Scalar::FileTime => Self::FileTime(cursor.u64()?),
            Scalar::Decimal => Self::Bytes(cursor.bytes(16)?),
            Scalar::Location => Self::Bytes(cursor.bytes(4)?),
            Scalar::Utf16Z => Self::Text(cursor.utf16z()?),
            Scalar::AnsiZ => Self::Text(cursor.ansiz()?),
            Scalar::Utf8Counted => Self::Text(cursor.utf8_counted()?),
            Scalar::VarInt => Self::Int(cursor.varint()?),
            Scalar::VarUInt => Self::UInt(cursor.varuint()?),
        })
    }

    /// The value of this type that `walk` has come to.
    fn read(ty: Type<'a>, walk: &mut Walk<'a>, depth: u8) -> Result<Self, Truncated> {
        let depth = depth.checked_sub(1).ok_or(Truncated)?;
        match ty.shape()? {
            Shape::Scalar(scalar) => Self::scalar(scalar, &mut walk.cursor),
            Shape::Bytes => walk.cursor.bytes(walk.count as usize).map(Self::Bytes),
            Shape::Record(fields) => {
                let record = Record { fields, payload: walk.cursor, depth };
                walk.cursor = record.end()?;
                Ok(Self::Record(record))
            }
            Shape::List(element, count) => {
                let widths = walk.cursor.widths();
                if !matches!(widths, Widths::SelfDescribing | Widths::Described) {
                    // `WriteEvent` has no lists, and writers disagree about the width of their counts.
                    return Err(Truncated);
                }
                let count = match count {
                    Count::Before => walk.count,
                    Count::Fixed(count) => count,
                    Count::Inline => walk.cursor.u16()?.into(),
                };
                let list = List { element, count, payload: walk.cursor, depth };
                let end = list.end()?;
                let text = match element.shape()? {
                    Shape::Scalar(Scalar::Utf16Unit) => Some(Text::utf16 as fn(&'a [u8]) -> Text<'a>),
                    Shape::Scalar(Scalar::Utf8Unit) => Some(Text::utf8 as fn(&'a [u8]) -> Text<'a>),
                    _ => None,
                };
                let bytes = walk.cursor.bytes(walk.cursor.rest().len() - end.rest().len())?;
                Ok(text.map_or(Self::List(list), |text| Self::Text(text(bytes))))
            }
        }
    }
}

impl Display for Value<'_> {
    /// As a person reads it: texts in quotes, addresses in hexadecimal, lists in brackets, structures in braces.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => write!(f, "{value}"),
            Self::UInt(value) => write!(f, "{value}"),
            Self::Int(value) => write!(f, "{value}"),
            Self::Float(value) => write!(f, "{value}"),
            Self::Pointer(value) => write!(f, "{value:#x}"),
            Self::Guid([a0, a1, a2, a3, b0, b1, c0, c1, rest @ ..]) => {
                let first = u32::from_le_bytes([*a0, *a1, *a2, *a3]);
                let second = u16::from_le_bytes([*b0, *b1]);
                let third = u16::from_le_bytes([*c0, *c1]);
                write!(f, "{first:08x}-{second:04x}-{third:04x}-")?;
                for (index, byte) in rest.iter().enumerate() {
                    f.write_str(if index == 2 { "-" } else { "" })?;
                    write!(f, "{byte:02x}")?;
                }
                Ok(())
            }
            Self::FileTime(value) => write!(f, "{value}"),
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Bytes(bytes) => bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
            Self::List(list) => {
                f.write_char('[')?;
                for (index, value) in list.iter().enumerate() {
                    write!(f, "{}{value}", if index > 0 { ", " } else { "" })?;
                }
                f.write_char(']')
            }
            Self::Record(record) => {
                f.write_char('{')?;
                for (index, (name, value)) in record.fields().enumerate() {
                    write!(f, "{}{name}={value}", if index > 0 { " " } else { "" })?;
                }
                f.write_char('}')
            }
        }
    }
}

/// Several values of a type.
#[derive(Debug, Clone, Copy)]
pub struct List<'a> {
    element: Type<'a>,
    count: u32,
    /// From the first element on.
    payload: Cursor<'a>,
    depth: u8,
}

impl<'a> List<'a> {
    /// How many.
    #[must_use]
    pub fn len(self) -> usize {
        self.count as usize
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.count == 0
    }

    /// The values.
    pub fn iter(self) -> impl Iterator<Item = Value<'a>> {
        let mut walk = Walk { cursor: self.payload, count: 0 };
        // The list was walked through when it was made, so that none of these fails.
        (0..self.count).map_while(move |_| Value::read(self.element, &mut walk, self.depth).ok())
    }

    /// The bytes after it.
    fn end(self) -> Result<Cursor<'a>, Truncated> {
        let mut walk = Walk { cursor: self.payload, count: 0 };
        if let Shape::Scalar(scalar) = self.element.shape()?
            && let Some(size) = walk.cursor.widths().written(scalar).size(walk.cursor.is_64_bit())
        {
            walk.cursor.bytes(size.checked_mul(self.len()).ok_or(Truncated)?)?;
            return Ok(walk.cursor);
        }
        for _ in 0..self.count {
            let before = walk.cursor.rest().len();
            Value::read(self.element, &mut walk, self.depth)?;
            // Elements without bytes, and billions of them, would take for ever.
            if walk.cursor.rest().len() == before {
                return Err(Truncated);
            }
        }
        Ok(walk.cursor)
    }
}

/// The fields of an event or of a structure.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    pub(crate) fields: Definitions<'a>,
    /// From the first field on.
    pub(crate) payload: Cursor<'a>,
    pub(crate) depth: u8,
}

impl<'a> Record<'a> {
    pub(crate) fn new(fields: Definitions<'a>, payload: Cursor<'a>) -> Self {
        Self { fields, payload, depth: DEEPEST }
    }

    /// The fields, in their order, with their names. They end where the payload does.
    #[must_use]
    pub fn fields(self) -> Fields<'a> {
        let walk = Walk { cursor: self.payload, count: 0 };
        Fields { definitions: self.fields, walk, depth: self.depth }
    }

    /// The value of the field with this name.
    #[must_use]
    pub fn field(self, name: &str) -> Option<Value<'a>> {
        self.fields().find(|(field, _)| field == name).map(|(_, value)| value)
    }

    /// Whether the payload has all fields and nothing after them.
    pub(crate) fn is_whole(self) -> bool {
        self.end().is_ok_and(|end| end.rest().is_empty())
    }

    /// The bytes after the fields.
    pub(crate) fn end(self) -> Result<Cursor<'a>, Truncated> {
        let mut fields = self.fields();
        while fields.step()?.is_some() {}
        Ok(fields.walk.cursor)
    }
}

/// Names and values of fields, one after the other.
#[derive(Debug, Clone)]
pub struct Fields<'a> {
    definitions: Definitions<'a>,
    walk: Walk<'a>,
    depth: u8,
}

impl<'a> Fields<'a> {
    fn step(&mut self) -> Result<Option<(Text<'a>, Value<'a>)>, Truncated> {
        let Some(mut definition) = self.definitions.next()? else { return Ok(None) };
        while let Some(padding) = definition.ty.padding(self.walk.cursor.is_64_bit()) {
            self.walk.cursor.bytes(padding)?;
            let Some(next) = self.definitions.next()? else { return Ok(None) };
            definition = next;
        }
        let value = Value::read(definition.ty, &mut self.walk, self.depth)?;
        if definition.is_count {
            self.walk.count = value.as_u64().and_then(|count| u32::try_from(count).ok()).ok_or(Truncated)?;
        }
        Ok(Some((definition.name, value)))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (Text<'a>, Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.step();
        if next.is_err() {
            // The fields after a truncated one are unknown, too.
            self.definitions = Definitions::NONE;
        }
        next.ok().flatten()
    }
}
