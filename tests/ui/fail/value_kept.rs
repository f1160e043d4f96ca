//! A hook's values are valid in that hook only: the next collection may move the object.
use corprof::hooks::{HookValues, InSlowHook};
use corprof::values::Arguments;
use corprof::values::Value;
use corprof::prelude::*;

struct Keeper(std::sync::Mutex<Option<Value<'static>>>);

impl FunctionHooks for Keeper {
    type Function = ();
    type Thread = ();
    const VALUES: HookValues = HookValues::ARGUMENTS;

    fn select(&self, _cx: &mut InCallback<'_>, _function: FunctionId) -> Hook<()> { Hook::Inlinable(()) }
    fn thread_started(&self) {}
    fn enter_with_args(&self, _cx: &InSlowHook<'_>, _thread: &mut (), (): &(), args: &Arguments<'_>) {
        *self.0.lock().unwrap() = args.get(0);
    }
}

fn main() {}
