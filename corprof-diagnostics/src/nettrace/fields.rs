//! The fields of an event as its definition has them, in the three layouts that there are.

use crate::bytes::{Cursor, Malformed};

/// Deeper ones are not looked into: nobody writes them, and following them would use up the stack.
const DEEPEST: u32 = 16;

/// More are not believed: an event is at most 64 KB, and a definition with so many is no definition.
const MOST_FIELDS: usize = 4096;

/// A field of an event's payload. Fields follow each other without padding, in little-endian order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// How it is written.
    pub ty: Type,
}

/// How a field is written.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Type {
    /// Fields, one after the other.
    Object(Vec<Field>),
    /// Four bytes, 0 or 1.
    Boolean32,
    /// One byte, 0 or 1 (code 26, after version 6.0).
    Boolean8,
    /// A unit of UTF-16.
    Utf16Unit,
    /// A unit of UTF-8 (version 6).
    Utf8Unit,
    /// A signed byte.
    I8,
    /// A byte.
    U8,
    /// Two bytes, signed.
    I16,
    /// Two bytes.
    U16,
    /// Four bytes, signed.
    I32,
    /// Four bytes.
    U32,
    /// Eight bytes, signed.
    I64,
    /// Eight bytes.
    U64,
    /// Four bytes of floating point.
    F32,
    /// Eight bytes of floating point.
    F64,
    /// 16 bytes of decimal number. No runtime is known to have written one correctly.
    Decimal,
    /// A date: eight units of 16 bits by the document, 8 bytes by the runtime's code.
    DateTime,
    /// 16 bytes: a GUID.
    Guid,
    /// UTF-16 with a terminating zero.
    Utf16Z,
    /// A count (u16), and so many elements.
    Array(Box<Type>),
    /// So many elements (version 6).
    FixedArray(Box<Type>, u16),
    /// A signed integer of seven bits a byte, its sign in the lowest bit (version 6).
    VarInt,
    /// An integer of seven bits a byte (version 6).
    VarUInt,
    /// Four bytes that say where in the payload an array of elements is, from here (version 6).
    RelativeLocation(Box<Type>),
    /// Four bytes that say where in the payload an array of elements is, from its beginning (version 6).
    DataLocation(Box<Type>),
}

mod code {
    pub(super) const OBJECT: u32 = 1;
    pub(super) const ARRAY: u32 = 19;
    pub(super) const FIXED_ARRAY: u32 = 22;
    pub(super) const RELATIVE_LOCATION: u32 = 24;
    pub(super) const DATA_LOCATION: u32 = 25;
}

/// The types that are only a code.
fn simple(code: u32) -> Option<Type> {
    Some(match code {
        3 => Type::Boolean32,
        4 => Type::Utf16Unit,
        5 => Type::I8,
        6 => Type::U8,
        7 => Type::I16,
        8 => Type::U16,
        9 => Type::I32,
        10 => Type::U32,
        11 => Type::I64,
        12 => Type::U64,
        13 => Type::F32,
        14 => Type::F64,
        15 => Type::Decimal,
        16 => Type::DateTime,
        17 => Type::Guid,
        18 => Type::Utf16Z,
        20 => Type::VarInt,
        21 => Type::VarUInt,
        23 => Type::Utf8Unit,
        26 => Type::Boolean8,
        _ => return None,
    })
}

/// Capacity for `count` fields, as far as it is to be believed.
fn some(count: usize) -> Result<Vec<Field>, Malformed> {
    if count > MOST_FIELDS { Err(Malformed) } else { Ok(Vec::with_capacity(count.min(64))) }
}

/// How many fields there are in all, those of objects among them.
#[derive(Debug)]
struct Budget {
    fields: usize,
}

impl Budget {
    fn take(&mut self) -> Result<(), Malformed> {
        self.fields = self.fields.checked_sub(1).ok_or(Malformed)?;
        Ok(())
    }
}

/// The fields of the first layout: count, then type and name of each.
pub(crate) fn read_v1(cursor: &mut Cursor<'_>) -> Result<Vec<Field>, Malformed> {
    fields_v1(cursor, DEEPEST, &mut Budget { fields: MOST_FIELDS })
}

fn fields_v1(cursor: &mut Cursor<'_>, depth: u32, budget: &mut Budget) -> Result<Vec<Field>, Malformed> {
    let count = cursor.count()?;
    let mut fields = some(count)?;
    for _ in 0..count {
        budget.take()?;
        let ty = match cursor.u32()? {
            code::OBJECT => Type::Object(fields_v1(cursor, depth.checked_sub(1).ok_or(Malformed)?, budget)?),
            code => simple(code).ok_or(Malformed)?,
        };
        let name = cursor.utf16z()?;
        fields.push(Field { name, ty });
    }
    Ok(fields)
}

