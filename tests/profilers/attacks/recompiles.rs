//! Requests the recompilation of methods at the moment in which they are inlined.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use corprof::metadata::MethodDef;
use corprof::prelude::*;

/// How many methods that were just inlined are known.
const KEPT: usize = 64;

#[derive(Default)]
struct Shared {
    inlined: Mutex<Vec<(ModuleId, MethodDef)>>,
    asked: AtomicU64,
    requests: AtomicU64,
}

/// Requests the recompilation of what is inlined, and reverts it, without pause.
#[derive(Profiler, Default)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E1295", no_export)]
pub(crate) struct Recompiles(Arc<Shared>);

#[callbacks]
impl Callbacks for Recompiles {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let profiler = Self::default();
        cx.add_events(EventMask::ENABLE_REJIT)?;
        let shared = Arc::clone(&profiler.0);
        cx.spawn_profiler_thread("requests", move |cx| {
            while !cx.is_stopping() {
                let some: Vec<_> = {
                    let inlined = shared.inlined.lock().unwrap();
                    inlined.iter().filter(|_| fastrand::u32(..8) == 0).copied().collect()
                };
                if some.is_empty() {
                    std::thread::yield_now();
                    continue;
                }
                shared.requests.fetch_add(u64::from(cx.request_rejit(&some).is_ok()), Relaxed);
                let _ = cx.request_revert(&some);
            }
        })?;
        Ok(profiler)
    }

    fn jit_inlining(&self, cx: &mut InCallback<'_>, _caller: FunctionId, callee: FunctionId) -> bool {
        let number = self.0.asked.fetch_add(1, Relaxed) as usize;
        if let Ok(info) = cx.function_info(callee) {
            let mut inlined = self.0.inlined.lock().unwrap();
            match inlined.get_mut(number % KEPT) {
                Some(place) => *place = (info.module, info.token),
                None => inlined.push((info.module, info.token)),
            }
        }
        true
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        let [asked, requests] = [&self.0.asked, &self.0.requests].map(|count| count.load(Relaxed));
        eprintln!("attacks| asked={asked} requests={requests}");
    }
}
