//! Native code: compiled functions and the addresses of their code.

use std::time::{Duration, Instant};

use corprof_sys as sys;
use windows_core::{BOOL, HRESULT};

use crate::context::{InCallback, InNoGc};
use crate::error::{Error, Result};
use crate::ffi::buffer::{read_list, read_list_from};
use crate::ffi::enumerate::read_all;
use crate::generated::contract::contract;
use crate::id::{CodeAddress, FunctionId, ModuleId, NativeCode, ReJitId};
use crate::info::Info;
use crate::metadata::MethodDef;
use crate::session::liveness::{LookUp, Pinned, dead};
use crate::session::searches::Searches;

/// A function in one of its bodies: the one that it was loaded with, or one of a ReJIT request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FunctionVersion {
    /// The function.
    pub function: FunctionId,
    /// The id of the body.
    pub rejit: ReJitId,
}

impl From<FunctionId> for FunctionVersion {
    /// The function with the body that it was loaded with.
    fn from(function: FunctionId) -> Self {
        Self { function, rejit: ReJitId(0) }
    }
}

/// A range of memory with native code.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct CodeRange {
    /// Its first byte.
    pub start: usize,
    /// Its size in bytes.
    pub size: usize,
}

impl CodeRange {
    /// Whether it contains `address`.
    pub const fn contains(self, address: usize) -> bool {
        address.wrapping_sub(self.start) < self.size
    }
}

/// A range of native code, with the IL that it was compiled from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct IlToNativeRange {
    /// The place in the IL.
    pub il: IlOffset,
    /// Its first byte, as an offset from the start of the native code.
    pub native_start: u32,
    /// The byte after the last.
    pub native_end: u32,
}

/// A place in the IL of a function, or the reason why there is none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum IlOffset {
    /// The instruction at this offset in the code, without the header.
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
    /// Whether the list may lack methods, because not all modules to search are loaded.
    pub is_incomplete: bool,
}

/// A compiler makes a hot and a cold range at most.
const USUAL_CODE_RANGES: usize = 2;

