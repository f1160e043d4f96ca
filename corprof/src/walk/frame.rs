//! One frame, as a walk shows it.

use std::fmt;

use corprof_sys as sys;

use crate::id::{CodeAddress, FunctionId};
use crate::session::FrameInfo;

use super::Registers;

/// A frame of the stack being walked: a managed function, or a block of native frames.
///
/// It is valid while the walk shows it, on the walking thread only:
///
/// ```compile_fail,E0521
/// # use corprof::prelude::*;
/// # use std::ops::ControlFlow;
/// fn top<'a>(cx: &'a InNoGc<'_>) -> Option<corprof::walk::FrameInfo<'a>> {
///     let mut top = None;
///     let _ = cx.walk_own_stack(|frame| {
///         top = frame.info(); // borrowed data escapes
///         ControlFlow::Break(())
///     });
///     top
/// }
/// ```
#[derive(Clone, Copy)]
pub struct Frame<'w> {
    ip: usize,
    info: Option<FrameInfo<'w>>,
    registers: Option<Registers<'w>>,
}

static_assertions::assert_not_impl_any!(Frame<'static>: Send, Sync);

impl<'w> Frame<'w> {
    /// # Safety
    /// `info` is 0 or the value that the runtime passed with a frame of `function`. The lifetime ends before the
    /// callback that received the value returns.
    #[inline]
    pub(crate) unsafe fn new(
        function: Option<FunctionId>,
        ip: usize,
        info: sys::COR_PRF_FRAME_INFO,
        registers: Option<Registers<'w>>,
    ) -> Self {
        // SAFETY: the caller's promise.
        let info = function.and_then(|function| unsafe { FrameInfo::new(function, info) });
        Self { ip, info, registers }
    }

    /// The managed function, or `None` for a block of native frames, which the runtime does not list one by one.
    #[inline]
    pub fn function(&self) -> Option<FunctionId> {
        self.info.map(|info| info.function())
    }

    /// Whether it is a block of native frames.
    #[inline]
    pub fn is_native(&self) -> bool {
        self.info.is_none()
    }

    /// The address in the native code: for the leaf the next instruction, for other frames the return address of the
    /// call in progress. For a block of native frames it is the address in the innermost of them, or 0 if the runtime
    /// does not know it.
    #[inline]
    pub fn ip(&self) -> usize {
        self.ip
    }

    /// The [address](Self::ip) in a managed frame, to ask the runtime about. The function that calls another returns to
    /// this address, which may be the first after its own code.
    #[inline]
    pub fn code_address(&self) -> Option<CodeAddress> {
        // SAFETY: the method has a frame, so it has run (fact: addresses).
        self.info.map(|_| unsafe { CodeAddress::from_raw(self.ip) })
    }

    /// The runtime's handle to a managed frame.
    pub fn info(&self) -> Option<FrameInfo<'w>> {
        self.info
    }

    /// The registers at the return to this frame, if the walk includes them
    /// ([`walk_own_stack_with_registers`](crate::InNoGc::walk_own_stack_with_registers)).
    pub fn registers(&self) -> Option<Registers<'w>> {
        self.registers
    }
}

impl fmt::Debug for Frame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.function() {
            Some(function) => write!(f, "{function:?} at {:#x}", self.ip),
            None => write!(f, "native code at {:#x}", self.ip),
        }
    }
}
