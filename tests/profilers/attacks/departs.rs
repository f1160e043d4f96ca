//! Detaches at the end of a collection, with everything under way that a detach has to end.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use corprof::args::EventPipeEvent;
use corprof::detach::Detacher;
use corprof::events::Level;
use corprof::info::EventPipeProviderConfig;
use corprof::prelude::*;

/// Runtime, loader, JIT, exceptions, threads and types, without a dump of the heap.
const KEYWORDS: u64 = 0x0000_0080_0001_8039;

/// Leaves at the end of the collection whose number is in `ATTACKS_COLLECTION`.
#[derive(Profiler, Default)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E1271", no_export)]
pub(crate) struct Departs {
    detacher: OnceLock<Detacher>,
    leaves_at: OnceLock<u64>,
    collections: AtomicU64,
    taken: AtomicU64,
    modules: Mutex<Vec<ModuleId>>,
}

fn ask(cx: &mut ProfilerThread<'_>) {
    let modules = cx.enum_modules().unwrap_or_default();
    for module in modules {
        drop(cx.names().module(module));
    }
    for function in cx.jitted_functions().unwrap_or_default().into_iter().take(50) {
        drop(cx.names().function(function));
    }
}

#[callbacks]
impl Callbacks for Departs {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let profiler = Self::default();
        let detacher = cx.detacher()?;
        let _ = profiler.leaves_at.set(std::env::var("ATTACKS_COLLECTION")?.parse()?);
        let config = EventPipeProviderConfig {
            name: "Microsoft-Windows-DotNETRuntime",
            keywords: KEYWORDS,
            level: Level::Verbose,
            filter: None,
        };
        cx.event_pipe_start_session(&[config], false)?;
        cx.spawn_profiler_thread("snapshots", move |cx| {
            while !cx.is_stopping() {
                let dump = cx.take_heap_snapshot(Duration::from_secs(10), |_, _: &[u8]| Ok(()));
                eprintln!("attacks| snapshot: {}", dump.is_ok());
            }
        })?;
        for _ in 0..2 {
            cx.spawn_profiler_thread("asks", |cx| {
                while cx.wait(Duration::from_millis(1)).is_continue() {
                    ask(cx);
                }
            })?;
        }
        let info = Info::clone(cx);
        let waits = detacher.clone();
        std::thread::Builder::new().spawn(move || {
            while info.current_thread().is_ok() {}
            eprintln!("attacks| detached: {}", waits.wait().is_ok());
        })?;
        let _ = profiler.detacher.set(detacher);
        Ok(profiler)
    }

    fn module_load_finished(&self, _cx: &mut InCallback<'_>, module: ModuleId, _status: Result<()>) {
        self.modules.lock().unwrap().push(module);
    }

    fn garbage_collection_finished(&self, cx: &InNoGc<'_>) {
        let number = self.collections.fetch_add(1, Relaxed) + 1;
        let last = self.modules.lock().unwrap().last().copied();
        let _ = last.map(|module| cx.module_info(module));
        if self.leaves_at.get() == Some(&number)
            && let Some(detacher) = self.detacher.get()
        {
            eprintln!("attacks| leaves: {:?}", detacher.detach());
        }
    }

    fn event_pipe_event_delivered(&self, _cx: &InNoGc<'_>, _event: EventPipeEvent<'_>) {
        self.taken.fetch_add(1, Relaxed);
    }

    fn shutdown(&self, cx: &mut InCallback<'_>) {
        let modules = cx.enum_modules().map_or(0, |modules| modules.len());
        let [collections, events] = [&self.collections, &self.taken].map(|count| count.load(Relaxed));
        eprintln!("attacks| collections={collections} events={events} modules={modules}");
    }
}
