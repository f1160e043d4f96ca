//! Prints each call of some methods: arguments, result, exceptions.
//!
//! Run it with `cargo xtask demo trace_values`. Options are environment variables:
//! - TRACE_VALUES='Shop.*' traces only methods whose names match the glob. Without it, all methods outside of the namespaces
//!   `System` and `Microsoft`.
//! - TRACE_VALUES_BY=runtime has the runtime call hooks: it then compiles all methods, and each call takes longer. Without it, code
//!   that is inserted into the methods calls them (`il`), and all others run as without a profiler; il-all compiles precompiled
//!   methods that match as well.

use corprof::calls::ShadowStack;
use corprof::hooks::{HookValues, HookedFunctions, InSlowHook, StackBoundary};
use corprof::prelude::*;
use corprof::settings::{SettingError, Settings};
use corprof::values::{Arguments, ReturnValue};
use globset::{Glob, GlobMatcher};
use hooked_by::{HookedBy, hooked_by, install, report};

#[path = "shared/hooked_by.rs"]
mod hooked_by;

#[derive(Profiler)]
#[profiler(clsid = "4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A0B")]
struct TraceValues {
    hooked: HookedFunctions,
}

struct Hooks {
    wanted: GlobMatcher,
}

/// The traced methods that run on a thread, by name.
type Running = ShadowStack<&'static str>;

/// An exception has ended the call of a method.
fn left(method: &str) {
    eprintln!("{method} is left by an exception");
}

impl FunctionHooks for Hooks {
    type Function = &'static str;
    type Thread = Running;
    const VALUES: HookValues = HookValues::ARGUMENTS.union(HookValues::RESULT);
    const UNWINDS: bool = true;

    fn select(&self, cx: &mut InCallback<'_>, function: FunctionId) -> Hook<&'static str> {
        let name = cx.names().function(function);
        let method = name.as_str().split('(').next().unwrap_or_default();
        let is_of_framework = method.starts_with("System.") || method.starts_with("Microsoft.");
        // Leaked, because the hook stays until the process ends.
        if !is_of_framework && self.wanted.is_match(method) { Hook::Exact(method.to_owned().leak()) } else { Hook::No }
    }

    fn thread_started(&self) -> Running {
        Running::new()
    }

    fn enter_with_args(&self, cx: &InSlowHook<'_>, running: &mut Running, method: &&'static str, args: &Arguments<'_>) {
        running.enter(cx.hook(), method, left);
        eprintln!("{method}{args}");
    }

    fn leave_with_value(
        &self,
        cx: &InSlowHook<'_>,
        running: &mut Running,
        method: &&'static str,
        result: &ReturnValue<'_>,
    ) {
        running.leave(cx.hook(), left);
        eprintln!("{method} returns {result}");
    }

    fn tailcall_with_frame(&self, cx: &InSlowHook<'_>, running: &mut Running, method: &&'static str) {
        running.leave(cx.hook(), left);
        eprintln!("{method} ends in a tail call");
    }

    fn unwound(&self, running: &mut Running, boundary: StackBoundary) {
        running.unwound(boundary, left);
    }
}

/// The hooks, and who is to call them.
fn hooks(settings: &Settings) -> Result<(Hooks, HookedBy), SettingError> {
    let wanted = settings.of("TRACE_VALUES").parsed("*", Glob::new)?.compile_matcher();
    Ok((Hooks { wanted }, hooked_by(&settings.of("TRACE_VALUES_BY").or("il"))?))
}

#[callbacks]
impl Callbacks for TraceValues {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let (hooks, hooked_by) = hooks(&Settings::of_environment())?;
        Ok(Self { hooked: install(cx, hooks, hooked_by)? })
    }

    /// An attached profiler cannot have the runtime call hooks.
    fn initialize_for_attach(cx: &mut InAttach<'_>, data: &[u8]) -> Result<Self, BoxError> {
        let (hooks, _) = hooks(&Settings::of_attach(data)?)?;
        Ok(Self { hooked: cx.hooks(hooks).install()? })
    }

    fn shutdown(&self, cx: &mut InCallback<'_>) {
        report(cx, "trace_values", "traced", &self.hooked);
    }
}
