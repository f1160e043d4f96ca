//! A profiler that hears of exceptions and of handles, and counts both: for `live/filters.rs`.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use corprof::id::HandleId;
use corprof::prelude::*;

#[derive(Profiler, Default)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E0310")]
struct Handles {
    thrown: AtomicUsize,
    created: AtomicUsize,
    destroyed: AtomicUsize,
}

#[callbacks]
impl Callbacks for Handles {
    fn exception_thrown(&self, _cx: &InNoGc<'_>, _thrown: ObjectId<'_>) {
        self.thrown.fetch_add(1, Relaxed);
    }

    fn handle_created(&self, _cx: &InNoGc<'_>, _handle: HandleId, _object: Option<ObjectId<'_>>) {
        self.created.fetch_add(1, Relaxed);
    }

    fn handle_destroyed(&self, _cx: &InNoGc<'_>, _handle: HandleId) {
        self.destroyed.fetch_add(1, Relaxed);
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        let [thrown, created, destroyed] =
            [&self.thrown, &self.created, &self.destroyed].map(|count| count.load(Relaxed));
        eprintln!("thrown={thrown} created={created} destroyed={destroyed}");
    }
}
