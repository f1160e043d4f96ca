//! The calls that the SDK makes for its own purposes. Their answers are raw: nothing in them is pinned or recorded.

use std::ops::Range;

use corprof_il::token::{MethodDef, TypeDef};
use corprof_sys as sys;
use windows_core::HRESULT;

use super::searches::Search;
use super::{MethodKey, Runtime};
use crate::error::{E_FAIL, E_INVALIDARG, Error, Result, S_FALSE};
use crate::ffi::buffer::read_short_list;
use crate::ffi::enumerate::read_all;
use crate::id::{AssemblyId, ClassId, CodeAddress, FunctionId, ModuleId};

/// The definition of a function, with its type arguments.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct FunctionInfo {
    /// The class. Before .NET 10 it is `None` for a function that is shared between instantiations, as only a frame
    /// could tell which; .NET 10 returns the class over `System.__Canon`.
    pub class: Option<ClassId>,
    /// The module whose metadata defines it.
    pub module: ModuleId,
    /// Its definition there; nil for a function without metadata.
    pub token: MethodDef,
    /// The type arguments of the function itself, without those of its class.
    pub type_args: Vec<ClassId>,
}

/// The definition of a class, with its type arguments.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ClassInfo {
    /// The module whose metadata defines it.
    pub module: ModuleId,
    /// Its definition there.
    pub token: TypeDef,
    /// The class it derives from.
    pub parent: Option<ClassId>,
    /// Its type arguments; those of the enclosing classes come first.
    pub type_args: Vec<ClassId>,
}

/// The shape of an array class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ArrayClass {
    /// The kind of its elements.
    pub element_type: sys::CorElementType,
    /// The class of its elements.
    pub element: Option<ClassId>,
    /// The number of dimensions.
    pub rank: u32,
}

/// The call that [`Runtime::ask_function`] makes.
pub(crate) const FUNCTION_INFO: &str = "GetFunctionInfo2";

/// The call that [`Runtime::ask_class`] makes.
pub(crate) const CLASS_INFO: &str = "GetClassIDInfo2";

impl Runtime {
    /// Like [`function_info`](crate::Info::function_info), for a function that cannot be unloaded meanwhile, and not
    /// for users.
    pub(crate) fn ask_function(&self, function: FunctionId) -> Result<FunctionInfo, HRESULT> {
        self.ask_function_of(function, 0)
    }

    /// The method of a function that the current callback is about. It is answered also when calls return errors: the
    /// runtime's object lives as long as it makes callbacks.
    pub(crate) fn method_in_callback(&self, function: FunctionId) -> Option<MethodKey> {
        let info = self.in_callback::<sys::ICorProfilerInfo2>(FUNCTION_INFO).ok()?;
        let no_frame: sys::COR_PRF_FRAME_INFO = 0;
        let no_type_args = std::ptr::null_mut();
        let mut class = 0;
        let mut module = 0;
        let mut token = 0;
        let mut count = 0;
        // SAFETY: the function is in memory, as the callback is about it; there is no frame, and no room for type
        // arguments; the call writes the four locals (fact: info-object, outputs).
        let code = unsafe {
            let raw = function.as_raw();
            info.GetFunctionInfo2(raw, no_frame, &mut class, &mut module, &mut token, 0, &mut count, no_type_args)
        };
        code.is_ok().then_some((module, token))
    }

    pub(crate) fn ask_function_of(
        &self,
        function: FunctionId,
        frame: sys::COR_PRF_FRAME_INFO,
    ) -> Result<FunctionInfo, HRESULT> {
        let ask = |type_args: &mut [_]| self.ask_function_into(function, frame, type_args);
        let (info, type_args) = read_short_list(ask, ClassId::from_raw)?;
        Ok(FunctionInfo { type_args, ..info })
    }

