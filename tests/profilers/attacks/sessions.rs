//! Sessions of the runtime's events, started in callbacks in which the runtime could not run the managed code that hears of them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use corprof::events::KeywordSet;
use corprof::id::Inert;
use corprof::prelude::*;

/// How often each callback tries.
const TRIES: u64 = 3;

/// Starts them in callbacks that come in cooperative mode, and while a class is loaded.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E1251", no_export)]
pub(crate) struct Sessions {
    tries: [AtomicU64; 6],
    refused: AtomicU64,
    started: AtomicU64,
}

impl Sessions {
    fn try_at(&self, cx: &mut InCallback<'_>, place: usize) {
        if self.tries[place].fetch_add(1, Relaxed) >= TRIES {
            return;
        }
        let count = if cx.start_runtime_events(KeywordSet::CONTENTION).is_ok() { &self.started } else { &self.refused };
        count.fetch_add(1, Relaxed);
    }
}

#[callbacks]
impl Callbacks for Sessions {
    fn class_load_started(&self, cx: &mut InCallback<'_>, _class: Inert<ClassId>) {
        self.try_at(cx, 0);
    }

    fn assembly_load_started(&self, cx: &mut InCallback<'_>, _assembly: Inert<AssemblyId>) {
        self.try_at(cx, 1);
    }

    fn assembly_load_finished(&self, cx: &mut InCallback<'_>, _assembly: AssemblyId, _status: Result<()>) {
        self.try_at(cx, 2);
    }

    fn module_load_started(&self, cx: &mut InCallback<'_>, _module: Inert<ModuleId>) {
        self.try_at(cx, 3);
    }

    fn exception_catcher_leave(&self, cx: &mut InCallback<'_>) {
        self.try_at(cx, 4);
    }

    fn dynamic_method_unloaded(&self, cx: &mut InCallback<'_>, _function: Inert<FunctionId>) {
        self.try_at(cx, 5);
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        let tries = self.tries.each_ref().map(|tries| tries.load(Relaxed).min(TRIES));
        let [refused, started] = [&self.refused, &self.started].map(|count| count.load(Relaxed));
        eprintln!("attacks| refused={refused} started={started} of {tries:?}");
    }
}
