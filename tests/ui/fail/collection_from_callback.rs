//! A collection cannot be asked for from inside of a callback.
use corprof::prelude::*;

fn collect(cx: &mut InCallback<'_>) {
    let _ = cx.force_gc();
}

fn main() {}
