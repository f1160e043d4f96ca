//! ReJIT: recompiles functions from a new body while the application runs, and reverts them.
//!
//! A request only marks a function for recompilation. When the function is called next, the runtime asks
//! [`get_rejit_parameters`](crate::Callbacks::get_rejit_parameters) for its body, compiles it, and calls
//! [`rejit_compilation_finished`](crate::Callbacks::rejit_compilation_finished). Errors about a single method do not
//! appear in the result of the request, but in [`rejit_error`](crate::Callbacks::rejit_error).
//!
//! The requests belong to profiler threads: once an application's thread has made one, the runtime takes it for a
//! profiler's thread and no longer checks its calls.

use corprof_sys as sys;

use super::ProfilerThread;
use crate::error::{E_INVALIDARG, Error, Result, S_OK};
use crate::generated::contract::contract;
use crate::id::ModuleId;
use crate::info::Info;
use crate::metadata::MethodDef;
use crate::session::liveness::Pinned;

/// Methods as arguments: an array of modules and one of tokens.
struct Methods<'a> {
    /// Keeps the modules loaded until the call is over.
    _held: Vec<Pinned<'a, ModuleId>>,
    modules: Vec<sys::ModuleID>,
    tokens: Vec<sys::mdMethodDef>,
    count: u32,
}

impl<'a> Methods<'a> {
    fn new(info: &'a Info, call: &'static str, methods: &[(ModuleId, MethodDef)]) -> Result<Self> {
        let count = u32::try_from(methods.len()).map_err(|_| Error::new(E_INVALIDARG, call))?;
        let held = methods.iter().map(|&(module, _)| info.pin(module, call)).collect::<Result<Vec<_>>>()?;
        let modules = held.iter().map(Pinned::as_raw).collect();
        let tokens = methods.iter().map(|(_, method)| method.as_raw()).collect();
        Ok(Self { _held: held, modules, tokens, count })
    }
}

