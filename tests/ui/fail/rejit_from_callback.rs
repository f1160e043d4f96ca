//! A request of ReJIT marks the thread that makes it, so it is not made on an application's thread.
use corprof::metadata::MethodDef;
use corprof::prelude::*;

fn rewrite(cx: &mut InCallback<'_>, module: ModuleId, method: MethodDef) {
    let _ = cx.request_rejit(&[(module, method)]);
}

fn main() {}
