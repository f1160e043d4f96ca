//! A closure that the runtime calls: none of its panics unwinds through the runtime.

use std::any::Any;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// A closure that the runtime calls, and its panic, if it has panicked.
///
/// The runtime may call again after an answer that should end the calls: in a walk of a heap of several parts, once for
/// each part (server collector). The closure is not called any more.
pub(crate) struct Visitor<F> {
    visit: F,
    is_over: bool,
    panic: Option<Box<dyn Any + Send>>,
}

impl<F> Visitor<F> {
    pub(crate) fn new(visit: F) -> Self {
        Self { visit, is_over: false, panic: None }
    }

    /// Calls the closure, unless it has ended the calls or panicked.
    pub(crate) fn call(&mut self, call: impl FnOnce(&mut F) -> ControlFlow<()>) -> ControlFlow<()> {
        if self.is_over {
            return ControlFlow::Break(());
        }
        let flow = catch_unwind(AssertUnwindSafe(|| call(&mut self.visit))).unwrap_or_else(|payload| {
            self.panic = Some(payload);
            ControlFlow::Break(())
        });
        self.is_over = flow.is_break();
        flow
    }

    /// Continues a panic of the closure, now that the runtime is no longer between it and the caller.
    pub(crate) fn rethrow(self) {
        if let Some(payload) = self.panic {
            resume_unwind(payload);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closure_that_has_ended_the_calls_is_not_called_again() {
        let mut calls = 0;
        let mut visitor = Visitor::new(|| {
            calls += 1;
            ControlFlow::Break(())
        });
        assert!(visitor.call(|visit| visit()).is_break());
        assert!(visitor.call(|visit| visit()).is_break());
        visitor.rethrow();
        assert_eq!(calls, 1);
    }
}