    /// Everything except the type arguments; those are written as far as there is room, and the result has their
    /// number.
    #[inline]
    pub(crate) fn ask_function_into(
        &self,
        function: FunctionId,
        frame: sys::COR_PRF_FRAME_INFO,
        type_args: &mut [sys::ClassID],
    ) -> Result<(FunctionInfo, usize), HRESULT> {
        let info = self.as_version::<sys::ICorProfilerInfo2>(FUNCTION_INFO).map_err(|error| error.code())?;
        let mut class = 0;
        let mut module = 0;
        let mut token = 0;
        let mut count = 0;
        // SAFETY: the function is in memory: it can never be unloaded, or the caller has pinned it, or it has a frame,
        // or the caller is the unloading thread, in a callback before anything is freed. The frame is null or a live
        // frame of this function. The call writes at most as many type arguments as there is room for (fact: pinned,
        // outputs, walks).
        let code = unsafe {
            info.GetFunctionInfo2(
                function.as_raw(),
                frame,
                &mut class,
                &mut module,
                &mut token,
                u32::try_from(type_args.len()).unwrap_or(u32::MAX),
                &mut count,
                type_args.as_mut_ptr(),
            )
        };
        if code.is_err() {
            return Err(code);
        }
        let info = FunctionInfo {
            class: ClassId::from_raw(class),
            module: ModuleId::from_raw(module).ok_or(E_INVALIDARG)?,
            token: MethodDef::from_raw(token),
            type_args: Vec::new(),
        };
        Ok((info, count as usize))
    }

    /// Like [`class_info`](crate::Info::class_info), for a class that cannot be unloaded meanwhile, and not for users.
    pub(crate) fn ask_class(&self, class: ClassId) -> Result<ClassInfo, HRESULT> {
        let ask = |type_args: &mut [_]| self.ask_class_into(class, type_args);
        let (info, type_args) = read_short_list(ask, ClassId::from_raw)?;
        Ok(ClassInfo { type_args, ..info })
    }

    /// Everything except the type arguments; those are written as far as there is room, and the result has their
    /// number.
    #[inline]
    pub(crate) fn ask_class_into(
        &self,
        class: ClassId,
        type_args: &mut [sys::ClassID],
    ) -> Result<(ClassInfo, usize), HRESULT> {
        let info = self.as_version::<sys::ICorProfilerInfo2>(CLASS_INFO).map_err(|error| error.code())?;
        let mut module = 0;
        let mut token = 0;
        let mut parent = 0;
        let mut count = 0;
        // SAFETY: the class is in memory: nothing is collectible, or the caller has pinned it, or a callback about it
        // is under way. The call writes the locals, and at most as many type arguments as there is room for (fact:
        // pinned, outputs).
        let code = unsafe {
            info.GetClassIDInfo2(
                class.as_raw(),
                &mut module,
                &mut token,
                &mut parent,
                u32::try_from(type_args.len()).unwrap_or(u32::MAX),
                &mut count,
                type_args.as_mut_ptr(),
            )
        };
        if code.is_err() {
            return Err(code);
        }
        let info = ClassInfo {
            module: ModuleId::from_raw(module).ok_or(E_INVALIDARG)?,
            token: TypeDef::from_raw(token),
            parent: ClassId::from_raw(parent),
            type_args: Vec::new(),
        };
        Ok((info, count as usize))
    }

    /// Like [`array_class`](crate::Info::array_class), for a class that cannot be unloaded meanwhile, and not for
    /// users.
    pub(crate) fn ask_array(&self, class: ClassId) -> Result<Option<ArrayClass>> {
        const CALL: &str = "IsArrayClass";
        let mut element_type = sys::CorElementType::default();
        let mut element = 0;
        let mut rank = 0;
        // SAFETY: the class is in memory, as for `ask_class_into`; the call writes the three locals and keeps nothing
        // (fact: pinned, outputs).
        let code = unsafe {
            self.first_version(CALL)?.IsArrayClass(class.as_raw(), &mut element_type, &mut element, &mut rank)
        };
        Error::check(code, CALL)?;
        Ok((code != S_FALSE).then(|| ArrayClass { element_type, element: ClassId::from_raw(element), rank }))
    }

