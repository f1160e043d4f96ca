//! A hook's context ends with the hook.
use corprof::prelude::*;

fn keep(kept: &mut Option<&'static InHook<'static>>, cx: &InHook<'_>) {
    *kept = Some(cx);
}

fn main() {}
