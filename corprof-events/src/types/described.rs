//! [`Described`]: types that an event's own description has.

use super::{Count, DEEPEST, Definitions, Shape, Type};
use crate::cursor::{Cursor, Truncated};
use crate::misfit::Misfit;
use crate::scalar::Scalar;
use crate::text::Text;

/// More fields are not believed: an event has at most 64 KB.
const MOST_FIELDS: u32 = 4096;

/// How a description of fields is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Type, then name: versions 4 and 5 of `.nettrace`, and events of profilers.
    V1,
    /// Size, name, type: the tag `V2Params` of version 5, for fields that are arrays.
    V2,
    /// Size, name, type, in fewer bytes: version 6.
    V6,
}

/// Bytes that describe a type, from its code on, or a list of fields, from its count on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Described<'a> {
    pub(crate) layout: Layout,
    pub(crate) bytes: &'a [u8],
}

/// The code of an array in version 6.
pub(crate) const ARRAY: u8 = 19;

mod code {
    pub(super) const OBJECT: u32 = 1;
    pub(super) const ARRAY: u32 = super::ARRAY as u32;
    pub(super) const FIXED_ARRAY: u32 = 22;
    pub(super) const RELATIVE_LOCATION: u32 = 24;
    pub(super) const DATA_LOCATION: u32 = 25;
}