    /// The assembly and the flags of a module that cannot be unloaded meanwhile.
    pub(crate) fn ask_module(&self, module: ModuleId) -> Result<(Option<AssemblyId>, sys::COR_PRF_MODULE_FLAGS)> {
        const CALL: &str = "GetModuleInfo2";
        let info = self.as_version::<sys::ICorProfilerInfo3>(CALL)?;
        let mut base = std::ptr::null();
        let mut assembly = 0;
        let mut flags = 0;
        let mut units = 0;
        let raw = module.as_raw();
        let no_text = std::ptr::null_mut();
        // SAFETY: the caller promises that the module is loaded; the call writes the four locals, and no text as there
        // is room for none (fact: pinned, outputs).
        let code = unsafe { info.GetModuleInfo2(raw, &mut base, 0, &mut units, no_text, &mut assembly, &mut flags) };
        Error::check(code, CALL)?;
        Ok((AssemblyId::from_raw(assembly), sys::COR_PRF_MODULE_FLAGS::from_bits_retain(flags)))
    }

    /// The function of a method that is neither generic nor in a generic class, if its class is loaded. The caller
    /// promises that the module stays loaded.
    pub(crate) fn ask_loaded_function(&self, module: ModuleId, method: MethodDef) -> Result<Option<FunctionId>> {
        const CALL: &str = "GetFunctionFromToken";
        let mut function = 0;
        // SAFETY: the module is loaded; the call loads nothing, writes one id and keeps nothing (fact: pinned,
        // outputs).
        let code = unsafe {
            self.first_version(CALL)?.GetFunctionFromToken(module.as_raw(), method.token().as_raw(), &mut function)
        };
        if code == E_INVALIDARG || code == sys::CORPROF_E_DATAINCOMPLETE {
            return Ok(None);
        }
        Error::check(code, CALL)?;
        Ok(FunctionId::from_raw(function))
    }

    /// The function whose code contains an address, dead or alive, unless it has no metadata.
    ///
    /// # Errors
    /// As [`Searches::begin`](super::searches::Searches::begin).
    #[inline]
    pub(crate) fn ask_function_at(&self, ip: CodeAddress) -> Result<Option<usize>> {
        const CALL: &str = "GetFunctionFromIP";
        self.search(CALL, move |runtime, kind| runtime.search_function_at(ip, &runtime.begin_search(kind, CALL)?))
    }

    /// Like [`ask_function_at`](Self::ask_function_at), for an address whose code is probably gone.
    ///
    /// # Errors
    /// As [`begin_search_for_what_goes`](Self::begin_search_for_what_goes).
    pub(crate) fn ask_function_that_was_at(&self, ip: CodeAddress) -> Result<Option<usize>> {
        const CALL: &str = "GetFunctionFromIP";
        self.search(CALL, move |runtime, kind| {
            runtime.search_function_at(ip, &runtime.begin_search_for_what_goes(kind, CALL)?)
        })
    }

    fn search_function_at(&self, ip: CodeAddress, _search: &Search<'_>) -> Result<Option<usize>> {
        const CALL: &str = "GetFunctionFromIP";
        let mut function = 0;
        // SAFETY: the runtime looks the address up in its lists of code and does not read from it; in precompiled code
        // it finds a method that has run (fact: addresses). A function that it finds is in memory, as code is removed
        // in suspensions only, and the search keeps these off (fact: searches). It writes one id (fact: outputs).
        let code = unsafe {
            self.first_version(CALL)?.GetFunctionFromIP(std::ptr::without_provenance(ip.as_raw()), &mut function)
        };
        if code == E_FAIL {
            return Ok(None);
        }
        Error::check(code, CALL)?;
        Ok(Some(function))
    }

    /// The start of the code of a function that cannot be unloaded meanwhile.
    pub(crate) fn ask_code(&self, function: FunctionId) -> Option<CodeAddress> {
        // SAFETY: the runtime has told that the function is compiled (fact: addresses).
        self.ask_code_ranges(function).first().map(|range| unsafe { CodeAddress::from_raw(range.start) })
    }

