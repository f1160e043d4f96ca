//! The next round writes over the samples of this one.
use corprof::sampler::Sampler;
use corprof::prelude::*;
use corprof::sampler::{Sample, SamplerError};

fn keep(cx: &mut InInitialize<'_>) -> Result<(), SamplerError> {
    let mut kept: Vec<Sample<'_>> = Vec::new();
    Sampler::every(std::time::Duration::from_millis(10)).start(cx, move |round| kept.extend(round.samples()))
}

fn main() {}
