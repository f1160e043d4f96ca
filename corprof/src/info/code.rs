//! Native code: what has been compiled, and where it lies.

use corprof_sys as sys;
use windows_core::{BOOL, HRESULT};

use crate::buffer::{read_list, read_list_from};
use crate::context::{InCallback, InTriggers};
use crate::enumerate::read_all;
use crate::error::{E_FAIL, Error, Result};
use crate::generated::contract::contract;
use crate::id::{FunctionId, ModuleId, NativeCode, ReJitId};
use crate::info::Info;
use crate::metadata::MethodDef;

/// A function in one of its bodies: as it was loaded, or as a ReJIT request made it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FunctionVersion {
    /// The function.
    pub function: FunctionId,
    /// Which of its bodies.
    pub rejit: ReJitId,
}

impl FunctionVersion {
    fn from_wire(info: &Info, version: sys::COR_PRF_FUNCTION) -> Option<Self> {
        info.found_function(version.functionId).map(|function| Self { function, rejit: ReJitId(version.reJitId) })
    }
}

impl From<FunctionId> for FunctionVersion {
    /// The function in the body it was loaded with.
    fn from(function: FunctionId) -> Self {
        Self { function, rejit: ReJitId(0) }
    }
}

/// A stretch of memory with native code.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct CodeRange {
    /// Its first byte.
    pub start: usize,
    /// How many bytes it has.
    pub size: usize,
}

impl CodeRange {
    /// Whether `address` lies in it.
    pub const fn contains(self, address: usize) -> bool {
        address.wrapping_sub(self.start) < self.size
    }
}

/// Which IL a stretch of native code came from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct IlToNativeRange {
    /// Where in the IL.
    pub il: IlOffset,
    /// The first byte, counted from the start of the native code.
    pub native_start: u32,
    /// The byte after the last.
    pub native_end: u32,
}

/// A place in the IL of a function, or the reason that there is none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum IlOffset {
    /// The instruction that begins at this byte of the code, the header not counted.
    At(u32),
    /// The native code belongs to no instruction.
    NoMapping,
    /// The native code that enters the function.
    Prolog,
    /// The native code that leaves the function.
    Epilog,
}

impl IlOffset {
    fn from_wire(offset: u32) -> Self {
        match sys::CorDebugIlToNativeMappingTypes(offset.cast_signed()) {
            sys::NO_MAPPING => Self::NoMapping,
            sys::PROLOG => Self::Prolog,
            sys::EPILOG => Self::Epilog,
            _ => Self::At(offset),
        }
    }
}

/// The methods of a precompiled module into which a method was inlined.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct NgenInliners {
    /// The methods, each with its module.
    pub methods: Vec<(ModuleId, MethodDef)>,
    /// Whether there may be more, because not all modules that would have to be searched are loaded.
    pub is_incomplete: bool,
}

/// Two ranges, hot and cold, are the most that a compiler makes.
const USUAL_CODE_RANGES: usize = 2;

/// As many bodies as a function has that is instrumented now and then.
const USUAL_REJIT_IDS: usize = 4;

// Entries are read as the numbers that they consist of.
const _: () = assert!(size_of::<[usize; 2]>() == size_of::<sys::COR_PRF_CODE_INFO>());
const _: () = assert!(size_of::<[u32; 3]>() == size_of::<sys::COR_DEBUG_IL_TO_NATIVE_MAP>());

/// Reads the ranges of one piece of code.
fn read_code_ranges(
    call: &'static str,
    mut fill: impl FnMut(u32, *mut u32, *mut sys::COR_PRF_CODE_INFO) -> HRESULT,
) -> Result<Vec<CodeRange>> {
    let ranges =
        read_list_from(call, USUAL_CODE_RANGES, |room, count, start: *mut [usize; 2]| fill(room, count, start.cast()))?;
    Ok(ranges.into_iter().map(|[start, size]| CodeRange { start, size }).collect())
}

