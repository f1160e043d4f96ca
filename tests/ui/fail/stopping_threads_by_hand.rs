//! Only the sampler's thread can stop others (suspension rule 1).
use corprof::prelude::*;
use corprof::sampler::{Sampler, Strategy};

fn stop(sampler: &Sampler, cx: &ProfilerThread<'_>) {
    let _ = cx.suspend_runtime();
    let _ = corprof::sampler::strategy::start(Strategy::SuspendedRuntime, sampler, cx);
}

fn main() {}