    /// The code of a function that cannot be unloaded meanwhile. None if it has none.
    pub(crate) fn ask_code_ranges(&self, function: FunctionId) -> Vec<Range<usize>> {
        /// A compiler makes a hot and a cold range at most.
        const RANGES: usize = 2;
        let Ok(info) = self.as_version::<sys::ICorProfilerInfo2>("GetCodeInfo2") else { return Vec::new() };
        let mut ranges = [sys::COR_PRF_CODE_INFO { startAddress: 0, size: 0 }; RANGES];
        let mut count = 0;
        // SAFETY: the caller promises that the function is in memory; the call writes the count and at most as many
        // ranges as there is room for (fact: pinned, outputs).
        let code =
            unsafe { info.GetCodeInfo2(function.as_raw(), ranges.len() as u32, &mut count, ranges.as_mut_ptr()) };
        if code.is_err() {
            return Vec::new();
        }
        let found = ranges.iter().take(count as usize).filter(|range| range.startAddress != 0);
        found.map(|range| range.startAddress..range.startAddress.saturating_add(range.size)).collect()
    }

    /// Like [`ask_function_at`](Self::ask_function_at), but also finds functions without metadata.
    pub(crate) fn ask_any_function_at(&self, ip: CodeAddress) -> Result<Option<usize>> {
        const CALL: &str = "GetFunctionFromIP3";
        self.search(CALL, move |runtime, kind| {
            let search = runtime.begin_search(kind, CALL)?;
            runtime.search_any_function_at(ip, std::ptr::null_mut(), &search)
        })
    }

    /// Like [`ask_any_function_at`](Self::ask_any_function_at), with the id of the body. Call it only while the
    /// function is held that is found.
    pub(crate) fn ask_held_version_at(&self, ip: CodeAddress) -> Result<Option<(usize, usize)>> {
        const CALL: &str = "GetFunctionFromIP3";
        self.search(CALL, move |runtime, kind| {
            // The call may wait for a suspension, which must not wait for it in turn (seen on .NET 8).
            let search = runtime.begin_search_for_held(kind, CALL)?;
            let mut rejit = 0;
            let function = runtime.search_any_function_at(ip, &mut rejit, &search)?;
            Ok(function.map(|function| (function, rejit)))
        })
    }

    fn search_any_function_at(
        &self,
        ip: CodeAddress,
        rejit: *mut usize,
        _search: &Search<'_>,
    ) -> Result<Option<usize>> {
        const CALL: &str = "GetFunctionFromIP3";
        let info = self.as_version::<sys::ICorProfilerInfo8>(CALL)?;
        let mut function = 0;
        // SAFETY: as for `search_function_at`. The runtime reads from the function only if there is room for the body's
        // id: then the caller keeps the function alive (fact: searches).
        let code = unsafe { info.GetFunctionFromIP3(std::ptr::without_provenance(ip.as_raw()), &mut function, rejit) };
        if code == E_FAIL {
            return Ok(None);
        }
        Error::check(code, CALL)?;
        Ok(Some(function))
    }

    /// The functions that have been compiled just in time, dead or alive. Call it only where `EnumJITedFunctions` is
    /// allowed.
    ///
    /// From .NET 10 on nothing may be unloaded during the call: the runtime walks its lists without their lock, code
    /// that is unloaded during the walk stays listed after its memory is freed (`EECodeGenManager::Unload` in
    /// codeman.cpp), and the next walk crashes. Two kinds of callers are safe: the unloading thread, and a thread that
    /// has seen during a look-up that all is gone.
    pub(crate) fn ask_jitted_functions(&self) -> Result<Vec<usize>> {
        const CALL: &str = "EnumJITedFunctions";
        let info = self.as_version::<sys::ICorProfilerInfo3>(CALL)?;
        read_all(
            CALL,
            // SAFETY: the runtime walks its lists of code and reads from each function whether it has metadata and
            // code. Code is taken off the lists before the memory of its function is freed: before .NET 10 the lists'
            // lock ensures that; since then the caller, who makes sure that no code is unloaded meanwhile. The call
            // writes one reference and keeps nothing (fact: outputs, searches).
            |functions| unsafe { info.EnumJITedFunctions(functions) },
            |function: sys::COR_PRF_FUNCTION| Some(function.functionId),
        )
    }
}
