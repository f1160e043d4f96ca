//! Only the sampler's thread can stop others (suspension rule 1).
use corprof::prelude::*;
use corprof::walk::{Sampler, Strategy};

fn stop(sampler: &Sampler, cx: &ProfilerThread<'_>) {
    let _ = cx.suspend_runtime();
    let _ = corprof::walk::strategy::begin(Strategy::SuspendedRuntime, sampler, cx);
}

fn main() {}
