//! [`HookSlot`]: the enter/leave hooks of a session, as the rest of the SDK calls them.

use std::any::TypeId;
use std::ptr::NonNull;

use crate::error::Result;
use crate::event_mask::Event;

/// Hooks, with their type erased.
pub(crate) trait HookSlot: Send + Sync {
    /// Makes the calling thread's state in advance, so that its first hook need not.
    fn prepare_thread(&'static self);
    /// Calls `borrower` with the calling thread's state, if it exists and is not in use. An error if states are of
    /// another type.
    fn lend_thread(&'static self, of: TypeId, borrower: &mut dyn FnMut(NonNull<()>)) -> Result<()>;
    /// Reports an exception event, which shows how far the stack has been unwound.
    fn unwound(&'static self, event: Event);
    /// From now on the runtime may compile functions without asking these hooks.
    fn note_unasked(&'static self);
    /// Ends the states of all threads, and reports each to the user unless the profiler is disabled.
    ///
    /// # Safety
    /// The gate is closed and no thread is inside.
    unsafe fn end_all_threads(&self, is_disabled: bool);
    /// Drops the user's hooks, on the first call.
    ///
    /// # Safety
    /// As [`end_all_threads`](Self::end_all_threads).
    unsafe fn drop_user(&self);
}
