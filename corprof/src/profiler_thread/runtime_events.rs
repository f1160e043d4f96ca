//! The end of a session of the runtime's events: only a thread of the profiler may wait for it.

use crate::error::Result;
use crate::info::RuntimeEvents;

use super::ProfilerThread;

impl RuntimeEvents {
    /// Ends the session. It waits for deliveries on other threads, so only a thread of the profiler may do it: a
    /// delivery would wait for itself, and on .NET 8 a stop on a thread that is ending (`thread_destroyed`) has crashed
    /// the process. `cx` is exclusive, so no lock of this profiler is held.
    ///
    /// # Errors
    /// `COR_E_OBJECTDISPOSED`: the profiler is shut down or detached, which has ended the session.
    pub fn stop(self, cx: &mut ProfilerThread<'_>) -> Result<()> {
        cx.event_pipe_stop_session(self.id())
    }
}
