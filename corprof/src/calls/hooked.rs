//! What records calls, as hooks: of all functions, by their full names. For others, call it from hooks of your own.

use super::log::{CallLog, CallWriter};
use super::profiler::{CallProfiler, CallTimer};
use crate::context::InCallback;
use crate::hooks::{FunctionHooks, Hook, InHook, StackBoundary};
use crate::id::FunctionId;

/// Times the calls of all functions.
impl FunctionHooks for CallProfiler {
    /// The number of the name.
    type Function = u32;
    type Thread = CallTimer;
    const UNWINDS: bool = true;
    const SUSPENDS: bool = true;

    fn select(&self, cx: &mut InCallback<'_>, function: FunctionId) -> Hook<u32> {
        Hook::Inlinable(self.number(&cx.names().function(function)))
    }

    fn thread_started(&self) -> CallTimer {
        self.timer()
    }

    fn enter(&self, cx: &InHook<'_>, timer: &mut CallTimer, &function: &u32) {
        timer.enter(cx, function);
    }

    fn leave(&self, cx: &InHook<'_>, timer: &mut CallTimer, _function: &u32) {
        timer.leave(cx);
    }

    fn unwound(&self, timer: &mut CallTimer, boundary: StackBoundary) {
        timer.unwound(boundary);
    }

    fn suspended(&self, cx: &InHook<'_>, timer: &mut CallTimer, _function: &u32) {
        timer.suspended(cx);
    }

    fn resumed(&self, cx: &InHook<'_>, timer: &mut CallTimer, &function: &u32) {
        timer.resumed(cx, function);
    }

    fn thread_ended(&self, timer: CallTimer) {
        self.add(timer);
    }
}

/// Records the calls of all functions. Their names stay in memory until the process ends, as the hooks do.
impl FunctionHooks for CallLog<&'static str> {
    /// The name.
    type Function = &'static str;
    type Thread = CallWriter<&'static str>;
    const UNWINDS: bool = true;
    const SUSPENDS: bool = true;

    fn select(&self, cx: &mut InCallback<'_>, function: FunctionId) -> Hook<&'static str> {
        Hook::Inlinable(cx.names().function(function).to_string().leak())
    }

    fn thread_started(&self) -> CallWriter<&'static str> {
        self.writer()
    }

    fn enter(&self, cx: &InHook<'_>, calls: &mut CallWriter<&'static str>, name: &&'static str) {
        calls.enter(cx, name);
    }

    fn leave(&self, cx: &InHook<'_>, calls: &mut CallWriter<&'static str>, _name: &&'static str) {
        calls.leave(cx);
    }

    fn unwound(&self, calls: &mut CallWriter<&'static str>, boundary: StackBoundary) {
        calls.unwound(boundary);
    }

    fn suspended(&self, cx: &InHook<'_>, calls: &mut CallWriter<&'static str>, _name: &&'static str) {
        calls.suspended(cx);
    }

    fn resumed(&self, cx: &InHook<'_>, calls: &mut CallWriter<&'static str>, name: &&'static str) {
        calls.enter(cx, name);
    }
}
