//! Prints each call of the application's own methods, with its arguments and its result.

use corprof::hooks::{HookValues, InSlowHook, Precompiled};
use corprof::prelude::*;
use corprof::values::{Arguments, ReturnValue};

#[derive(Profiler)]
#[profiler(clsid = "4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7E0B")]
struct TraceValues;

struct Hooks;

impl FunctionHooks for Hooks {
    type Function = Name;
    type Thread = ();
    const VALUES: HookValues = HookValues::ARGUMENTS.union(HookValues::RESULT);

    fn select(&self, cx: &mut InCallback<'_>, function: FunctionId) -> Hook<Name> {
        let name = cx.names().function(function);
        if name.starts_with("System.") || name.starts_with("Microsoft.") { Hook::No } else { Hook::Exact(name) }
    }

    fn thread_started(&self) {}

    fn enter_with_args(&self, _cx: &InSlowHook<'_>, _thread: &mut (), method: &Name, args: &Arguments<'_>) {
        eprintln!("{method} gets {args}");
    }

    fn leave_with_value(&self, _cx: &InSlowHook<'_>, _thread: &mut (), method: &Name, result: &ReturnValue<'_>) {
        eprintln!("{method} returns {result}");
    }
}

#[callbacks]
impl Callbacks for TraceValues {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        cx.hooks(Hooks).inserted(Precompiled::Keep).install()?;
        Ok(Self)
    }
}
