//! The results of the fake runtime's Info methods. All other methods are refused by the contract table, or return
//! `E_NOTIMPL`.

#![allow(non_snake_case, reason = "methods have their names in the IDL")]

use std::ffi::c_void;
use std::sync::Arc;

use corprof_sys as sys;
use windows_core::{GUID, HRESULT, IUnknown};

use crate::error::{E_INVALIDARG, E_NOINTERFACE, E_POINTER, S_FALSE, S_OK};
use crate::event_mask::EventMask;
use crate::generated::fake_info::InfoAnswers;

use super::com::{self, Face, ImportFace, InfoFace};
use super::contract::Release;
use super::out::{code, put, put_list, put_text};
use super::stacks;
use super::world::Function;
use super::{enumerator, here};

impl InfoAnswers for InfoFace {
    unsafe fn GetClassFromObject(&self, object: usize, class: *mut usize) -> HRESULT {
        // SAFETY: the trait's promise.
        code(self.object(object).map(|object| unsafe { put(class, object.class) }))
    }

    unsafe fn GetObjectSize(&self, object: usize, size: *mut u32) -> HRESULT {
        let found = self.object(object).and_then(|object| {
            u32::try_from(object.size).map_err(|_| HRESULT(0x8007_0216_u32 as i32)) // COR_E_OVERFLOW
        });
        // SAFETY: the trait's promise.
        code(found.map(|found| unsafe { put(size, found) }))
    }

    unsafe fn GetObjectSize2(&self, object: usize, size: *mut usize) -> HRESULT {
        // SAFETY: the trait's promise.
        code(self.object(object).map(|object| unsafe { put(size, object.size) }))
    }

    unsafe fn GetClassFromToken(&self, module: usize, token: u32, class: *mut usize) -> HRESULT {
        // SAFETY: the trait's promise.
        code(self.class_by_token(module, token, &[]).map(|found| unsafe { put(class, found) }))
    }

    unsafe fn GetClassFromTokenAndTypeArgs(
        &self,
        module: usize,
        token: u32,
        count: u32,
        args: *const usize,
        class: *mut usize,
    ) -> HRESULT {
        // SAFETY: the trait's promise.
        let args = unsafe { crate::session::wire::slice(count, args) };
        // SAFETY: as above.
        code(self.class_by_token(module, token, args).map(|found| unsafe { put(class, found) }))
    }

    unsafe fn GetClassIDInfo(&self, class: usize, module: *mut usize, token: *mut u32) -> HRESULT {
        let found = match self.plain_class(class) {
            Ok(found) => (found.module, found.token),
            // An array is none of its errors: it has no module and no token.
            Err(sys::CORPROF_E_CLASSID_IS_ARRAY) => (0, 0),
            Err(error) => return error,
        };
        // SAFETY: the trait's promise.
        unsafe {
            put(module, found.0);
            put(token, found.1);
        }
        S_OK
    }

    unsafe fn GetClassIDInfo2(
        &self,
        class: usize,
        module: *mut usize,
        token: *mut u32,
        parent: *mut usize,
        room: u32,
        count: *mut u32,
        args: *mut usize,
    ) -> HRESULT {
        // SAFETY: the trait's promise.
        code(self.plain_class(class).map(|found| unsafe {
            put(module, found.module);
            put(token, found.token);
            put(parent, found.parent);
            put_list(&found.type_args, room, count, args);
        }))
    }

    unsafe fn IsArrayClass(
        &self,
        class: usize,
        element_type: *mut sys::CorElementType,
        element: *mut usize,
        rank: *mut u32,
    ) -> HRESULT {
        let array = match self.class(class) {
            Ok(found) => found.array,
            Err(error) => return error,
        };
        let Some(array) = array else { return S_FALSE };
        // SAFETY: the trait's promise.
        unsafe {
            put(element_type, array.element_type);
            put(element, array.element);
            put(rank, array.rank);
        }
        S_OK
    }

