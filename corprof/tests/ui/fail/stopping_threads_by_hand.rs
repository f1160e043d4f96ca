//! Only the sampler's thread can stop others (suspension rule 1).
use corprof::prelude::*;
use corprof::walk::Strategy;

fn stop(cx: &ProfilerThread<'_>) {
    let _ = cx.suspend_runtime();
    let _ = corprof::walk::strategy::begin(Strategy::SuspendedRuntime, cx);
}

fn main() {}
