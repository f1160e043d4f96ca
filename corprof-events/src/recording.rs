//! What the recordings of corprof tell beside the events of others.
//!
//! ```
//! use corprof_events::recording::{MethodCode, PROVIDER};
//! use corprof_events::{Event, Provider, Text};
//!
//! let code = MethodCode {
//!     start_address: 0x7f00_1000,
//!     end_address: 0x7f00_10ff,
//!     module: Text::from("/app/Shop.dll"),
//!     token: 0x0600_0007,
//!     offsets: vec![(0, 0), (0x20, 7)],
//! };
//! let mut payload = Vec::new();
//! code.write(&mut payload)?;
//! let event = Event::new(Provider::of(PROVIDER), MethodCode::ID, 0, &payload, true);
//! assert_eq!(event.decode::<MethodCode<'_>>()?, code);
//! assert_eq!(code.il_offset(0x7f00_1034), Some(7));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::cursor::{Cursor, Truncated};
use crate::description::FieldList;
use crate::event::Event;
use crate::misfit::Misfit;
use crate::provider::Provider;
use crate::provider_event::EncodeError;
use crate::text::Text;
use crate::types::described::{Layout, write_varuint};
use crate::universal::{LONGEST, Part, description};
use crate::view::{DecodeError, View};

/// The provider of these events.
pub const PROVIDER: &str = "Corprof.Recording";

/// Which IL the code of a method is of: with a portable PDB, the lines of samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MethodCode<'a> {
    /// The first address of the code.
    pub start_address: u64,
    /// The last address of the code.
    pub end_address: u64,
    /// The file of the module.
    pub module: Text<'a>,
    /// The method in the module's metadata.
    pub token: u32,
    /// Offsets in the code, ascending, each with the one in the IL that the code from there on is of.
    pub offsets: Vec<(u32, u32)>,
}

impl<'a> MethodCode<'a> {
    /// Its number.
    pub const ID: u32 = 1;

    /// Its name.
    pub const NAME: &'static str = "MethodCode";

    /// The description of its fields, for a definition in a trace.
    #[must_use]
    pub fn fields() -> FieldList<'static> {
        const NUMBER: &[u8] = <u64 as Part<'_>>::CODES;
        const NUMBERS: &[u8] = &[19, NUMBER[0]];
        const DESCRIPTION: &([u8; LONGEST], usize) = &description(&[
            ("StartAddress", NUMBER),
            ("EndAddress", NUMBER),
            ("Module", <Text<'_> as Part<'_>>::CODES),
            ("Token", NUMBER),
            ("Offsets", NUMBERS),
        ]);
        FieldList::kept(Layout::V6, DESCRIPTION.0.split_at(DESCRIPTION.1).0)
    }

    /// Appends the values of the fields. Offsets in the code are written as distances.
    ///
    /// # Errors
    /// If the path has more than 65,535 bytes in UTF-8, or there are too many offsets for an event. `payload` then has
    /// a part of the fields.
    pub fn write(&self, payload: &mut Vec<u8>) -> Result<(), EncodeError> {
        let error = |field: &'static str| move |misfit| EncodeError { event: Self::NAME, field, misfit };
        write_varuint(payload, self.start_address);
        write_varuint(payload, self.end_address);
        self.module.write(payload).map_err(error("Module"))?;
        write_varuint(payload, self.token.into());
        let count = u16::try_from(self.offsets.len() * 2).map_err(|_| error("Offsets")(Misfit::LongList))?;
        payload.extend(count.to_le_bytes());
        let mut last = 0;
        for (native, il) in &self.offsets {
            write_varuint(payload, native.wrapping_sub(last).into());
            write_varuint(payload, (*il).into());
            last = *native;
        }
        Ok(())
    }

    /// The offset in the IL that the code at an address is of.
    #[must_use]
    pub fn il_offset(&self, address: u64) -> Option<u32> {
        let native = address.checked_sub(self.start_address).filter(|_| address <= self.end_address)?;
        let behind = self.offsets.partition_point(|(start, _)| u64::from(*start) <= native);
        self.offsets.get(behind.checked_sub(1)?).map(|(_, il)| *il)
    }

    fn read(cursor: &mut Cursor<'a>) -> Result<Self, Truncated> {
        let start_address = cursor.varuint()?;
        let end_address = cursor.varuint()?;
        let module = cursor.utf8_counted()?;
        let token = short(cursor)?;
        let count = cursor.u16()? / 2;
        let mut last: u32 = 0;
        let mut offsets = Vec::new();
        for _ in 0..count {
            last = last.wrapping_add(short(cursor)?);
            offsets.push((last, short(cursor)?));
        }
        Ok(Self { start_address, end_address, module, token, offsets })
    }
}

/// A number of 32 bits.
fn short(cursor: &mut Cursor<'_>) -> Result<u32, Truncated> {
    u32::try_from(cursor.varuint()?).map_err(|_| Truncated)
}

impl<'a> View<'a> for MethodCode<'a> {
    fn decode(event: &Event<'a>) -> Result<Self, DecodeError> {
        if event.provider() != Provider::of(PROVIDER) || event.id() != Self::ID {
            return Err(DecodeError::OtherEvent { expected: Self::NAME, id: event.id() });
        }
        Self::read(&mut event.cursor()).map_err(|_| DecodeError::TooShort { event: Self::NAME })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Value;

    fn code(offsets: Vec<(u32, u32)>) -> MethodCode<'static> {
        let module = Text::from("/app/Shop.dll");
        MethodCode { start_address: 0x1000, end_address: 0x10ff, module, token: 0x0600_0001, offsets }
    }

    #[test]
    fn an_address_has_the_il_of_the_offset_before() {
        let code = code(vec![(4, 0), (0x20, 7), (0x80, 3)]);
        let il = |address| code.il_offset(address);
        assert_eq!((il(0xfff), il(0x1003), il(0x1004), il(0x101f)), (None, None, Some(0), Some(0)));
        assert_eq!((il(0x1020), il(0x10ff), il(0x1100)), (Some(7), Some(3), None));
    }

    #[test]
    fn what_is_damaged_or_too_long_is_an_error() {
        let mut payload = Vec::new();
        code(vec![(0, 1); 3]).write(&mut payload).unwrap();
        for length in 0..payload.len() {
            let event = Event::new(Provider::of(PROVIDER), MethodCode::ID, 0, payload.get(..length).unwrap(), true);
            assert!(event.decode::<MethodCode<'_>>().is_err(), "{length} bytes");
        }
        assert!(code(vec![(0, 1); 40_000]).write(&mut Vec::new()).is_err());
    }

    #[test]
    fn its_description_tells_the_fields_of_it() {
        let mut payload = Vec::new();
        code(vec![(0, 1), (9, 300)]).write(&mut payload).unwrap();
        let event = Event::new(Provider::of(PROVIDER), MethodCode::ID, 0, &payload, true);
        let event = event.with_description(MethodCode::NAME, Some(MethodCode::fields()));
        assert_eq!(
            event.field("Module").and_then(Value::as_text).map(|text| text.to_string()).as_deref(),
            Some("/app/Shop.dll")
        );
        let offsets = event.field("Offsets").and_then(|value| value.as_list()).unwrap();
        assert_eq!(
            offsets.iter().filter_map(Value::as_u64).collect::<Vec<_>>(),
            [0, 1, 9, 300],
            "distances and offsets"
        );
    }
}
