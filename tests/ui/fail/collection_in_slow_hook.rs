//! No collection may start while a hook holds objects.
use corprof::hooks::InSlowHook;
use corprof::prelude::*;

fn load(cx: &InSlowHook<'_>, module: ModuleId, class: corprof::metadata::TypeDef) {
    let _ = cx.class_from_token(module, class, &[]);
}

fn main() {}
