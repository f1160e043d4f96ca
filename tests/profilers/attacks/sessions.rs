//! Sessions of the runtime's events, started in callbacks in which the runtime could not run the managed code that hears of them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use corprof::events::KeywordSet;
use corprof::id::Inert;
use corprof::prelude::*;

/// How often each callback tries.
const TRIES: u64 = 3;

/// Starts them in callbacks that come in cooperative mode, and in one that comes on a thread of its own.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E1251", no_export)]
pub(crate) struct Sessions {
    tries: [AtomicU64; 6],
    refused: AtomicU64,
    started: AtomicU64,
}

impl Sessions {
    fn try_at(&self, cx: &mut InTriggers<'_>, place: usize) {
        if self.tries[place].fetch_add(1, Relaxed) >= TRIES {
            return;
        }
        let count = if cx.start_runtime_events(KeywordSet::CONTENTION).is_ok() { &self.started } else { &self.refused };
        count.fetch_add(1, Relaxed);
    }
}

std::thread_local! {
    static IS_OWN: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

#[callbacks]
impl Callbacks for Sessions {
    fn initialize(&self, cx: &mut InInitialize<'_>) -> Result<(), BoxError> {
        cx.spawn_profiler_thread("loads classes", |cx| {
            IS_OWN.set(true);
            while cx.wait(Duration::from_millis(5)).is_continue() {
                for module in cx.enum_modules().unwrap_or_default() {
                    let Ok(metadata) = cx.metadata(module) else { continue };
                    let classes = metadata.type_defs().unwrap_or_default();
                    drop(metadata);
                    for class in classes.into_iter().rev().take(50) {
                        let _ = cx.class_from_token(module, class, &[]);
                    }
                }
            }
        })?;
        Ok(())
    }

    fn class_load_started(&self, cx: &mut InTriggers<'_>, _class: Inert<ClassId>) {
        if IS_OWN.get() {
            self.try_at(cx, 0);
        }
    }

    fn assembly_load_started(&self, cx: &mut InTriggers<'_>, _assembly: Inert<AssemblyId>) {
        self.try_at(cx, 1);
    }

    fn assembly_load_finished(&self, cx: &mut InTriggers<'_>, _assembly: AssemblyId, _status: Result<()>) {
        self.try_at(cx, 2);
    }

    fn module_load_started(&self, cx: &mut InTriggers<'_>, _module: Inert<ModuleId>) {
        self.try_at(cx, 3);
    }

    fn exception_catcher_leave(&self, cx: &mut InTriggers<'_>) {
        self.try_at(cx, 4);
    }

    fn dynamic_method_unloaded(&self, cx: &mut InTriggers<'_>, _function: Inert<FunctionId>) {
        self.try_at(cx, 5);
    }

    fn shutdown(&self, _cx: &mut InTriggers<'_>) {
        let tries = self.tries.each_ref().map(|tries| tries.load(Relaxed).min(TRIES));
        let [refused, started] = [&self.refused, &self.started].map(|count| count.load(Relaxed));
        eprintln!("attacks| refused={refused} started={started} of {tries:?}");
    }
}
