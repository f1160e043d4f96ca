//! [`InSlowHook`]: the context of a hook of the slow path.

use std::fmt;
use std::ops::Deref;

use crate::context::InCallback;
use crate::error::{E_NOTIMPL, Error, Result};
use crate::id::FunctionId;
use crate::session::FrameInfo;

use super::InHook;

/// The calling thread is inside a hook that is told values ([`ValueHooks::VALUES`](super::ValueHooks::VALUES)).
///
/// The runtime comes to such a hook by way of its own code, as to a callback. So it offers what a callback does that may start
/// no collection ([`InCallback`]): names, the classes and sizes of objects, and
/// [`walk_own_stack`](InCallback::walk_own_stack), which begins with the function that has called the hook. The objects among the
/// values stay where they are until the hook returns.
pub struct InSlowHook<'h> {
    hook: InHook<'h>,
    callback: InCallback<'h>,
    frame: Result<FrameInfo<'h>>,
}

static_assertions::assert_not_impl_any!(InSlowHook<'static>: Send, Sync, Clone);

impl<'h> InSlowHook<'h> {
    /// # Safety
    /// Until it is gone, the calling thread is inside a hook of the slow path, of which `hook` and `frame` are, and `callback` is
    /// one in which nothing moves.
    pub(super) unsafe fn new(hook: InHook<'h>, callback: InCallback<'h>, frame: Result<FrameInfo<'h>>) -> Self {
        Self { hook, callback, frame }
    }

    /// The context of a fast hook, for what is made for both: [`ShadowStack`](crate::calls::ShadowStack) and
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

    /// As [`InHook::stack_pointer`].
    #[inline]
    pub fn stack_pointer(&self) -> usize {
        self.hook.stack_pointer()
    }

    /// What tells the type arguments of shared code: hand it to
    /// [`function_info_in_frame`](crate::Info::function_info_in_frame). The runtime knows them when the function begins; when it ends
    /// only the function.
    ///
    /// # Errors
    /// `E_NOTIMPL`: [`HookValues::FRAME`](super::HookValues::FRAME) is not among
    /// [`VALUES`](super::ValueHooks::VALUES). Else what the runtime answered.
    pub fn frame_info(&self) -> Result<FrameInfo<'_>> {
        self.frame
    }

    /// Frame info that was not asked for.
    pub(super) const fn no_frame() -> Error {
        Error::new(E_NOTIMPL, "frame_info").about("frame info", "`ValueHooks::VALUES` must have `HookValues::FRAME`")
    }
}

impl<'h> Deref for InSlowHook<'h> {
    type Target = InCallback<'h>;

    #[inline]
    fn deref(&self) -> &InCallback<'h> {
        &self.callback
    }
}

impl fmt::Debug for InSlowHook<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InSlowHook({:?}, {:#x})", self.function(), self.stack_pointer())
    }
}
