//! After an attach nobody asks any more whether precompiled code may be used.
use corprof::hooks::Precompiled;
use corprof::prelude::*;

fn attached(cx: &mut InAttach<'_>, hooks: impl FunctionHooks) {
    let _ = cx.hooks(hooks).inserted(Precompiled::Keep).install();
}

fn main() {}
