//! Threads.

use corprof_sys as sys;

use crate::context::{InCallback, InNoGc};
use crate::error::{E_INVALIDARG, Error, Result};
use crate::event_mask::Phase;
use crate::ffi::enumerate::read_all;
use crate::generated::contract::contract;
use crate::id::{AppDomainId, ContextId, ThreadId};
use crate::info::Info;
use crate::names::Name;
use crate::session::{Attaching, profiler_threads};

impl Info {
    /// The managed thread that the calling thread carries; none on a thread that never ran managed code.
    #[doc = contract!(GetCurrentThreadID)]
    #[doc(alias = "GetCurrentThreadID")]
    pub fn current_thread(&self) -> Result<Option<ThreadId>> {
        const CALL: &str = "GetCurrentThreadID";
        let mut thread = 0;
        // SAFETY: the call writes one id and keeps nothing (fact: outputs).
        let code = unsafe { self.first_version(CALL)?.GetCurrentThreadID(&mut thread) };
        if code == sys::CORPROF_E_NOT_MANAGED_THREAD {
            return Ok(None);
        }
        Error::check(code, CALL)?;
        Ok(self.thread(thread))
    }

    /// The application domain that `thread` runs in.
    #[doc = contract!(GetThreadAppDomain)]
    ///
    /// `E_INVALIDARG`: `thread` has not started yet. `COR_E_OBJECTDISPOSED`: it has ended.
    #[doc(alias = "GetThreadAppDomain")]
    pub fn thread_app_domain(&self, thread: ThreadId) -> Result<AppDomainId> {
        const CALL: &str = "GetThreadAppDomain";
        let thread = self.pin(thread, CALL)?;
        let info = self.as_version::<sys::ICorProfilerInfo2>(CALL)?;
        let mut app_domain = 0;
        // SAFETY: the thread is pinned; the call writes one id and keeps nothing (fact: pinned, outputs).
        let code = unsafe { info.GetThreadAppDomain(thread.as_raw(), &mut app_domain) };
        Error::check(code, CALL)?;
        AppDomainId::from_raw(app_domain).ok_or(Error::new(E_INVALIDARG, CALL))
    }

    /// The context that `thread` runs in; CoreCLR has one for each application domain.
    #[doc = contract!(GetThreadContext)]
    ///
    /// `E_INVALIDARG`: `thread` has not started yet. `COR_E_OBJECTDISPOSED`: it has ended.
    #[doc(alias = "GetThreadContext")]
    pub fn thread_context(&self, thread: ThreadId) -> Result<ContextId> {
        const CALL: &str = "GetThreadContext";
        let thread = self.pin(thread, CALL)?;
        let mut context = 0;
        // SAFETY: the thread is pinned; the call writes one id and keeps nothing (fact: pinned, outputs).
        let code = unsafe { self.first_version(CALL)?.GetThreadContext(thread.as_raw(), &mut context) };
        Error::check(code, CALL)?;
        ContextId::from_raw(context).ok_or(Error::new(E_INVALIDARG, CALL))
    }
}

impl Info {
    /// The name of `thread`, if the application or the framework has set one since the profiler was loaded.
    ///
    /// The runtime reports names by `ThreadNameChanged`, which corprof always receives.
    #[must_use]
    pub fn thread_name(&self, thread: ThreadId) -> Option<Name> {
        self.thread_names().of(thread)
    }
}

impl InNoGc<'_> {
    /// The operating-system thread that currently carries `thread`.
    #[doc = contract!(GetThreadInfo)]
    ///
    /// `E_INVALIDARG`: no operating-system thread has carried `thread` yet.
    #[doc(alias = "GetThreadInfo")]
    pub fn os_thread_id(&self, thread: ThreadId) -> Result<u32> {
        const CALL: &str = "GetThreadInfo";
        let thread = self.pin(thread, CALL)?;
        let mut id = 0;
        // SAFETY: the thread is pinned; the call writes one number and keeps nothing (fact: pinned, outputs).
        let code = unsafe { self.first_version(CALL)?.GetThreadInfo(thread.as_raw(), &mut id) };
        Error::check(code, CALL)?;
        if id == 0 { Err(Error::new(E_INVALIDARG, CALL)) } else { Ok(id) }
    }

    /// The operating system's handle of the thread that carries `thread`, as a number; the runtime owns it.
    ///
    /// Outside Windows it is a handle of the runtime's own, without use.
    #[doc = contract!(GetHandleFromThread)]
    ///
    /// `E_INVALIDARG`: `thread` has not started yet. `COR_E_OBJECTDISPOSED`: it has ended.
    #[doc(alias = "GetHandleFromThread")]
    pub fn handle_from_thread(&self, thread: ThreadId) -> Result<usize> {
        const CALL: &str = "GetHandleFromThread";
        let thread = self.pin(thread, CALL)?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the thread is pinned; the call writes one handle and keeps nothing (fact: pinned, outputs).
        let code = unsafe { self.first_version(CALL)?.GetHandleFromThread(thread.as_raw(), &mut handle) };
        Error::check(code, CALL)?;
        Ok(handle.addr())
    }

    /// Allocates the data that the runtime needs to answer calls of a thread that has never run managed code.
    ///
    /// A [`ProfilerThread`](crate::profiler_thread::ProfilerThread) has done so before it begins, and a managed thread
    /// need not.
    #[doc = contract!(InitializeCurrentThread)]
    #[doc(alias = "InitializeCurrentThread")]
    pub fn initialize_current_thread(&self) -> Result<()> {
        const CALL: &str = "InitializeCurrentThread";
        // SAFETY: the call takes nothing.
        let code = unsafe { self.as_version::<sys::ICorProfilerInfo4>(CALL)?.InitializeCurrentThread() };
        Error::check(code, CALL)
    }
}

impl InCallback<'_> {
    /// The managed threads that are alive.
    ///
    /// The runtime reads its list of threads under a lock that a collection holds from suspension to restart, and
    /// leaves cooperative mode to wait for it. The call therefore takes `&mut self` although it starts no collection:
    /// the caller cannot hold an [`ObjectId`](crate::id::ObjectId) or a guard of a [`sync::Mutex`](crate::sync::Mutex)
    /// meanwhile.
    #[doc = contract!(EnumThreads)]
    ///
    /// `CORPROF_E_UNSUPPORTED_CALL_SEQUENCE`: in a callback on a thread of the collector, which a server collection
    /// makes; the runtime would wait for ever for a lock that the collection holds.
    #[doc(alias = "EnumThreads")]
    pub fn enum_threads(&mut self) -> Result<Vec<ThreadId>> {
        const CALL: &str = "EnumThreads";
        let is_own = self.phase() == Phase::Initialize || profiler_threads::is_current() || Attaching::is_current();
        let is_collectors = !is_own && self.current_thread()?.is_none();
        if is_collectors {
            return Err(Error::new(sys::CORPROF_E_UNSUPPORTED_CALL_SEQUENCE, CALL).about(
                "a thread of the collector",
                "the collection holds the lock that this call waits for: track threads by `thread_created` and \
                 `thread_destroyed`, or make this call in another callback",
            ));
        }
        let info = self.as_version::<sys::ICorProfilerInfo4>(CALL)?;
        // SAFETY: the call writes one interface pointer, whose reference the caller owns (fact: outputs).
        read_all(CALL, |threads| unsafe { info.EnumThreads(threads) }, |thread| self.thread(thread))
    }
}