impl<'a> Described<'a> {
    fn cursor(self) -> Cursor<'a> {
        Cursor::new(self.bytes, true)
    }

    /// The list of fields that begins here.
    pub(crate) fn fields(self) -> Result<Definitions<'a>, Truncated> {
        let mut cursor = self.cursor();
        let count = if self.layout == Layout::V6 { cursor.u16()?.into() } else { cursor.u32()? };
        Ok(Definitions::Described(count, Described { bytes: cursor.rest(), ..self }))
    }

    /// Name and type of the field that begins here; then the next begins here.
    pub(crate) fn next_field(&mut self) -> Result<(Text<'a>, Described<'a>), Truncated> {
        let mut cursor = self.cursor();
        let layout = self.layout;
        let field = match layout {
            Layout::V1 => {
                let ty = *self;
                cursor = Cursor::new(ty.end(DEEPEST, &mut { MOST_FIELDS })?, true);
                (cursor.utf16z()?, ty)
            }
            Layout::V2 => {
                let size = cursor.u32()?.checked_sub(4).ok_or(Truncated)?;
                let mut field = Cursor::new(cursor.bytes(usize::try_from(size).map_err(|_| Truncated)?)?, true);
                let name = field.utf16z()?;
                (name, Described { layout, bytes: field.rest() })
            }
            Layout::V6 => {
                let size = cursor.u16()?.into();
                let mut field = Cursor::new(cursor.bytes(size)?, true);
                let name = field.counted_utf8()?;
                (name, Described { layout, bytes: field.rest() })
            }
        };
        self.bytes = cursor.rest();
        Ok(field)
    }

    /// The code of the type that begins here, and the bytes after it.
    fn code(self) -> Result<(u32, Described<'a>), Truncated> {
        let mut cursor = self.cursor();
        let code = if self.layout == Layout::V6 { cursor.u8()?.into() } else { cursor.u32()? };
        Ok((code, Described { bytes: cursor.rest(), ..self }))
    }

    pub(crate) fn shape(self) -> Result<Shape<'a>, Truncated> {
        let (code, rest) = self.code()?;
        if let Some(scalar) = self.scalar(code) {
            return Ok(Shape::Scalar(scalar));
        }
        match (code, self.layout) {
            (code::OBJECT, _) => rest.fields().map(Shape::Record),
            (code::ARRAY, Layout::V2 | Layout::V6) => Ok(Shape::List(Type::Described(rest), Count::Inline)),
            (code::FIXED_ARRAY, Layout::V6) => {
                let mut end = Cursor::new(rest.end(DEEPEST, &mut { MOST_FIELDS })?, true);
                Ok(Shape::List(Type::Described(rest), Count::Fixed(end.u16()?.into())))
            }
            (code::RELATIVE_LOCATION | code::DATA_LOCATION, Layout::V6) => Ok(Shape::Scalar(Scalar::Location)),
            _ => Err(Truncated),
        }
    }

    /// The types that are only a code.
    fn scalar(self, code: u32) -> Option<Scalar> {
        let is_v6 = self.layout == Layout::V6;
        Some(match code {
            3 => Scalar::Bool32,
            4 => Scalar::Utf16Unit,
            5 => Scalar::I8,
            6 => Scalar::U8,
            7 => Scalar::I16,
            8 => Scalar::U16,
            9 => Scalar::I32,
            10 => Scalar::U32,
            11 => Scalar::I64,
            12 => Scalar::U64,
            13 => Scalar::F32,
            14 => Scalar::F64,
            15 => Scalar::Decimal,
            // The format's description says eight numbers; .NET writes a file time, and TraceEvent reads one.
            16 => Scalar::FileTime,
            17 => Scalar::Guid,
            18 => Scalar::Utf16Z,
            20 if is_v6 => Scalar::VarInt,
            21 if is_v6 => Scalar::VarUInt,
            23 if is_v6 => Scalar::Utf8Unit,
            26 if is_v6 => Scalar::Bool8,
            _ => return None,
        })
    }

    /// The bytes after the type that begins here. `budget` limits the number of its fields.
    fn end(self, depth: u8, budget: &mut u32) -> Result<&'a [u8], Truncated> {
        let depth = depth.checked_sub(1).ok_or(Truncated)?;
        let (code, rest) = self.code()?;
        if self.scalar(code).is_some() {
            return Ok(rest.bytes);
        }
        match (code, self.layout) {
            // Each value has at least a byte, so that there are no more of them than the payload has bytes.
            (code::OBJECT, _) if rest.fields()?.len() == 0 => Err(Truncated),
            (code::OBJECT, _) => rest.end_of_fields(depth, budget),
            (code::ARRAY, Layout::V2 | Layout::V6) => rest.end(depth, budget),
            (code::RELATIVE_LOCATION | code::DATA_LOCATION, Layout::V6) => rest.end(depth, budget),
            (code::FIXED_ARRAY, Layout::V6) => {
                let mut cursor = Cursor::new(rest.end(depth, budget)?, true);
                if cursor.u16()? == 0 { Err(Truncated) } else { Ok(cursor.rest()) }
            }
            _ => Err(Truncated),
        }
    }

    /// The bytes after the list of fields that begins here.
    fn end_of_fields(self, depth: u8, budget: &mut u32) -> Result<&'a [u8], Truncated> {
        let Definitions::Described(count, mut at) = self.fields()? else { return Err(Truncated) };
        for _ in 0..count {
            *budget = budget.checked_sub(1).ok_or(Truncated)?;
            if at.layout == Layout::V1 {
                let mut cursor = Cursor::new(at.end(depth, budget)?, true);
                cursor.utf16z()?;
                at.bytes = cursor.rest();
            } else {
                let (_, ty) = at.next_field()?;
                ty.end(depth, budget)?;
            }
        }
        Ok(at.bytes)
    }

    /// The bytes after this list of fields, if all of them are known.
    pub(crate) fn checked(self) -> Result<&'a [u8], Truncated> {
        self.end_of_fields(DEEPEST, &mut { MOST_FIELDS })
    }

    /// Appends this list of fields in the layout of version 6. One that is not known is an empty list.
    pub(crate) fn write_v6(self, out: &mut Vec<u8>) -> Result<(), Misfit> {
        let Ok(rest) = self.checked() else {
            out.extend([0; 2]);
            return Ok(());
        };
        if self.layout == Layout::V6 {
            out.extend(self.bytes.get(..self.bytes.len() - rest.len()).unwrap_or_default());
            return Ok(());
        }
        self.write_fields_v6(out)
    }

    fn write_fields_v6(self, out: &mut Vec<u8>) -> Result<(), Misfit> {
        let unknown = |_| Misfit::Description;
        let Definitions::Described(count, mut at) = self.fields().map_err(unknown)? else {
            return Err(Misfit::Description);
        };
        out.extend(u16::try_from(count).map_err(|_| Misfit::Description)?.to_le_bytes());
        for _ in 0..count {
            let (name, ty) = at.next_field().map_err(unknown)?;
            write_field_v6(out, &name.to_string(), |out| ty.write_type_v6(out))?;
        }
        Ok(())
    }

    /// The codes are the same in all layouts.
    fn write_type_v6(self, out: &mut Vec<u8>) -> Result<(), Misfit> {
        let (code, rest) = self.code().map_err(|_| Misfit::Description)?;
        out.push(u8::try_from(code).map_err(|_| Misfit::Description)?);
        match code {
            code::OBJECT => rest.write_fields_v6(out),
            code::ARRAY => rest.write_type_v6(out),
            _ => Ok(()),
        }
    }
}

/// Appends the description of a field in the layout of version 6, with the type that `write_type` appends.
pub(crate) fn write_field_v6(
    out: &mut Vec<u8>,
    name: &str,
    write_type: impl FnOnce(&mut Vec<u8>) -> Result<(), Misfit>,
) -> Result<(), Misfit> {
    let start = out.len();
    out.extend([0; 2]);
    write_varuint(out, name.len() as u64);
    out.extend(name.as_bytes());
    write_type(out)?;
    let size = u16::try_from(out.len() - start - 2).map_err(|_| Misfit::Description)?;
    out.iter_mut().skip(start).zip(size.to_le_bytes()).for_each(|(to, from)| *to = from);
    Ok(())
}

/// Appends seven bits a byte, the lowest first; the eighth says that more follow.
pub(crate) fn write_varuint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}
