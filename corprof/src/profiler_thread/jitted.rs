//! The functions that have been compiled just in time, at a moment when the runtime can list them.

use std::time::Instant;

use super::ProfilerThread;
use crate::error::Result;
use crate::id::FunctionId;
use crate::info::{PAUSE, is_passing};

impl ProfilerThread<'_> {
    /// Waits until an attach is complete. Before that the runtime makes no callbacks: it does not report what is
    /// compiled, and a method that was requested again and is called meanwhile takes the body that it has, for good.
    pub(crate) fn wait_for_attach(&mut self) {
        while self.info().liveness().attach_is_under_way() && self.wait(PAUSE).is_continue() {}
    }

    /// Lists functions as [`jitted_functions`](crate::InNoGc::jitted_functions) does. While that is refused because an
    /// assembly is being unloaded, it waits and asks again, for ten seconds at most.
    ///
    /// # Errors
    /// As there. The refusal, after that time, or when the profiler's threads are to end.
    pub fn wait_for_jitted_functions(&mut self) -> Result<Vec<FunctionId>> {
        let begin = Instant::now();
        loop {
            match self.jitted_functions() {
                Err(error) if is_passing(&error, begin) && self.wait(PAUSE).is_continue() => {}
                answer => return answer,
            }
        }
    }
}
