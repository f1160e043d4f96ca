//! A lock is taken with a callback's context: an `Info` could be kept beside one.
use corprof::{prelude::*, sync::Mutex};

fn count(table: &Mutex<u32>, info: &Info) {
    *table.lock(info) += 1;
}

fn main() {}
