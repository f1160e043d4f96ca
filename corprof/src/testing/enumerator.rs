//! The fake CLR's enumerators of modules, threads and functions, which differ only in their names and in the size of an
//! item.

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

use corprof_sys as sys;
use windows_core::{GUID, HRESULT, IUnknown, IUnknown_Vtbl, Interface};

use super::com::{self, Face};
use crate::error::{E_NOTIMPL, E_POINTER, S_FALSE, S_OK};

/// A list of items of one or more words, read from its beginning to its end.
struct Listing {
    words: Vec<usize>,
    /// How many words an item has.
    size: usize,
    given: AtomicUsize,
}

/// Returns an enumerator of `ids` in `out`.
///
/// # Safety
/// `out` is null or room for a reference; `E` is an interface whose vtable is that of `ICorProfilerModuleEnum`.
pub(crate) unsafe fn put<E: Interface>(out: *mut Option<E>, ids: Vec<usize>) -> HRESULT {
    // SAFETY: the caller's promise.
    unsafe { put_items(out, ids, 1) }
}

/// Returns an enumerator of functions, each with the id of its body, which is the original one.
///
/// # Safety
/// `out` is null or room for a reference.
pub(crate) unsafe fn put_functions(out: *mut Option<sys::ICorProfilerFunctionEnum>, ids: Vec<usize>) -> HRESULT {
    // SAFETY: the caller's promise; a `COR_PRF_FUNCTION` is two words.
    unsafe { put_items(out, ids.into_iter().flat_map(|id| [id, 0]).collect(), 2) }
}

/// # Safety
/// As [`put`]; the items of `E` have `size` words.
unsafe fn put_items<E: Interface>(out: *mut Option<E>, words: Vec<usize>, size: usize) -> HRESULT {
    if out.is_null() {
        return E_POINTER;
    }
    let listing = com::create(Listing { words, size, given: AtomicUsize::new(0) });
    // SAFETY: not null; the caller gets the reference, under the name of an interface with the same vtable.
    unsafe { *out = Some(E::from_raw(listing.into_raw())) };
    S_OK
}

impl Face for Listing {
    type Vtable = sys::ICorProfilerModuleEnum_Vtbl;
    const VTABLE: &'static Self::Vtable = &sys::ICorProfilerModuleEnum_Vtbl {
        base__: IUnknown_Vtbl {
            QueryInterface: com::query_interface::<Self>,
            AddRef: com::add_ref::<Self>,
            Release: com::release::<Self>,
        },
        Skip: skip,
        Reset: reset,
        Clone: clone,
        GetCount: get_count,
        Next: next,
    };

    fn has(&self, iid: &GUID) -> bool {
        let own =
            [sys::ICorProfilerModuleEnum::IID, sys::ICorProfilerThreadEnum::IID, sys::ICorProfilerFunctionEnum::IID];
        *iid == IUnknown::IID || own.contains(iid)
    }

    fn let_in(&self, _slot: usize) -> Result<(), HRESULT> {
        Ok(())
    }
}

unsafe extern "system" fn skip(_this: *mut c_void, _count: u32) -> HRESULT {
    E_NOTIMPL
}

unsafe extern "system" fn reset(_this: *mut c_void) -> HRESULT {
    E_NOTIMPL
}

unsafe extern "system" fn clone(_this: *mut c_void, _out: *mut Option<sys::ICorProfilerModuleEnum>) -> HRESULT {
    E_NOTIMPL
}

unsafe extern "system" fn get_count(this: *mut c_void, count: *mut u32) -> HRESULT {
    // SAFETY: the vtable is only that of listings, and the caller holds a reference; `count` is its room for a number.
    let listing = unsafe { com::of::<Listing>(this) };
    // SAFETY: as above.
    unsafe { *count = (listing.words.len() / listing.size) as u32 };
    S_OK
}

unsafe extern "system" fn next(this: *mut c_void, room: u32, items: *mut usize, fetched: *mut u32) -> HRESULT {
    // SAFETY: as in `get_count`.
    let listing = unsafe { com::of::<Listing>(this) };
    let begin = (listing.given.fetch_add(room as usize, Ordering::Relaxed) * listing.size).min(listing.words.len());
    let left = &listing.words[begin..];
    let words = left.len().min(room as usize * listing.size);
    let count = words / listing.size;
    // SAFETY: the caller has room for `room` items and for their number.
    unsafe {
        std::ptr::copy_nonoverlapping(left.as_ptr(), items, words);
        *fetched = count as u32;
    }
    if count < room as usize { S_FALSE } else { S_OK }
}
