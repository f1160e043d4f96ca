//! Attaches, asks at once about all functions that the runtime lists, and leaves: for `live/catch_up.rs`. It must not
//! be able to crash a program that unloads assemblies meanwhile.

#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use corprof::prelude::*;
use corprof::sys;

/// How long after the attach it goes on.
const TIME: Duration = Duration::from_millis(40);

#[derive(Profiler, Default)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E1361")]
struct Hasty {
    /// The first callbacks ask, the others do not.
    asked: AtomicUsize,
    listed: AtomicUsize,
    refused: AtomicUsize,
    /// By the address of its code, on the profiler's thread.
    found: Arc<AtomicUsize>,
    early: Mutex<Vec<ModuleId>>,
}

impl Hasty {
    /// Asks about everything. Errors are answers, too.
    fn ask(&self, cx: &mut InCallback<'_>) {
        match cx.jitted_functions() {
            Ok(functions) => {
                for function in functions {
                    if let Ok(info) = cx.function_info(function) {
                        std::hint::black_box((cx.module_info(info.module).is_ok(), info.token));
                        self.listed.fetch_add(1, Relaxed);
                    }
                    std::hint::black_box(cx.native_code(function).is_ok());
                }
            }
            Err(_) => _ = self.refused.fetch_add(1, Relaxed),
        }
        for module in cx.enum_modules().unwrap_or_default() {
            std::hint::black_box(cx.module_info(module).is_ok());
        }
    }
}

#[callbacks]
impl Callbacks for Hasty {
    fn initialize_for_attach(cx: &mut InAttach<'_>, _data: &[u8]) -> Result<Self, BoxError> {
        let profiler = Self::default();
        profiler.ask(cx);
        std::hint::black_box(cx.code_address(0x1000).is_some());
        *profiler.early.lock().map_err(|_| "poisoned")? = cx.enum_modules().unwrap_or_default();
        let detacher = cx.detacher()?;
        let found = Arc::clone(&profiler.found);
        cx.spawn_profiler_thread("leaves", move |cx| {
            let begin = Instant::now();
            while begin.elapsed() < TIME && cx.wait(Duration::from_millis(1)).is_continue() {
                for function in cx.jitted_functions().unwrap_or_default() {
                    std::hint::black_box(cx.function_info(function).is_ok());
                    let Some(code) = cx.native_code(function).ok().and_then(|code| code.first().copied()) else {
                        continue;
                    };
                    if matches!(cx.function_version_from_ip(code.into()), Ok(Some(_))) {
                        found.fetch_add(1, Relaxed);
                    }
                }
            }
            match detacher.detach() {
                // The application ended first: `shutdown` comes without a detach.
                Err(error) if error.code() == sys::CORPROF_E_PROFILER_DETACHING => {}
                answer => answer.unwrap_or_else(|error| eprintln!("hasty| it stays: {error}")),
            }
        })?;
        Ok(profiler)
    }

    fn profiler_attach_complete(&self, cx: &mut InCallback<'_>) {
        self.ask(cx);
        if let Ok(early) = self.early.lock() {
            early.iter().for_each(|&module| _ = std::hint::black_box(cx.module_info(module).is_ok()));
        }
    }

    fn jit_compilation_finished(&self, cx: &mut InCallback<'_>, function: FunctionId, _: Result<()>, _: bool) {
        std::hint::black_box(cx.function_info(function).is_ok());
        if self.asked.fetch_add(1, Relaxed) < 2 {
            self.ask(cx);
        }
    }

    fn module_unload_started(&self, _cx: &mut InCallback<'_>, _module: ModuleId) {}

    fn shutdown(&self, cx: &mut InCallback<'_>) {
        _ = std::hint::black_box(cx.enum_threads().is_ok());
        let asked = self.asked.load(Relaxed);
        let listed = self.listed.load(Relaxed);
        let refused = self.refused.load(Relaxed);
        let found = self.found.load(Relaxed);
        eprintln!(
            "hasty| leaves: asked about {listed} functions, refused {refused} times, {asked} compiled, {found} found"
        );
    }
}
