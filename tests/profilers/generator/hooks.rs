//! Hooks of a random part of all functions, which act.

use std::hint::black_box;

use corprof::hooks::{HookValues, InSlowHook, Precompiled};
use corprof::prelude::*;
use corprof::values::{Arguments, ReturnValue, Value};

use super::act;
use super::plan::{self, Hooks, Plan};

/// Sets the hooks that the plan has, if it has any.
pub(super) fn install(cx: &mut InInitialize<'_>, plan: &Plan) -> Result<()> {
    let precompiled =
        if plan.number("precompiled").is_multiple_of(2) { Precompiled::Keep } else { Precompiled::Compile };
    match plan.hooks {
        Hooks::No => Ok(()),
        Hooks::Fast => cx.hooks(Acts).install().map(drop),
        Hooks::Values => cx.hooks(ActsOnValues).install().map(drop),
        Hooks::FastByIl => cx.hooks(Acts).inserted(precompiled).install().map(drop),
        Hooks::ValuesByIl => cx.hooks(ActsOnValues).inserted(precompiled).install().map(drop),
    }
}

/// Without values.
struct Acts;

/// With values.
struct ActsOnValues;

/// A third of all functions, by name, so that repeated runs hook the same; and half of them exactly.
fn select(cx: &mut InCallback<'_>, function: FunctionId) -> Hook<()> {
    act::in_callback(cx, "select of hooks");
    let name = cx.names().function(function);
    let Some(plan) = plan::current() else { return Hook::No };
    match plan.number(name.as_str()) % 6 {
        0 => Hook::Inlinable(()),
        3 => Hook::Exact(()),
        _ => Hook::No,
    }
}

impl FunctionHooks for Acts {
    type Function = ();
    type Thread = u64;

    fn select(&self, cx: &mut InCallback<'_>, function: FunctionId) -> Hook<()> {
        select(cx, function)
    }

    fn thread_started(&self) -> u64 {
        0
    }

    fn enter(&self, cx: &InHook<'_>, thread: &mut u64, (): &()) {
        *thread += 1;
        act::anywhere(cx, "hook enter");
    }

    fn leave(&self, cx: &InHook<'_>, thread: &mut u64, (): &()) {
        *thread += 1;
        act::anywhere(cx, "hook leave");
    }
}

fn read(value: Value<'_>) {
    black_box(value.to_string());
}

impl FunctionHooks for ActsOnValues {
    type Function = ();
    type Thread = u64;
    const VALUES: HookValues = HookValues::ARGUMENTS.union(HookValues::RESULT);

    fn select(&self, cx: &mut InCallback<'_>, function: FunctionId) -> Hook<()> {
        select(cx, function)
    }

    fn thread_started(&self) -> u64 {
        0
    }

    fn enter_with_args(&self, cx: &InSlowHook<'_>, thread: &mut u64, (): &(), arguments: &Arguments<'_>) {
        *thread += 1;
        arguments.this().into_iter().chain(arguments.iter()).for_each(read);
        let object = arguments.iter().find_map(|value| if let Value::Object(object) = value { object } else { None });
        act::in_no_gc(cx, "hook enter with values", object);
    }

    fn leave_with_value(&self, cx: &InSlowHook<'_>, thread: &mut u64, (): &(), value: &ReturnValue<'_>) {
        *thread += 1;
        value.get().into_iter().for_each(read);
        act::in_no_gc(cx, "hook leave with value", None);
    }
}
