//! A built library as COM sees it: the exports, the factory, the object, and their answers to invalid calls.
//!
//! A test program of its own, as it loads the library itself: for Windows it is cross-built too, and runs under Wine.

use std::ffi::c_void;
use std::path::PathBuf;
use std::ptr::null_mut;

use anyhow::{Context, Result, ensure};
use libloading::Library;
use windows_core::{GUID, HRESULT, IUnknown, IUnknown_Vtbl, Interface};

use corprof::sys;

const LOGGER: GUID = GUID::from_u128(0x4E1A5A0C_7C1B_4C55_9C55_5D0E2E0C7A02);
const IID_ICLASSFACTORY: GUID = GUID::from_u128(0x00000001_0000_0000_c000_000000000046);
const NONSENSE: GUID = GUID::from_u128(0x12345678_1234_1234_1234_123456789ABC);

const E_NOINTERFACE: HRESULT = HRESULT(0x8000_4002_u32 as i32);
const E_POINTER: HRESULT = HRESULT(0x8000_4003_u32 as i32);
const CLASS_E_NOAGGREGATION: HRESULT = HRESULT(0x8004_0110_u32 as i32);
const CLASS_E_CLASSNOTAVAILABLE: HRESULT = HRESULT(0x8004_0111_u32 as i32);
const S_FALSE: HRESULT = HRESULT(1);

type GetClassObject = unsafe extern "system" fn(*const GUID, *const GUID, *mut *mut c_void) -> HRESULT;

#[repr(C)]
struct FactoryVtable {
    base: IUnknown_Vtbl,
    create: unsafe extern "system" fn(*mut c_void, *mut c_void, *const GUID, *mut *mut c_void) -> HRESULT,
}

fn library() -> Result<Library> {
    let dir = std::env::var_os("CORPROF_PROFILERS").map(PathBuf::from).context("CORPROF_PROFILERS is not set")?;
    let file = format!("{}corprof_profilers{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    // SAFETY: loading a library runs no code of its own.
    Ok(unsafe { Library::new(dir.join(file)) }?)
}

/// `DllGetClassObject`, with a pointer that must come back as null unless the call succeeds.
fn class_object(library: &Library, clsid: *const GUID, iid: *const GUID) -> Result<(HRESULT, *mut c_void)> {
    let mut out = null_mut::<c_void>().wrapping_byte_add(1);
    // SAFETY: the signature is COM's; the pointers are null, or point at values of the expected types.
    let code = unsafe { library.get::<GetClassObject>(b"DllGetClassObject")?(clsid, iid, &mut out) };
    Ok((code, out))
}

fn create(factory: *mut c_void, outer: *mut c_void, iid: *const GUID) -> (HRESULT, *mut c_void) {
    let mut out = null_mut::<c_void>().wrapping_byte_add(1);
    // SAFETY: the factory is one, and so begins with the pointer to its vtable; the pointers are null or as COM has
    // them.
    let code = unsafe { ((*(*factory.cast::<*const FactoryVtable>())).create)(factory, outer, iid, &mut out) };
    (code, out)
}

#[test]
fn nonsense_is_answered_by_the_code_that_com_has_for_it() -> Result<()> {
    let library = library()?;
    let (code, out) = class_object(&library, &NONSENSE, &IID_ICLASSFACTORY)?;
    ensure!(code == CLASS_E_CLASSNOTAVAILABLE && out.is_null(), "{code:?}");
    let (code, out) = class_object(&library, &LOGGER, &NONSENSE)?;
    ensure!(code == E_NOINTERFACE && out.is_null(), "{code:?}");
    ensure!(class_object(&library, std::ptr::null(), &IID_ICLASSFACTORY)?.0 == E_POINTER);
    ensure!(class_object(&library, &LOGGER, std::ptr::null())?.0 == E_POINTER);
    // SAFETY: the test is about a null out-pointer.
    let code = unsafe { library.get::<GetClassObject>(b"DllGetClassObject")?(&LOGGER, &IID_ICLASSFACTORY, null_mut()) };
    ensure!(code == E_POINTER, "{code:?}");

    let (code, factory) = class_object(&library, &LOGGER, &IID_ICLASSFACTORY)?;
    ensure!(code.is_ok());
    let (code, out) = create(factory, null_mut(), &NONSENSE);
    ensure!(code == E_NOINTERFACE && out.is_null(), "{code:?}");
    let (code, out) = create(factory, factory, &IUnknown::IID);
    ensure!(code == CLASS_E_NOAGGREGATION && out.is_null(), "{code:?}");
    ensure!(create(factory, null_mut(), std::ptr::null()).0 == E_POINTER);
    Ok(())
}

#[test]
fn one_object_answers_for_all_eleven_callback_interfaces() -> Result<()> {
    let library = library()?;
    let (_, factory) = class_object(&library, &LOGGER, &IUnknown::IID)?;
    let (code, object) = create(factory, null_mut(), &sys::ICorProfilerCallback2::IID);
    ensure!(code.is_ok());
    // SAFETY: the object is the one just made, with one reference, which is taken over.
    let object = unsafe { IUnknown::from_raw(object) };
    let versions = [
        sys::ICorProfilerCallback::IID,
        sys::ICorProfilerCallback2::IID,
        sys::ICorProfilerCallback3::IID,
        sys::ICorProfilerCallback4::IID,
        sys::ICorProfilerCallback5::IID,
        sys::ICorProfilerCallback6::IID,
        sys::ICorProfilerCallback7::IID,
        sys::ICorProfilerCallback8::IID,
        sys::ICorProfilerCallback9::IID,
        sys::ICorProfilerCallback10::IID,
        sys::ICorProfilerCallback11::IID,
    ];
    for iid in versions {
        let mut out = null_mut();
        // SAFETY: as COM has it.
        let code = unsafe { object.query(&iid, &mut out) };
        ensure!(code.is_ok() && out == object.as_raw(), "{iid:?}: {code:?}");
        // SAFETY: the reference that the query has given.
        drop(unsafe { IUnknown::from_raw(out) });
    }
    let mut out = null_mut();
    // SAFETY: as COM has it; then with a null out-pointer, which the test is about.
    let (unknown, null) = unsafe {
        let unknown = object.query(&NONSENSE, &mut out);
        (unknown, (object.vtable().QueryInterface)(object.as_raw(), &IUnknown::IID, null_mut()))
    };
    ensure!(unknown == E_NOINTERFACE && out.is_null() && null == E_POINTER, "{unknown:?} {null:?}");
    Ok(())
}

#[test]
fn references_are_counted_and_the_library_stays() -> Result<()> {
    let library = library()?;
    let (_, factory) = class_object(&library, &LOGGER, &IID_ICLASSFACTORY)?;
    let (_, object) = create(factory, null_mut(), &IUnknown::IID);
    // SAFETY: the object is the one just made, with one reference; each count is given back.
    unsafe {
        let vtable = &**object.cast::<*const IUnknown_Vtbl>();
        ensure!((vtable.AddRef)(object) == 2);
        ensure!((vtable.Release)(object) == 1);
        ensure!((vtable.Release)(object) == 0);
        let can_unload = library.get::<unsafe extern "system" fn() -> HRESULT>(b"DllCanUnloadNow")?;
        ensure!(can_unload() == S_FALSE, "a library whose code may be running is never unloaded");
    }
    Ok(())
}
