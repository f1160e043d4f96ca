//! The runtime's way to the object: `DllGetClassObject`, then `IClassFactory::CreateInstance`.
//!
//! The factories are constants without state: they are never freed, and their reference counts do nothing.

use std::ffi::c_void;

use windows_core::{BOOL, GUID, HRESULT, IUnknown, IUnknown_Vtbl, Interface};

use crate::error::{CLASS_E_CLASSNOTAVAILABLE, CLASS_E_NOAGGREGATION, E_NOINTERFACE, E_POINTER, S_OK};
use crate::event_mask::assert_receivable;
use crate::profiler::Profiler;
use crate::report;
use crate::system;

use super::Adapter;

/// The IID of `IClassFactory`.
pub(crate) const IID_ICLASSFACTORY: GUID = GUID::from_u128(0x00000001_0000_0000_c000_000000000046);

/// One profiler of a library.
#[derive(Clone, Copy)]
pub struct ClassEntry {
    clsid: GUID,
    name: &'static str,
    factory: &'static Factory,
}

impl ClassEntry {
    /// The entry of `P`.
    pub const fn of<P: Profiler>() -> Self {
        const { assert_receivable(P::EVENTS, P::NOTIFICATION_ONLY) };
        Self { clsid: P::CLSID, name: P::NAME, factory: &Factory { vtable: &FactoryOf::<P>::VTABLE } }
    }
}

impl std::fmt::Debug for ClassEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {{{:?}}}", self.name, self.clsid)
    }
}

/// An `IClassFactory`.
#[repr(C)]
struct Factory {
    vtable: &'static FactoryVtable,
}

/// The vtable of `IClassFactory`.
#[repr(C)]
#[allow(non_snake_case, reason = "the names of COM")]
pub(crate) struct FactoryVtable {
    base: IUnknown_Vtbl,
    pub(crate) CreateInstance:
        unsafe extern "system" fn(*mut c_void, *mut c_void, *const GUID, *mut *mut c_void) -> HRESULT,
    LockServer: unsafe extern "system" fn(*mut c_void, BOOL) -> HRESULT,
}

struct FactoryOf<P>(std::marker::PhantomData<P>);

impl<P: Profiler> FactoryOf<P> {
    const VTABLE: FactoryVtable = FactoryVtable {
        base: IUnknown_Vtbl { QueryInterface: query_interface, AddRef: count, Release: count },
        CreateInstance: create_instance::<P>,
        LockServer: lock_server,
    };
}

unsafe extern "system" fn query_interface(this: *mut c_void, iid: *const GUID, out: *mut *mut c_void) -> HRESULT {
    if iid.is_null() || out.is_null() {
        return E_POINTER;
    }
    // SAFETY: neither is null, and by COM's rules they point at a GUID and at room for a pointer (fact: com).
    unsafe {
        let is_known = *iid == IUnknown::IID || *iid == IID_ICLASSFACTORY;
        *out = if is_known { this } else { std::ptr::null_mut() };
        if is_known { S_OK } else { E_NOINTERFACE }
    }
}

/// Factories are constants and live for ever.
unsafe extern "system" fn count(_this: *mut c_void) -> u32 {
    1
}

unsafe extern "system" fn lock_server(_this: *mut c_void, _lock: BOOL) -> HRESULT {
    S_OK
}

unsafe extern "system" fn create_instance<P: Profiler>(
    _this: *mut c_void,
    outer: *mut c_void,
    iid: *const GUID,
    out: *mut *mut c_void,
) -> HRESULT {
    if iid.is_null() || out.is_null() {
        return E_POINTER;
    }
    // SAFETY: not null, and by COM's rules room for a pointer (fact: com).
    unsafe { *out = std::ptr::null_mut() };
    if !outer.is_null() {
        return CLASS_E_NOAGGREGATION;
    }
    system::pin_library();
    let adapter = Adapter::<P>::create();
    // SAFETY: the adapter has one reference, ours, which is released after the caller has got its own.
    unsafe {
        let code = Adapter::<P>::query_interface(adapter, iid, out);
        Adapter::<P>::release(adapter);
        code
    }
}

/// Stops the build of a library with two profilers of one CLSID: the runtime would never see the second.
#[allow(clippy::panic, reason = "it runs at compile time only")]
pub const fn assert_distinct(entries: &[ClassEntry]) {
    let mut second = 0;
    while second < entries.len() {
        let mut first = 0;
        while first < second {
            assert!(
                entries[first].clsid.to_u128() != entries[second].clsid.to_u128(),
                "two of the exported profilers have the same CLSID: make a new one with `uuidgen`"
            );
            first += 1;
        }
        second += 1;
    }
}

/// The body of `DllGetClassObject`, for the profilers that a library exports.
///
/// # Safety
/// Each pointer is null or valid by COM's rules: `clsid` and `iid` point at a GUID, `out` at room for a pointer.
pub unsafe fn dll_get_class_object(
    entries: &[ClassEntry],
    clsid: *const GUID,
    iid: *const GUID,
    out: *mut *mut c_void,
) -> HRESULT {
    if clsid.is_null() || iid.is_null() || out.is_null() {
        return E_POINTER;
    }
    // SAFETY: none is null; the rest is the caller's promise.
    unsafe {
        *out = std::ptr::null_mut();
        match entries.iter().find(|entry| entry.clsid == *clsid) {
            Some(entry) => query_interface(std::ptr::from_ref(entry.factory).cast_mut().cast(), iid, out),
            None => {
                report::line(format_args!(
                    "asked for the CLSID {{{:?}}}, but this library has {entries:?}: correct CORECLR_PROFILER",
                    *clsid
                ));
                CLASS_E_CLASSNOTAVAILABLE
            }
        }
    }
}