impl Info {
    /// The function whose code `ip` lies in; none for an address outside managed code.
    ///
    /// Functions without metadata, such as dynamic methods, are not found:
    /// [`function_version_from_ip`](InTriggers::function_version_from_ip) finds them.
    #[doc = contract!(GetFunctionFromIP)]
    ///
    /// `CORPROF_E_NOT_YET_AVAILABLE`: the runtime is still starting.
    #[doc(alias = "GetFunctionFromIP")]
    #[inline]
    pub fn function_from_ip(&self, ip: usize) -> Result<Option<FunctionId>> {
        let mut function = 0;
        // SAFETY: the runtime looks the address up among those of its code and does not read there; it writes one id.
        let code = unsafe { self.as_raw().GetFunctionFromIP(std::ptr::without_provenance(ip), &mut function) };
        if code == E_FAIL {
            return Ok(None);
        }
        Error::check(code, "GetFunctionFromIP")?;
        Ok(self.found_function(function))
    }

    /// Where the native code of `function` lies: its start, and more ranges if it was split.
    ///
    /// Where there are several pieces of code, for tiers or ReJIT requests, it is one of them:
    /// [`native_code`](Self::native_code) names them all, and [`native_code_ranges`](InTriggers::native_code_ranges) says
    /// where each lies.
    #[doc = contract!(GetCodeInfo2)]
    ///
    /// `CORPROF_E_FUNCTION_NOT_COMPILED`: it has no native code yet.
    #[doc(alias = "GetCodeInfo2")]
    #[doc(alias = "GetCodeInfo")]
    pub fn code_ranges(&self, function: FunctionId) -> Result<Vec<CodeRange>> {
        const CALL: &str = "GetCodeInfo2";
        let function = self.hold(function, CALL)?;
        let info = self.as_version::<sys::ICorProfilerInfo2>(CALL)?;
        read_code_ranges(CALL, |room, count, start| {
            // SAFETY: the call writes the count and at most `room` ranges.
            unsafe { info.GetCodeInfo2(function.as_raw(), room, count, start) }
        })
    }

    /// The pieces of native code that a function was compiled to, from the body it was loaded with or, for a
    /// [`FunctionVersion`], from another: none before it is compiled, several where the
    /// runtime compiles in tiers.
    #[doc = contract!(GetNativeCodeStartAddresses)]
    #[doc(alias = "GetNativeCodeStartAddresses")]
    pub fn native_code(&self, version: impl Into<FunctionVersion>) -> Result<Vec<NativeCode>> {
        const CALL: &str = "GetNativeCodeStartAddresses";
        let info = self.as_version::<sys::ICorProfilerInfo9>(CALL)?;
        let FunctionVersion { function, rejit } = version.into();
        let function = self.hold(function, CALL)?;
        let starts = read_list(CALL, |room, count, start| {
            // SAFETY: the call writes the count and at most `room` addresses.
            unsafe { info.GetNativeCodeStartAddresses(function.as_raw(), rejit.0, room, count, start) }
        })?;
        let code = |start| NativeCode::new(start, function.id());
        Ok(starts.into_iter().filter_map(code).collect())
    }

    /// Whether `function` is dynamic: without metadata, such as a `DynamicMethod`.
    #[doc = contract!(IsFunctionDynamic)]
    #[doc(alias = "IsFunctionDynamic")]
    pub fn is_function_dynamic(&self, function: FunctionId) -> Result<bool> {
        const CALL: &str = "IsFunctionDynamic";
        let function = self.hold(function, CALL)?;
        let info = self.as_version::<sys::ICorProfilerInfo8>(CALL)?;
        let mut is_dynamic = BOOL(0);
        // SAFETY: the call writes one truth value and keeps nothing.
        Error::check(unsafe { info.IsFunctionDynamic(function.as_raw(), &mut is_dynamic) }, CALL)?;
        Ok(is_dynamic.as_bool())
    }
}

