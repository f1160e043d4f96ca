//! Formats values as text, much like C#.

use std::fmt::{self, Write as _};

use super::{ByRef, EnumValue, Field, StringRef, StructValue, Value};

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => value.fmt(f),
            Self::Char(unit) => match char::from_u32(u32::from(*unit)) {
                Some(char) => write!(f, "'{}'", char.escape_debug()),
                None => write!(f, "'\\u{{{unit:x}}}'"),
            },
            Self::Int8(value) => value.fmt(f),
            Self::UInt8(value) => value.fmt(f),
            Self::Int16(value) => value.fmt(f),
            Self::UInt16(value) => value.fmt(f),
            Self::Int32(value) => value.fmt(f),
            Self::UInt32(value) => value.fmt(f),
            Self::Int64(value) => value.fmt(f),
            Self::UInt64(value) => value.fmt(f),
            Self::Float32(value) => value.fmt(f),
            Self::Float64(value) => value.fmt(f),
            Self::NativeInt(value) => value.fmt(f),
            Self::NativeUInt(value) => value.fmt(f),
            Self::Enum(value) => value.fmt(f),
            Self::String(Some(text)) => text.fmt(f),
            Self::String(None) | Self::Object(None) => f.write_str("null"),
            Self::Object(Some(object)) => write!(f, "object at {object:#x}"),
            Self::Pointer(address) => write!(f, "{address:#x}"),
            Self::ByRef(by_ref) => by_ref.fmt(f),
            Self::Struct(value) => value.fmt(f),
            Self::Unreadable(why) => write!(f, "<{why}>"),
        }
    }
}

impl fmt::Display for EnumValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value().fmt(f)
    }
}

/// In quotation marks; ill-formed UTF-16 is shown as U+FFFD.
impl fmt::Display for StringRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for char in char::decode_utf16(self.as_utf16().iter().copied()) {
            let char = char.unwrap_or(char::REPLACEMENT_CHARACTER);
            // An apostrophe needs no escape within quotation marks.
            if char == '\'' { f.write_char(char)? } else { write!(f, "{}", char.escape_debug())? }
        }
        f.write_char('"')
    }
}

/// `ref` and the value at the address.
impl fmt::Display for ByRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.address() == 0 { f.write_str("ref null") } else { write!(f, "ref {}", self.value()) }
    }
}

/// The fields by name, in braces; those of properties by the names of these.
impl fmt::Display for StructValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show_fields(f, self.fields())
    }
}

pub(super) fn show_fields<'a>(f: &mut fmt::Formatter<'_>, fields: impl Iterator<Item = Field<'a>>) -> fmt::Result {
    f.write_char('{')?;
    for (at, field) in fields.enumerate() {
        let name = field.property().unwrap_or(field.name());
        write!(f, "{} {name}: {}", if at == 0 { "" } else { "," }, field.value())?;
    }
    f.write_str(" }")
}
