//! Attaches by the diagnostics port, and reports its client data and the later events: for `live/diagnostics.rs`.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use corprof::prelude::*;

#[derive(Profiler, Default)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E1301")]
struct Attached {
    thrown: AtomicU32,
}

#[callbacks]
impl Callbacks for Attached {
    fn initialize(_cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        eprintln!("attached| loaded at start-up");
        Ok(Self::default())
    }

    fn initialize_for_attach(_cx: &mut InAttach<'_>, data: &[u8]) -> Result<Self, BoxError> {
        eprintln!("attached| given {data:?}");
        Ok(Self::default())
    }

    fn profiler_attach_complete(&self, _cx: &mut InCallback<'_>) {
        eprintln!("attached| complete");
    }

    fn exception_thrown(&self, _cx: &InNoGc<'_>, _thrown: ObjectId<'_>) {
        self.thrown.fetch_add(1, Relaxed);
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        eprintln!("attached| exceptions: {}", self.thrown.load(Relaxed));
    }
}