    unsafe fn GetFunctionInfo(
        &self,
        function: usize,
        class: *mut usize,
        module: *mut usize,
        token: *mut u32,
    ) -> HRESULT {
        // SAFETY: the trait's promise.
        code(self.function(function).map(|found| unsafe {
            put(class, found.class);
            put(module, found.module);
            put(token, found.token);
        }))
    }

    unsafe fn GetFunctionInfo2(
        &self,
        function: usize,
        _frame: sys::COR_PRF_FRAME_INFO,
        class: *mut usize,
        module: *mut usize,
        token: *mut u32,
        room: u32,
        count: *mut u32,
        args: *mut usize,
    ) -> HRESULT {
        // SAFETY: the trait's promise.
        code(self.function(function).map(|found| unsafe {
            put(class, found.class);
            put(module, found.module);
            put(token, found.token);
            put_list(&found.type_args, room, count, args);
        }))
    }

    unsafe fn GetFunctionFromToken(&self, module: usize, token: u32, function: *mut usize) -> HRESULT {
        let world = self.runtime.world();
        let is_it = |found: &&Function| found.module == module && found.token == token && found.dynamic.is_none();
        let found = world.functions.iter().find(|(_, found)| is_it(found)).map(|(&id, _)| id);
        // SAFETY: the trait's promise.
        code(found.ok_or(sys::CORPROF_E_DATAINCOMPLETE).map(|found| unsafe { put(function, found) }))
    }

    unsafe fn GetDynamicFunctionInfo(
        &self,
        function: usize,
        module: *mut usize,
        signature: *mut sys::PCCOR_SIGNATURE,
        signature_size: *mut u32,
        room: u32,
        count: *mut u32,
        name: *mut u16,
    ) -> HRESULT {
        let found = self.function(function).and_then(|found| {
            let name = found.dynamic.ok_or(E_INVALIDARG)?;
            Ok((found.module, name))
        });
        // SAFETY: the trait's promise.
        code(found.map(|(home, text)| unsafe {
            put(module, home);
            put(signature, std::ptr::null());
            put(signature_size, 0);
            put_text(&text, room, count, name);
        }))
    }

    unsafe fn GetCodeInfo(&self, function: usize, start: *mut sys::LPCBYTE, size: *mut u32) -> HRESULT {
        let found = self.function(function).and_then(|found| found.code.ok_or(sys::CORPROF_E_FUNCTION_NOT_COMPILED));
        // SAFETY: the trait's promise.
        code(found.map(|range| unsafe {
            put(start, std::ptr::without_provenance(range.start));
            put(size, range.len() as u32);
        }))
    }

    unsafe fn GetReJITIDs(&self, function: usize, room: u32, count: *mut u32, ids: *mut usize) -> HRESULT {
        // No method has a body of a ReJIT request here.
        let first: &[usize] = if self.runtime.release < Release(11, 0) { &[0] } else { &[] };
        // SAFETY: the trait's promise.
        code(self.function(function).map(|_| unsafe { put_list(first, room, count, ids) }))
    }

    unsafe fn GetFunctionFromIP(&self, ip: sys::LPCBYTE, function: *mut usize) -> HRESULT {
        let world = self.runtime.world();
        let is_in = |found: &Function| found.code.as_ref().is_some_and(|code| code.contains(&ip.addr()));
        let found = world.functions.iter().find(|(_, found)| is_in(found)).map(|(&id, _)| id);
        // SAFETY: the trait's promise.
        code(found.ok_or(E_INVALIDARG).map(|found| unsafe { put(function, found) }))
    }

    unsafe fn GetModuleInfo(
        &self,
        module: usize,
        base: *mut sys::LPCBYTE,
        room: u32,
        count: *mut u32,
        name: *mut u16,
        assembly: *mut usize,
    ) -> HRESULT {
        // SAFETY: the trait's promise.
        unsafe { self.GetModuleInfo2(module, base, room, count, name, assembly, std::ptr::null_mut()) }
    }

