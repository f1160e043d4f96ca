//! How far an exception has unwound a stack, by the frame of the block that the runtime runs next; and how a callback
//! gets its thread's state.

use std::any::TypeId;
use std::ops::ControlFlow;
use std::ptr::NonNull;

use crate::context::{Heap, InNoGc};
use crate::error::{E_FAIL, E_NOTIMPL, Error, Result};
use crate::event_mask::Event;
use crate::session::panics::catch;
use crate::session::thread_slot::Inside;

use super::FunctionHooks;
use super::installed::Installed;
use super::setup::known_hooks;
use super::threads::CallThreadState;

/// A place in a stack. Functions whose callers' stack pointers
/// ([`InHook::stack_pointer`](super::InHook::stack_pointer)) are below it have ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StackBoundary(pub(crate) usize);

impl StackBoundary {
    /// Whether the function with this [stack pointer](super::InHook::stack_pointer) has ended.
    #[inline]
    pub fn is_gone(self, stack_pointer: usize) -> bool {
        stack_pointer < self.0
    }

    /// The boundary of a function with this stack pointer of its own: its callees see this as their caller's.
    #[inline]
    pub(crate) fn of_caller(stack_pointer: usize) -> Self {
        Self(stack_pointer.saturating_add(1))
    }
}

impl InNoGc<'_> {
    /// The boundary of the calling thread's stack: everything below the innermost managed frame has ended, whether it
    /// had hooks or not. Use it before reading a [`ShadowStack`](crate::calls::ShadowStack) in a callback.
    ///
    /// This takes the first step of a [walk](InNoGc::walk_own_stack), and has the same requirements. `None` if the
    /// stack has no managed frame.
    ///
    /// # Errors
    /// As [`walk_own_stack`](InNoGc::walk_own_stack).
    pub fn stack_boundary(&self) -> Result<Option<StackBoundary>> {
        let mut boundary = None;
        self.walk_own_stack_with_registers(|frame| {
            // Native frames belong to no hooked function, and their registers may be of any depth.
            if frame.is_native() {
                return ControlFlow::Continue(());
            }
            boundary = frame.registers().map(|registers| StackBoundary::of_caller(registers.stack_pointer() as usize));
            ControlFlow::Break(())
        })?;
        Ok(boundary)
    }

    /// Calls `look` with the calling thread's [state](FunctionHooks::Thread) for hooks.
    ///
    /// `T` is the type of that state. Hooks are not called while the state is lent. Calls that run managed code are
    /// impossible meanwhile, as they take `&mut` of this context.
    ///
    /// # Errors
    /// `E_NOTIMPL`: no hooks are set, or their threads have states of another type. `E_FAIL`: the thread has no state
    /// now (after a panic, or at Shutdown), or its state is in use: by a hook around this callback, or by `look`
    /// itself.
    pub fn with_hook_thread<T: Send + 'static, R>(&self, look: impl FnOnce(&mut T) -> R) -> Result<R> {
        const CALL: &str = "with_hook_thread";
        let Some(hooks) = known_hooks(self) else {
            return Err(Error::new(E_NOTIMPL, CALL)
                .about("hooks", "none are set: call `cx.hooks(…).install()` in `initialize`"));
        };
        let mut look = Some(look);
        let mut answer = None;
        hooks.lend_thread(TypeId::of::<T>(), &mut |state| {
            let look = look.take();
            // SAFETY: it points to a `T`, by its `TypeId`, and is lent to this closure alone.
            answer = look.map(|look| look(unsafe { &mut *state.cast::<T>().as_ptr() }));
        })?;
        let missing = "the calling thread has none, or an enclosing call is using it";
        answer.ok_or(Error::new(E_FAIL, CALL).about("the thread's state", missing))
    }
}

impl Event {
    /// Whether an exception may have unwound functions before this event.
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

/// The boundary at this event; none if the runtime does not give it.
fn boundary_at(cx: &InNoGc<'_>, event: Event) -> Option<StackBoundary> {
    match event {
        // This exception has unwound nothing yet. But the runtime may have caught another before without reporting it:
        // one that a filter has let out, or that of a static constructor before it throws its own.
        Event::ExceptionThrown | Event::ExceptionSearchFilterEnter | Event::ExceptionSearchFilterLeave => {
            cx.stack_boundary().ok()?
        }
        _ => {
            let clause = cx.notified_exception_clause_info().ok()??;
            match clause.frame_pointer {
                0 => None,
                // On x86-64, the runtime's frame pointer is the function's own stack pointer;
                frame if cfg!(target_arch = "x86_64") => Some(StackBoundary::of_caller(frame)),
                // on other processors it is that of its caller.
                frame => Some(StackBoundary(frame)),
            }
        }
    }
}

/// The pointer to a thread's state.
pub(super) type ThreadOf<H> = NonNull<<H as FunctionHooks>::Thread>;

/// The state of a thread while a borrower has it; the borrower is inside the gate.
pub(super) struct Loan<H: FunctionHooks>(&'static CallThreadState<H>);

impl<H: FunctionHooks> Loan<H> {
    /// None if the state is already borrowed.
    fn new(kept: &'static CallThreadState<H>) -> Option<Self> {
        // Not `then_some`: the value would be made in any case, and its drop would end the loan that is under way.
        (!kept.is_lent.replace(true)).then(|| Self(kept))
    }
}

impl<H: FunctionHooks> Drop for Loan<H> {
    fn drop(&mut self) {
        self.0.is_lent.set(false);
    }
}

impl<H: FunctionHooks> Installed<H> {
    /// The calling thread's state, unless a hook or another borrower on this thread has it. The loan must end while the
    /// caller is inside the gate.
    pub(super) fn borrow(&'static self, inside: &Inside) -> Option<(ThreadOf<H>, Loan<H>)> {
        if inside.is_in_hook() {
            return None;
        }
        let state = self.thread(inside)?;
        // SAFETY: the state belongs to this thread, and is not freed while the thread is inside the gate, which it is
        // as long as this is used. It is in a `CallThreadState`, of which only the flag is read here.
        let kept: &'static CallThreadState<H> = unsafe { &*state.cast().as_ptr() };
        Some((NonNull::from(kept).cast(), Loan::new(kept)?))
    }

    /// Calls `borrower` with the calling thread's state, unless it is borrowed.
    pub(super) fn lend(&'static self, inside: &Inside, borrower: impl FnOnce(NonNull<H::Thread>)) {
        if let Some((state, _loan)) = self.borrow(inside) {
            borrower(state);
        }
    }

    /// Reports how far an exception has unwound the stack.
    #[cold]
    pub(super) fn tell_unwound(&'static self, event: Event) {
        let Some(inside) = self.gate().enter() else { return };
        // SAFETY: the adapter reports `event` from inside its callback; nothing is claimed about the heap (fact:
        // contexts).
        let cx = unsafe { InNoGc::new(self.info(), Heap::Moves) };
        let Some(boundary) = boundary_at(&cx, event) else { return };
        self.lend(&inside, |state| {
            // SAFETY: lent to this closure alone.
            let thread = unsafe { &mut *state.as_ptr() };
            catch(|| self.user().unwound(thread, boundary), || self.disable_after_panic("unwound"));
        });
    }
}
