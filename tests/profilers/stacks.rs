//! Shadow stacks of all functions, for `stress.rs`: kept by fast hooks, or by slow ones that read all values besides.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use corprof::hooks::{HookValues, InSlowHook};
use corprof::prelude::*;
use corprof::values::{Arguments, ReturnValue, Value};

use super::Shared;

/// Of so many slow hooks one walks the stack: the application should get somewhere, too.
const SLOW_HOOKS: u64 = 1024;

/// Keeps a shadow stack of every function.
pub(crate) struct Stacks(pub(crate) Arc<Shared>);

/// The same, by hooks that read arguments and results.
pub(crate) struct StacksAndValues(pub(crate) Stacks);

/// The counts and the running functions of one thread.
#[derive(Default)]
pub(crate) struct Stack {
    frames: Vec<(FunctionId, usize)>,
    hooks: u64,
    strays: u64,
    values: u64,
    unreadable: u64,
}

impl Stack {
    fn push(&mut self, cx: &InHook<'_>) {
        while self.frames.last().is_some_and(|&(_, stack_pointer)| stack_pointer <= cx.stack_pointer()) {
            self.frames.pop();
        }
        self.frames.push((cx.function(), cx.stack_pointer()));
        self.hooks += 1;
    }

    fn pop(&mut self, cx: &InHook<'_>) {
        self.hooks += 1;
        // An exception leaves functions without a hook.
        while self.frames.last().is_some_and(|&(_, stack_pointer)| stack_pointer < cx.stack_pointer()) {
            self.frames.pop();
        }
        self.strays += u64::from(self.frames.pop() != Some((cx.function(), cx.stack_pointer())));
    }

    /// Reads all of a value: text, fields, the target of a by-ref.
    fn read(&mut self, value: Value<'_>) {
        self.values += 1;
        self.unreadable += u64::from(matches!(value, Value::Unreadable(_)));
        black_box(value.to_string());
    }
}

impl FunctionHooks for Stacks {
    type Function = ();
    type Thread = Stack;

    fn select(&self, cx: &mut InCallback<'_>, function: FunctionId) -> Hook<()> {
        if cx.names().function(function).is_empty() { Hook::No } else { Hook::Inlinable(()) }
    }

    fn thread_started(&self) -> Stack {
        Stack::default()
    }

    fn enter(&self, cx: &InHook<'_>, thread: &mut Stack, (): &()) {
        thread.push(cx);
    }

    fn leave(&self, cx: &InHook<'_>, thread: &mut Stack, (): &()) {
        thread.pop(cx);
    }

    fn tailcall(&self, cx: &InHook<'_>, thread: &mut Stack, (): &()) {
        thread.pop(cx);
    }

    fn thread_ended(&self, thread: Stack) {
        let counts = &self.0.counts;
        for (count, own) in [
            (&counts.hooks, thread.hooks),
            (&counts.strays, thread.strays),
            (&counts.values, thread.values),
            (&counts.unreadable, thread.unreadable),
        ] {
            count.fetch_add(own, Relaxed);
        }
    }
}

impl FunctionHooks for StacksAndValues {
    type Function = ();
    type Thread = Stack;
    const VALUES: HookValues = HookValues::all();

    fn select(&self, cx: &mut InCallback<'_>, function: FunctionId) -> Hook<()> {
        self.0.select(cx, function)
    }

    fn thread_started(&self) -> Stack {
        self.0.thread_started()
    }

    fn enter_with_args(&self, cx: &InSlowHook<'_>, thread: &mut Stack, (): &(), args: &Arguments<'_>) {
        thread.push(cx.hook());
        args.this().into_iter().chain(args.iter()).for_each(|value| thread.read(value));
        if thread.hooks.is_multiple_of(SLOW_HOOKS) {
            self.0.0.walk(cx);
        }
    }

    fn leave_with_value(&self, cx: &InSlowHook<'_>, thread: &mut Stack, (): &(), value: &ReturnValue<'_>) {
        thread.pop(cx.hook());
        value.get().into_iter().for_each(|value| thread.read(value));
    }

    fn tailcall_with_frame(&self, cx: &InSlowHook<'_>, thread: &mut Stack, (): &()) {
        thread.pop(cx.hook());
    }

    fn thread_ended(&self, thread: Stack) {
        self.0.thread_ended(thread);
    }
}
