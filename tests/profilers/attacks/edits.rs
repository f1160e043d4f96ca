//! Safe edits where they do not fit, and edited bodies that are kept too long.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use corprof::edit::{CallCounter, CheckedBody, InProbe, Probe};
use corprof::id::Inert;
use corprof::prelude::*;

static CALLS: CallCounter = CallCounter::new();

struct Sees;

impl Probe for Sees {
    fn leave(&self, _cx: &InProbe<'_>, _result: &corprof::values::ReturnValue<'_>) {}
}

#[derive(Default)]
struct Counts {
    refused: AtomicU64,
    accepted: AtomicU64,
}

/// Keeps edited bodies of modules that come and go, and hands them over when these have gone.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E1222", no_export)]
pub(crate) struct KeepsBodies {
    bodies: Arc<Mutex<Vec<CheckedBody>>>,
    gone: Arc<Mutex<Vec<CheckedBody>>>,
    counts: Arc<Counts>,
}

#[callbacks]
impl Callbacks for KeepsBodies {
    /// One thread hands over all bodies at all times: also while their modules are being unloaded.
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let profiler = Self::default();
        let bodies = Arc::clone(&profiler.bodies);
        cx.spawn_profiler_thread("hands over", move |cx| {
            while cx.wait(Duration::from_millis(1)).is_continue() {
                let all = bodies.lock().unwrap().clone();
                for body in all {
                    let _ = cx.set_checked_body(&body);
                }
            }
        })?;
        Ok(profiler)
    }

    fn jit_compilation_started(&self, cx: &mut InCallback<'_>, function: FunctionId, _is_safe_to_block: bool) {
        let Ok(info) = cx.function_info(function) else { return };
        let is_passing = cx
            .module_info(info.module)
            .is_ok_and(|module| module.flags.contains(corprof::sys::COR_PRF_MODULE_COLLECTIBLE));
        if is_passing {
            let edited = cx.edit_method(info.module, info.token, |edit| {
                edit.count_calls(&CALLS)?;
                edit.probe(Sees)
            });
            self.bodies.lock().unwrap().extend(edited.ok());
        }
    }

    fn module_unload_started(&self, _cx: &mut InCallback<'_>, module: ModuleId) {
        let gone = self.bodies.lock().unwrap().extract_if(.., |body| body.module() == module).collect::<Vec<_>>();
        self.gone.lock().unwrap().extend(gone);
    }

    fn module_unload_finished(&self, cx: &mut InCallback<'_>, _module: Inert<ModuleId>, _status: Result<()>) {
        let gone = std::mem::take(&mut *self.gone.lock().unwrap());
        for body in gone {
            let is_refused = cx.set_checked_body(&body).is_err();
            let count = if is_refused { &self.counts.refused } else { &self.counts.accepted };
            count.fetch_add(1, Relaxed);
            // What it is stays readable.
            assert!(!body.bytes().is_empty() && !body.il_map().is_empty());
        }
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        let [refused, accepted] = [&self.counts.refused, &self.counts.accepted].map(|count| count.load(Relaxed));
        eprintln!("attacks| refused={refused} accepted={accepted} counted={}", CALLS.get());
    }
}
