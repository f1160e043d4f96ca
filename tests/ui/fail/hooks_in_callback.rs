//! Hooks are set when the profiler starts.
use corprof::prelude::*;

fn too_late(cx: &mut InCallback<'_>, hooks: impl FunctionHooks) {
    let _ = cx.hooks(hooks).install();
}

fn main() {}
