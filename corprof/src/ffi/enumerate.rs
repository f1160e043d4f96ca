//! Reads the runtime's enumerators into lists: one function for all five interfaces.
//!
//! An enumerator is a snapshot, so reading it to its end at once loses nothing; and no COM object remains that would
//! outlive the things in the list.

use corprof_sys as sys;
use windows_core::{HRESULT, Interface};

use crate::error::{Error, Result, S_FALSE};

/// How many items one call asks for if the enumerator does not give its count.
const BLOCK: u32 = 64;

/// The most items that one call asks for, whatever count the enumerator gives: the count is not trusted with an
/// allocation.
const MOST: u32 = 1 << 16;

/// One of the `ICorProfiler...Enum` interfaces. They differ only in the type of their items.
pub(crate) trait Enumerator: Interface {
    /// The type of its items on the wire.
    type Item: Copy;

    /// The value of a place that was not written to: no identifier of the runtime is 0.
    const BLANK: Self::Item;

    /// How many items it has.
    fn count(&self) -> u32;

    /// Its `Next`: writes up to `room` items to `start`, and how many to `fetched`.
    ///
    /// # Safety
    /// There is room for `room` items at `start`.
    unsafe fn next(&self, room: u32, start: *mut Self::Item, fetched: &mut u32) -> HRESULT;
}

macro_rules! enumerators {
    ($($interface:ident => $item:ident $blank:expr,)*) => { $(
        impl Enumerator for sys::$interface {
            type Item = sys::$item;

            const BLANK: Self::Item = $blank;

            fn count(&self) -> u32 {
                let mut count = 0;
                // SAFETY: the call writes one number and keeps nothing (fact: outputs).
                let code = unsafe { self.GetCount(&mut count) };
                if code.is_ok() { count } else { 0 }
            }

            unsafe fn next(&self, room: u32, start: *mut Self::Item, fetched: &mut u32) -> HRESULT {
                // SAFETY: the caller's promise; the call writes no more than `room` items (fact: outputs).
                unsafe { self.Next(room, start, fetched) }
            }
        }
    )* };
}

enumerators! {
    ICorProfilerFunctionEnum => COR_PRF_FUNCTION sys::COR_PRF_FUNCTION { functionId: 0, reJitId: 0 },
    ICorProfilerMethodEnum => COR_PRF_METHOD sys::COR_PRF_METHOD { moduleId: 0, methodId: 0 },
    ICorProfilerModuleEnum => ModuleID 0,
    ICorProfilerObjectEnum => ObjectID 0,
    ICorProfilerThreadEnum => ThreadID 0,
}

