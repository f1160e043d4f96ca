//! Samples the stacks of running threads a hundred times per second, and draws them as a flame graph: sampler.svg.

use std::sync::Arc;
use std::time::Duration;

use corprof::prelude::*;
use corprof::sampler::{Mode, Sampler};
use corprof::sync::Mutex;
use corprof_export::{Frame, Profile, Unit, application_name};

#[derive(Profiler)]
#[profiler(clsid = "4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7E05")]
struct FlameGraph {
    profile: Arc<Mutex<Profile>>,
}

#[callbacks]
impl Callbacks for FlameGraph {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let mut profile = Profile::summed(application_name(), Unit::Nanoseconds);
        let threads = profile.thread(0, "all threads");
        let profile = Arc::new(Mutex::new(profile));
        let samples = Arc::clone(&profile);
        Sampler::every(Duration::from_millis(10)).mode(Mode::Cpu).start(cx, move |round| {
            let names = round.cx().names().csharp();
            let mut profile = samples.lock(round.cx());
            for sample in round.samples() {
                let functions = sample.frames().iter().filter_map(|frame| frame.function);
                let frames: Vec<_> =
                    functions.map(|function| profile.frame(Frame::managed(&names.function(function)))).collect();
                let stack = profile.stack_leaf_first(frames);
                profile.sample(threads, Duration::ZERO, stack, sample.weight().as_nanos() as u64);
            }
        })?;
        Ok(Self { profile })
    }

    fn shutdown(&self, cx: &mut InCallback<'_>) {
        match self.profile.lock(cx).write("sampler.svg") {
            Ok(_) => eprintln!("sampler: see sampler.svg"),
            Err(error) => eprintln!("sampler: {error}"),
        }
    }
}
