//! Up to where a stack has been left, as the runtime knows it when it runs a block for an exception; and the way of a callback
//! to its thread's state.

use std::any::TypeId;
use std::ops::ControlFlow;
use std::ptr::NonNull;

use crate::context::{Heap, InCallback};
use crate::error::{E_FAIL, E_NOTIMPL, Error, Result};
use crate::event_mask::Event;
use crate::session::panics::catch;
use crate::session::slot::Inside;

#[cfg(doc)]
use super::FunctionHooks;
use super::either::EitherHooks;
use super::installed::Installed;
use super::threads::CallThreadState;

/// A place in a stack: functions whose callers' stack pointers ([`InHook::stack_pointer`](super::InHook::stack_pointer)) are
/// below it do not run any more.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StackBoundary(pub(crate) usize);

impl StackBoundary {
    /// Whether the function with this [stack pointer](super::InHook::stack_pointer) is gone.
    #[inline]
    pub fn is_gone(self, stack_pointer: usize) -> bool {
        stack_pointer < self.0
    }

    /// For a function whose own stack pointer this is: what it has called last has been given the same.
    #[inline]
    pub(crate) fn of_caller(stack_pointer: usize) -> Self {
        Self(stack_pointer.saturating_add(1))
    }
}

impl InCallback<'_> {
    /// What has been left of the calling thread's stack: all below the innermost managed frame, whether it has hooks or not.
    /// For a [`ShadowStack`](crate::calls::ShadowStack) that is to be looked at in a callback.
    ///
    /// It takes the first step of a [walk](InCallback::walk_own_stack), with all its needs. With no managed frame there is no
    /// boundary: none.
    ///
    /// # Errors
    /// As [`walk_own_stack`](InCallback::walk_own_stack).
    pub fn stack_boundary(&self) -> Result<Option<StackBoundary>> {
        let mut boundary = None;
        self.walk_own_stack_with_registers(|frame| {
            // Native frames have no function of ours, and their registers may be of any depth.
            if frame.is_native() {
                return ControlFlow::Continue(());
            }
            boundary = frame.registers().map(|registers| StackBoundary::of_caller(registers.stack_pointer() as usize));
            ControlFlow::Break(())
        })?;
        Ok(boundary)
    }

    /// Lends the calling thread's [state](FunctionHooks::Thread) for hooks to `look`.
    ///
    /// `T` is that type. A hook that comes while the state is lent is not called; calls that run managed code cannot be made
    /// meanwhile, as they take `&mut` of this context.
    ///
    /// # Errors
    /// `E_NOTIMPL`: no hooks are set, or their threads have states of another type. `E_FAIL`: the thread has none now, for
    /// there is none after a panic or at Shutdown; or it is in use: by a hook around this callback, or by `look` itself.
    pub fn with_hook_thread<T: Send + 'static, R>(&self, look: impl FnOnce(&mut T) -> R) -> Result<R> {
        const CALL: &str = "with_hook_thread";
        let Some(hooks) = self.hooks() else {
            return Err(
                Error::new(E_NOTIMPL, CALL).about("hooks", "none are set: call `hook_functions` in `initialize`")
            );
        };
        let (mut look, mut answer) = (Some(look), None);
        hooks.lend_thread(TypeId::of::<T>(), &mut |state| {
            let look = look.take();
            // SAFETY: it points to a `T`, by its `TypeId`, which is lent to this closure alone.
            answer = look.map(|look| look(unsafe { &mut *state.cast::<T>().as_ptr() }));
        })?;
        let missing = "the calling thread has none, or it is in use around this call";
        answer.ok_or(Error::new(E_FAIL, CALL).about("the thread's state", missing))
    }
}

impl Event {
    /// Whether an exception may have left functions by then.
    pub(crate) const fn is_unwind_point(self) -> bool {
        matches!(
            self,
            Self::ExceptionThrown
                | Self::ExceptionSearchFilterEnter
                | Self::ExceptionSearchFilterLeave
                | Self::ExceptionUnwindFinallyEnter
                | Self::ExceptionCatcherEnter
        )
    }
}

/// The boundary at such an event; none if the runtime does not tell.
fn boundary_at(cx: &InCallback<'_>, event: Event) -> Option<StackBoundary> {
    match event {
        // Of this exception nothing is left yet. But the runtime may have caught another before, which it does not tell of: one
        // that a filter has let out, or that of a static constructor before it throws its own.
        Event::ExceptionThrown | Event::ExceptionSearchFilterEnter | Event::ExceptionSearchFilterLeave => {
            cx.stack_boundary().ok()?
        }
        _ => {
            let clause = cx.notified_exception_clause_info().ok()??;
            match clause.frame_pointer {
                0 => None,
                // What the runtime calls the frame pointer is the stack pointer that the function has, on x86-64,
                frame if cfg!(target_arch = "x86_64") => Some(StackBoundary::of_caller(frame)),
                // and that of its caller on other processors.
                frame => Some(StackBoundary(frame)),
            }
        }
    }
}

/// Where hooks keep their state of a thread.
pub(super) type ThreadOf<H> = NonNull<<H as EitherHooks>::Thread>;

/// The state of a thread while somebody has it, who is inside the gate.
pub(super) struct Loan<H: EitherHooks>(&'static CallThreadState<H>);

impl<H: EitherHooks> Loan<H> {
    /// None if somebody has it.
    fn new(kept: &'static CallThreadState<H>) -> Option<Self> {
        (!kept.is_lent.replace(true)).then_some(Self(kept))
    }
}

impl<H: EitherHooks> Drop for Loan<H> {
    fn drop(&mut self) {
        self.0.is_lent.set(false);
    }
}

impl<H: EitherHooks> Installed<H> {
    /// The calling thread's state, unless a hook or somebody else on this thread has it. The loan has to end while the caller
    /// is inside the gate.
    pub(super) fn borrow(&'static self, inside: &Inside) -> Option<(ThreadOf<H>, Loan<H>)> {
        if inside.is_in_hook() {
            return None;
        }
        let state = self.thread(inside)?;
        // SAFETY: the state belongs to this thread, is not freed while it is inside the gate, which it is for as long as this
        // is used, and is in a `CallThreadState`, of which only the flag is looked at here.
        let kept: &'static CallThreadState<H> = unsafe { &*state.cast().as_ptr() };
        Some((NonNull::from(kept).cast(), Loan::new(kept)?))
    }

    /// Runs `borrower` with the calling thread's state, unless somebody has it.
    pub(super) fn lend(&'static self, inside: &Inside, borrower: impl FnOnce(NonNull<H::Thread>)) {
        if let Some((state, _loan)) = self.borrow(inside) {
            borrower(state);
        }
    }

    /// [`AnyHooks::unwound`](super::AnyHooks::unwound).
    #[cold]
    pub(super) fn tell_unwound(&'static self, event: Event) {
        let Some(inside) = self.gate().enter() else { return };
        // SAFETY: the adapter tells of `event` from inside its callback; nothing is claimed of the heap.
        let cx = unsafe { InCallback::new(self.info(), Heap::Moves, 0) };
        let Some(boundary) = boundary_at(&cx, event) else { return };
        self.lend(&inside, |state| {
            // SAFETY: lent to this closure alone.
            let thread = unsafe { &mut *state.as_ptr() };
            catch(|| self.user().unwound(thread, boundary), || self.disable_after_panic("unwound"));
        });
    }
}
