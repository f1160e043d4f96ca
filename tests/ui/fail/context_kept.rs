//! A context is good for its own callback only.
use corprof::prelude::*;

struct Keeper<'a>(Option<&'a InNoGc<'a>>);

impl<'a> Keeper<'a> {
    fn keep(&mut self, cx: &InNoGc<'_>) {
        self.0 = Some(cx);
    }
}

fn main() {}
