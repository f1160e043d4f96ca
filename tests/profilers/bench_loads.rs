//! Counts modules that go, and classes and code that come: `cargo xtask bench` measures the cost of that for an
//! application that loads and unloads assemblies, against the same in C (bench/floor.c).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use corprof::prelude::*;

#[derive(Default, Profiler)]
#[profiler(clsid = "C0A7E500-52B1-4F0E-8E5B-7A9C3D1F6E0A")]
struct Loads {
    modules: AtomicU64,
    classes: AtomicU64,
    functions: AtomicU64,
}

#[callbacks]
impl Callbacks for Loads {
    fn module_unload_started(&self, _cx: &mut InCallback<'_>, _module: ModuleId) {
        self.modules.fetch_add(1, Relaxed);
    }

    fn class_load_finished(&self, _cx: &mut InCallback<'_>, _class: ClassId, _status: Result<()>) {
        self.classes.fetch_add(1, Relaxed);
    }

    fn jit_compilation_started(&self, _cx: &mut InCallback<'_>, _function: FunctionId, _is_safe_to_block: bool) {
        self.functions.fetch_add(1, Relaxed);
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        let [modules, classes, functions] = [&self.modules, &self.classes, &self.functions].map(|it| it.load(Relaxed));
        eprintln!("modules={modules}\nclasses={classes}\nfunctions={functions}");
    }
}
