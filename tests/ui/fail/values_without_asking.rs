//! Hooks with values implement `ValueHooks`, which selects the values.
use corprof::hooks::InSlowHook;
use corprof::hooks::values::Arguments;
use corprof::prelude::*;

struct Hooks;

impl FunctionHooks for Hooks {
    type Function = ();
    type Thread = ();

    fn select(&self, _cx: &mut InCallback<'_>, _function: FunctionId) -> Hook<()> { Hook::Yes(()) }
    fn thread_started(&self) {}
    fn enter_with_args(&self, _cx: &InSlowHook<'_>, _thread: &mut (), (): &(), _args: &Arguments<'_>) {}
}

fn main() {}
