//! Suspends the runtime from several threads at once, each in a way of its own, and lists the threads meanwhile.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use corprof::prelude::*;
use corprof::sampler::{Sampler, Strategy};

/// How many times each was done.
#[derive(Default)]
struct Counts {
    rounds: AtomicU64,
    heaps: AtomicU64,
    refused: AtomicU64,
    lists: AtomicU64,
}

impl Counts {
    /// Visits the first objects of the heap, which takes little time, so that the next suspension is soon.
    fn walk_heap(&self, cx: &mut ProfilerThread<'_>) {
        let mut left = 10;
        let walked = cx.enumerate_gc_heap_objects(|_, _| {
            left -= 1;
            if left > 0 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        let count = if walked.is_ok() { &self.heaps } else { &self.refused };
        count.fetch_add(1, Relaxed);
    }

    fn list(&self, cx: &mut ProfilerThread<'_>) {
        let listed = cx.enum_threads();
        let count = if listed.is_ok() { &self.lists } else { &self.refused };
        count.fetch_add(1, Relaxed);
    }

    fn tell(&self) {
        let [rounds, heaps, refused, lists] =
            [&self.rounds, &self.heaps, &self.refused, &self.lists].map(|count| count.load(Relaxed));
        eprintln!("attacks| rounds={rounds} heaps={heaps} refused={refused} lists={lists}");
    }
}

/// Starts a thread for each word: `sampler`, `heap`, `lists`.
fn start(cx: &mut InCallback<'_>, words: &str) -> Result<Arc<Counts>, BoxError> {
    let counts = Arc::<Counts>::default();
    for word in words.split_whitespace() {
        let own = Arc::clone(&counts);
        if word == "sampler" {
            let sampler = Sampler::every(Duration::from_micros(100)).budget(1.0);
            sampler.strategy(Strategy::SuspendedRuntime).start(cx, move |round| {
                own.rounds.store(round.report().rounds, Relaxed);
            })?;
            continue;
        }
        let does = if word == "heap" { Counts::walk_heap } else { Counts::list };
        cx.spawn_profiler_thread(word, move |cx| {
            while !cx.is_stopping() {
                does(&own, cx);
            }
        })?;
    }
    Ok(counts)
}

/// Does what `ATTACKS_SUSPENDS` says.
#[derive(Profiler)]
#[profiler(clsid = "1F915C74-A1B1-43A4-A141-DB9B98B2C920", no_export)]
pub(crate) struct Suspends(Arc<Counts>);

#[callbacks]
impl Callbacks for Suspends {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        Ok(Self(start(cx, &std::env::var("ATTACKS_SUSPENDS")?)?))
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        self.0.tell();
    }
}

/// Is loaded beside another profiler, and does what `ATTACKS_SUSPENDS_BESIDE` says.
#[derive(Profiler)]
#[profiler(clsid = "1F915C74-A1B1-43A4-A141-DB9B98B2C921", no_export, notification_only)]
pub(crate) struct SuspendsBeside(Arc<Counts>);

#[callbacks]
impl Callbacks for SuspendsBeside {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        Ok(Self(start(cx, &std::env::var("ATTACKS_SUSPENDS_BESIDE")?)?))
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        self.0.tell();
    }
}
