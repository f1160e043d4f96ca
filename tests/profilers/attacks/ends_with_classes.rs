//! Loads classes where threads end, while other threads load classes and collect.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use corprof::metadata::TypeDef;
use corprof::prelude::*;

/// Loads the next class of the core library at the end of each thread.
#[derive(Profiler, Default)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E12A1", no_export)]
pub(crate) struct EndsWithClasses {
    core: Mutex<Option<(ModuleId, Vec<TypeDef>)>>,
    loaded: AtomicU64,
    refused: AtomicU64,
}

#[callbacks]
impl Callbacks for EndsWithClasses {
    fn initialize(_cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        Ok(Self::default())
    }

    fn module_load_finished(&self, cx: &mut InCallback<'_>, module: ModuleId, _status: Result<()>) {
        let mut core = self.core.lock().unwrap();
        if core.is_some() {
            return;
        }
        if let Ok(defs) = cx.metadata(module).and_then(|metadata| metadata.type_defs()) {
            *core = Some((module, defs));
        }
    }

    fn thread_destroyed(&self, cx: &mut InCallback<'_>, _: ThreadId) {
        for _ in 0..3 {
            let next = {
                let mut core = self.core.lock().unwrap();
                core.as_mut().and_then(|(module, defs)| Some((*module, defs.pop()?)))
            };
            let Some((module, class)) = next else { return };
            let count = if cx.class_from_token(module, class, &[]).is_ok() { &self.loaded } else { &self.refused };
            count.fetch_add(1, Relaxed);
        }
    }

    fn shutdown(&self, _: &mut InCallback<'_>) {
        let [loaded, refused] = [&self.loaded, &self.refused].map(|count| count.load(Relaxed));
        eprintln!("attacks| classes: loaded={loaded} refused={refused}");
    }
}
