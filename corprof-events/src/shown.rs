//! Lists of fields as text.

use std::fmt::{self, Display, Formatter};

use crate::description::FieldList;
use crate::scalar::Scalar;
use crate::types::{Count, Definitions, Shape, Type};

impl Display for FieldList<'_> {
    /// Names and types: `id: i32, items: [utf16z], at: {x: f64, y: f64}`.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        show_fields(self.definitions(), f)
    }
}

fn show_fields(mut fields: Definitions<'_>, f: &mut Formatter<'_>) -> fmt::Result {
    let mut separator = "";
    while let Ok(Some(field)) = fields.next() {
        write!(f, "{separator}{}: ", field.name)?;
        show_type(field.ty, f)?;
        separator = ", ";
    }
    Ok(())
}

fn show_type(ty: Type<'_>, f: &mut Formatter<'_>) -> fmt::Result {
    match ty.shape() {
        Err(_) => f.write_str("?"),
        Ok(Shape::Bytes) => f.write_str("bytes"),
        Ok(Shape::Scalar(scalar)) => f.write_str(name(scalar)),
        Ok(Shape::Record(fields)) => {
            f.write_str("{")?;
            show_fields(fields, f)?;
            f.write_str("}")
        }
        Ok(Shape::List(element, count)) => {
            f.write_str("[")?;
            show_type(element, f)?;
            match count {
                Count::Fixed(count) => write!(f, "; {count}]"),
                Count::Before | Count::Inline => f.write_str("]"),
            }
        }
    }
}

fn name(scalar: Scalar) -> &'static str {
    match scalar {
        Scalar::Bool32 => "bool32",
        Scalar::Bool8 => "bool8",
        Scalar::Utf16Unit => "utf16",
        Scalar::Utf8Unit => "utf8",
        Scalar::I8 => "i8",
        Scalar::U8 => "u8",
        Scalar::I16 => "i16",
        Scalar::U16 => "u16",
        Scalar::I32 => "i32",
        Scalar::U32 => "u32",
        Scalar::I64 => "i64",
        Scalar::U64 => "u64",
        Scalar::F32 => "f32",
        Scalar::F64 => "f64",
        Scalar::Pointer => "pointer",
        Scalar::Guid => "guid",
        Scalar::Decimal => "decimal",
        Scalar::FileTime => "filetime",
        Scalar::Utf16Z => "utf16z",
        Scalar::AnsiZ => "ansiz",
        Scalar::Utf8Counted => "[utf8]",
        Scalar::VarInt => "varint",
        Scalar::VarUInt => "varuint",
        Scalar::Location => "location",
    }
}
