//! A closure that the runtime calls: none of its panics unwinds through the runtime.

use std::any::Any;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// A closure that the runtime calls, and its panic, if it has panicked.
pub(crate) struct Visitor<F> {
    visit: F,
    panic: Option<Box<dyn Any + Send>>,
}

impl<F> Visitor<F> {
    pub(crate) fn new(visit: F) -> Self {
        Self { visit, panic: None }
    }

    /// Calls the closure, unless it has panicked.
    pub(crate) fn call(&mut self, call: impl FnOnce(&mut F) -> ControlFlow<()>) -> ControlFlow<()> {
        if self.panic.is_some() {
            return ControlFlow::Break(());
        }
        match catch_unwind(AssertUnwindSafe(|| call(&mut self.visit))) {
            Ok(flow) => flow,
            Err(payload) => {
                self.panic = Some(payload);
                ControlFlow::Break(())
            }
        }
    }

    /// Continues a panic of the closure, now that the runtime is no longer between it and the caller.
    pub(crate) fn rethrow(self) {
        if let Some(payload) = self.panic {
            resume_unwind(payload);
        }
    }
}
