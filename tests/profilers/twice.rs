//! Attaches, and samples by two threads that both suspend the runtime: for `live/sampling.rs`.

#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use corprof::prelude::*;
use corprof::sampler::{Mode, Sampler, Strategy};

#[derive(Profiler, Default)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E1371")]
struct Twice {
    /// Rounds that suspended, and rounds by signals.
    rounds: Arc<[AtomicU64; 2]>,
}

#[callbacks]
impl Callbacks for Twice {
    fn initialize_for_attach(cx: &mut InAttach<'_>, _data: &[u8]) -> Result<Self, BoxError> {
        let profiler = Self::default();
        let sampler = || Sampler::every(Duration::from_micros(100)).budget(1.0);
        let rounds = Arc::clone(&profiler.rounds);
        sampler().strategy(Strategy::SuspendedRuntime).start(cx, move |round| {
            rounds[0].store(round.report().rounds, Relaxed);
        })?;
        // It suspends as well, for threads that are older than itself and never wait.
        let rounds = Arc::clone(&profiler.rounds);
        sampler().mode(Mode::Cpu).strategy(Strategy::Signals).start(cx, move |round| {
            rounds[1].store(round.report().rounds, Relaxed);
        })?;
        Ok(profiler)
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        let [suspended, signals] = &*self.rounds;
        eprintln!("rounds: {} {}", suspended.load(Relaxed), signals.load(Relaxed));
    }
}
