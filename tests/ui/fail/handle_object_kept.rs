//! A handle may be kept, the object that it finds may not.
use corprof::{info::ObjectHandle, prelude::*, sync::Mutex};

fn keep(last: &Mutex<Option<ObjectId<'static>>>, handle: &ObjectHandle, cx: &InNoGc<'_>) {
    *last.lock(cx) = handle.get(cx).ok().flatten();
}

fn main() {}
