//! A thread may have ended since it was sampled.
use corprof::sampler::Round;

fn see(round: &mut Round<'_, '_>) {
    for sample in round.samples() {
        let _ = round.cx().os_thread_id(sample.thread().id);
    }
}

fn main() {}
