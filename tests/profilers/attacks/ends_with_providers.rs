//! Makes EventPipe providers where threads end, while sessions begin: each of the two wants a lock that the other has.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use corprof::events::KeywordSet;
use corprof::prelude::*;

#[derive(Default)]
struct Counts {
    sessions: AtomicU64,
    made: AtomicU64,
    refused: AtomicU64,
}

/// Starts and stops sessions without pause, and makes a provider at the end of each thread.
#[derive(Profiler, Default)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E1290", no_export)]
pub(crate) struct EndsWithProviders(Arc<Counts>);

#[callbacks]
impl Callbacks for EndsWithProviders {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let profiler = Self::default();
        let counts = Arc::clone(&profiler.0);
        cx.spawn_profiler_thread("sessions", move |cx| {
            while !cx.is_stopping() {
                if let Ok(events) = cx.start_runtime_events(KeywordSet::CONTENTION) {
                    counts.sessions.fetch_add(1, Relaxed);
                    let _ = events.stop(cx);
                }
            }
        })?;
        Ok(profiler)
    }

    fn thread_destroyed(&self, cx: &mut InCallback<'_>, _: ThreadId) {
        let Self(counts) = self;
        let count =
            if cx.event_pipe_create_provider("Corprof-Farewell").is_ok() { &counts.made } else { &counts.refused };
        count.fetch_add(1, Relaxed);
    }

    fn shutdown(&self, _: &mut InCallback<'_>) {
        let Self(counts) = self;
        let [sessions, made, refused] =
            [&counts.sessions, &counts.made, &counts.refused].map(|count| count.load(Relaxed));
        eprintln!("attacks| providers: sessions={sessions} made={made} refused={refused}");
    }
}
