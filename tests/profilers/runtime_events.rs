//! Starts and stops sessions of the runtime's events while the application collects: for `live/event_pipe.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use corprof::args::EventPipeEvent;
use corprof::events::KeywordSet;
use corprof::prelude::*;
use corprof::sync::Mutex;

/// How often a thread of the profiler starts and stops sessions.
const ROUNDS: u64 = 60;

#[derive(Profiler, Default)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E1202")]
struct Attacks(Arc<Counts>);

#[derive(Default)]
struct Counts {
    /// Events of the runtime, by `of_runtime`.
    delivered: AtomicU64,
    /// Those of collections, while the only session is one of other events.
    unwanted: AtomicU64,
    is_without_gc: AtomicBool,
    rounds: AtomicU64,
    errors: AtomicU64,
    /// A lock that deliveries take: whoever stops a session must not hold it.
    lock: Mutex<()>,
}

impl Counts {
    fn check<T>(&self, what: &str, result: Result<T>) -> Option<T> {
        let failed = |error: &corprof::Error| {
            self.errors.fetch_add(1, Relaxed);
            eprintln!("runtime_events| {what}: error {error}");
        };
        result.inspect_err(failed).ok()
    }
}

#[callbacks]
impl Callbacks for Attacks {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let profiler = Self::default();
        let counts = Arc::clone(&profiler.0);
        cx.spawn_profiler_thread("attacks", move |cx| {
            let all = KeywordSet::GC | KeywordSet::ALLOCATION_TICKS | KeywordSet::CONTENTION;
            let mut earlier = None;
            while counts.rounds.load(Relaxed) < ROUNDS && !cx.is_stopping() {
                let one = counts.check("start", cx.start_runtime_events(all));
                let other = counts.check("start", cx.start_runtime_events(KeywordSet::GC));
                drop(counts.lock.lock(cx));
                for session in [one, earlier.take()].into_iter().flatten() {
                    let id = session.id();
                    counts.check("stop", session.stop(cx));
                    if cx.event_pipe_stop_session(id).is_ok() {
                        counts.errors.fetch_add(1, Relaxed);
                        eprintln!("runtime_events| a session was stopped twice");
                    }
                }
                earlier = other;
                counts.rounds.fetch_add(1, Relaxed);
            }
            if let Some(session) = earlier {
                counts.check("stop", session.stop(cx));
            }
            // The events of earlier sessions are not delivered to a later one, which nobody stops.
            counts.is_without_gc.store(true, Relaxed);
            counts.check("start", cx.start_runtime_events(KeywordSet::CONTENTION));
            while !cx.is_stopping() && cx.wait(Duration::from_millis(50)).is_continue() {}
        })?;
        Ok(profiler)
    }

    fn event_pipe_event_delivered(&self, cx: &InNoGc<'_>, event: EventPipeEvent<'_>) {
        let Some(event) = event.of_runtime(cx) else { return };
        self.0.delivered.fetch_add(1, Relaxed);
        let _guard = self.0.lock.lock(cx);
        if self.0.is_without_gc.load(Relaxed) && event.name().to_string().starts_with("GC") {
            self.0.unwanted.fetch_add(1, Relaxed);
        }
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        let counts = [&self.0.delivered, &self.0.unwanted, &self.0.rounds, &self.0.errors];
        let [delivered, unwanted, rounds, errors] = counts.map(|count| count.load(Relaxed));
        eprintln!("runtime_events| delivered {delivered} unwanted {unwanted} rounds {rounds} errors {errors}");
    }
}
