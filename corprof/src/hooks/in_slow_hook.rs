//! [`InSlowHook`]: the context of a slow-path hook.

use std::fmt;
use std::ops::Deref;

use crate::context::InNoGc;
use crate::error::{E_NOTIMPL, Error, Result};
use crate::id::FunctionId;
use crate::session::FrameInfo;

use super::InHook;

/// The context of a hook that receives values ([`FunctionHooks::VALUES`](super::FunctionHooks::VALUES)).
///
/// The runtime calls this hook through its own code, like a callback. So the context offers the calls of a callback
/// that may start no collection ([`InNoGc`]): names, the classes and sizes of objects, and
/// [`walk_own_stack`](InNoGc::walk_own_stack), which begins with the hooked function. The objects among the values do
/// not move until the hook returns.
///
/// In a hook that [inserted code](super::HookSetup::inserted) calls, the thread is not inside a callback. There the
/// calls of a callback return `CORPROF_E_UNSUPPORTED_CALL_SEQUENCE`, walks return `E_FAIL`, and names that corprof has
/// not looked up before are unknown. Look them up in [`select`](super::FunctionHooks::select).
pub struct InSlowHook<'h> {
    hook: InHook<'h>,
    callback: InNoGc<'h>,
    frame: Result<FrameInfo<'h>>,
}

static_assertions::assert_not_impl_any!(InSlowHook<'static>: Send, Sync, Clone);

impl<'h> InSlowHook<'h> {
    /// # Safety
    /// Until this is dropped, the calling thread is inside a slow-path hook. `hook` and `frame` belong to that hook,
    /// and no object moves during `callback`.
    pub(super) unsafe fn new(hook: InHook<'h>, callback: InNoGc<'h>, frame: Result<FrameInfo<'h>>) -> Self {
        Self { hook, callback, frame }
    }

    /// The context of a fast hook, for types that serve both kinds: [`ShadowStack`](crate::calls::ShadowStack) and
    /// [`CallLog`](crate::calls::CallLog).
    #[inline]
    pub fn hook(&self) -> &InHook<'h> {
        &self.hook
    }

    /// The function that begins or ends.
    #[inline]
    pub fn function(&self) -> FunctionId {
        self.hook.function()
    }

    /// See [`InHook::stack_pointer`].
    #[inline]
    pub fn stack_pointer(&self) -> usize {
        self.hook.stack_pointer()
    }

    /// The handle that gives the type arguments of shared code: pass it to
    /// [`function_info_in_frame`](crate::Info::function_info_in_frame). The runtime knows the type arguments when the
    /// function begins; when it ends, only the function.
    ///
    /// # Errors
    /// `E_NOTIMPL`: [`VALUES`](super::FunctionHooks::VALUES) lacks [`HookValues::FRAME`](super::HookValues::FRAME),
    /// which hooks by inserted code cannot have. Otherwise the runtime's own error.
    pub fn frame_info(&self) -> Result<FrameInfo<'_>> {
        self.frame
    }

    /// The error for frame info that was not requested.
    pub(super) const fn no_frame() -> Error {
        Error::new(E_NOTIMPL, "frame_info")
            .about("frame info", "`FunctionHooks::VALUES` lacks `HookValues::FRAME`: add it")
    }
}

impl<'h> Deref for InSlowHook<'h> {
    type Target = InNoGc<'h>;

    #[inline]
    fn deref(&self) -> &InNoGc<'h> {
        &self.callback
    }
}

impl fmt::Debug for InSlowHook<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InSlowHook({:?}, {:#x})", self.function(), self.stack_pointer())
    }
}
