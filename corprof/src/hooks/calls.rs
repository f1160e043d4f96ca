//! The calls to the runtime that set enter/leave hooks. Profilers use [`InInitialize::hooks`].

use corprof_sys as sys;

use crate::context::{InInitialize, InNoGc};
use crate::error::{Error, Result};
use crate::generated::contract::contract;
use crate::id::FunctionId;

use super::slow::ArgumentRoom;
use super::stubs::{SlowStub, SlowStubs, Stub, Stubs};
use super::{FunctionHooks, HookKinds, Installed};

impl InInitialize<'_> {
    /// Makes the runtime ask `hooks` about each function that it compiles.
    #[doc = contract!(SetFunctionIDMapper2)]
    #[doc(alias = "SetFunctionIDMapper2")]
    pub(super) fn set_function_mapper<H: FunctionHooks>(&self, hooks: &'static Installed<H>) -> Result<()> {
        const CALL: &str = "SetFunctionIDMapper2";
        let info = self.as_version::<sys::ICorProfilerInfo3>(CALL)?;
        let data = std::ptr::from_ref(hooks).cast_mut().cast();
        // SAFETY: `map` expects hooks of exactly this type, which live for ever; the runtime passes room for the answer
        // (fact: hook-calls).
        let code = unsafe { info.SetFunctionIDMapper2(Some(Installed::<H>::map), data) };
        Error::check(code, CALL)
    }

    /// Makes compiled code call the stubs of the kinds in `kinds`.
    #[doc = contract!(SetEnterLeaveFunctionHooks3)]
    #[doc(alias = "SetEnterLeaveFunctionHooks3")]
    pub(super) fn set_fast_hooks(&self, kinds: HookKinds, stubs: Stubs) -> Result<()> {
        const CALL: &str = "SetEnterLeaveFunctionHooks3";
        type Hook = unsafe extern "system" fn(sys::FunctionIDOrClientID);
        let info = self.as_version::<sys::ICorProfilerInfo3>(CALL)?;
        let hook = |kind, stub: Stub| {
            // SAFETY: only the address matters: compiled code calls it by the convention that the stub is written for,
            // whatever the declared type says (fact: hook-calls).
            kinds.contains(kind).then(|| unsafe { std::mem::transmute::<Stub, Hook>(stub) })
        };
        let enter = hook(HookKinds::ENTER, stubs.enter);
        let leave = hook(HookKinds::LEAVE, stubs.leave);
        let tailcall = hook(HookKinds::TAILCALL, stubs.tailcall);
        // SAFETY: these are functions with the right signatures for the three hooks, in a library that stays in memory
        // (`corprof/src/system/linux/pin.rs` and its counterparts) (fact: hook-calls).
        let code = unsafe { info.SetEnterLeaveFunctionHooks3(enter, leave, tailcall) };
        Error::check(code, CALL)
    }

    /// Makes the runtime's wrapper call the stubs of the kinds in `kinds`.
    #[doc = contract!(SetEnterLeaveFunctionHooks3WithInfo)]
    #[doc(alias = "SetEnterLeaveFunctionHooks3WithInfo")]
    pub(super) fn set_slow_hooks(&self, kinds: HookKinds, stubs: SlowStubs) -> Result<()> {
        const CALL: &str = "SetEnterLeaveFunctionHooks3WithInfo";
        type Hook = unsafe extern "system" fn(sys::FunctionIDOrClientID, sys::COR_PRF_ELT_INFO);
        let info = self.as_version::<sys::ICorProfilerInfo3>(CALL)?;
        let hook = |kind, stub: SlowStub| {
            // SAFETY: the stub takes two words as C does. On all processors with stubs, the system's convention passes
            // a union and an integer of that size in the same way (fact: hook-calls).
            kinds.contains(kind).then(|| unsafe { std::mem::transmute::<SlowStub, Hook>(stub) })
        };
        let enter = hook(HookKinds::ENTER, stubs.enter);
        let leave = hook(HookKinds::LEAVE, stubs.leave);
        let tailcall = hook(HookKinds::TAILCALL, stubs.tailcall);
        // SAFETY: these are functions with the right signatures for the three hooks, in a library that stays in memory
        // (`corprof/src/system/linux/pin.rs` and its counterparts) (fact: hook-calls).
        let code = unsafe { info.SetEnterLeaveFunctionHooks3WithInfo(enter, leave, tailcall) };
        Error::check(code, CALL)
    }
}

impl InNoGc<'_> {
    /// The places of the arguments of a function that begins, and its frame info, as far as the event mask asks for
    /// them.
    #[doc = contract!(GetFunctionEnter3Info)]
    ///
    /// `HRESULT_FROM_WIN32(ERROR_INSUFFICIENT_BUFFER)`: there are more arguments than room; the frame info is written
    /// all the same.
    ///
    /// # Safety
    /// `elt` is the value that the runtime passed to the enter hook of `function` which is under way on this thread.
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
        // SAFETY: the caller vouches for `elt`; the call writes the frame info, and at most as many bytes as there is
        // room for (fact: hook-values).
        let code = unsafe { info.GetFunctionEnter3Info(function.as_raw(), elt, frame, &mut size, arguments) };
        Error::check(code, CALL)
    }

    /// The place of the result of a function that returns, and its frame info, as far as the event mask asks for them.
    #[doc = contract!(GetFunctionLeave3Info)]
    ///
    /// # Safety
    /// `elt` is the value that the runtime passed to the leave hook of `function` which is under way on this thread.
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
        // SAFETY: the caller vouches for `elt`; the call writes the frame info and the range (fact: hook-values).
        let code = unsafe { info.GetFunctionLeave3Info(function.as_raw(), elt, frame, range) };
        Error::check(code, CALL)
    }

    /// The frame info of a function that ends in a tail call.
    #[doc = contract!(GetFunctionTailcall3Info)]
    ///
    /// # Safety
    /// `elt` is the value that the runtime passed to the tailcall hook of `function` which is under way on this thread.
    #[doc(alias = "GetFunctionTailcall3Info")]
    pub(super) unsafe fn function_tailcall_info(
        &self,
        function: FunctionId,
        elt: sys::COR_PRF_ELT_INFO,
        frame: &mut sys::COR_PRF_FRAME_INFO,
    ) -> Result<()> {
        const CALL: &str = "GetFunctionTailcall3Info";
        let info = self.as_version::<sys::ICorProfilerInfo3>(CALL)?;
        // SAFETY: the caller vouches for `elt`; the call writes the frame info (fact: hook-values).
        let code = unsafe { info.GetFunctionTailcall3Info(function.as_raw(), elt, frame) };
        Error::check(code, CALL)
    }
}
