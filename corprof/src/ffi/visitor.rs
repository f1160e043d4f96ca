//! A closure that the runtime calls through: no panic of it goes through the runtime.

use std::any::Any;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// A closure that the runtime calls through, and the panic that must not go the same way back.
pub(crate) struct Visitor<F> {
    visit: F,
    panic: Option<Box<dyn Any + Send>>,
}

impl<F> Visitor<F> {
    pub(crate) fn new(visit: F) -> Self {
        Self { visit, panic: None }
    }

    /// Calls the closure; after a panic not any more.
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

    /// Lets a panic of the closure go on, now that the runtime is not on the stack above it.
    pub(crate) fn rethrow(self) {
        if let Some(payload) = self.panic {
            resume_unwind(payload);
        }
    }
}
