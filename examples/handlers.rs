//! Prints the arguments of HTTP handlers: of methods with `[HttpGet]` and the like, and of the lambdas of `Main`.

use corprof::hooks::{HookValues, HookedFunctions, InSlowHook};
use corprof::prelude::*;
use corprof::values::Arguments;

#[derive(Profiler)]
#[profiler(clsid = "4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7B03")]
struct Handlers(HookedFunctions);

struct Hooks;

impl FunctionHooks for Hooks {
    type Function = Name;
    type Thread = ();
    const KINDS: HookKinds = HookKinds::ENTER;
    const VALUES: HookValues = HookValues::ARGUMENTS;

    fn select(&self, cx: &mut InCallback<'_>, function: FunctionId) -> Hook<Name> {
        let is_handler = is_handler(cx, function).unwrap_or(false);
        if is_handler { Hook::Exact(cx.names().csharp().function(function)) } else { Hook::No }
    }

    fn thread_started(&self) {}

    fn enter_with_args(&self, cx: &InSlowHook<'_>, _thread: &mut (), handler: &Name, args: &Arguments<'_>) {
        eprintln!("{handler} gets {}", args.with_objects(cx));
    }
}

fn is_handler(cx: &InCallback<'_>, function: FunctionId) -> Result<bool> {
    let info = cx.function_info(function)?;
    let metadata = cx.metadata(info.module)?;
    let name = metadata.method(info.token)?.name;
    let mut is_handler = name.starts_with("<Main>b__") || name.starts_with("<<Main>$>b__");
    for verb in ["Get", "Post", "Put", "Delete", "Patch"] {
        let attribute = format!("Microsoft.AspNetCore.Mvc.Http{verb}Attribute");
        is_handler |= metadata.custom_attribute_named(info.token, &attribute)?.is_some();
    }
    Ok(is_handler)
}

#[callbacks]
impl Callbacks for Handlers {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        Ok(Self(cx.hooks(Hooks).install()?))
    }

    fn shutdown(&self, cx: &mut InCallback<'_>) {
        for left_out in self.0.left_out() {
            eprintln!("{} and others: {}", cx.names().csharp().function(left_out.example), left_out.reason);
        }
    }
}