    unsafe fn GetModuleInfo2(
        &self,
        module: usize,
        base: *mut sys::LPCBYTE,
        room: u32,
        count: *mut u32,
        name: *mut u16,
        assembly: *mut usize,
        flags: *mut u32,
    ) -> HRESULT {
        // SAFETY: the trait's promise.
        code(self.module(module).map(|(at, path, of)| unsafe {
            put(base, std::ptr::without_provenance(at));
            put_text(&path, room, count, name);
            put(assembly, of);
            put(flags, sys::COR_PRF_MODULE_DISK.bits());
        }))
    }

    unsafe fn GetModuleMetaData(
        &self,
        module: usize,
        _flags: u32,
        iid: *const GUID,
        out: *mut Option<IUnknown>,
    ) -> HRESULT {
        if iid.is_null() || out.is_null() {
            return E_POINTER;
        }
        if let Err(error) = self.module(module) {
            return error;
        }
        let face = ImportFace { runtime: Arc::clone(&self.runtime), module };
        // SAFETY: neither is null; the rest is the trait's promise.
        unsafe {
            // Only reading interfaces: the metadata of a fake module belong to the test.
            let has = face.has(&*iid);
            out.write(has.then(|| com::create(face)));
            if has { S_OK } else { E_NOINTERFACE }
        }
    }

    unsafe fn GetAssemblyInfo(
        &self,
        assembly: usize,
        room: u32,
        count: *mut u32,
        name: *mut u16,
        app_domain: *mut usize,
        module: *mut usize,
    ) -> HRESULT {
        let world = self.runtime.world();
        let Some(found) = world.assemblies.get(&assembly) else { return E_INVALIDARG };
        if !found.alive {
            return sys::CORPROF_E_DATAINCOMPLETE;
        }
        // SAFETY: the trait's promise.
        unsafe {
            put_text(&found.name, room, count, name);
            put(app_domain, world.app_domain);
            put(module, found.module);
        }
        S_OK
    }

    unsafe fn GetAppDomainInfo(
        &self,
        app_domain: usize,
        room: u32,
        count: *mut u32,
        name: *mut u16,
        process: *mut usize,
    ) -> HRESULT {
        if app_domain != self.runtime.world().app_domain {
            return E_INVALIDARG;
        }
        // SAFETY: the trait's promise.
        unsafe {
            put_text("DefaultDomain", room, count, name);
            put(process, std::process::id() as usize);
        }
        S_OK
    }

    unsafe fn EnumModules(&self, modules: *mut Option<sys::ICorProfilerModuleEnum>) -> HRESULT {
        let mut ids: Vec<_> = self.runtime.world().modules.keys().copied().collect();
        ids.sort_unstable();
        // SAFETY: the trait's promise.
        unsafe { enumerator::put(modules, ids) }
    }

    unsafe fn EnumThreads(&self, threads: *mut Option<sys::ICorProfilerThreadEnum>) -> HRESULT {
        let ids = self.runtime.world().threads.keys().copied().collect();
        // SAFETY: the trait's promise; the interface of threads has the vtable of that of modules.
        unsafe { enumerator::put(threads, ids) }
    }

    unsafe fn EnumJITedFunctions(&self, functions: *mut Option<sys::ICorProfilerFunctionEnum>) -> HRESULT {
        // SAFETY: the trait's promise.
        unsafe { enumerator::put_functions(functions, self.runtime.world().jitted_functions()) }
    }

    unsafe fn GetThreadInfo(&self, thread: usize, os_id: *mut u32) -> HRESULT {
        let found = self.runtime.world().threads.get(&thread).map(|thread| thread.os_id).ok_or(E_INVALIDARG);
        // SAFETY: the trait's promise.
        code(found.map(|found| unsafe { put(os_id, found) }))
    }

    unsafe fn GetCurrentThreadID(&self, thread: *mut usize) -> HRESULT {
        let this = here::thread(self.runtime.id);
        if this == 0 {
            return sys::CORPROF_E_NOT_MANAGED_THREAD;
        }
        // SAFETY: the trait's promise.
        unsafe { put(thread, this) };
        S_OK
    }

    unsafe fn GetThreadAppDomain(&self, thread: usize, app_domain: *mut usize) -> HRESULT {
        let world = self.runtime.world();
        if !world.threads.contains_key(&thread) {
            return E_INVALIDARG;
        }
        // SAFETY: the trait's promise.
        unsafe { put(app_domain, world.app_domain) };
        S_OK
    }

