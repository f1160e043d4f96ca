//! The compiler's messages for a call in the wrong context.
//!
//! For a method that a context lacks, the compiler would only say "not found". So [`Info`], to which every context
//! dereferences, has a hidden method for each of them, under a bound that it does not meet: the message begins with the
//! cure, and the bound names the rule. These methods can never be called. Those for the runtime's calls are generated
//! from the contract table (`generated/absent.rs`). A test (`tests/ledger.rs`) checks that none is missing.

use crate::context::{InAttach, InCallback, InInitialize, InNoGc};
use crate::hooks::InSlowHook;
use crate::profiler_thread::ProfilerThread;
use crate::session::Info;

/// The call needs a callback: every callback's `cx` has the method, [`Info`] has not.
#[diagnostic::on_unimplemented(
    message = "this call needs the context of a callback: make it in a callback, on its `cx`",
    label = "not inside a callback, as far as the types tell"
)]
pub trait InCallbackContext<'x> {}

impl InCallbackContext<'_> for InNoGc<'_> {}
impl InCallbackContext<'_> for InCallback<'_> {}
impl InCallbackContext<'_> for InInitialize<'_> {}
impl InCallbackContext<'_> for InAttach<'_> {}
impl InCallbackContext<'_> for InSlowHook<'_> {}
impl InCallbackContext<'_> for ProfilerThread<'_> {}

/// A garbage collection may start: [`InCallback`] and the contexts that dereference to it have the method.
///
/// Callbacks during a collection, a suspension or an unwind, and callbacks with objects, have an [`InNoGc`], from which
/// no collection may start: make the call in another callback, and keep the result.
#[diagnostic::on_unimplemented(
    message = "this call may start a garbage collection: make it in a callback that gets `InCallback`, and keep the result",
    label = "no garbage collection may start here"
)]
pub trait MayTriggerGc<'x> {}

impl MayTriggerGc<'_> for InCallback<'_> {}
impl MayTriggerGc<'_> for InInitialize<'_> {}
impl MayTriggerGc<'_> for InAttach<'_> {}
impl MayTriggerGc<'_> for ProfilerThread<'_> {}

/// The call needs a thread that corprof has made: only a [`ProfilerThread`] has the method, as the runtime refuses it
/// in every callback. [`spawn_profiler_thread`](InCallback::spawn_profiler_thread) makes such a thread.
#[diagnostic::on_unimplemented(
    message = "this call is refused in callbacks: make it on a thread of `cx.spawn_profiler_thread(name, |cx| …)`",
    label = "not on a profiler thread"
)]
pub trait OnProfilerThread<'x> {}

impl OnProfilerThread<'_> for ProfilerThread<'_> {}

/// The profiler is starting: only [`InInitialize`] and [`InAttach`] have the method, as the runtime accepts such a call
/// at no other time.
#[diagnostic::on_unimplemented(
    message = "this call is for the start of a profiler: make it in `initialize` or in `initialize_for_attach`",
    label = "neither in `initialize` nor in `initialize_for_attach`"
)]
pub trait AtStartUp<'x> {}

impl AtStartUp<'_> for InInitialize<'_> {}
impl AtStartUp<'_> for InAttach<'_> {}

/// The body of a method that cannot be called: [`Info`] does not meet its bound.
pub(crate) fn never<A, R>(_arguments: A) -> R {
    unreachable!("`Info` does not meet the bound")
}

// The other methods of contexts: those that are not calls of the runtime. Without `wait` and `is_stopping`: a message
// about profiler threads would surprise users who misspell another method.
impl Info {
    #[doc(hidden)]
    pub fn edit_method<R>(&self, module: impl Sized, method: impl Sized, edit: impl Sized) -> R
    where
        for<'x> Self: MayTriggerGc<'x>,
    {
        never((module, method, edit))
    }

    #[doc(hidden)]
    pub fn edit_once<R>(&self, function: impl Sized, edit: impl Sized) -> R
    where
        for<'x> Self: MayTriggerGc<'x>,
    {
        never((function, edit))
    }

    #[doc(hidden)]
    pub fn set_checked_body<R>(&self, body: impl Sized) -> R
    where
        for<'x> Self: MayTriggerGc<'x>,
    {
        never(body)
    }

    #[doc(hidden)]
    pub fn names<R>(&self) -> R
    where
        for<'x> Self: InCallbackContext<'x>,
    {
        never(())
    }

    #[doc(hidden)]
    pub fn own_stack<R>(&self, _limit: usize) -> R
    where
        for<'x> Self: InCallbackContext<'x>,
    {
        never(())
    }

    #[doc(hidden)]
    pub fn stack_boundary<R>(&self) -> R
    where
        for<'x> Self: InCallbackContext<'x>,
    {
        never(())
    }

    #[doc(hidden)]
    pub fn with_hook_thread<R>(&self, look: impl Sized) -> R
    where
        for<'x> Self: InCallbackContext<'x>,
    {
        never((look,))
    }

    #[doc(hidden)]
    pub fn spawn_profiler_thread<R>(&self, name: impl Sized, run: impl Sized) -> R
    where
        for<'x> Self: MayTriggerGc<'x>,
    {
        never((name, run))
    }
}
