//! [`InHook`]: the context of a hook.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use crate::id::FunctionId;
use crate::info::Info;

/// The context of an enter, leave or tailcall hook on the calling thread.
///
/// It offers the calls of [`Info`], which the runtime answers everywhere. They may take locks of the runtime, and some
/// allocate: make them in `select` where that is possible.
pub struct InHook<'h> {
    info: &'h Info,
    function: FunctionId,
    stack_pointer: usize,
    begun: Option<u64>,
    /// The hook runs on the calling thread only.
    _not_send: PhantomData<*mut ()>,
}

static_assertions::assert_not_impl_any!(InHook<'static>: Send, Sync, Clone);

impl<'h> InHook<'h> {
    /// # Safety
    /// The calling thread is inside a hook of `function` until this is dropped.
    #[inline]
    pub(super) unsafe fn new(info: &'h Info, function: FunctionId, stack_pointer: usize, begun: Option<u64>) -> Self {
        Self { info, function, stack_pointer, begun, _not_send: PhantomData }
    }

    /// The function that begins or ends. In a generic method whose hooks are [inserted
    /// code](super::HookSetup::inserted), the instantiation that `select` was asked about.
    #[inline]
    pub fn function(&self) -> FunctionId {
        self.function
    }

    /// The stack pointer of the function's caller. It is the same in all hooks of one call, and lower than that of the
    /// enclosing calls. A shadow stack uses it to find the calls that an exception has unwound. Hooks by inserted code
    /// get an address in the function's own frame, of which the same is true.
    #[inline]
    pub fn stack_pointer(&self) -> usize {
        self.stack_pointer
    }

    /// The processor's counter at the beginning of the hook, if it was read.
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
