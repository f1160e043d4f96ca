//! Data that the runtime gives about single stack frames.

use std::fmt;
use std::marker::PhantomData;
use std::num::NonZeroUsize;

use corprof_sys as sys;

use crate::id::FunctionId;

/// The runtime's handle to one managed frame, valid while the callback or hook that received the frame runs.
///
/// Pass it to [`function_info_in_frame`](crate::Info::function_info_in_frame).
#[derive(Clone, Copy)]
pub struct FrameInfo<'w> {
    function: FunctionId,
    raw: NonZeroUsize,
    /// It points into the runtime's own frame, on the walking thread.
    _valid: PhantomData<(&'w (), *mut ())>,
}

static_assertions::assert_not_impl_any!(FrameInfo<'static>: Send, Sync);

impl<'w> FrameInfo<'w> {
    /// # Safety
    /// `raw` is 0 or the value that the runtime passed with a frame of `function`. The lifetime ends before the hook or
    /// callback that received the value returns.
    pub(crate) unsafe fn new(function: FunctionId, raw: sys::COR_PRF_FRAME_INFO) -> Option<Self> {
        NonZeroUsize::new(raw).map(|raw| Self { function, raw, _valid: PhantomData })
    }
}

impl FrameInfo<'_> {
    /// The function of the frame.
    #[inline]
    pub fn function(&self) -> FunctionId {
        self.function
    }

    /// The value passed to the runtime.
    pub(crate) fn as_raw(&self) -> sys::COR_PRF_FRAME_INFO {
        self.raw.get()
    }
}

impl fmt::Debug for FrameInfo<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FrameInfo({:?})", self.function)
    }
}

/// The registers of the managed function that called the walking code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WalkStart {
    /// The return address into the function.
    pub(crate) ip: usize,
    /// The stack pointer at that address.
    pub(crate) stack_pointer: usize,
    /// The frame pointer at that address.
    pub(crate) frame_pointer: usize,
}