/// The fields of the second layout (the tag `V2Params` of version 5): count, then size, name and type of each.
pub(crate) fn read_v2(cursor: &mut Cursor<'_>) -> Result<Vec<Field>, Malformed> {
    fields_v2(cursor, DEEPEST, &mut Budget { fields: MOST_FIELDS })
}

fn fields_v2(cursor: &mut Cursor<'_>, depth: u32, budget: &mut Budget) -> Result<Vec<Field>, Malformed> {
    let count = cursor.count()?;
    let mut fields = some(count)?;
    for _ in 0..count {
        budget.take()?;
        let size = cursor.count()?.checked_sub(4).ok_or(Malformed)?;
        let mut field = Cursor::new(cursor.bytes(size)?);
        let name = field.utf16z()?;
        let ty = type_v2(&mut field, depth, budget)?;
        fields.push(Field { name, ty });
    }
    Ok(fields)
}

fn type_v2(cursor: &mut Cursor<'_>, depth: u32, budget: &mut Budget) -> Result<Type, Malformed> {
    let deeper = depth.checked_sub(1).ok_or(Malformed);
    Ok(match cursor.u32()? {
        code::OBJECT => Type::Object(fields_v2(cursor, deeper?, budget)?),
        code::ARRAY => Type::Array(Box::new(type_v2(cursor, deeper?, budget)?)),
        code => simple(code).ok_or(Malformed)?,
    })
}

/// The fields of version 6: count, then size, name and type of each, in fewer bytes.
pub(crate) fn read_v6(cursor: &mut Cursor<'_>) -> Result<Vec<Field>, Malformed> {
    fields_v6(cursor, DEEPEST, &mut Budget { fields: MOST_FIELDS })
}

fn fields_v6(cursor: &mut Cursor<'_>, depth: u32, budget: &mut Budget) -> Result<Vec<Field>, Malformed> {
    let count = cursor.u16()?.into();
    let mut fields = some(count)?;
    for _ in 0..count {
        budget.take()?;
        let size = cursor.u16()?.into();
        let mut field = Cursor::new(cursor.bytes(size)?);
        let name = field.utf8()?;
        let ty = type_v6(&mut field, depth, budget)?;
        fields.push(Field { name, ty });
    }
    Ok(fields)
}

fn type_v6(cursor: &mut Cursor<'_>, depth: u32, budget: &mut Budget) -> Result<Type, Malformed> {
    let code = cursor.u8()?.into();
    if let Some(ty) = simple(code) {
        return Ok(ty);
    }
    let depth = depth.checked_sub(1).ok_or(Malformed)?;
    Ok(match code {
        code::OBJECT => Type::Object(fields_v6(cursor, depth, budget)?),
        code::ARRAY => Type::Array(Box::new(type_v6(cursor, depth, budget)?)),
        code::FIXED_ARRAY => {
            let element = Box::new(type_v6(cursor, depth, budget)?);
            Type::FixedArray(element, cursor.u16()?)
        }
        code::RELATIVE_LOCATION => Type::RelativeLocation(Box::new(type_v6(cursor, depth, budget)?)),
        code::DATA_LOCATION => Type::DataLocation(Box::new(type_v6(cursor, depth, budget)?)),
        _ => return Err(Malformed),
    })
}

/// How many bytes of memory these fields take, about.
pub(crate) fn cost(fields: &[Field]) -> usize {
    fields.iter().map(|field| size_of::<Field>() + field.name.len() + type_cost(&field.ty)).sum()
}

fn type_cost(ty: &Type) -> usize {
    match ty {
        Type::Object(fields) => cost(fields),
        Type::Array(element)
        | Type::FixedArray(element, _)
        | Type::RelativeLocation(element)
        | Type::DataLocation(element) => size_of::<Type>() + type_cost(element),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_depth_of_types_uses_up_the_stack() {
        let mut arrays = vec![0x13; 100_000];
        arrays.push(9);
        assert_eq!(type_v6(&mut Cursor::new(&arrays), DEEPEST, &mut Budget { fields: 1 }), Err(Malformed));
        let objects = [1_u32, 1].map(u32::to_le_bytes).concat().repeat(100_000);
        assert_eq!(read_v1(&mut Cursor::new(&objects)), Err(Malformed));
    }

    #[test]
    fn a_count_that_is_a_lie_is_refused_before_memory_is_taken() {
        assert_eq!(read_v1(&mut Cursor::new(&[0xff; 8])), Err(Malformed));
        assert_eq!(read_v2(&mut Cursor::new(&[0xff; 8])), Err(Malformed));
        assert_eq!(read_v6(&mut Cursor::new(&[0xff; 8])), Err(Malformed));
    }
}
