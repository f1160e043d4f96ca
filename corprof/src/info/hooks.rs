//! Enter/leave hooks, as the runtime takes them: [`InInitialize::hook_functions`] is what profilers use.

use corprof_sys as sys;

use crate::context::InInitialize;
use crate::error::{Error, Result};
use crate::generated::contract::contract;
use crate::hooks::{FunctionHooks, HookKinds, Installed, Stub, Stubs};

impl InInitialize<'_> {
    /// Has `hooks` asked about each function that is compiled.
    #[doc = contract!(SetFunctionIDMapper2)]
    #[doc(alias = "SetFunctionIDMapper2")]
    pub(crate) fn set_function_mapper<H: FunctionHooks>(&self, hooks: &'static Installed<H>) -> Result<()> {
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
    pub(crate) fn set_fast_hooks(&self, kinds: HookKinds, stubs: Stubs) -> Result<()> {
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
        // SAFETY: they are functions for these three purposes, in a library that stays in memory (`adapter/pin.rs`).
        let code = unsafe { info.SetEnterLeaveFunctionHooks3(enter, leave, tailcall) };
        Error::check(code, CALL)
    }
}
