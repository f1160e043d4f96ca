//! In a hook no name can be looked up: `select` is the place.
use corprof::prelude::*;

fn ask(cx: &InHook<'_>) -> Name {
    cx.names().function(cx.function())
}

fn main() {}