/// Room for the bodies of a function that is instrumented now and then.
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
    /// The function whose code contains `ip`; none if the code is gone, or is the runtime's own.
    ///
    /// Functions without metadata, such as dynamic methods, are not found;
    /// [`function_version_from_ip`](InCallback::function_version_from_ip) finds them.
    ///
    #[doc = contract!(GetFunctionFromIP)]
    ///
    /// `CORPROF_E_NOT_YET_AVAILABLE`: the runtime is still starting. `CORPROF_E_SUSPENSION_IN_PROGRESS`: outside of
    /// callbacks, or in one on a [`ProfilerThread`](crate::ProfilerThread), while another thread has suspended the
    /// runtime, which may be removing code; ask again a moment later.
    /// `CORPROF_E_UNSUPPORTED_CALL_SEQUENCE`: in `runtime_thread_suspended`, `runtime_thread_resumed` and
    /// `thread_destroyed` on a thread that ends, or of which no other callback has shown that it lives; .NET 11 would
    /// end the process. So on a thread of the application outside of callbacks: it may be in a destructor of its data
    /// (`thread_local!`). From .NET 11 on, a thread that is neither the application's nor a [`ProfilerThread`](crate::ProfilerThread) has
    /// another one search, which takes some ten microseconds.
    #[doc(alias = "GetFunctionFromIP")]
    #[inline]
    pub fn function_from_ip(&self, ip: CodeAddress) -> Result<Option<FunctionId>> {
        if !self.liveness().is_unloading_possible() {
            let function = self.runtime().ask_function_at(ip)?;
            // If unloading has become possible meanwhile, the function may already be gone.
            if !self.liveness().is_unloading_possible() {
                return Ok(function.and_then(FunctionId::from_raw));
            }
        }
        self.function_at(ip)
    }

    /// Like [`function_from_ip`](Self::function_from_ip), once something can be unloaded.
    #[cold]
    fn function_at(&self, ip: CodeAddress) -> Result<Option<FunctionId>> {
        let look_up = self.liveness().look_up();
        self.find(&look_up, || self.runtime().ask_function_at(ip))
    }

    /// The function found by a look-up, if it is alive.
    fn find(&self, look_up: &LookUp<'_>, ask: impl Fn() -> Result<Option<usize>>) -> Result<Option<FunctionId>> {
        let Some(found) = ask()? else { return Ok(None) };
        if let Some(function) = self.found_function(found, false, look_up) {
            return Ok(Some(function));
        }
        // It is recorded as dead. If all dead code has been removed, a function found from then on is alive.
        if !self.liveness().is_all_gone(self.runtime()) {
            return Ok(None);
        }
        let found = ask()?;
        Ok(found.and_then(|found| self.found_function(found, true, look_up)))
    }

    /// An error if the code is gone: its function may have died, and its identifier may have been reused.
    fn check_code(&self, code: NativeCode, function: &Pinned<'_, FunctionId>, call: &'static str) -> Result<()> {
        if !self.liveness().is_unloading_possible() {
            return Ok(());
        }
        match self.runtime().ask_function_at(code.into())? {
            Some(found) if found == function.as_raw() => Ok(()),
            None if self.is_function_dynamic(function.id())? => Ok(()),
            _ => Err(dead::<FunctionId>(call)),
        }
    }

    /// The native code of `function`: its start, and a second range if it was split.
    ///
    /// If there are several pieces of code, for tiers or ReJIT requests, this is one of them:
    /// [`native_code`](Self::native_code) lists them all, and [`native_code_ranges`](InCallback::native_code_ranges)
    /// gives the ranges of each.
    #[doc = contract!(GetCodeInfo2)]
    ///
    /// `CORPROF_E_FUNCTION_NOT_COMPILED`: it has no native code yet. `CORPROF_E_SUSPENSION_IN_PROGRESS`,
    /// `CORPROF_E_UNSUPPORTED_CALL_SEQUENCE`: as for [`function_from_ip`](Self::function_from_ip).
    #[doc(alias = "GetCodeInfo2")]
    #[doc(alias = "GetCodeInfo")]
    pub fn code_ranges(&self, function: FunctionId) -> Result<Vec<CodeRange>> {
        const CALL: &str = "GetCodeInfo2";
        let function = self.pin(function, CALL)?;
        let raw = function.as_raw();
        self.runtime().search(CALL, move |runtime, kind| {
            let _search = runtime.begin_search_for_held(kind, CALL)?;
            let info = runtime.as_version::<sys::ICorProfilerInfo2>(CALL)?;
            read_code_ranges(CALL, |room, count, start| {
                // SAFETY: the caller has pinned the function, and waits; the search keeps the runtime's lists as they
                // are; the call writes the count and at most `room` ranges (fact: pinned, outputs).
                unsafe { info.GetCodeInfo2(raw, room, count, start) }
            })
        })
    }

    /// The pieces of native code that a function was compiled to, from the body that it was loaded with or, for a
    /// [`FunctionVersion`], from another: none before it is compiled, several if the runtime compiles in tiers.
    #[doc = contract!(GetNativeCodeStartAddresses)]
    #[doc(alias = "GetNativeCodeStartAddresses")]
    pub fn native_code(&self, version: impl Into<FunctionVersion>) -> Result<Vec<NativeCode>> {
        const CALL: &str = "GetNativeCodeStartAddresses";
        let info = self.as_version::<sys::ICorProfilerInfo9>(CALL)?;
        let FunctionVersion { function, rejit } = version.into();
        let function = self.pin(function, CALL)?;
        let starts = read_list(CALL, |room, count, start| {
            // SAFETY: the function is pinned; the call writes the count and at most `room` addresses (fact: pinned,
            // outputs).
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
        let function = self.pin(function, CALL)?;
        let info = self.as_version::<sys::ICorProfilerInfo8>(CALL)?;
        let mut is_dynamic = BOOL(0);
        // SAFETY: the function is pinned, or its memory stays (a dynamic method's); the call writes one truth value and
        // keeps nothing (fact: pinned, outputs).
        Error::check(unsafe { info.IsFunctionDynamic(function.as_raw(), &mut is_dynamic) }, CALL)?;
        Ok(is_dynamic.as_bool())
    }
}

impl InNoGc<'_> {
    /// The mapping from ranges of `code` to IL, in no particular order.
    ///
    /// The IL is the body that was compiled: if a profiler has replaced the body, the profiler's.
    #[doc = contract!(GetILToNativeMapping3)]
    ///
    /// `CORPROF_E_DEBUGGING_DISABLED`: the runtime keeps no mappings. `E_FAIL`: it has no mapping for this code.
    /// `CORPROF_E_SUSPENSION_IN_PROGRESS`, `CORPROF_E_UNSUPPORTED_CALL_SEQUENCE`: as for
    /// [`function_from_ip`](Info::function_from_ip).
    #[doc(alias = "GetILToNativeMapping3")]
    #[doc(alias = "GetILToNativeMapping2")]
    #[doc(alias = "GetILToNativeMapping")]
    pub fn il_to_native_mapping(&self, code: NativeCode) -> Result<Vec<IlToNativeRange>> {
        const CALL: &str = "GetILToNativeMapping3";
        let function = self.pin(code.function(), CALL)?;
        self.check_code(code, &function, CALL)?;
        let ranges = self.runtime().search(CALL, move |runtime, kind| {
            let _search = runtime.begin_search_for_held(kind, CALL)?;
            let info = runtime.as_version::<sys::ICorProfilerInfo9>(CALL)?;
            read_list(CALL, |room, count, start: *mut [u32; 3]| {
                // SAFETY: the caller has pinned the function, to which the code belongs, and waits; the search keeps
                // the runtime's lists as they are; the call writes the count and at most `room` entries of three
                // numbers each (fact: pinned, outputs).
                unsafe { info.GetILToNativeMapping3(code.as_raw(), room, count, start.cast()) }
            })
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
}

impl InCallback<'_> {
    /// The function whose code contains `ip`, and the body that it was compiled from; none if the code is gone.
    ///
    /// Dynamic methods are found too. Outside of callbacks the call waits while the runtime is suspended.
    #[doc = contract!(GetFunctionFromIP3)]
    ///
    /// `CORPROF_E_NOT_YET_AVAILABLE`: the runtime is still starting. `CORPROF_E_SUSPENSION_IN_PROGRESS`: it was
    /// suspended for ten seconds.
    #[doc(alias = "GetFunctionFromIP3")]
    #[doc(alias = "GetFunctionFromIP2")]
    pub fn function_version_from_ip(&mut self, ip: CodeAddress) -> Result<Option<FunctionVersion>> {
        self.when_resumed(|| self.version_from_ip(ip))
    }

    fn version_from_ip(&self, ip: CodeAddress) -> Result<Option<FunctionVersion>> {
        const CALL: &str = "GetFunctionFromIP3";
        let look_up = self.liveness().look_up();
        // Without the body first: to find the body, the runtime reads the function's module and type arguments, which
        // may be gone.
        let ask = || self.runtime().ask_any_function_at(ip);
        let Some(function) = self.find(&look_up, ask)? else { return Ok(None) };
        let Ok(held) = self.pin(function, CALL) else { return Ok(None) };
        let found = self.runtime().ask_held_version_at(ip)?;
        // A different function if the code of a dynamic method was replaced meanwhile.
        let found = found.filter(|&(found, _)| found == held.as_raw());
        if found.is_some() {
            self.note_older_dynamic_method(function);
        }
        Ok(found.map(|(_, rejit)| FunctionVersion { function, rejit: ReJitId(rejit) }))
    }

    /// Records a dynamic method that is older than the profiler, and was found after the ends of all are reported: its
    /// name can be asked for then.
    fn note_older_dynamic_method(&self, function: FunctionId) {
        let liveness = self.liveness();
        if !liveness.watches_older_dynamic_methods() || liveness.is_watched(function) {
            return;
        }
        if self.is_function_dynamic(function) == Ok(true) {
            liveness.dynamic_method_found(function.as_raw());
        }
    }

    /// Asks again after each suspension of the runtime that has come in between, where the call may wait.
    fn when_resumed<T>(&self, ask: impl Fn() -> Result<T>) -> Result<T> {
        /// Collections are shorter, but the machine may be busy.
        const PATIENCE: Duration = Duration::from_secs(10);
        let begin = Instant::now();
        let gives_up = || begin.elapsed() > PATIENCE || self.profiler_threads().is_stopping();
        loop {
            match ask() {
                Err(error) if Searches::is_passing(&error) && !gives_up() => self.runtime().searches().wait(gives_up),
                answer => return answer,
            }
        }
    }

    /// The ranges of `code`: its start, and a second range if it was split. Outside of callbacks the call waits while
    /// the runtime is suspended.
    #[doc = contract!(GetCodeInfo4)]
    #[doc(alias = "GetCodeInfo4")]
    #[doc(alias = "GetCodeInfo3")]
    pub fn native_code_ranges(&mut self, code: NativeCode) -> Result<Vec<CodeRange>> {
        self.when_resumed(|| self.ranges_of(code))
    }

    fn ranges_of(&self, code: NativeCode) -> Result<Vec<CodeRange>> {
        const CALL: &str = "GetCodeInfo4";
        let function = self.pin(code.function(), CALL)?;
        self.check_code(code, &function, CALL)?;
        self.runtime().search(CALL, move |runtime, kind| {
            let _search = runtime.begin_search_for_held(kind, CALL)?;
            let info = runtime.as_version::<sys::ICorProfilerInfo9>(CALL)?;
            read_code_ranges(CALL, |room, count, start| {
                // SAFETY: the caller has pinned the function, to which the code belongs, and waits; the search keeps
                // the runtime's lists as they are; the call writes the count and at most `room` ranges (fact: pinned,
                // outputs).
                unsafe { info.GetCodeInfo4(code.as_raw(), room, count, start) }
            })
        })
    }

    /// All bodies that `function` has had so far, the oldest first: [`ReJitId(0)`](ReJitId) is the one that it was
    /// loaded with, and each other comes from a ReJIT request that has taken effect.
    ///
    /// The list includes bodies that have been replaced or reverted, so it does not say which one is called now.
    /// [`function_version_from_ip`](Self::function_version_from_ip) tells which one a frame runs.
    #[doc = contract!(GetReJITIDs)]
    #[doc(alias = "GetReJITIDs")]
    pub fn rejit_ids(&mut self, function: FunctionId) -> Result<Vec<ReJitId>> {
        const CALL: &str = "GetReJITIDs";
        let function = self.pin(function, CALL)?;
        let info = self.as_version::<sys::ICorProfilerInfo4>(CALL)?;
        // The runtime refuses a call for the count alone.
        let ids = read_list_from(CALL, USUAL_REJIT_IDS, |room, count, start| {
            // SAFETY: the function is pinned; the call writes the count and at most `room` ids (fact: pinned, outputs).
            unsafe { info.GetReJITIDs(function.as_raw(), room, count, start) }
        })?;
        Ok(with_first_body(ids))
    }

    /// The methods of `inliners`, a precompiled (ReadyToRun) module, into which `inlinee` was inlined.
    ///
    /// A new body for `inlinee` requires compiling these again. Methods that were compiled just in time are not in the
    /// list: `jit_inlining` reports those.
    #[doc = contract!(EnumNgenModuleMethodsInliningThisMethod)]
    ///
    /// `CORPROF_E_DATAINCOMPLETE`: the module is not precompiled, or lacks this information.
    #[doc(alias = "EnumNgenModuleMethodsInliningThisMethod")]
    pub fn ngen_inliners(
        &mut self,
        inliners: ModuleId,
        inlinee_module: ModuleId,
        inlinee: MethodDef,
    ) -> Result<NgenInliners> {
        const CALL: &str = "EnumNgenModuleMethodsInliningThisMethod";
        let inliners = self.pin(inliners, CALL)?;
        let inlinee_module = self.pin(inlinee_module, CALL)?;
        let info = self.as_version::<sys::ICorProfilerInfo6>(CALL)?;
        let mut is_incomplete = BOOL(0);
        let methods = read_all(
            CALL,
            // SAFETY: both modules are pinned; the call writes one truth value and one reference, and keeps nothing
            // (fact: pinned, outputs).
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

/// The bodies that the runtime lists, preceded by the one that the function was loaded with: .NET 11 leaves it out.
fn with_first_body(listed: Vec<usize>) -> Vec<ReJitId> {
    let later = listed.into_iter().filter(|&id| id != 0);
    std::iter::once(0).chain(later).map(ReJitId).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_body_is_listed_whether_the_runtime_lists_it_or_not() {
        let first = vec![ReJitId(0)];
        let both = vec![ReJitId(0), ReJitId(2)];
        assert_eq!([vec![0], vec![]].map(with_first_body), [first.clone(), first]);
        assert_eq!([vec![0, 2], vec![2]].map(with_first_body), [both.clone(), both]);
    }

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
