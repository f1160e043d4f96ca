//! [`HookSlot`]: the enter/leave hooks of a session, as the rest of the SDK sees them.

use std::any::TypeId;
use std::ptr::NonNull;

use crate::error::Result;
use crate::event_mask::Event;

/// Hooks of whatever type.
pub(crate) trait HookSlot: Send + Sync {
    /// Makes the calling thread's state, so that its first hook need not.
    fn prepare_thread(&'static self);
    /// Runs `borrower` with the calling thread's state, if there is one and nobody has it; an error if states are not of this
    /// type.
    fn lend_thread(&'static self, of: TypeId, borrower: &mut dyn FnMut(NonNull<()>)) -> Result<()>;
    /// An exception's event, as which the runtime knows how far the stack has been left.
    fn unwound(&'static self, event: Event);
    /// Functions may be compiled from now on without these hooks being asked.
    fn note_unasked(&'static self);
    /// Ends the states of all threads, telling the user unless the profiler is quiet.
    ///
    /// # Safety
    /// The gate is closed and nobody is inside.
    unsafe fn end_all_threads(&self, is_disabled: bool);
    /// Drops the user's hooks, the first time.
    ///
    /// # Safety
    /// As [`end_all_threads`](Self::end_all_threads).
    unsafe fn drop_user(&self);
}
