//! Shared code of all metadata calls: blobs, enumerations, names as arguments.

use std::ops::Deref;

use corprof_sys as sys;
use windows_core::HRESULT;

use crate::error::{E_INVALIDARG, Error, Result};
use crate::ffi::buffer::to_utf16;
use crate::id::ModuleId;
use crate::session::liveness::{Lifeline, Pinned};

/// One of the runtime's interfaces to a module's metadata.
pub(super) struct Metadata<I> {
    pub(super) raw: I,
    pub(super) module: Lifeline,
}

impl<I> Metadata<I> {
    /// The interface; the module stays loaded until the guard is dropped.
    ///
    /// # Errors
    /// `COR_E_OBJECTDISPOSED`: the module has been unloaded.
    #[inline]
    pub(super) fn loaded(&self) -> Result<Loaded<'_, I>> {
        Ok(Loaded { raw: &self.raw, _module: self.module.pin("metadata")? })
    }
}

/// An interface to the metadata of a module that is pinned.
pub(super) struct Loaded<'a, I> {
    raw: &'a I,
    _module: Option<Pinned<'a, ModuleId>>,
}

impl<I> Deref for Loaded<'_, I> {
    type Target = I;

    #[inline]
    fn deref(&self) -> &I {
        self.raw
    }
}

/// Bytes of the module that the runtime points to.
pub(super) struct Blob {
    pub(super) start: sys::PCCOR_SIGNATURE,
    pub(super) size: u32,
}

impl Default for Blob {
    fn default() -> Self {
        Self { start: std::ptr::null(), size: 0 }
    }
}

impl Blob {
    /// A copy of the bytes, which outlives the module.
    ///
    /// # Safety
    /// A metadata call has filled both fields in, and the module is still loaded.
    pub(super) unsafe fn copy(&self) -> Vec<u8> {
        // SAFETY: the caller's promise.
        unsafe { self.bytes() }.to_vec()
    }

    /// The bytes in place.
    ///
    /// # Safety
    /// A metadata call has filled both fields in, and the module stays loaded while they are in use.
    #[inline]
    pub(super) unsafe fn bytes<'a>(&self) -> &'a [u8] {
        if self.start.is_null() || self.size == 0 {
            return &[];
        }
        // SAFETY: the metadata give the start and size of a blob that lies wholly in the module's memory, and do not
        // change a blob that they have returned (fact: blobs).
        unsafe { std::slice::from_raw_parts(self.start, self.size as usize) }
    }
}

/// An enumeration of the runtime, closed on drop.
struct Enumeration<C: FnMut(sys::HCORENUM)> {
    handle: sys::HCORENUM,
    close: C,
}

impl<C: FnMut(sys::HCORENUM)> Drop for Enumeration<C> {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            (self.close)(self.handle);
        }
    }
}

/// All tokens that one of the `Enum…` calls returns.
///
/// `list` receives (handle, start of the buffer, its length, out count). The handle is null at first and later the one
/// that the call made; `close` receives it at the end, if there is one. The calls write no more tokens than there is
/// room for, and as many as they count (fact: outputs).
pub(super) fn tokens<T>(
    call: &'static str,
    kind: impl Fn(u32) -> T,
    mut list: impl FnMut(*mut sys::HCORENUM, *mut u32, u32, *mut u32) -> HRESULT,
    close: impl FnMut(sys::HCORENUM),
) -> Result<Vec<T>> {
    /// No table and no heap has more, because a token has 24 bits for the row.
    const MOST: usize = 1 << 24;
    let mut enumeration = Enumeration { handle: std::ptr::null_mut(), close };
    let mut all = Vec::new();
    let mut some = [0; 64];
    while all.len() < MOST {
        let mut count = 0;
        let code = list(&mut enumeration.handle, some.as_mut_ptr(), some.len() as u32, &mut count);
        Error::check(code, call)?;
        let found = some.get(..count as usize).unwrap_or(&some);
        if found.is_empty() {
            break;
        }
        all.extend(found.iter().map(|&token| kind(token)));
    }
    Ok(all)
}

/// The limit on UTF-16 units in a name, NUL included. The runtime converts a name to UTF-8 on the calling thread's
/// stack, three bytes for each unit (`UTF8STR` in md/inc/rwutil.h), without checking how much stack is left. Compilers
/// limit names to 1,023 bytes.
const LONGEST_NAME: usize = 4096;

/// A name as an argument, with the NUL behind it.
///
/// # Errors
/// `E_INVALIDARG` for a name that contains a NUL, where the runtime would truncate it, and for one that is too long.
pub(super) fn wide(call: &'static str, name: &str) -> Result<Vec<u16>> {
    let units = to_utf16(call, name)?;
    if units.len() > LONGEST_NAME {
        return Err(Error::new(E_INVALIDARG, call).about("name", "it has more than 4,095 UTF-16 units"));
    }
    Ok(units)
}

/// The length of a blob as an argument.
///
/// # Errors
/// `E_INVALIDARG` if it exceeds 32 bits.
pub(super) fn length<T>(call: &'static str, blob: &[T]) -> Result<u32> {
    u32::try_from(blob.len()).map_err(|_| Error::new(E_INVALIDARG, call))
}

/// None if the call says that there is no such row.
pub(super) fn found<T>(code: HRESULT, call: &'static str, value: T) -> Result<Option<T>> {
    if code == sys::CLDB_E_RECORD_NOTFOUND {
        return Ok(None);
    }
    Error::check(code, call)?;
    Ok(Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{E_FAIL, S_FALSE, S_OK};

    /// Returns the numbers up to `end`, a few at a time; the handle counts them.
    fn numbers(end: usize) -> (Result<Vec<u32>>, usize) {
        let mut closed = 0;
        let read = tokens(
            "Test",
            |token| token,
            |handle, start, room, count| {
                // SAFETY: `tokens` passes its locals.
                unsafe {
                    let at = (*handle).addr();
                    let some = (end - at).min(room as usize);
                    for i in 0..some {
                        *start.add(i) = (at + i) as u32;
                    }
                    *count = some as u32;
                    *handle = std::ptr::without_provenance_mut(at + some);
                    if some == 0 { S_FALSE } else { S_OK }
                }
            },
            |_| closed += 1,
        );
        (read, closed)
    }

    #[test]
    fn enumerations_are_read_to_their_end_and_closed() {
        for end in [0, 1, 63, 64, 65, 1000] {
            let (read, closed) = numbers(end);
            assert_eq!(read, Ok((0..end as u32).collect()));
            assert_eq!(closed, usize::from(end > 0));
        }
    }

    #[test]
    fn a_failed_enumeration_is_closed_too() {
        let mut closed = 0;
        let read = tokens(
            "Test",
            |token| token,
            |handle, _, _, _| {
                // SAFETY: `tokens` passes its local.
                unsafe { *handle = std::ptr::without_provenance_mut(1) };
                E_FAIL
            },
            |_| closed += 1,
        );
        assert_eq!(read, Err(Error::new(E_FAIL, "Test")));
        assert_eq!(closed, 1);
    }

    #[test]
    fn a_name_has_no_nul_inside_and_an_end() {
        assert_eq!(wide("Test", "ab"), Ok(vec![97, 98, 0]));
        let longest = "a".repeat(LONGEST_NAME - 1);
        assert_eq!(wide("Test", &longest).map(|units| units.len()), Ok(LONGEST_NAME));
        for bad in ["a\0b".to_owned(), format!("{longest}a"), "\u{10ffff}".repeat(LONGEST_NAME / 2)] {
            assert_eq!(wide("Test", &bad).unwrap_err().code(), E_INVALIDARG);
        }
    }
}
