//! Hooks of either public trait, behind one private trait.

use super::{FunctionHooks, Hook, HookKinds, HookValues, InHook, InSlowHook, StackBoundary, ValueHooks};
use crate::context::InCallback;
use crate::id::FunctionId;
use crate::values::{Arguments, ReturnValue};

/// A [`FunctionHooks`] (if [`VALUES`](Self::VALUES) is empty) or a [`ValueHooks`]. Only the hooks of its own kind are called.
pub(crate) trait EitherHooks: Send + Sync + 'static {
    type Function: Send + Sync + 'static;
    type Thread: Send + 'static;

    const KINDS: HookKinds;
    const UNWINDS: bool;
    const SUSPENDS: bool;
    const TIMED: bool;
    const VALUES: HookValues;

    fn select(&self, cx: &mut InCallback<'_>, function: FunctionId) -> Hook<Self::Function>;
    fn thread_started(&self) -> Self::Thread;
    fn unwound(&self, thread: &mut Self::Thread, boundary: StackBoundary);
    fn thread_ended(&self, thread: Self::Thread);

    #[inline]
    fn enter(&self, _cx: &InHook<'_>, _thread: &mut Self::Thread, _function: &Self::Function) {}
    #[inline]
    fn leave(&self, _cx: &InHook<'_>, _thread: &mut Self::Thread, _function: &Self::Function) {}
    #[inline]
    fn tailcall(&self, _cx: &InHook<'_>, _thread: &mut Self::Thread, _function: &Self::Function) {}
    #[inline]
    fn suspended(&self, _cx: &InHook<'_>, _thread: &mut Self::Thread, _function: &Self::Function) {}
    #[inline]
    fn resumed(&self, _cx: &InHook<'_>, _thread: &mut Self::Thread, _function: &Self::Function) {}

    fn enter_with_args(
        &self,
        _cx: &InSlowHook<'_>,
        _thread: &mut Self::Thread,
        _function: &Self::Function,
        _args: &Arguments<'_>,
    ) {
    }
    fn leave_with_value(
        &self,
        _cx: &InSlowHook<'_>,
        _thread: &mut Self::Thread,
        _function: &Self::Function,
        _value: &ReturnValue<'_>,
    ) {
    }
    fn tailcall_with_frame(&self, _cx: &InSlowHook<'_>, _thread: &mut Self::Thread, _function: &Self::Function) {}
}

/// Hooks without values.
pub(super) struct Fast<H>(pub(super) H);

impl<H: FunctionHooks> EitherHooks for Fast<H> {
    type Function = H::Function;
    type Thread = H::Thread;

    const KINDS: HookKinds = H::KINDS;
    const UNWINDS: bool = H::UNWINDS;
    const SUSPENDS: bool = H::SUSPENDS;
    const TIMED: bool = H::TIMED;
    const VALUES: HookValues = HookValues::empty();

    fn select(&self, cx: &mut InCallback<'_>, function: FunctionId) -> Hook<Self::Function> {
        self.0.select(cx, function)
    }

    fn thread_started(&self) -> Self::Thread {
        self.0.thread_started()
    }

    fn unwound(&self, thread: &mut Self::Thread, boundary: StackBoundary) {
        self.0.unwound(thread, boundary);
    }

    fn thread_ended(&self, thread: Self::Thread) {
        self.0.thread_ended(thread);
    }

    #[inline]
    fn enter(&self, cx: &InHook<'_>, thread: &mut Self::Thread, function: &Self::Function) {
        self.0.enter(cx, thread, function);
    }

    #[inline]
    fn leave(&self, cx: &InHook<'_>, thread: &mut Self::Thread, function: &Self::Function) {
        self.0.leave(cx, thread, function);
    }

    #[inline]
    fn tailcall(&self, cx: &InHook<'_>, thread: &mut Self::Thread, function: &Self::Function) {
        self.0.tailcall(cx, thread, function);
    }

    fn suspended(&self, cx: &InHook<'_>, thread: &mut Self::Thread, function: &Self::Function) {
        self.0.suspended(cx, thread, function);
    }

    fn resumed(&self, cx: &InHook<'_>, thread: &mut Self::Thread, function: &Self::Function) {
        self.0.resumed(cx, thread, function);
    }
}

/// Hooks with values.
pub(super) struct Slow<H>(pub(super) H);

impl<H: ValueHooks> EitherHooks for Slow<H> {
    type Function = H::Function;
    type Thread = H::Thread;

    const KINDS: HookKinds = H::KINDS;
    const UNWINDS: bool = H::UNWINDS;
    const SUSPENDS: bool = false;
    const TIMED: bool = H::TIMED;
    const VALUES: HookValues = H::VALUES;

    fn select(&self, cx: &mut InCallback<'_>, function: FunctionId) -> Hook<Self::Function> {
        self.0.select(cx, function)
    }

    fn thread_started(&self) -> Self::Thread {
        self.0.thread_started()
    }

    fn unwound(&self, thread: &mut Self::Thread, boundary: StackBoundary) {
        self.0.unwound(thread, boundary);
    }

    fn thread_ended(&self, thread: Self::Thread) {
        self.0.thread_ended(thread);
    }

    fn enter_with_args(
        &self,
        cx: &InSlowHook<'_>,
        thread: &mut Self::Thread,
        function: &Self::Function,
        args: &Arguments<'_>,
    ) {
        self.0.enter_with_args(cx, thread, function, args);
    }

    fn leave_with_value(
        &self,
        cx: &InSlowHook<'_>,
        thread: &mut Self::Thread,
        function: &Self::Function,
        value: &ReturnValue<'_>,
    ) {
        self.0.leave_with_value(cx, thread, function, value);
    }

    fn tailcall_with_frame(&self, cx: &InSlowHook<'_>, thread: &mut Self::Thread, function: &Self::Function) {
        self.0.tailcall_with_frame(cx, thread, function);
    }
}
