//! Hooks with values are set by a separate call.
use corprof::hooks::{HookValues, ValueHooks};
use corprof::prelude::*;

struct Hooks;

impl ValueHooks for Hooks {
    type Function = ();
    type Thread = ();
    const VALUES: HookValues = HookValues::ARGUMENTS;

    fn select(&self, _cx: &mut InCallback<'_>, _function: FunctionId) -> Hook<()> { Hook::Yes(()) }
    fn thread_started(&self) {}
}

fn initialize(cx: &mut InInitialize<'_>) -> Result<()> { cx.hook_functions(Hooks) }
fn main() {}
