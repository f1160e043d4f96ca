//! Searches for code in the last callbacks of threads, for which a part of the runtime has gone already.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use corprof::args::JitCache;
use corprof::events::KeywordSet;
use corprof::id::{Inert, NativeCode};
use corprof::prelude::*;

#[derive(Default)]
struct Shared {
    /// Code that stays, compiled and precompiled.
    code: Mutex<Vec<NativeCode>>,
    late: AtomicU64,
    refused: AtomicU64,
}

impl Shared {
    fn keep(&self, cx: &InCallback<'_>, function: FunctionId) {
        self.code.lock().unwrap().extend(cx.native_code(function).unwrap_or_default());
    }

    fn search(&self, cx: &InNoGc<'_>) {
        let number = self.late.fetch_add(1, Relaxed) as usize;
        let code = {
            let kept = self.code.lock().unwrap();
            kept.get(number % kept.len().max(1)).copied()
        };
        let Some(code) = code else { return };
        let found = cx.function_from_ip(code.into());
        let mapping = cx.il_to_native_mapping(code);
        let ranges = cx.code_ranges(code.function());
        if found.is_err() && mapping.is_err() && ranges.is_err() {
            self.refused.fetch_add(1, Relaxed);
        }
    }
}

/// Collects without pause, and searches where collections meet threads, and at the threads' ends.
#[derive(Profiler, Default)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E1267", no_export)]
pub(crate) struct Farewells(Arc<Shared>);

#[callbacks]
impl Callbacks for Farewells {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let profiler = Self::default();
        cx.spawn_profiler_thread("collects", |cx| {
            while !cx.is_stopping() {
                let _ = cx.force_gc();
                std::thread::yield_now();
            }
        })?;
        // Each call about a session is made on a thread of its own, which the runtime gets to know, and detaches.
        cx.spawn_profiler_thread("sessions", move |cx| {
            while !cx.is_stopping() {
                if let Ok(events) = cx.start_runtime_events(KeywordSet::CONTENTION) {
                    let _ = events.stop(cx);
                }
            }
        })?;
        Ok(profiler)
    }

    fn jit_compilation_finished(&self, cx: &mut InCallback<'_>, function: FunctionId, _: Result<()>, _: bool) {
        self.0.keep(cx, function);
    }

    fn jit_cached_function_search_finished(&self, cx: &mut InCallback<'_>, function: FunctionId, _: JitCache) {
        self.0.keep(cx, function);
    }

    /// A sign of life.
    fn thread_created(&self, _: &mut InCallback<'_>, _: ThreadId) {}

    fn runtime_thread_resumed(&self, cx: &InNoGc<'_>, _: Inert<ThreadId>) {
        self.0.search(cx);
    }

    fn thread_destroyed(&self, cx: &mut InCallback<'_>, _: ThreadId) {
        self.0.search(cx);
    }

    fn shutdown(&self, _: &mut InCallback<'_>) {
        let Self(shared) = self;
        let [late, refused] = [&shared.late, &shared.refused].map(|count| count.load(Relaxed));
        eprintln!("attacks| farewells: late={late} refused={refused}");
    }
}
