//! Constant values of literal fields and of optional parameters.

use corprof_sys as sys;

/// A constant value in the metadata.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum Constant {
    /// `bool`
    Bool(bool),
    /// `char`, a UTF-16 code unit
    Char(u16),
    /// `int8`
    Int8(i8),
    /// `uint8`
    UInt8(u8),
    /// `int16`
    Int16(i16),
    /// `uint16`
    UInt16(u16),
    /// `int32`
    Int32(i32),
    /// `uint32`
    UInt32(u32),
    /// `int64`
    Int64(i64),
    /// `uint64`
    UInt64(u64),
    /// `float32`
    Float32(f32),
    /// `float64`
    Float64(f64),
    /// `string`; an unpaired surrogate has become U+FFFD
    String(String),
    /// The null reference, of any type
    Null,
    /// Broken metadata: no value of this element type can be read here.
    Unreadable(sys::CorElementType),
}

/// A constant, as the runtime points to it.
pub(super) struct RawConstant {
    /// The element type; `ELEMENT_TYPE_VOID` if there is no constant.
    pub(super) element: u32,
    pub(super) start: sys::UVCP_CONSTANT,
    /// The length of a string in UTF-16 units; otherwise 0.
    pub(super) units: u32,
}

impl Default for RawConstant {
    fn default() -> Self {
        Self { element: 0, start: std::ptr::null(), units: 0 }
    }
}

impl RawConstant {
    /// The value; none if there is no constant.
    ///
    /// # Safety
    /// A metadata call filled all fields in, and the module is still loaded.
    pub(super) unsafe fn read(&self) -> Option<Constant> {
        let element = sys::CorElementType(self.element as _);
        if matches!(element, sys::ELEMENT_TYPE_VOID | sys::ELEMENT_TYPE_END) {
            return None;
        }
        let read = match element {
            // SAFETY: the caller's promise.
            sys::ELEMENT_TYPE_STRING => unsafe { self.string() },
            // SAFETY: the caller's promise.
            _ => unsafe { self.number(element) },
        };
        Some(read.unwrap_or(Constant::Unreadable(element)))
    }

    unsafe fn string(&self) -> Option<Constant> {
        let units = self.units as usize;
        if units == 0 || self.start.is_null() {
            return Some(Constant::String(String::new()));
        }
        // SAFETY: the runtime took the length of a string from that of its blob, which lies wholly in the module's
        // memory (fact: blobs).
        let bytes = unsafe { std::slice::from_raw_parts(self.start.cast::<u8>(), units.checked_mul(2)?) };
        let (pairs, _) = bytes.as_chunks::<2>();
        let units: Vec<u16> = pairs.iter().map(|&pair| u16::from_le_bytes(pair)).collect();
        Some(Constant::String(String::from_utf16_lossy(&units)))
    }

    unsafe fn number(&self, element: sys::CorElementType) -> Option<Constant> {
        // SAFETY: the caller's promise, for each of these.
        Some(unsafe {
            match element {
                sys::ELEMENT_TYPE_BOOLEAN => Constant::Bool(u8::from_le_bytes(self.bytes()?) != 0),
                sys::ELEMENT_TYPE_CHAR => Constant::Char(u16::from_le_bytes(self.bytes()?)),
                sys::ELEMENT_TYPE_I1 => Constant::Int8(i8::from_le_bytes(self.bytes()?)),
                sys::ELEMENT_TYPE_U1 => Constant::UInt8(u8::from_le_bytes(self.bytes()?)),
                sys::ELEMENT_TYPE_I2 => Constant::Int16(i16::from_le_bytes(self.bytes()?)),
                sys::ELEMENT_TYPE_U2 => Constant::UInt16(u16::from_le_bytes(self.bytes()?)),
                sys::ELEMENT_TYPE_I4 => Constant::Int32(i32::from_le_bytes(self.bytes()?)),
                sys::ELEMENT_TYPE_U4 => Constant::UInt32(u32::from_le_bytes(self.bytes()?)),
                sys::ELEMENT_TYPE_I8 => Constant::Int64(i64::from_le_bytes(self.bytes()?)),
                sys::ELEMENT_TYPE_U8 => Constant::UInt64(u64::from_le_bytes(self.bytes()?)),
                sys::ELEMENT_TYPE_R4 => Constant::Float32(f32::from_le_bytes(self.bytes()?)),
                sys::ELEMENT_TYPE_R8 => Constant::Float64(f64::from_le_bytes(self.bytes()?)),
                sys::ELEMENT_TYPE_CLASS => Constant::Null,
                _ => return None,
            }
        })
    }

    /// The first `N` bytes of the value, if its blob has as many.
    unsafe fn bytes<const N: usize>(&self) -> Option<[u8; N]> {
        let start = self.start.cast::<u8>();
        if start.is_null() {
            return None;
        }
        // The runtime does not give the length of a blob that is not a string, and does not check it. In the blob heap
        // (ECMA-335 II.24.2.4) the length precedes the bytes, as a big-endian number of one, two or four bytes with the
        // width in its highest bits: so the length is never less than the byte before the value. SAFETY: `start` is not
        // null, so it points behind the length of a blob in the module's heap (fact: blobs).
        let at_least = unsafe { *start.sub(1) };
        if usize::from(at_least) < N {
            return None;
        }
        // SAFETY: the blob has that many bytes, and an array of bytes needs no alignment.
        Some(unsafe { *start.cast::<[u8; N]>() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a constant from a heap: its length, and the bytes.
    fn read(element: sys::CorElementType, heap: &[u8], units: u32) -> Option<Constant> {
        let constant = RawConstant { element: element.0 as _, start: heap.as_ptr().wrapping_add(1).cast(), units };
        // SAFETY: the heap has the format of the metadata's.
        unsafe { constant.read() }
    }

    #[test]
    fn numbers_and_text() {
        assert_eq!(read(sys::ELEMENT_TYPE_I4, &[4, 0xfe, 0xff, 0xff, 0xff], 0), Some(Constant::Int32(-2)));
        assert_eq!(read(sys::ELEMENT_TYPE_BOOLEAN, &[1, 1], 0), Some(Constant::Bool(true)));
        assert_eq!(read(sys::ELEMENT_TYPE_CHAR, &[2, 0x41, 0], 0), Some(Constant::Char(0x41)));
        assert_eq!(read(sys::ELEMENT_TYPE_R8, &[8, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f], 0), Some(Constant::Float64(1.0)));
        assert_eq!(read(sys::ELEMENT_TYPE_CLASS, &[4, 0, 0, 0, 0], 0), Some(Constant::Null));
        assert_eq!(read(sys::ELEMENT_TYPE_STRING, &[4, 0x61, 0, 0x62, 0], 2), Some(Constant::String("ab".to_owned())));
        assert_eq!(read(sys::ELEMENT_TYPE_STRING, &[0, 0], 0), Some(Constant::String(String::new())));
        assert_eq!(read(sys::ELEMENT_TYPE_VOID, &[0, 0], 0), None);
    }

    #[test]
    fn a_blob_that_is_too_short_is_not_read() {
        let wrong = Some(Constant::Unreadable(sys::ELEMENT_TYPE_I8));
        assert_eq!(read(sys::ELEMENT_TYPE_I8, &[4, 1, 0, 0, 0], 0), wrong);
        let odd = Some(Constant::Unreadable(sys::ELEMENT_TYPE_SZARRAY));
        assert_eq!(read(sys::ELEMENT_TYPE_SZARRAY, &[4, 1, 0, 0, 0], 0), odd);
    }
}
