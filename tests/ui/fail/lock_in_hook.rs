//! A hook holds collections up, so it may not wait for a thread that waits for one.
use corprof::{prelude::*, sync::Mutex};

fn count(cx: &InHook<'_>, calls: &Mutex<u64>) {
    *calls.lock(cx) += 1;
}

fn main() {}
