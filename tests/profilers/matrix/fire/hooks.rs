//! Hooks that make calls: fast ones, and slow ones that check that their values do not change.

use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;

use corprof::hooks::{HookValues, InSlowHook};
use corprof::prelude::*;
use corprof::values::{Arguments, ReturnValue, Value};

use super::super::rows;
use super::cells::Level;
use super::{VALUES, ask_anywhere, ask_in_no_gc, fault, ids, lock, visit};

/// Functions of the program's class `Args`, which check their arguments themselves.
fn select(cx: &InCallback<'_>, function: FunctionId) -> Hook<()> {
    if cx.names().function(function).starts_with("Args.") { Hook::Inlinable(()) } else { Hook::No }
}

/// Hooks of the fast path.
pub(super) struct Fast;

impl FunctionHooks for Fast {
    type Function = ();
    type Thread = ();

    fn select(&self, cx: &mut InCallback<'_>, function: FunctionId) -> Hook<()> {
        select(cx, function)
    }

    fn thread_started(&self) {}

    fn enter(&self, cx: &InHook<'_>, _thread: &mut (), (): &()) {
        in_hook(cx, "enter");
    }

    fn leave(&self, cx: &InHook<'_>, _thread: &mut (), (): &()) {
        in_hook(cx, "leave");
    }
}

fn in_hook(cx: &InHook<'_>, name: &'static str) {
    if let Some((visit, _)) = visit(name, "InHook") {
        ask_anywhere(&visit, cx, |_| {});
    }
}

/// Hooks of the slow path.
pub(super) struct WithValues;

impl FunctionHooks for WithValues {
    type Function = ();
    type Thread = ();
    const VALUES: HookValues = HookValues::all();

    fn select(&self, cx: &mut InCallback<'_>, function: FunctionId) -> Hook<()> {
        select(cx, function)
    }

    fn thread_started(&self) {}

    fn enter_with_args(&self, cx: &InSlowHook<'_>, _thread: &mut (), (): &(), args: &Arguments<'_>) {
        let objects: Vec<_> =
            args.iter().filter_map(|value| if let Value::Object(object) = value { object } else { None }).collect();
        in_slow_hook(cx, "enter_with_args", objects.first().copied(), || {
            args.this().into_iter().chain(args.iter()).map(|value| described(cx, value)).collect()
        });
    }

    fn leave_with_value(&self, cx: &InSlowHook<'_>, _thread: &mut (), (): &(), value: &ReturnValue<'_>) {
        let object = if let Some(Value::Object(object)) = value.get() { object } else { None };
        in_slow_hook(cx, "leave_with_value", object, || {
            value.get().map(|value| described(cx, value)).into_iter().collect()
        });
    }

    fn tailcall_with_frame(&self, cx: &InSlowHook<'_>, _thread: &mut (), (): &()) {
        in_slow_hook(cx, "tailcall_with_frame", None, String::new);
    }
}

/// A value, and of an object its address and its class: neither changes while the hook runs.
fn described(cx: &InNoGc<'_>, value: Value<'_>) -> String {
    let mut text = match value {
        Value::Object(Some(object)) => format!("{:#x} {:?}", object.as_raw(), cx.class_of(object)),
        Value::String(Some(string)) => format!("{:#x} {string}", string.object().as_raw()),
        value => value.to_string(),
    };
    _ = write!(text, ";");
    text
}

fn in_slow_hook(cx: &InSlowHook<'_>, name: &'static str, object: Option<ObjectId<'_>>, values: impl Fn() -> String) {
    let Some((visit, plan)) = visit(name, "InSlowHook") else { return };
    let cx: &InNoGc<'_> = cx;
    // A lock that no holder keeps across a collection may be waited for in any mode of the thread.
    let _guard = lock(plan, cx);
    let before = values();
    let check = |method: &str| {
        let now = values();
        if now == before {
            VALUES.fetch_add(1, Relaxed);
        } else {
            fault(format_args!("the values of a hook are {now} and were {before} after {method} in {name}"));
        }
    };
    ask_in_no_gc(&visit, cx, check);
    if let Some(object) = object {
        visit.ask(Level::Object, |row| rows::OF_OBJECTS[row].1(cx, object), check);
    }
    if !visit.is_full(Level::InNoGc) {
        ids::ask(cx, name);
    }
}