impl InCallback<'_> {
    /// Which IL each stretch of `code` came from, in no particular order.
    ///
    /// The IL is that of the body that was compiled: for a body that a profiler has set, the profiler's.
    #[doc = contract!(GetILToNativeMapping3)]
    ///
    /// `CORPROF_E_DEBUGGING_DISABLED`: the runtime keeps no mappings. `E_FAIL`: it has none for this code.
    #[doc(alias = "GetILToNativeMapping3")]
    #[doc(alias = "GetILToNativeMapping2")]
    #[doc(alias = "GetILToNativeMapping")]
    pub fn il_to_native_mapping(&self, code: NativeCode) -> Result<Vec<IlToNativeRange>> {
        const CALL: &str = "GetILToNativeMapping3";
        let _function = self.hold(code.function(), CALL)?;
        let info = self.as_version::<sys::ICorProfilerInfo9>(CALL)?;
        let ranges = read_list(CALL, |room, count, start: *mut [u32; 3]| {
            // SAFETY: the call writes the count and at most `room` entries of three numbers each.
            unsafe { info.GetILToNativeMapping3(code.as_raw(), room, count, start.cast()) }
        })?;
        Ok(ranges
            .into_iter()
            .map(|[il, native_start, native_end]| IlToNativeRange {
                il: IlOffset::from_wire(il),
                native_start,
                native_end,
            })
            .collect())
    }

    /// The functions that have been compiled just in time so far, and those that are being compiled.
    ///
    /// Bodies that came of ReJIT requests are left out: see
    /// [`jitted_function_versions`](InTriggers::jitted_function_versions).
    #[doc = contract!(EnumJITedFunctions)]
    #[doc(alias = "EnumJITedFunctions")]
    pub fn jitted_functions(&self) -> Result<Vec<FunctionId>> {
        const CALL: &str = "EnumJITedFunctions";
        let info = self.as_version::<sys::ICorProfilerInfo3>(CALL)?;
        read_all(
            CALL,
            // SAFETY: the call writes one reference and keeps nothing.
            |functions| unsafe { info.EnumJITedFunctions(functions) },
            |function: sys::COR_PRF_FUNCTION| self.found_function(function.functionId),
        )
    }
}

