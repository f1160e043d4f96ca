use corprof::prelude::*;

fn too_late(cx: &mut InAttach<'_>, hooks: impl FunctionHooks) {
    let _ = cx.hook_functions(hooks);
}

fn main() {}
