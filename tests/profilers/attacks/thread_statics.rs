//! Asks for thread-static fields of all threads, while these begin, use more of them, and end.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use corprof::metadata::FieldDef;
use corprof::prelude::*;

#[derive(Default)]
struct Shared {
    threads: Mutex<HashSet<ThreadId>>,
    fields: Mutex<Vec<(ClassId, FieldDef)>>,
    found: AtomicU64,
    refused: AtomicU64,
}

#[derive(Profiler, Default)]
#[profiler(clsid = "1F915C74-A1B1-43A4-A141-DB9B98B2C913", no_export)]
pub(crate) struct AsksForThreadStatics {
    shared: Arc<Shared>,
    is_done: AtomicBool,
}

impl Shared {
    fn ask(&self, cx: &ProfilerThread<'_>) {
        let threads: Vec<_> = self.threads.lock().unwrap().iter().copied().collect();
        let fields = self.fields.lock().unwrap().clone();
        for thread in threads {
            let Ok(domain) = cx.thread_app_domain(thread) else { continue };
            for &(class, field) in &fields {
                let found = cx.thread_static_address(class, field, domain, Some(thread));
                let count = if found.is_ok() { &self.found } else { &self.refused };
                count.fetch_add(1, Relaxed);
            }
        }
    }
}

/// The thread-static fields of all classes that are not generic, which are loaded for that.
fn thread_statics(cx: &mut InCallback<'_>) -> Result<Vec<(ClassId, FieldDef)>> {
    let mut all = Vec::new();
    for module in cx.enum_modules()? {
        for definition in cx.metadata(module)?.type_defs()? {
            let metadata = cx.metadata(module)?;
            let mut fields = metadata.fields(definition)?;
            let attribute = |field| metadata.custom_attribute_named(field, "System.ThreadStaticAttribute");
            fields.retain(|&field| matches!(attribute(field), Ok(Some(_))));
            drop(metadata);
            if !fields.is_empty()
                && let Ok(class) = cx.class_from_token(module, definition, &[])
            {
                all.extend(fields.into_iter().map(|field| (class, field)));
            }
        }
    }
    Ok(all)
}

#[callbacks]
impl Callbacks for AsksForThreadStatics {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let profiler = Self::default();
        for _ in 0..2 {
            let shared = Arc::clone(&profiler.shared);
            cx.spawn_profiler_thread("asks", move |cx| {
                while !cx.is_stopping() {
                    shared.ask(cx);
                    std::thread::yield_now();
                }
            })?;
        }
        Ok(profiler)
    }

    fn jit_compilation_started(&self, cx: &mut InCallback<'_>, function: FunctionId, _is_safe_to_block: bool) {
        if cx.names().function(function).contains(".Main(") && !self.is_done.swap(true, Relaxed) {
            let found = thread_statics(cx).unwrap();
            *self.shared.fields.lock().unwrap() = found;
        }
    }

    fn thread_created(&self, _cx: &mut InCallback<'_>, thread: ThreadId) {
        self.shared.threads.lock().unwrap().insert(thread);
    }

    fn thread_destroyed(&self, _cx: &mut InCallback<'_>, thread: ThreadId) {
        self.shared.threads.lock().unwrap().remove(&thread);
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        let [found, refused] = [&self.shared.found, &self.shared.refused].map(|count| count.load(Relaxed));
        eprintln!("attacks| found={found} refused={refused}");
    }
}