impl InTriggers<'_> {
    /// The functions that have been compiled just in time so far, each in every body that it was compiled from.
    #[doc = contract!(EnumJITedFunctions2)]
    #[doc(alias = "EnumJITedFunctions2")]
    pub fn jitted_function_versions(&mut self) -> Result<Vec<FunctionVersion>> {
        const CALL: &str = "EnumJITedFunctions2";
        let info = self.as_version::<sys::ICorProfilerInfo4>(CALL)?;
        read_all(
            CALL,
            // SAFETY: the call writes one reference and keeps nothing.
            |functions| unsafe { info.EnumJITedFunctions2(functions) },
            |version| FunctionVersion::from_wire(self, version),
        )
    }

    /// The function, and which of its bodies, whose code `ip` lies in; none for an address outside managed code.
    ///
    /// Dynamic methods are found too.
    #[doc = contract!(GetFunctionFromIP3)]
    ///
    /// `CORPROF_E_NOT_YET_AVAILABLE`: the runtime is still starting.
    #[doc(alias = "GetFunctionFromIP3")]
    #[doc(alias = "GetFunctionFromIP2")]
    pub fn function_version_from_ip(&mut self, ip: usize) -> Result<Option<FunctionVersion>> {
        const CALL: &str = "GetFunctionFromIP3";
        let info = self.as_version::<sys::ICorProfilerInfo8>(CALL)?;
        let (mut function, mut rejit) = (0, 0);
        // SAFETY: the runtime looks the address up among those of its code and does not read there; it writes two ids.
        let code = unsafe { info.GetFunctionFromIP3(std::ptr::without_provenance(ip), &mut function, &mut rejit) };
        if code == E_FAIL {
            return Ok(None);
        }
        Error::check(code, CALL)?;
        Ok(self.found_function(function).map(|function| FunctionVersion { function, rejit: ReJitId(rejit) }))
    }

    /// Where `code` lies: its start, and a second range if it was split.
    #[doc = contract!(GetCodeInfo4)]
    #[doc(alias = "GetCodeInfo4")]
    #[doc(alias = "GetCodeInfo3")]
    pub fn native_code_ranges(&mut self, code: NativeCode) -> Result<Vec<CodeRange>> {
        const CALL: &str = "GetCodeInfo4";
        let _function = self.hold(code.function(), CALL)?;
        let info = self.as_version::<sys::ICorProfilerInfo9>(CALL)?;
        read_code_ranges(CALL, |room, count, start| {
            // SAFETY: the call writes the count and at most `room` ranges.
            unsafe { info.GetCodeInfo4(code.as_raw(), room, count, start) }
        })
    }

    /// The bodies of `function` that are in use: [`ReJitId(0)`](ReJitId) is the one it was loaded with.
    #[doc = contract!(GetReJITIDs)]
    #[doc(alias = "GetReJITIDs")]
    pub fn rejit_ids(&mut self, function: FunctionId) -> Result<Vec<ReJitId>> {
        const CALL: &str = "GetReJITIDs";
        let function = self.hold(function, CALL)?;
        let info = self.as_version::<sys::ICorProfilerInfo4>(CALL)?;
        // The runtime refuses to be asked for the count alone.
        let ids = read_list_from(CALL, USUAL_REJIT_IDS, |room, count, start| {
            // SAFETY: the call writes the count and at most `room` ids.
            unsafe { info.GetReJITIDs(function.as_raw(), room, count, start) }
        })?;
        Ok(ids.into_iter().map(ReJitId).collect())
    }

    /// The methods of `inliners`, a precompiled (ReadyToRun) module, into which `inlinee` was inlined.
    ///
    /// With a new body for `inlinee`, these have to be compiled again as well. Methods that were compiled just in time
    /// are not among them: `jit_inlining` tells of those.
    #[doc = contract!(EnumNgenModuleMethodsInliningThisMethod)]
    ///
    /// `CORPROF_E_DATAINCOMPLETE`: the module is not precompiled, or without this information.
    #[doc(alias = "EnumNgenModuleMethodsInliningThisMethod")]
    pub fn ngen_inliners(
        &mut self,
        inliners: ModuleId,
        inlinee_module: ModuleId,
        inlinee: MethodDef,
    ) -> Result<NgenInliners> {
        const CALL: &str = "EnumNgenModuleMethodsInliningThisMethod";
        let inliners = self.hold(inliners, CALL)?;
        let inlinee_module = self.hold(inlinee_module, CALL)?;
        let info = self.as_version::<sys::ICorProfilerInfo6>(CALL)?;
        let mut is_incomplete = BOOL(0);
        let methods = read_all(
            CALL,
            // SAFETY: the call writes one truth value and one reference, and keeps nothing.
            |methods| unsafe {
                info.EnumNgenModuleMethodsInliningThisMethod(
                    inliners.as_raw(),
                    inlinee_module.as_raw(),
                    inlinee.as_raw(),
                    &mut is_incomplete,
                    methods,
                )
            },
            |method: sys::COR_PRF_METHOD| {
                ModuleId::from_raw(method.moduleId).map(|module| (module, MethodDef::from_raw(method.methodId)))
            },
        )?;
        Ok(NgenInliners { methods, is_incomplete: is_incomplete.as_bool() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_offsets_are_told_apart() {
        let wire = [0, 7, u32::MAX, u32::MAX - 1, u32::MAX - 2, u32::MAX - 3];
        assert_eq!(
            wire.map(IlOffset::from_wire),
            [
                IlOffset::At(0),
                IlOffset::At(7),
                IlOffset::NoMapping,
                IlOffset::Prolog,
                IlOffset::Epilog,
                IlOffset::At(u32::MAX - 3),
            ]
        );
    }

    #[test]
    fn a_range_ends_before_its_end() {
        let range = CodeRange { start: 100, size: 20 };
        assert_eq!(
            [99, 100, 119, 120, 0, usize::MAX].map(|at| range.contains(at)),
            [false, true, true, false, false, false]
        );
    }
}
