//! A sampler with all of its settings.
use corprof::sampler::Sampler;
use corprof::prelude::*;
use corprof::sampler::{Mode, SamplerError, Strategy};
use std::time::Duration;

fn start(cx: &mut InInitialize<'_>) -> Result<(), SamplerError> {
    let mut seen = 0;
    Sampler::every(Duration::from_millis(1))
        .mode(Mode::Cpu)
        .threads(|thread| thread.name.as_deref() != Some("housekeeping"))
        .budget(0.05)
        .longest_suspension(Duration::from_millis(20))
        .max_depth(100)
        .strategy(Strategy::SuspendedRuntime)
        .start(cx, move |round| {
            for sample in round.samples() {
                let _ = round.cx_mut().force_gc();
                seen += sample.frames().len();
            }
        })
}

fn main() {
    let _ = start;
}
