//! Enter/leave hooks, as the runtime takes them: [`InInitialize::hook_functions`] is what profilers use.

use corprof_sys as sys;

use crate::context::{InCallback, InInitialize};
use crate::error::{Error, Result};
use crate::generated::contract::contract;
use crate::id::FunctionId;

use super::either::EitherHooks;
use super::slow::ArgumentRoom;
use super::stubs::{SlowStub, SlowStubs, Stub, Stubs};
use super::{HookKinds, Installed};

impl InInitialize<'_> {
    /// Has `hooks` asked about each function that is compiled.
    #[doc = contract!(SetFunctionIDMapper2)]
    #[doc(alias = "SetFunctionIDMapper2")]
    pub(super) fn set_function_mapper<H: EitherHooks>(&self, hooks: &'static Installed<H>) -> Result<()> {
        const CALL: &str = "SetFunctionIDMapper2";
        let info = self.as_version::<sys::ICorProfilerInfo3>(CALL)?;
        let data = std::ptr::from_ref(hooks).cast_mut().cast();
        // SAFETY: `map` takes hooks of just this type, which live for ever; the runtime makes it room for its answer.
        let code = unsafe { info.SetFunctionIDMapper2(Some(Installed::<H>::map), data) };
        Error::check(code, CALL)
    }

    /// Has compiled code call those of `stubs` that `kinds` names.
    #[doc = contract!(SetEnterLeaveFunctionHooks3)]
    #[doc(alias = "SetEnterLeaveFunctionHooks3")]
    pub(super) fn set_fast_hooks(&self, kinds: HookKinds, stubs: Stubs) -> Result<()> {
        const CALL: &str = "SetEnterLeaveFunctionHooks3";
        type Hook = unsafe extern "system" fn(sys::FunctionIDOrClientID);
        let info = self.as_version::<sys::ICorProfilerInfo3>(CALL)?;
        let hook = |kind, stub: Stub| {
            // SAFETY: only the address matters. Compiled code calls it by the rules that the stub is written for, whatever the
            // declared type says.
            kinds.contains(kind).then(|| unsafe { std::mem::transmute::<Stub, Hook>(stub) })
        };
        let enter = hook(HookKinds::ENTER, stubs.enter);
        let leave = hook(HookKinds::LEAVE, stubs.leave);
        let tailcall = hook(HookKinds::TAILCALL, stubs.tailcall);
        // SAFETY: they are functions for these three purposes, in a library that stays in memory (`corprof/src/system/linux/pin.rs` and its like).
        let code = unsafe { info.SetEnterLeaveFunctionHooks3(enter, leave, tailcall) };
        Error::check(code, CALL)
    }

    /// Has the runtime's wrapper call those of `stubs` that `kinds` names.
    #[doc = contract!(SetEnterLeaveFunctionHooks3WithInfo)]
    #[doc(alias = "SetEnterLeaveFunctionHooks3WithInfo")]
    pub(super) fn set_slow_hooks(&self, kinds: HookKinds, stubs: SlowStubs) -> Result<()> {
        const CALL: &str = "SetEnterLeaveFunctionHooks3WithInfo";
        type Hook = unsafe extern "system" fn(sys::FunctionIDOrClientID, sys::COR_PRF_ELT_INFO);
        let info = self.as_version::<sys::ICorProfilerInfo3>(CALL)?;
        let hook = |kind, stub: SlowStub| {
            // SAFETY: the stub takes two words as C does, which on the processors that there are stubs for is how a union and
            // an integer of that size are passed, by the rules of the system.
            kinds.contains(kind).then(|| unsafe { std::mem::transmute::<SlowStub, Hook>(stub) })
        };
        let enter = hook(HookKinds::ENTER, stubs.enter);
        let leave = hook(HookKinds::LEAVE, stubs.leave);
        let tailcall = hook(HookKinds::TAILCALL, stubs.tailcall);
        // SAFETY: they are functions for these three purposes, in a library that stays in memory (`corprof/src/system/linux/pin.rs` and its like).
        let code = unsafe { info.SetEnterLeaveFunctionHooks3WithInfo(enter, leave, tailcall) };
        Error::check(code, CALL)
    }
}

impl InCallback<'_> {
    /// Where the arguments of a function that begins are, and its frame info, as far as the event mask has them.
    #[doc = contract!(GetFunctionEnter3Info)]
    ///
    /// `HRESULT_FROM_WIN32(ERROR_INSUFFICIENT_BUFFER)`: there are too many; the frame info is there all the same.
    ///
    /// # Safety
    /// `elt` is what the runtime gave to the enter hook of `function` that is under way on this thread.
    #[doc(alias = "GetFunctionEnter3Info")]
    pub(super) unsafe fn function_enter_info(
        &self,
        function: FunctionId,
        elt: sys::COR_PRF_ELT_INFO,
        frame: &mut sys::COR_PRF_FRAME_INFO,
        room: &mut ArgumentRoom,
    ) -> Result<()> {
        const CALL: &str = "GetFunctionEnter3Info";
        let info = self.as_version::<sys::ICorProfilerInfo3>(CALL)?;
        let (arguments, mut size) = room.as_raw();
        // SAFETY: the caller vouches for `elt`; the call writes the frame info, and at most as many bytes as there is room for.
        let code = unsafe { info.GetFunctionEnter3Info(function.as_raw(), elt, frame, &mut size, arguments) };
        Error::check(code, CALL)
    }

    /// Where the result of a function that returns is, and its frame info, as far as the event mask has them.
    #[doc = contract!(GetFunctionLeave3Info)]
    ///
    /// # Safety
    /// `elt` is what the runtime gave to the leave hook of `function` that is under way on this thread.
    #[doc(alias = "GetFunctionLeave3Info")]
    pub(super) unsafe fn function_leave_info(
        &self,
        function: FunctionId,
        elt: sys::COR_PRF_ELT_INFO,
        frame: &mut sys::COR_PRF_FRAME_INFO,
        range: &mut sys::COR_PRF_FUNCTION_ARGUMENT_RANGE,
    ) -> Result<()> {
        const CALL: &str = "GetFunctionLeave3Info";
        let info = self.as_version::<sys::ICorProfilerInfo3>(CALL)?;
        // SAFETY: the caller vouches for `elt`; the call writes the frame info and the range.
        let code = unsafe { info.GetFunctionLeave3Info(function.as_raw(), elt, frame, range) };
        Error::check(code, CALL)
    }

    /// The frame info of a function that ends in a tail call.
    #[doc = contract!(GetFunctionTailcall3Info)]
    ///
    /// # Safety
    /// `elt` is what the runtime gave to the tailcall hook of `function` that is under way on this thread.
    #[doc(alias = "GetFunctionTailcall3Info")]
    pub(super) unsafe fn function_tailcall_info(
        &self,
        function: FunctionId,
        elt: sys::COR_PRF_ELT_INFO,
        frame: &mut sys::COR_PRF_FRAME_INFO,
    ) -> Result<()> {
        const CALL: &str = "GetFunctionTailcall3Info";
        let info = self.as_version::<sys::ICorProfilerInfo3>(CALL)?;
        // SAFETY: the caller vouches for `elt`; the call writes the frame info.
        let code = unsafe { info.GetFunctionTailcall3Info(function.as_raw(), elt, frame) };
        Error::check(code, CALL)
    }
}
