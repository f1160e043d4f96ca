//! [`InHook`]: the context of a hook.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use crate::id::FunctionId;
use crate::info::Info;

/// The calling thread is inside an enter, leave or tailcall hook.
///
/// It offers what [`Info`] offers: the calls that the runtime answers everywhere. They may take locks of the runtime, and
/// some allocate, so what can be asked in `select` should be asked there.
pub struct InHook<'h> {
    info: &'h Info,
    function: FunctionId,
    stack_pointer: usize,
    begun: Option<u64>,
    /// The hook is that of the calling thread.
    _not_send: PhantomData<*mut ()>,
}

static_assertions::assert_not_impl_any!(InHook<'static>: Send, Sync, Clone);

impl<'h> InHook<'h> {
    /// # Safety
    /// Until it is gone, the calling thread is inside a hook of `function`.
    #[inline]
    pub(super) unsafe fn new(info: &'h Info, function: FunctionId, stack_pointer: usize, begun: Option<u64>) -> Self {
        Self { info, function, stack_pointer, begun, _not_send: PhantomData }
    }

    /// The function that begins or ends.
    #[inline]
    pub fn function(&self) -> FunctionId {
        self.function
    }

    /// The stack pointer that the function's caller has: the same in all hooks of one call, and below that of the calls
    /// around it. A shadow stack tells by it what an exception has left.
    #[inline]
    pub fn stack_pointer(&self) -> usize {
        self.stack_pointer
    }

    /// When the hook began, by the processor's counter, if that has been read.
    #[inline]
    pub(super) fn begun(&self) -> Option<u64> {
        self.begun
    }
}

impl Deref for InHook<'_> {
    type Target = Info;

    #[inline]
    fn deref(&self) -> &Info {
        self.info
    }
}

impl fmt::Debug for InHook<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InHook({:?}, {:#x})", self.function, self.stack_pointer)
    }
}