impl ProfilerThread<'_> {
    /// Requests recompilation of these methods, in all their instantiations, at their next call.
    ///
    /// Success means only that the requests are recorded. [`get_rejit_parameters`] is called on the thread that first
    /// calls a method, and never for a method that is not called again; a running method continues in its old code
    /// until it returns. A second request before that has no further effect; a later one makes another body.
    ///
    /// During the call the modules cannot be unloaded, and [`rejit_error`](crate::Callbacks::rejit_error) runs within
    /// it: it must not wait for the finalizer thread or for an unload, because both may be waiting for this call.
    ///
    /// On .NET 8 it waits up to half a second for compilations that have inlined something, and those that are under
    /// way inline nothing more: that runtime crashes or hangs if a method is requested while it is inlined
    /// (dotnet/runtime#95653). So `ENABLE_REJIT` turns `MONITOR_JIT_COMPILATION` on there.
    ///
    /// If a method was inlined into another, the old code remains there:
    /// [`request_rejit_with_inliners`](Self::request_rejit_with_inliners) replaces it as well.
    #[doc = contract!(RequestReJIT)]
    ///
    /// `CORPROF_E_REJIT_NOT_ENABLED`: `ENABLE_REJIT` is off; a profiler that implements [`get_rejit_parameters`] has it
    /// on. `E_INVALIDARG`: the list of methods is empty.
    ///
    /// Errors about a single method come to [`rejit_error`](crate::Callbacks::rejit_error) during this call:
    /// `E_INVALIDARG` for a token that is not a method of its module, `CORPROF_E_DATAINCOMPLETE` for a module that is
    /// being unloaded, and `CORPROF_E_MODULE_IS_DYNAMIC` for a dynamic one.
    ///
    /// Nothing at all is reported, and nothing is recompiled, for a method of a module that can be unloaded
    /// (`COR_PRF_MODULE_COLLECTIBLE`), though there is a code for it (`CORPROF_E_FUNCTION_IS_COLLECTIBLE`). An
    /// [`Instrumentation`](crate::instrumentation::Instrumentation) refuses such methods.
    ///
    /// [`get_rejit_parameters`]: crate::Callbacks::get_rejit_parameters
    #[doc(alias = "RequestReJIT")]
    pub fn request_rejit(&mut self, methods: &[(ModuleId, MethodDef)]) -> Result<()> {
        const CALL: &str = "RequestReJIT";
        self.refuse_notification_only(CALL)?;
        let info = self.as_version::<sys::ICorProfilerInfo4>(CALL)?;
        self.prevent_detach(CALL);
        let Methods { _held, modules, tokens, count } = Methods::new(self, CALL, methods)?;
        // SAFETY: the call reads `count` modules and `count` tokens, and keeps neither (fact: inputs).
        let request = || unsafe { info.RequestReJIT(count, modules.as_ptr(), tokens.as_ptr()) };
        Error::check(self.inlinings().request(request), CALL)
    }

    /// Like [`request_rejit`](Self::request_rejit); also recompiles the methods into which these were inlined, so that
    /// no caller runs the old code.
    ///
    /// The methods are not inlined any more until they are reverted. [`get_rejit_parameters`] is called for them and,
    /// if `asks_for_inliners`, for the methods that they were inlined into.
    ///
    /// Runtimes miss inliners now and then when `MONITOR_JIT_COMPILATION` is off. Turn that on, and do not rely on the
    /// old code running nowhere.
    #[doc = contract!(RequestReJITWithInliners)]
    ///
    /// `CORPROF_E_REJIT_INLINING_DISABLED`: `DISABLE_INLINING` is on, or was when the code was compiled. Otherwise as
    /// [`request_rejit`](Self::request_rejit), including [`rejit_error`](crate::Callbacks::rejit_error).
    ///
    /// [`get_rejit_parameters`]: crate::Callbacks::get_rejit_parameters
    #[doc(alias = "RequestReJITWithInliners")]
    pub fn request_rejit_with_inliners(
        &mut self,
        methods: &[(ModuleId, MethodDef)],
        asks_for_inliners: bool,
    ) -> Result<()> {
        const CALL: &str = "RequestReJITWithInliners";
        self.refuse_notification_only(CALL)?;
        let info = self.as_version::<sys::ICorProfilerInfo10>(CALL)?;
        self.prevent_detach(CALL);
        let Methods { _held, modules, tokens, count } = Methods::new(self, CALL, methods)?;
        // The runtime requires the first flag.
        let mut flags = sys::COR_PRF_REJIT_BLOCK_INLINING;
        flags.set(sys::COR_PRF_REJIT_INLINING_CALLBACKS, asks_for_inliners);
        // SAFETY: the call reads `count` modules and `count` tokens, and keeps neither (fact: inputs).
        let request =
            || unsafe { info.RequestReJITWithInliners(flags.bits(), count, modules.as_ptr(), tokens.as_ptr()) };
        Error::check(self.inlinings().request(request), CALL)
    }

    /// Reverts these methods to the body that they were loaded with; returns a result for each, in order.
    ///
    /// It takes effect at the next call of a method. A method that was not recompiled does not change, which is not an
    /// error.
    ///
    /// Callers that [`request_rejit_with_inliners`](Self::request_rejit_with_inliners) has recompiled are not reverted
    /// with the method: list them too, because from then on they call the method instead of inlining it. Reverted
    /// callers run their first code, into which the method's first body was inlined.
    #[doc = contract!(RequestRevert)]
    ///
    /// `CORPROF_E_REJIT_NOT_ENABLED`: `ENABLE_REJIT` is off. `E_INVALIDARG`: the list of methods is empty.
    ///
    /// If the runtime finds that a token is not a method, it reports that to
    /// [`rejit_error`](crate::Callbacks::rejit_error), as for a request, and not in the result here.
    #[doc(alias = "RequestRevert")]
    pub fn request_revert(&mut self, methods: &[(ModuleId, MethodDef)]) -> Result<Vec<Result<()>>> {
        const CALL: &str = "RequestRevert";
        self.refuse_notification_only(CALL)?;
        let info = self.as_version::<sys::ICorProfilerInfo4>(CALL)?;
        self.prevent_detach(CALL);
        let Methods { _held, modules, tokens, count } = Methods::new(self, CALL, methods)?;
        let mut status = vec![S_OK; methods.len()];
        // SAFETY: the call reads `count` modules and `count` tokens, writes at most `count` codes, and keeps nothing
        // (fact: inputs, outputs).
        let code = unsafe { info.RequestRevert(count, modules.as_ptr(), tokens.as_ptr(), status.as_mut_ptr()) };
        Error::check(code, CALL)?;
        Ok(status.into_iter().map(|code| Error::check(code, CALL)).collect())
    }
}