    unsafe fn CreateHandle(
        &self,
        object: usize,
        kind: sys::COR_PRF_HANDLE_TYPE,
        handle: *mut *mut *mut c_void,
    ) -> HRESULT {
        let made = self.runtime.make_handle(object, kind);
        // SAFETY: the trait's promise.
        code(made.map(|made| unsafe { put(handle, std::ptr::without_provenance_mut(made)) }))
    }

    unsafe fn DestroyHandle(&self, handle: *mut *mut c_void) -> HRESULT {
        code(self.runtime.free_handle(handle.addr()))
    }

    unsafe fn GetObjectIDFromHandle(&self, handle: *mut *mut c_void, object: *mut usize) -> HRESULT {
        // SAFETY: the trait's promise.
        code(self.runtime.handled_object(handle.addr()).map(|found| unsafe { put(object, found) }))
    }

    unsafe fn SuspendRuntime(&self) -> HRESULT {
        code(stacks::suspend(&self.runtime))
    }

    unsafe fn ResumeRuntime(&self) -> HRESULT {
        code(stacks::resume(&self.runtime))
    }

    unsafe fn DoStackSnapshot(
        &self,
        thread: usize,
        callback: sys::StackSnapshotCallback,
        flags: u32,
        data: *mut c_void,
        _context: *const u8,
        _context_size: u32,
    ) -> HRESULT {
        // SAFETY: the trait's promise.
        code(unsafe { stacks::snapshot(&self.runtime, thread, callback, flags, data) })
    }

    unsafe fn InitializeCurrentThread(&self) -> HRESULT {
        S_OK
    }

    unsafe fn GetEventMask(&self, low: *mut u32) -> HRESULT {
        // SAFETY: the trait's promise.
        unsafe { put(low, self.runtime.mask().words().0) };
        S_OK
    }

    unsafe fn GetEventMask2(&self, low: *mut u32, high: *mut u32) -> HRESULT {
        let words = self.runtime.mask().words();
        // SAFETY: the trait's promise.
        unsafe {
            put(low, words.0);
            put(high, words.1);
        }
        S_OK
    }

    unsafe fn SetEventMask(&self, low: u32) -> HRESULT {
        code(self.runtime.set_mask(EventMask::from_words(low, 0)))
    }

    unsafe fn SetEventMask2(&self, low: u32, high: u32) -> HRESULT {
        code(self.runtime.set_mask(EventMask::from_words(low, high)))
    }

    unsafe fn RequestProfilerDetach(&self, _milliseconds: u32) -> HRESULT {
        code(self.runtime.request_detach())
    }

    unsafe fn GetRuntimeInformation(
        &self,
        instance: *mut u16,
        kind: *mut sys::COR_PRF_RUNTIME_TYPE,
        major: *mut u16,
        minor: *mut u16,
        build: *mut u16,
        fix: *mut u16,
        room: u32,
        count: *mut u32,
        version: *mut u16,
    ) -> HRESULT {
        // .NET Core up to 3.1 returns 4, like the framework.
        let release = self.runtime.release;
        let says = if release.0 < 5 { (4, 0) } else { (release.0 as u16, release.1 as u16) };
        // SAFETY: the trait's promise.
        unsafe {
            put(instance, self.runtime.id as u16);
            put(kind, sys::COR_PRF_CORE_CLR);
            put(major, says.0);
            put(minor, says.1);
            put(build, 0);
            put(fix, 0);
            put_text(&format!("v{}.{}.0", says.0, says.1), room, count, version);
        }
        S_OK
    }
    unsafe fn EnumerateGCHeapObjects(&self, callback: sys::ObjectCallback, state: *mut c_void) -> HRESULT {
        let Some(callback) = callback else { return E_INVALIDARG };
        // SAFETY: the trait's promise; the callback accepts the state that it came with.
        code(self.runtime.visit_heap(|object| unsafe { callback(object, state) }.as_bool()))
    }
}
