//! The types that fields of a user's own events can have.

use std::time::SystemTime;

use crate::file_time;
use crate::misfit::Misfit;
use crate::text::Text;
use crate::value::Value;

/// The type of a field, as EventPipe knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "they are the primitive types of .NET")]
pub enum FieldType {
    Boolean,
    Char,
    SByte,
    Byte,
    Int16,
    UInt16,
    Int32,
    UInt32,
    Int64,
    UInt64,
    Single,
    Double,
    DateTime,
    Guid,
    String,
}

impl FieldType {
    /// Its code in a description of fields.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Boolean => 3,
            Self::Char => 4,
            Self::SByte => 5,
            Self::Byte => 6,
            Self::Int16 => 7,
            Self::UInt16 => 8,
            Self::Int32 => 9,
            Self::UInt32 => 10,
            Self::Int64 => 11,
            Self::UInt64 => 12,
            Self::Single => 13,
            Self::Double => 14,
            Self::DateTime => 16,
            Self::Guid => 17,
            Self::String => 18,
        }
    }
}

/// A type that a field of a [`ProviderEvent`](trait@crate::ProviderEvent) can have.
///
/// | Rust | .NET | |
/// |---|---|---|
/// | `bool` | `bool` | |
/// | `char` | `char` | a character that needs two units is written as U+FFFD |
/// | `i8` to `i64`, `u8` to `u64` | `sbyte` to `ulong` | reads other integers as well, if the value has room; `u64` also a `DateTime`, as [`Value::FileTime`] |
/// | `f32`, `f64` | `float`, `double` | |
/// | [`SystemTime`] | `DateTime` | in UTC, in units of 100 ns: the rest is cut off. Only from the year 1601 to 9999 |
/// | `[u8; 16]` | `Guid` | its bytes in memory, as in [`Value::Guid`] |
/// | [`Text`] | `string` | borrowed from the payload; `Text::from("…")` makes one to write |
/// | `String` | `string` | allocates |
/// | `Vec` of these except `char` | array | allocates |
#[diagnostic::on_unimplemented(
    message = "an event has no fields of type `{Self}`",
    label = "EventPipe does not know this type",
    note = "a field is a `bool`, a `char`, an integer of at most 64 bits with a fixed size, an `f32`, an `f64`, a `SystemTime`, \
            a GUID as `[u8; 16]`, a text as `corprof_events::Text<'a>` or `String`, or a `Vec` of one of these except `char`"
)]
pub trait EventField<'a>: Sized {
    #[doc(hidden)]
    const TYPE: FieldType;
    #[doc(hidden)]
    const IS_LIST: bool = false;
    /// Appends it to a payload, unless an event cannot have it.
    #[doc(hidden)]
    fn write(&self, payload: &mut Vec<u8>) -> Result<(), Misfit>;
    #[doc(hidden)]
    fn read(value: Value<'a>) -> Option<Self>;
}

/// Implements the trait for a type, and for lists of it.
macro_rules! field {
    ($lifetime:lifetime, $type:ty, $wire:ident, $write:expr, $read:expr) => {
        field!(alone $lifetime, $type, $wire, $write, $read);
        field!(list $lifetime, $type, $wire);
    };
    (list $lifetime:lifetime, $type:ty, $wire:ident) => {
        impl<$lifetime> EventField<$lifetime> for Vec<$type> {
            const TYPE: FieldType = FieldType::$wire;
            const IS_LIST: bool = true;

            fn write(&self, payload: &mut Vec<u8>) -> Result<(), Misfit> {
                let count = u16::try_from(self.len()).map_err(|_| Misfit::LongList)?;
                payload.extend(count.to_le_bytes());
                self.iter().try_for_each(|element| element.write(payload))
            }

            fn read(value: Value<$lifetime>) -> Option<Self> {
                value.as_list()?.iter().map(EventField::read).collect()
            }
        }
    };
    (alone $lifetime:lifetime, $type:ty, $wire:ident, $write:expr, $read:expr) => {
        impl<$lifetime> EventField<$lifetime> for $type {
            const TYPE: FieldType = FieldType::$wire;

            fn write(&self, payload: &mut Vec<u8>) -> Result<(), Misfit> {
                let write: fn(&Self, &mut Vec<u8>) = $write;
                write(self, payload);
                Ok(())
            }

            fn read(value: Value<$lifetime>) -> Option<Self> {
                let read: fn(Value<$lifetime>) -> Option<Self> = $read;
                read(value)
            }
        }
    };
}

macro_rules! integers {
    ($($type:ty, $wire:ident, $read:ident;)*) => { $(
        field!('a, $type, $wire, |value, payload| payload.extend(value.to_le_bytes()), |value| value.$read()?.try_into().ok());
    )* };
}
integers! {
    i8, SByte, as_i64; u8, Byte, as_u64; i16, Int16, as_i64; u16, UInt16, as_u64;
    i32, Int32, as_i64; u32, UInt32, as_u64; i64, Int64, as_i64; u64, UInt64, as_u64;
}

field!('a, bool, Boolean, |value, payload| payload.extend(u32::from(*value).to_le_bytes()), |value| match value {
    Value::Bool(value) => Some(value),
    _ => None,
});
#[allow(clippy::cast_possible_truncation, reason = "who asks for an f32 wants the nearest one")]
const _: () = {
    field!('a, f32, Single, |value, payload| payload.extend(value.to_le_bytes()), |value| match value {
        Value::Float(value) => Some(value as f32),
        _ => None,
    });
};
field!('a, f64, Double, |value, payload| payload.extend(value.to_le_bytes()), |value| match value {
    Value::Float(value) => Some(value),
    _ => None,
});
impl EventField<'_> for SystemTime {
    const TYPE: FieldType = FieldType::DateTime;

    fn write(&self, payload: &mut Vec<u8>) -> Result<(), Misfit> {
        let ticks = file_time::from_system_time(*self).ok_or(Misfit::Time)?;
        payload.extend(ticks.to_le_bytes());
        Ok(())
    }

    fn read(value: Value<'_>) -> Option<Self> {
        value.as_system_time()
    }
}
field!(list 'a, SystemTime, DateTime);
field!('a, [u8; 16], Guid, |value, payload| payload.extend(value), |value| match value {
    Value::Guid(value) => Some(value),
    _ => None,
});
field!('a, Text<'a>, String, |value, payload| write_text(value.chars(), payload), Value::as_text);
field!('a, String, String, |value, payload| write_text(value.chars(), payload), |value| Some(value.as_text()?.to_string()));
field!(alone 'a, char, Char, |value, payload| {
    let unit = u16::try_from(u32::from(*value)).unwrap_or(0xfffd);
    payload.extend(unit.to_le_bytes());
}, |value| value.as_text()?.chars().next());

/// A text up to its first NUL, and a NUL.
fn write_text(text: impl Iterator<Item = char>, payload: &mut Vec<u8>) {
    for character in text.take_while(|&character| character != '\0') {
        for unit in character.encode_utf16(&mut [0; 2]) {
            payload.extend(unit.to_le_bytes());
        }
    }
    payload.extend([0; 2]);
}
