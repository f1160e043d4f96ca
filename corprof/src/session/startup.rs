//! Whether the runtime has started, so that managed code can run.
//!
//! The runtime itself allows collections earlier: from the moment when its heap is there, before it has loaded its own
//! classes (vm/ceemain.cpp). A collection then has the finalizer thread run managed code, probably the finalizer of a
//! thread of the profiler's that the runtime got to know and that has ended. On .NET 10 and 11 that follows a null
//! pointer, before the start is over.
//!
//! The runtime loads one module while it starts: its core library. When it reports a second one, it has started. It
//! reports modules to every profiler, as corprof needs those events itself. An attached profiler comes later.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use corprof_sys as sys;

use crate::error::{Error, Result};

/// How far the start of the runtime is.
#[derive(Default)]
pub(crate) struct Startup {
    /// The module that was reported first, or 0.
    first_module: AtomicUsize,
    is_over: AtomicBool,
}

impl Startup {
    /// `is_over`: the runtime had started before the profiler was loaded.
    pub(super) fn new(is_over: bool) -> Self {
        Self { first_module: AtomicUsize::new(0), is_over: AtomicBool::new(is_over) }
    }

    /// A module was loaded.
    pub(crate) fn module_loaded(&self, module: usize) {
        let first = self.first_module.compare_exchange(0, module, Ordering::Relaxed, Ordering::Relaxed);
        if first.is_err_and(|first| first != module) {
            self.is_over.store(true, Ordering::Release);
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Refuses a call that collects.
    ///
    /// # Errors
    /// `CORPROF_E_NOT_YET_AVAILABLE`.
    pub(crate) fn refuse_collection(&self, call: &'static str) -> Result<()> {
        const RULE: &str = "the runtime has not started yet, and a collection now might end the process: make the \
                            call again a little later, at the earliest when `module_load_finished` reports the second \
                            module";
        if self.is_over() {
            return Ok(());
        }
        Err(Error::new(sys::CORPROF_E_NOT_YET_AVAILABLE, call).about("collections", RULE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_module_shows_that_the_runtime_has_started() {
        let startup = Startup::default();
        assert!(startup.refuse_collection("X").is_err());
        startup.module_loaded(8);
        startup.module_loaded(8);
        let error = startup.refuse_collection("X").unwrap_err();
        assert_eq!(error.code(), sys::CORPROF_E_NOT_YET_AVAILABLE);
        startup.module_loaded(16);
        assert_eq!(startup.refuse_collection("X"), Ok(()));
    }

    #[test]
    fn an_attached_profiler_finds_the_runtime_started() {
        assert!(Startup::new(true).is_over());
    }
}
