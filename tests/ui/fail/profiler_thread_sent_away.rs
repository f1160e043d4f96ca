//! The context belongs to the thread that corprof has made.
use corprof::prelude::*;

fn collect(cx: &mut ProfilerThread<'_>) {
    std::thread::scope(|scope| scope.spawn(|| cx.force_gc()).join());
}

fn main() {}
