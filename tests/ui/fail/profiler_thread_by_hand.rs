//! Only corprof knows of a thread that it never ran managed code.
use corprof::prelude::*;

fn collect(info: &Info) {
    let mut cx = ProfilerThread::new(info);
    let _ = cx.force_gc();
}

fn main() {}
