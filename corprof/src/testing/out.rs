//! Writes the results of the fake CLR's calls: values, lists and text, as far as there is room for them.

use windows_core::HRESULT;

use crate::error::S_OK;

pub(super) type Answer<T> = Result<T, HRESULT>;

/// Writes a value, if there is room for it.
///
/// # Safety
/// `out` is null or points at room for a value.
pub(super) unsafe fn put<T>(out: *mut T, value: T) {
    if !out.is_null() {
        // SAFETY: not null; the rest is the caller's promise.
        unsafe { out.write(value) };
    }
}

/// Writes as much of a list as there is room for, and its length.
///
/// # Safety
/// `start` is null or points at room for `room` values, `count` is null or points at room for a number.
pub(super) unsafe fn put_list<T: Copy>(list: &[T], room: u32, count: *mut u32, start: *mut T) {
    // SAFETY: the caller's promise; no more is written than there is room for.
    unsafe {
        put(count, list.len() as u32);
        if !start.is_null() {
            std::ptr::copy_nonoverlapping(list.as_ptr(), start, list.len().min(room as usize));
        }
    }
}

/// Writes as much of a text as there is room for, with a NUL at its end, and its length including the NUL.
///
/// # Safety
/// As [`put_list`].
pub(super) unsafe fn put_text(text: &str, room: u32, count: *mut u32, start: *mut u16) {
    let units: Vec<u16> = text.encode_utf16().chain([0]).collect();
    // SAFETY: the caller's promise; truncated text still ends with a NUL.
    unsafe {
        put_list(&units, room, count, start);
        if !start.is_null() && room > 0 && (room as usize) < units.len() {
            start.add(room as usize - 1).write(0);
        }
    }
}

/// The code of a result.
pub(super) fn code(answer: Answer<()>) -> HRESULT {
    answer.err().unwrap_or(S_OK)
}
