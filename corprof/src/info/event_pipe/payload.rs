//! The values of an event's fields, encoded for the wire.

use windows_core::GUID;

/// The values of an event's fields, one after another.
///
/// ```
/// # use corprof::info::EventPipePayload;
/// let mut payload = EventPipePayload::new();
/// payload.u32(7).string("seven");
/// assert_eq!(payload.as_bytes().len(), 4 + 2 * ("seven".len() + 1));
/// ```
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct EventPipePayload {
    bytes: Vec<u8>,
}

macro_rules! numbers {
    ($($name:ident),*) => { $(
        #[doc = concat!("Adds a field of type `", stringify!($name), "`.")]
        pub fn $name(&mut self, value: $name) -> &mut Self {
            self.bytes(&value.to_le_bytes())
        }
    )* };
}

impl EventPipePayload {
    /// A payload without fields.
    pub const fn new() -> Self {
        Self { bytes: Vec::new() }
    }

    numbers!(u8, i8, u16, i16, u32, i32, u64, i64, f32, f64);

    /// Adds a Boolean.
    pub fn bool(&mut self, value: bool) -> &mut Self {
        self.u32(u32::from(value))
    }

    /// Adds a GUID.
    pub fn guid(&mut self, value: GUID) -> &mut Self {
        self.u32(value.data1).u16(value.data2).u16(value.data3).bytes(&value.data4)
    }

    /// Adds a text, up to its first NUL.
    pub fn string(&mut self, value: &str) -> &mut Self {
        for unit in value.encode_utf16().take_while(|&unit| unit != 0) {
            self.u16(unit);
        }
        self.u16(0)
    }

    /// Adds raw bytes: for an array the number of its elements as a `u16`, and the elements.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// Removes all fields, and keeps the memory.
    pub fn clear(&mut self) -> &mut Self {
        self.bytes.clear();
        self
    }

    /// The encoded fields.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl From<Vec<u8>> for EventPipePayload {
    /// Fields that are encoded already.
    fn from(bytes: Vec<u8>) -> Self {
        Self { bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_follow_one_another_in_little_endian() {
        let mut payload = EventPipePayload::new();
        payload.bool(true).u16(2).string("a\0b").guid(GUID::from_u128(0x00010203_0405_0607_0809_0a0b0c0d0e0f));
        let expected = [1, 0, 0, 0, 2, 0, 97, 0, 0, 0, 3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
        assert_eq!(payload.as_bytes(), expected);
        assert!(payload.clear().as_bytes().is_empty());
    }
}
