//! What profilers with hooks share: who calls the hooks, and which methods could not have them.

use corprof::hooks::{InsertedHooks, LeftOut, Precompiled};
use corprof::prelude::*;
use corprof_profilers::settings::{SettingError, Value};

/// Who calls the hooks: inserted code, or the runtime itself (none).
pub(crate) type HookedBy = Option<Precompiled>;

/// Reads the setting.
pub(crate) fn hooked_by(setting: &Value) -> Result<HookedBy, SettingError> {
    let inserted = [("il", Some(Precompiled::Kept)), ("il-all", Some(Precompiled::Compiled))];
    setting.word(&[("runtime", None), inserted[0], inserted[1]])
}

/// Prints what became of the methods. `done` is what the profiler does with them: `timed`.
pub(crate) fn report(cx: &InCallback<'_>, profiler: &str, done: &str, inserted: &InsertedHooks) {
    eprintln!("{profiler}: {} precompiled functions are not {done}", inserted.precompiled());
    report_left_out(cx, profiler, done, &inserted.left_out());
}

/// Prints which methods have no hooks, and why.
pub(crate) fn report_left_out(cx: &InCallback<'_>, profiler: &str, done: &str, left_out: &[LeftOut]) {
    for left_out in left_out {
        let method = cx.names().function(left_out.example);
        eprintln!("{profiler}: {} methods cannot be {done}, as {method}: {}", left_out.count, left_out.reason);
    }
}
