//! ReJIT: functions that are compiled anew while the application runs, from a body that the profiler gives them, and the way
//! back.
//!
//! A request only notes that a function is to be compiled anew. When it is called next, the runtime asks
//! [`get_rejit_parameters`](crate::Callbacks::get_rejit_parameters) for its body, compiles it, and tells
//! [`rejit_compilation_finished`](crate::Callbacks::rejit_compilation_finished). What is wrong with a method is not the
//! answer of the request, but told to [`rejit_error`](crate::Callbacks::rejit_error).
//!
//! The requests belong to profiler threads: a thread of the application that has made one is no longer checked
//! by the runtime, which takes it for the profiler's from then on.

use corprof_sys as sys;

use super::ProfilerThread;
use crate::error::{E_INVALIDARG, Error, Result, S_OK};
use crate::generated::contract::contract;
use crate::id::ModuleId;
use crate::info::Info;
use crate::metadata::MethodDef;
use crate::session::liveness::Pinned;

/// Methods as the runtime takes them: modules and tokens side by side.
struct Methods<'a> {
    /// None of them goes before the call is over.
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
    /// Asks for these methods to be compiled anew, in all their instantiations, when they are called next.
    ///
    /// Success says that the requests are noted, no more. [`get_rejit_parameters`] is called on the thread that calls a
    /// method first, and never for a method that nobody calls again; a method that is running goes on in its old code until
    /// it is left. Asking twice before that is the same as once, and asking later makes another body.
    ///
    /// As long as the call lasts, the modules are kept from being unloaded, and [`rejit_error`](crate::Callbacks::rejit_error)
    /// runs within it: it must not wait for the finalizer thread or for an unload, each of which may be waiting for this call.
    ///
    /// Where a method has been inlined into another, the old code lives on there:
    /// [`request_rejit_with_inliners`](Self::request_rejit_with_inliners) reaches it.
    #[doc = contract!(RequestReJIT)]
    ///
    /// `CORPROF_E_REJIT_NOT_ENABLED`: `ENABLE_REJIT` is off; a profiler that implements [`get_rejit_parameters`] has it on.
    /// `E_INVALIDARG`: no method is given.
    ///
    /// What is wrong with a single method comes to [`rejit_error`](crate::Callbacks::rejit_error) while this call is made:
    /// `E_INVALIDARG` for a token that names no method of its module, `CORPROF_E_DATAINCOMPLETE` for a module that is
    /// being unloaded, `CORPROF_E_MODULE_IS_DYNAMIC` and `CORPROF_E_FUNCTION_IS_COLLECTIBLE` for code that cannot be
    /// compiled anew.
    ///
    /// [`get_rejit_parameters`]: crate::Callbacks::get_rejit_parameters
    #[doc(alias = "RequestReJIT")]
    pub fn request_rejit(&mut self, methods: &[(ModuleId, MethodDef)]) -> Result<()> {
        const CALL: &str = "RequestReJIT";
        let info = self.as_version::<sys::ICorProfilerInfo4>(CALL)?;
        self.prevent_detach(CALL);
        let Methods { _held, modules, tokens, count } = Methods::new(self, CALL, methods)?;
        // SAFETY: the call reads `count` modules and `count` tokens, and keeps neither.
        Error::check(unsafe { info.RequestReJIT(count, modules.as_ptr(), tokens.as_ptr()) }, CALL)
    }

    /// Asks as [`request_rejit`](Self::request_rejit) does, and has the methods into which these were inlined compiled anew
    /// as well, so that no caller runs the old code.
    ///
    /// The methods are not inlined any more until they are reverted. [`get_rejit_parameters`] is called for them and, if
    /// `asks_for_inliners`, for those that they were inlined into.
    ///
    /// Some runtimes miss inliners: .NET 6 and before those in precompiled modules of which not every method is loaded, and
    /// all of them now and then when `MONITOR_JIT_COMPILATION` is off. Turn that on, and do not take it for granted that
    /// the old code runs nowhere.
    #[doc = contract!(RequestReJITWithInliners)]
    ///
    /// `CORPROF_E_REJIT_INLINING_DISABLED`: `DISABLE_INLINING` is on, or was when the code was compiled. Otherwise as
    /// [`request_rejit`](Self::request_rejit), [`rejit_error`](crate::Callbacks::rejit_error) included.
    ///
    /// [`get_rejit_parameters`]: crate::Callbacks::get_rejit_parameters
    #[doc(alias = "RequestReJITWithInliners")]
    pub fn request_rejit_with_inliners(
        &mut self,
        methods: &[(ModuleId, MethodDef)],
        asks_for_inliners: bool,
    ) -> Result<()> {
        const CALL: &str = "RequestReJITWithInliners";
        let info = self.as_version::<sys::ICorProfilerInfo10>(CALL)?;
        self.prevent_detach(CALL);
        let Methods { _held, modules, tokens, count } = Methods::new(self, CALL, methods)?;
        // The runtime insists on the first flag.
        let mut flags = sys::COR_PRF_REJIT_BLOCK_INLINING;
        flags.set(sys::COR_PRF_REJIT_INLINING_CALLBACKS, asks_for_inliners);
        // SAFETY: the call reads `count` modules and `count` tokens, and keeps neither.
        let code = unsafe { info.RequestReJITWithInliners(flags.bits(), count, modules.as_ptr(), tokens.as_ptr()) };
        Error::check(code, CALL)
    }

    /// Lets these methods run again from the body that they were loaded with; says of each how that went, in their order.
    ///
    /// It takes effect with the next call of a method. A method that was not compiled anew stays as it is, which is no
    /// error.
    ///
    /// Callers that [`request_rejit_with_inliners`](Self::request_rejit_with_inliners) has had compiled anew are not
    /// reverted with the method: name them too, for they call it rather than inline it from then on. Callers that are
    /// reverted run their first code, into which the method's first body was inlined.
    #[doc = contract!(RequestRevert)]
    ///
    /// `CORPROF_E_REJIT_NOT_ENABLED`: `ENABLE_REJIT` is off. `E_INVALIDARG`: no method is given.
    ///
    /// A method that the runtime finds to be none at all is told to [`rejit_error`](crate::Callbacks::rejit_error), as with
    /// a request, and not by its status here.
    #[doc(alias = "RequestRevert")]
    pub fn request_revert(&mut self, methods: &[(ModuleId, MethodDef)]) -> Result<Vec<Result<()>>> {
        const CALL: &str = "RequestRevert";
        let info = self.as_version::<sys::ICorProfilerInfo4>(CALL)?;
        self.prevent_detach(CALL);
        let Methods { _held, modules, tokens, count } = Methods::new(self, CALL, methods)?;
        let mut status = vec![S_OK; methods.len()];
        // SAFETY: the call reads `count` modules and `count` tokens, writes at most `count` codes, and keeps nothing.
        let code = unsafe { info.RequestRevert(count, modules.as_ptr(), tokens.as_ptr(), status.as_mut_ptr()) };
        Error::check(code, CALL)?;
        Ok(status.into_iter().map(|code| Error::check(code, CALL)).collect())
    }
}
