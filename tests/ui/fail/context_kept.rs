//! A context is good for its own callback only.
use corprof::prelude::*;

struct Keeper<'a>(Option<&'a InCallback<'a>>);

impl<'a> Keeper<'a> {
    fn keep(&mut self, cx: &InCallback<'_>) {
        self.0 = Some(cx);
    }
}

fn main() {}
