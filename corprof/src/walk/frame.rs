//! What a walk shows of one frame.

use std::fmt;

use corprof_sys as sys;

use crate::id::FunctionId;
use crate::session::FrameInfo;

use super::Registers;

/// A frame of the stack that is being walked: a managed function, or a block of native frames.
///
/// It is good while the walk shows it, and on the thread that walks:
///
/// ```compile_fail,E0521
/// # use corprof::prelude::*;
/// # use std::ops::ControlFlow;
/// fn top(cx: &InCallback<'_>) -> Option<corprof::walk::FrameInfo<'_>> {
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
    /// `info` is 0 or what the runtime told of a frame of `function`, and is good as long as the lifetime lasts: until the
    /// callback that brought it returns.
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

    /// The managed function, or none for a block of native frames, which the runtime does not tell apart.
    #[inline]
    pub fn function(&self) -> Option<FunctionId> {
        self.info.map(|info| info.function())
    }

    /// Whether it is a block of native frames.
    #[inline]
    pub fn is_native(&self) -> bool {
        self.info.is_none()
    }

    /// Where in the native code: the next instruction of this function, which is after the call that it is in, but for the
    /// leaf. For a block of native frames the address in the innermost of them, if the runtime knows it, else 0.
    #[inline]
    pub fn ip(&self) -> usize {
        self.ip
    }

    /// What else the runtime knows of a managed frame.
    pub fn info(&self) -> Option<FrameInfo<'w>> {
        self.info
    }

    /// The registers as this frame will find them, if the walk was asked for them
    /// ([`walk_own_stack_with_registers`](crate::InCallback::walk_own_stack_with_registers)).
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
