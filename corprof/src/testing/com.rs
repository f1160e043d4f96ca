//! COM objects of the fake CLR: a vtable, a reference count, and a face that answers calls.

use std::ffi::c_void;
use std::sync::Arc;

use corprof_sys as sys;
use windows_core::{GUID, HRESULT, IUnknown, Interface};

use crate::error::{E_NOINTERFACE, E_POINTER, S_OK};
use crate::generated::{fake_info, fake_metadata};

use super::runtime::Runtime;

/// The object behind a vtable.
pub(crate) trait Face: Send + Sync + 'static {
    /// The vtable of the newest interface.
    type Vtable: 'static;
    const VTABLE: &'static Self::Vtable;

    /// Whether the object has this interface.
    fn has(&self, iid: &GUID) -> bool;

    /// Lets a call of the method in `slot` in, or returns the code of its refusal.
    fn let_in(&self, slot: usize) -> Result<(), HRESULT>;
}

/// The runtime, as a profiler sees it.
pub(crate) struct InfoFace {
    pub(crate) runtime: Arc<Runtime>,
}

/// The metadata of one module.
pub(crate) struct ImportFace {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) module: usize,
}

/// An object, kept alive by an `Arc` whose count is COM's.
#[repr(C)]
struct Object<F: Face> {
    /// First, because a COM interface pointer points at a vtable pointer.
    vtable: &'static F::Vtable,
    face: F,
}

/// A new object with one reference.
pub(crate) fn create<F: Face>(face: F) -> IUnknown {
    let object = Arc::into_raw(Arc::new(Object { vtable: F::VTABLE, face }));
    // SAFETY: the object begins with a vtable that begins with that of IUnknown; the reference is the caller's from now
    // on.
    unsafe { IUnknown::from_raw(object.cast_mut().cast()) }
}

/// Deletes an object, whatever references there are, like a runtime whose object does not count them.
///
/// # Safety
/// [`create`] made it of an `F`, and nobody uses it any more.
pub(crate) unsafe fn delete<F: Face>(object: IUnknown) {
    // SAFETY: the caller's promise; the reference is taken over.
    let object = unsafe { Arc::from_raw(object.into_raw().cast_const().cast::<Object<F>>()) };
    while Arc::strong_count(&object) > 1 {
        // SAFETY: it is one of the references that were never released, and never will be.
        unsafe { Arc::decrement_strong_count(Arc::as_ptr(&object)) };
    }
}

/// The face behind an interface pointer.
///
/// # Safety
/// `this` came from [`create`], and a reference to it is held for `'a`.
pub(crate) unsafe fn of<'a, F: Face>(this: *mut c_void) -> &'a F {
    // SAFETY: the caller's promise.
    unsafe { &(*this.cast::<Object<F>>()).face }
}

/// Makes a call of the method in `slot`.
///
/// # Safety
/// As [`of`], while the call lasts.
pub(crate) unsafe fn called<F: Face>(this: *mut c_void, slot: usize, answer: impl FnOnce(&F) -> HRESULT) -> HRESULT {
    // SAFETY: the caller's promise.
    let face = unsafe { of::<F>(this) };
    match face.let_in(slot) {
        Ok(()) => answer(face),
        Err(code) => code,
    }
}

/// `QueryInterface`.
///
/// # Safety
/// As [`of`]; `iid` points at a GUID and `out` at room for a pointer, or they are null.
pub(crate) unsafe extern "system" fn query_interface<F: Face>(
    this: *mut c_void,
    iid: *const GUID,
    out: *mut *mut c_void,
) -> HRESULT {
    if iid.is_null() || out.is_null() {
        return E_POINTER;
    }
    // SAFETY: neither is null; the rest is the caller's promise. One vtable serves every interface the face has, as
    // each extends the one before.
    unsafe {
        if !of::<F>(this).has(&*iid) {
            *out = std::ptr::null_mut();
            return E_NOINTERFACE;
        }
        add_ref::<F>(this);
        *out = this;
    }
    S_OK
}

/// `AddRef`. Callers must not rely on its result, as always in COM.
///
/// # Safety
/// As [`of`].
pub(crate) unsafe extern "system" fn add_ref<F: Face>(this: *mut c_void) -> u32 {
    // SAFETY: `this` came from `Arc::into_raw`, and a reference is held.
    unsafe { Arc::increment_strong_count(this.cast_const().cast::<Object<F>>()) };
    1
}

/// `Release`.
///
/// # Safety
/// As [`of`]; the reference is released.
pub(crate) unsafe extern "system" fn release<F: Face>(this: *mut c_void) -> u32 {
    // SAFETY: `this` came from `Arc::into_raw`, and the reference is the caller's.
    unsafe { Arc::decrement_strong_count(this.cast_const().cast::<Object<F>>()) };
    1
}

/// The IIDs of `ICorProfilerInfo` to `ICorProfilerInfo15`, in order.
const INFO_IIDS: [GUID; 15] = [
    sys::ICorProfilerInfo::IID,
    sys::ICorProfilerInfo2::IID,
    sys::ICorProfilerInfo3::IID,
    sys::ICorProfilerInfo4::IID,
    sys::ICorProfilerInfo5::IID,
    sys::ICorProfilerInfo6::IID,
    sys::ICorProfilerInfo7::IID,
    sys::ICorProfilerInfo8::IID,
    sys::ICorProfilerInfo9::IID,
    sys::ICorProfilerInfo10::IID,
    sys::ICorProfilerInfo11::IID,
    sys::ICorProfilerInfo12::IID,
    sys::ICorProfilerInfo13::IID,
    sys::ICorProfilerInfo14::IID,
    sys::ICorProfilerInfo15::IID,
];

impl Face for InfoFace {
    type Vtable = sys::ICorProfilerInfo15_Vtbl;
    const VTABLE: &'static Self::Vtable = fake_info::VTABLE;

    fn has(&self, iid: &GUID) -> bool {
        let offered = INFO_IIDS.iter().take(usize::from(self.runtime.info_version));
        *iid == IUnknown::IID || offered.into_iter().any(|offered| offered == iid)
    }

    fn let_in(&self, slot: usize) -> Result<(), HRESULT> {
        self.runtime.let_in(slot)
    }
}

impl Face for ImportFace {
    type Vtable = sys::IMetaDataImport2_Vtbl;
    const VTABLE: &'static Self::Vtable = fake_metadata::VTABLE;

    fn has(&self, iid: &GUID) -> bool {
        [IUnknown::IID, sys::IMetaDataImport::IID, sys::IMetaDataImport2::IID].contains(iid)
    }

    fn let_in(&self, slot: usize) -> Result<(), HRESULT> {
        let name = slot.checked_sub(3).and_then(|at| fake_metadata::NAMES.get(at));
        name.and_then(|name| self.runtime.faults.take(name)).map_or(Ok(()), Err)
    }
}
