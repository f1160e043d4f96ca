//! Converts the arguments that the runtime passes into those of the user's methods.
//!
//! The generated thunks call these, with what the runtime has passed to them (fact: arguments). `None` means that the
//! arguments break the API's promise (an id of 0 where there must be one); the callback is then skipped.

use std::slice;

use windows_core::{BOOL, GUID, HRESULT};

use crate::error::{Error, Result};
use crate::id::{
    AppDomainId, AssemblyId, ClassId, EventPipeProviderId, FunctionId, HandleId, Inert, ModuleId, ObjectId, ThreadId,
};
use crate::session::Info;

/// A type that is made from one wire argument.
pub(crate) trait FromWire<W>: Sized {
    fn from_wire(info: &Info, wire: W) -> Option<Self>;
}

/// `wire`, converted to `T`.
#[inline]
pub(crate) fn from_wire<W, T: FromWire<W>>(info: &Info, wire: W) -> Option<T> {
    T::from_wire(info, wire)
}

macro_rules! ids_from_wire {
    ($($id:ty => $make:expr,)*) => { $(
        impl FromWire<usize> for $id {
            #[inline]
            fn from_wire(info: &Info, wire: usize) -> Option<Self> {
                let make: fn(&Info, usize) -> Option<Self> = $make;
                make(info, wire)
            }
        }

        impl FromWire<usize> for Option<$id> {
            #[inline]
            fn from_wire(info: &Info, wire: usize) -> Option<Self> {
                Some(from_wire(info, wire))
            }
        }
    )* };
}

/// Identifiers of things that may not exist any more: no call accepts them.
macro_rules! inert_ids_from_wire {
    ($($id:ty)*) => { $(
        impl FromWire<usize> for Inert<$id> {
            #[inline]
            fn from_wire(_info: &Info, wire: usize) -> Option<Self> {
                <$id>::from_raw(wire).map(Self)
            }
        }
    )* };
}

inert_ids_from_wire!(AppDomainId AssemblyId ClassId FunctionId HandleId ModuleId ThreadId);

ids_from_wire! {
    AppDomainId => |_, raw| Self::from_raw(raw),
    AssemblyId => |_, raw| Self::from_raw(raw),
    ClassId => Info::class,
    EventPipeProviderId<'_> => |_, raw| Self::from_raw(raw),
    FunctionId => Info::function,
    HandleId => |_, raw| Self::from_raw(raw),
    ModuleId => |_, raw| Self::from_raw(raw),
    // SAFETY: only thunks read arguments off the wire. The runtime keeps an object that it passes to a callback in
    // place until the callback returns, unless the callback lets a collection in; callbacks with objects have no
    // context that could (fact: still, arguments).
    ObjectId<'_> => |_, raw| unsafe { Self::from_raw(raw) },
    ThreadId => Info::thread,
}

impl FromWire<u32> for u32 {
    fn from_wire(_info: &Info, wire: u32) -> Option<Self> {
        Some(wire)
    }
}

impl FromWire<usize> for usize {
    fn from_wire(_info: &Info, wire: usize) -> Option<Self> {
        Some(wire)
    }
}

impl FromWire<BOOL> for bool {
    fn from_wire(_info: &Info, wire: BOOL) -> Option<Self> {
        Some(wire.as_bool())
    }
}

impl FromWire<HRESULT> for Result<()> {
    fn from_wire(_info: &Info, wire: HRESULT) -> Option<Self> {
        Some(Error::check(wire, "hrStatus"))
    }
}

/// The array that a (count, start) pair describes; empty when there is none.
///
/// # Safety
/// `start` is null or points at `count` values that no thread writes to during `'a`.
pub(crate) unsafe fn slice<'a, T>(count: u32, start: *const T) -> &'a [T] {
    if start.is_null() {
        return &[];
    }
    // SAFETY: not null; the caller promises the rest.
    unsafe { slice::from_raw_parts(start, count as usize) }
}

/// An array of objects, read in place.
///
/// # Safety
/// As for [`slice`]; and no collection ends during `'a`.
pub(crate) unsafe fn objects<'a>(count: u32, start: *const usize) -> &'a [Option<ObjectId<'a>>] {
    // SAFETY: `ObjectId` is a transparent `NonZeroUsize`, so its `Option` has the layout of the wire's number.
    unsafe { slice(count, start.cast()) }
}

/// A GUID that may be absent.
///
/// # Safety
/// `guid` is null or points at a GUID that outlives `'a`.
pub(crate) unsafe fn guid<'a>(guid: *const GUID) -> Option<&'a GUID> {
    // SAFETY: the caller's promise.
    unsafe { guid.as_ref() }
}

/// Text of `count` UTF-16 units, with or without a NUL at its end.
///
/// # Safety
/// As [`slice`].
pub(crate) unsafe fn utf16(count: u32, start: *const u16) -> String {
    // SAFETY: the caller's promise.
    let units: &[u16] = unsafe { slice(count, start) };
    String::from_utf16_lossy(units.split(|&unit| unit == 0).next().unwrap_or_default())
}

/// Text that ends with a NUL.
///
/// # Safety
/// `text` is null or points at UTF-16 units that end with a 0.
pub(crate) unsafe fn utf16_z(text: *const u16) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: not null; the units up to the 0 are the caller's promise.
    let units = unsafe {
        let length = (0..).take_while(|&at| *text.add(at) != 0).count();
        slice::from_raw_parts(text, length)
    };
    String::from_utf16_lossy(units)
}

/// Writes the result of a callback, if there is room for it.
///
/// # Safety
/// `out` is null or points at room for a truth value.
pub(crate) unsafe fn answer(out: *mut BOOL, answer: bool) {
    if !out.is_null() {
        // SAFETY: not null; the caller promises the rest.
        unsafe { *out = BOOL::from(answer) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_arrays_are_empty() {
        // SAFETY: null is allowed.
        unsafe {
            assert!(slice::<u32>(3, std::ptr::null()).is_empty());
            assert_eq!(utf16(3, std::ptr::null()), "");
            assert_eq!(utf16_z(std::ptr::null()), "");
        }
    }

    #[test]
    fn objects_are_read_in_place() {
        let wire = [8_usize, 0, 16];
        // SAFETY: three numbers, alive.
        let read = unsafe { objects(3, wire.as_ptr()) };
        assert_eq!(read.iter().map(|id| id.map(ObjectId::as_raw)).collect::<Vec<_>>(), [Some(8), None, Some(16)]);
    }

    #[test]
    fn text_ends_at_its_nul() {
        let units: Vec<u16> = "worker\0".encode_utf16().collect();
        // SAFETY: seven units, alive.
        unsafe {
            assert_eq!(utf16(7, units.as_ptr()), "worker");
            assert_eq!(utf16(6, units.as_ptr()), "worker");
            assert_eq!(utf16_z(units.as_ptr()), "worker");
        }
    }
}
