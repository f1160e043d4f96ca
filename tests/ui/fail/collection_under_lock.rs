//! Suspension rule 3 holds on a thread of one's own, too.
use corprof::{prelude::*, sync::Mutex};

fn collect(table: &Mutex<u32>, cx: &mut ProfilerThread<'_>) {
    let mut guard = table.lock(cx);
    let _ = cx.force_gc();
    *guard += 1;
}

fn main() {}
