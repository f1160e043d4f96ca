//! Listing threads lets a collection in, so that an object could move.
use corprof::prelude::*;

fn object_allocated(cx: &InNoGc<'_>, _object: ObjectId<'_>) {
    let _ = cx.enum_threads();
}

fn main() {}
