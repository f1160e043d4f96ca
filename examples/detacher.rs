//! Attaches to a running application, counts its exceptions for a minute, and detaches.
//!
//! `corprof attach 4711 libdetacher.so` attaches it; `corprof detach 4711` has it detach earlier.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use corprof::prelude::*;

#[derive(Default, Profiler)]
#[profiler(clsid = "4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A08")]
struct Visitor {
    exceptions: AtomicUsize,
}

#[callbacks]
impl Callbacks for Visitor {
    fn initialize_for_attach(cx: &mut InAttach<'_>, _data: &[u8]) -> Result<Self, BoxError> {
        let detacher = cx.detacher()?;
        detacher.listen(cx)?;
        cx.spawn_profiler_thread("leaves in time", move |cx| {
            if cx.wait(Duration::from_secs(60)).is_continue()
                && let Err(error) = detacher.detach()
            {
                eprintln!("detacher: it stays: {error}");
            }
        })?;
        Ok(Self::default())
    }

    fn exception_thrown(&self, _cx: &InNoGc<'_>, _thrown: ObjectId<'_>) {
        self.exceptions.fetch_add(1, Relaxed);
    }

    /// Called at the detach, or at the end of the application if that comes first.
    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        eprintln!("detacher: {} exceptions", self.exceptions.load(Relaxed));
    }
}
