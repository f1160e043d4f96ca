//! No call accepts a thing that is not loaded yet, or not any more.
use corprof::id::Inert;
use corprof::prelude::*;

fn module_load_started(cx: &mut InCallback<'_>, module: Inert<ModuleId>) {
    let _ = cx.module_info(module);
}

fn main() {}
