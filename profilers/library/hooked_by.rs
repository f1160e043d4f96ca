//! What profilers with hooks share: who calls the hooks, and which methods could not have them.

use corprof::hooks::{HookedFunctions, LeftOut, Precompiled};
use corprof::prelude::*;
use corprof_profilers::settings::{SettingError, Value};

/// Who calls the hooks: inserted code, or the runtime itself (none).
pub(crate) type HookedBy = Option<Precompiled>;

/// Reads the setting.
pub(crate) fn hooked_by(setting: &Value) -> Result<HookedBy, SettingError> {
    let inserted = [("il", Some(Precompiled::Keep)), ("il-all", Some(Precompiled::Compile))];
    setting.word(&[("runtime", None), inserted[0], inserted[1]])
}

/// Sets the hooks.
pub(crate) fn install<H: FunctionHooks>(
    cx: &mut InInitialize<'_>,
    hooks: H,
    hooked_by: HookedBy,
) -> Result<HookedFunctions> {
    let setup = cx.hooks(hooks);
    match hooked_by {
        Some(precompiled) => setup.inserted(precompiled).install(),
        None => setup.install(),
    }
}

/// What a hooked function is called. Inserted code is in the body that all instantiations of a generic method share: it
/// has the name of the definition.
pub(crate) fn name_of(cx: &InCallback<'_>, function: FunctionId, is_inserted: bool) -> Name {
    let names = cx.names().csharp();
    match cx.function_info(function) {
        Ok(info) if is_inserted => names.method_def(info.module, info.token),
        _ => names.function(function),
    }
}

/// Whether calls of a hooked function are the parts of calls of an async method or of an iterator, each of which runs
/// without a pause. The runtime's own hooks are joined to whole calls.
pub(crate) fn is_part(name: &str, is_inserted: bool) -> bool {
    is_inserted && name.ends_with(".MoveNext()")
}

/// What became of the methods, in lines. `done` is what the profiler does with them: `timed`.
pub(crate) fn lines(cx: &InCallback<'_>, done: &str, hooked: &HookedFunctions) -> Vec<String> {
    let mut lines = Vec::new();
    let precompiled = hooked.precompiled();
    if precompiled > 0 {
        lines.push(format!("{precompiled} precompiled functions are not {done}"));
    }
    lines.extend(left_out_lines(cx, done, hooked));
    lines
}

/// A reason without what the author of a profiler may do about it.
fn without_cure(reason: &str) -> &str {
    let cures = [": use hooks with", " (`Hook::Exact`"];
    let end = cures.iter().filter_map(|cure| reason.find(cure)).min();
    end.and_then(|end| reason.get(..end)).unwrap_or(reason)
}

/// The methods that could not have hooks, in lines.
pub(crate) fn left_out_lines(cx: &InCallback<'_>, done: &str, hooked: &HookedFunctions) -> Vec<String> {
    let line = |left_out: LeftOut| {
        let method = cx.names().csharp().function(left_out.example);
        format!("{} methods cannot be {done}, as {method}: {}", left_out.count, without_cure(&left_out.reason))
    };
    hooked.left_out().into_iter().map(line).collect()
}
