//! The correct forms of the cases about threads and handles.
use corprof::{info::ObjectHandle, prelude::*, sync::Mutex};
use std::{sync::Arc, time::Duration};

#[derive(Default)]
struct Collector {
    collections: Arc<Mutex<u32>>,
    kept: Mutex<Option<ObjectHandle>>,
}

#[callbacks]
impl Callbacks for Collector {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let profiler = Self::default();
        let collections = Arc::clone(&profiler.collections);
        cx.spawn_profiler_thread("collector", move |cx| {
            while cx.wait(Duration::from_secs(1)).is_continue() {
                let done = cx.force_gc().is_ok();
                *collections.lock(cx) += u32::from(done);
            }
        })?;
        Ok(profiler)
    }

    fn garbage_collection_finished(&self, cx: &InNoGc<'_>) {
        let kept = self.kept.lock(cx);
        let object = kept.as_ref().and_then(|handle| handle.get(cx).ok().flatten());
        let _ = object.map(|object| cx.object_size(object));
    }
}

fn main() {}
