//! Hooks of a random part of all functions, which act.

use std::hint::black_box;

use corprof::hooks::values::{Arguments, ReturnValue, Value};
use corprof::hooks::{HookValues, InSlowHook, Precompiled, ValueHooks};
use corprof::prelude::*;

use super::act;
use super::plan::{self, Hooks, Plan};

/// Sets the hooks that the plan has, if it has any.
pub(super) fn install(cx: &mut InInitialize<'_>, plan: &Plan) -> Result<()> {
    let precompiled =
        if plan.number("precompiled").is_multiple_of(2) { Precompiled::Kept } else { Precompiled::Compiled };
    match plan.hooks {
        Hooks::No => Ok(()),
        Hooks::Fast => cx.hook_functions(Acts),
        Hooks::Values => cx.hook_functions_with_values(Acts).map(drop),
        Hooks::FastByIl => cx.hook_functions_by_il(Acts, precompiled).map(drop),
        Hooks::ValuesByIl => cx.hook_functions_with_values_by_il(Acts, precompiled).map(drop),
    }
}

struct Acts;

/// A third of all functions, by name, so that repeated runs hook the same.
fn select(cx: &mut InCallback<'_>, function: FunctionId) -> Hook<()> {
    act::in_callback(cx, "select of hooks");
    let name = cx.names().function(function);
    let is_chosen = plan::current().is_some_and(|plan| plan.number(name.as_str()).is_multiple_of(3));
    if is_chosen { Hook::Yes(()) } else { Hook::No }
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

impl ValueHooks for Acts {
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