/// Reads a list from a call that returns an enumerator; `convert` is applied to each item, and may drop it.
pub(crate) fn read_all<E: Enumerator, T>(
    call: &'static str,
    ask: impl FnOnce(*mut Option<E>) -> HRESULT,
    mut convert: impl FnMut(E::Item) -> Option<T>,
) -> Result<Vec<T>> {
    let mut enumerator = None;
    Error::check(ask(&mut enumerator), call)?;
    // A success without an enumerator means an empty list.
    let Some(enumerator) = enumerator else { return Ok(Vec::new()) };

    let room = enumerator.count().saturating_add(1).clamp(BLOCK, MOST); // one more, to see the end
    let mut block = vec![E::BLANK; room as usize];
    let mut items = Vec::new();
    loop {
        let mut fetched = 0;
        // SAFETY: the list has `room` items (fact: outputs).
        let code = unsafe { enumerator.next(room, block.as_mut_ptr(), &mut fetched) };
        Error::check(code, call)?;
        items.extend(block.iter().take(fetched as usize).copied().filter_map(&mut convert));
        if code == S_FALSE || fetched < room {
            return Ok(items);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::c_void;
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    use super::*;
    use crate::error::{E_FAIL, S_OK};

    /// An enumerator of the numbers from 1 to `total`, which claims to have `claimed`.
    #[repr(C)]
    struct Numbers {
        vtable: *const sys::ICorProfilerModuleEnum_Vtbl,
        references: AtomicU32,
        given: AtomicU32,
        claimed: u32,
        total: u32,
    }

    unsafe fn of<'a>(this: *mut c_void) -> &'a Numbers {
        // SAFETY: the vtable is only in objects that `ask` makes.
        unsafe { &*this.cast() }
    }

    unsafe extern "system" fn query(
        _this: *mut c_void,
        _iid: *const windows_core::GUID,
        _out: *mut *mut c_void,
    ) -> HRESULT {
        E_FAIL
    }

    unsafe extern "system" fn add_ref(this: *mut c_void) -> u32 {
        // SAFETY: as in `of`.
        unsafe { of(this) }.references.fetch_add(1, SeqCst) + 1
    }

    unsafe extern "system" fn release(this: *mut c_void) -> u32 {
        // SAFETY: as in `of`.
        unsafe { of(this) }.references.fetch_sub(1, SeqCst) - 1
    }

    unsafe extern "system" fn skip(_this: *mut c_void, _celt: u32) -> HRESULT {
        E_FAIL
    }

    unsafe extern "system" fn reset(_this: *mut c_void) -> HRESULT {
        E_FAIL
    }

    unsafe extern "system" fn clone(_this: *mut c_void, _out: *mut Option<sys::ICorProfilerModuleEnum>) -> HRESULT {
        E_FAIL
    }

    unsafe extern "system" fn count(this: *mut c_void, count: *mut u32) -> HRESULT {
        // SAFETY: as in `of`; `count` is the reader's local.
        unsafe { *count = of(this).claimed };
        S_OK
    }

    unsafe extern "system" fn next(this: *mut c_void, room: u32, items: *mut usize, fetched: *mut u32) -> HRESULT {
        // SAFETY: as in `of`.
        let numbers = unsafe { of(this) };
        let given = numbers.given.load(SeqCst);
        let n = room.min(numbers.total - given);
        for i in 0..n {
            // SAFETY: the reader has room for `room` items.
            unsafe { items.add(i as usize).write((given + i + 1) as usize) };
        }
        numbers.given.store(given + n, SeqCst);
        // SAFETY: `fetched` is the reader's local.
        unsafe { *fetched = n };
        if n < room { S_FALSE } else { S_OK }
    }

    const VTABLE: sys::ICorProfilerModuleEnum_Vtbl = sys::ICorProfilerModuleEnum_Vtbl {
        base__: windows_core::IUnknown_Vtbl { QueryInterface: query, AddRef: add_ref, Release: release },
        Skip: skip,
        Reset: reset,
        Clone: clone,
        GetCount: count,
        Next: next,
    };

    /// Reads an enumerator, and checks that it was released.
    fn read(claimed: u32, total: u32) -> Vec<usize> {
        let vtable: &'static sys::ICorProfilerModuleEnum_Vtbl = &VTABLE;
        let numbers = Numbers { vtable, references: AtomicU32::new(1), given: AtomicU32::new(0), claimed, total };
        let ask = |out: *mut Option<sys::ICorProfilerModuleEnum>| {
            // SAFETY: the object outlives the one reference that the reader gets; `out` is the reader's local.
            unsafe { *out = Some(sys::ICorProfilerModuleEnum::from_raw((&raw const numbers).cast_mut().cast())) };
            S_OK
        };
        let items = read_all("X", ask, |number| (number % 10 != 0).then_some(number)).unwrap();
        assert_eq!(numbers.references.load(SeqCst), 0);
        items
    }

    #[test]
    fn reads_all_whatever_the_enumerator_claims() {
        for (claimed, total) in
            [(0, 0), (3, 3), (63, 63), (64, 64), (300, 300), (0, 300), (2, 128), (1000, 5), (u32::MAX, 5)]
        {
            let expected: Vec<usize> = (1..=total as usize).filter(|n| n % 10 != 0).collect();
            assert_eq!(read(claimed, total), expected, "{claimed} {total}");
        }
    }

    #[test]
    fn no_enumerator_is_no_item_and_a_failure_is_one() {
        let none = read_all::<sys::ICorProfilerModuleEnum, _>("X", |_| S_OK, Some);
        assert_eq!(none, Ok(Vec::new()));
        let failed = read_all::<sys::ICorProfilerModuleEnum, _>("X", |_| E_FAIL, Some);
        assert_eq!(failed, Err(Error::new(E_FAIL, "X")));
    }
}
