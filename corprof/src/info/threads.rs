//! Threads.

use corprof_sys as sys;

use crate::context::InCallback;
use crate::error::{E_INVALIDARG, Error, Result};
use crate::generated::contract::contract;
use crate::id::ThreadId;
use crate::info::Info;

impl Info {
    /// The managed thread that the calling thread carries; none on a thread that never ran managed code.
    #[doc = contract!(GetCurrentThreadID)]
    #[doc(alias = "GetCurrentThreadID")]
    pub fn current_thread(&self) -> Result<Option<ThreadId>> {
        let mut thread = 0;
        // SAFETY: the call writes one id and keeps nothing.
        let code = unsafe { self.as_raw().GetCurrentThreadID(&mut thread) };
        if code == sys::CORPROF_E_NOT_MANAGED_THREAD {
            return Ok(None);
        }
        Error::check(code, "GetCurrentThreadID")?;
        Ok(ThreadId::from_raw(thread))
    }
}

impl InCallback<'_> {
    /// The operating-system thread that currently carries `thread`.
    #[doc = contract!(GetThreadInfo)]
    ///
    /// `E_INVALIDARG`: `thread` has not been carried by any yet.
    #[doc(alias = "GetThreadInfo")]
    pub fn os_thread_id(&self, thread: ThreadId) -> Result<u32> {
        const CALL: &str = "GetThreadInfo";
        let mut id = 0;
        // SAFETY: the call writes one number and keeps nothing.
        let code = unsafe { self.as_raw().GetThreadInfo(thread.as_raw(), &mut id) };
        Error::check(code, CALL)?;
        if id == 0 { Err(Error::new(E_INVALIDARG, CALL)) } else { Ok(id) }
    }
}
