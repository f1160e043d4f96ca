//! What the runtime knows of single frames of a stack.

use std::fmt;
use std::marker::PhantomData;
use std::num::NonZeroUsize;

use corprof_sys as sys;

use crate::id::FunctionId;

/// What the runtime knows of a managed frame besides its function: good as long as the frame is being shown.
///
/// [`function_info_in_frame`](crate::Info::function_info_in_frame) makes use of it.
#[derive(Clone, Copy)]
pub struct FrameInfo<'w> {
    function: FunctionId,
    raw: NonZeroUsize,
    /// It points into the runtime's own frame, on the thread that walks.
    _valid: PhantomData<(&'w (), *mut ())>,
}

static_assertions::assert_not_impl_any!(FrameInfo<'static>: Send, Sync);

impl<'w> FrameInfo<'w> {
    /// # Safety
    /// `raw` is 0 or what the runtime told of a frame of `function`, and is good as long as the lifetime lasts: until the hook or
    /// the callback that brought it returns.
    pub(crate) unsafe fn new(function: FunctionId, raw: sys::COR_PRF_FRAME_INFO) -> Option<Self> {
        NonZeroUsize::new(raw).map(|raw| Self { function, raw, _valid: PhantomData })
    }
}

impl FrameInfo<'_> {
    /// The function that the frame is of.
    #[inline]
    pub fn function(&self) -> FunctionId {
        self.function
    }

    /// The value that goes over the wire.
    pub(crate) fn as_raw(&self) -> sys::COR_PRF_FRAME_INFO {
        self.raw.get()
    }
}

impl fmt::Debug for FrameInfo<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FrameInfo({:?})", self.function)
    }
}

/// The registers of a managed function that waits for the code that walks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WalkStart {
    /// Where the function goes on.
    pub(crate) ip: usize,
    /// The stack pointer that it has there.
    pub(crate) stack_pointer: usize,
    /// The frame pointer that it has there.
    pub(crate) frame_pointer: usize,
}
