//! Prints each call of some methods: arguments, result, exceptions.
//!
//! Inserted code calls the hooks, unless TRACE_VALUES_BY says otherwise: all other methods run as without a profiler.

use corprof::calls::ShadowStack;
use corprof::hooks::{HookValues, HookedFunctions, InSlowHook, StackBoundary};
use corprof::prelude::*;
use corprof::values::{Arguments, ReturnValue};
use corprof_profilers::settings::{SettingError, Settings};
use corprof_profilers::table::TRACE_VALUES;
use globset::{Glob, GlobMatcher};

use crate::hooked_by::{HookedBy, hooked_by, install, lines};
use crate::own_frames::is_of_framework;

/// The profiler.
#[derive(Profiler)]
#[profiler(clsid = "4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A0E", no_export)]
pub struct TraceValues {
    hooked: HookedFunctions,
}

struct Hooks {
    wanted: GlobMatcher,
}

/// The traced methods that run on a thread, by name.
type Running = ShadowStack<&'static str>;

/// An exception has ended the call of a method.
fn left(method: &str) {
    report!("{method} is left by an exception");
}

impl FunctionHooks for Hooks {
    type Function = &'static str;
    type Thread = Running;
    const VALUES: HookValues = HookValues::ARGUMENTS.union(HookValues::RESULT);
    const UNWINDS: bool = true;

    fn select(&self, cx: &mut InCallback<'_>, function: FunctionId) -> Hook<&'static str> {
        let name = cx.names().csharp().function(function);
        let method = name.as_str().split('(').next().unwrap_or_default();
        // Leaked, because the hook stays until the process ends.
        if !is_of_framework(method) && self.wanted.is_match(method) {
            Hook::Exact(method.to_owned().leak())
        } else {
            Hook::No
        }
    }

    fn thread_started(&self) -> Running {
        Running::new()
    }

    fn enter_with_args(&self, cx: &InSlowHook<'_>, running: &mut Running, method: &&'static str, args: &Arguments<'_>) {
        running.enter(cx.hook(), method, left);
        report!("{method}{args}");
    }

    fn leave_with_value(
        &self,
        cx: &InSlowHook<'_>,
        running: &mut Running,
        method: &&'static str,
        result: &ReturnValue<'_>,
    ) {
        running.leave(cx.hook(), left);
        report!("{method} returns {result}");
    }

    fn tailcall_with_frame(&self, cx: &InSlowHook<'_>, running: &mut Running, method: &&'static str) {
        running.leave(cx.hook(), left);
        report!("{method} ends in a tail call");
    }

    fn unwound(&self, running: &mut Running, boundary: StackBoundary) {
        running.unwound(boundary, left);
    }
}

/// The hooks, and who is to call them.
fn hooks(settings: &Settings) -> Result<(Hooks, HookedBy), SettingError> {
    let wanted = settings.of("TRACE_VALUES").parsed(Glob::new)?.compile_matcher();
    Ok((Hooks { wanted }, hooked_by(&settings.of("TRACE_VALUES_BY"))?))
}

#[callbacks]
impl Callbacks for TraceValues {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let (hooks, hooked_by) = hooks(&Settings::of_environment(&TRACE_VALUES)?)?;
        Ok(Self { hooked: install(cx, hooks, hooked_by)? })
    }

    /// An attached profiler cannot have the runtime call hooks.
    fn initialize_for_attach(cx: &mut InAttach<'_>, data: &[u8]) -> Result<Self, BoxError> {
        let (hooks, _) = hooks(&Settings::of_attach(&TRACE_VALUES, data)?)?;
        Ok(Self { hooked: cx.hooks(hooks).install()? })
    }

    fn shutdown(&self, cx: &mut InCallback<'_>) {
        lines(cx, "traced", &self.hooked).iter().for_each(|line| report!("trace_values: {line}"));
    }
}
