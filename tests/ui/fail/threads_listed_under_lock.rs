//! Listing threads waits for a collection, which may wait for a thread that wants the lock.
use corprof::{prelude::*, sync::Mutex};

fn count(table: &Mutex<usize>, cx: &mut InCallback<'_>) {
    let mut guard = table.lock(cx);
    *guard = cx.enum_threads().map_or(0, |threads| threads.len());
}

fn main() {}
