//! The functions that have been compiled just in time, at a moment when the runtime can list them.

use std::time::{Duration, Instant};

use corprof_sys as sys;

use super::ProfilerThread;
use crate::error::Result;
use crate::id::FunctionId;

impl ProfilerThread<'_> {
    /// Lists functions as [`jitted_functions`](crate::InCallback::jitted_functions) does. While that is refused because an assembly is being
    /// unloaded, it waits and asks again, for ten seconds at most.
    ///
    /// # Errors
    /// As there. The refusal, after that time, or when the profiler's threads are to end.
    pub fn wait_for_jitted_functions(&mut self) -> Result<Vec<FunctionId>> {
        const PATIENCE: Duration = Duration::from_secs(10);
        const PAUSE: Duration = Duration::from_millis(1);
        let begin = Instant::now();
        loop {
            match self.jitted_functions() {
                Err(error)
                    if error.code() == sys::CORPROF_E_UNSUPPORTED_CALL_SEQUENCE
                        && begin.elapsed() < PATIENCE
                        && self.wait(PAUSE).is_continue() => {}
                answer => return answer,
            }
        }
    }
}
