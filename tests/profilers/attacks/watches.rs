//! Watches threads that come and go by everything that reads threads, and leaves in the middle.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use corprof::args::{GcReason, Generations};
use corprof::detach::Detacher;
use corprof::heap_dump::BlockSink;
use corprof::metadata::FieldDef;
use corprof::object_chains::ChainStart;
use corprof::prelude::*;
use corprof::sampler::{Mode, Round, Sampler, Strategy};

/// The words that say what is done, with the detacher, and the number of the callback in which it leaves.
struct Told {
    words: String,
    detacher: Detacher,
    left: Mutex<u64>,
}

impl Told {
    fn new(words: String, detacher: Detacher) -> Self {
        let left = words.split(' ').find_map(|word| word.strip_prefix("in=")?.parse().ok()).unwrap_or(u64::MAX);
        Self { words, detacher, left: Mutex::new(left) }
    }

    fn is(&self, word: &str) -> bool {
        self.words.split(' ').any(|one| one == word)
    }

    /// At a place where it may leave.
    fn may_leave(&self, place: &str) {
        if !self.is(place) {
            return;
        }
        let mut left = self.left.lock().unwrap();
        *left = left.saturating_sub(1);
        if *left == 0 {
            self.leave();
        }
    }
}

impl Told {
    fn leave(&self) {
        if self.is("twice") {
            let other = self.detacher.clone();
            let _ = std::thread::Builder::new().spawn(move || {
                eprintln!("attacks| leaves: {:?}", other.detach()); // one of the two is the first
                let _ = other.wait();
            });
        }
        let left = self.detacher.detach();
        eprintln!("attacks| leaves: {left:?}");
        if self.is("retires") {
            let _ = self.detacher.retire();
        }
    }
}

fn ask_about_threads(cx: &mut ProfilerThread<'_>, told: &Told) {
    let Ok(threads) = cx.enum_threads() else { return };
    for thread in threads {
        told.may_leave("at-thread");
        let _ = (cx.thread_name(thread), cx.os_thread_id(thread), cx.thread_context(thread));
        let _ = (cx.handle_from_thread(thread), cx.thread_app_domain(thread));
    }
}

/// Those of the program's generic class with the fields for each thread.
fn thread_statics(cx: &mut ProfilerThread<'_>, told: &Told) {
    let Ok(functions) = cx.jitted_functions() else { return };
    let Ok(threads) = cx.enum_threads() else { return };
    for function in functions {
        let Ok(info) = cx.function_info(function) else { continue };
        let Some(class) = info.class.filter(|_| cx.names().function(function).contains("Use<")) else { continue };
        let mut classes = info.type_args.clone();
        classes.push(class);
        for class in classes {
            ask_for_statics(cx, class, &threads, told);
        }
    }
}

fn ask_for_statics(cx: &mut ProfilerThread<'_>, argument: ClassId, threads: &[ThreadId], told: &Told) {
    let Ok(info) = cx.class_info(argument) else { return };
    let Ok(modules) = cx.enum_modules() else { return };
    for module in modules.into_iter().chain([info.module]) {
        let Ok(Some(kept)) = cx.metadata(module).and_then(|metadata| metadata.find_type_def("Kept`1", None)) else {
            continue;
        };
        let Ok(class) = cx.class_from_token(module, kept, &[argument]) else { continue };
        let fields: Vec<FieldDef> = cx.metadata(module).and_then(|metadata| metadata.fields(kept)).unwrap_or_default();
        for &thread in threads {
            told.may_leave("at-static");
            let Ok(domain) = cx.thread_app_domain(thread) else { continue };
            for &field in &fields {
                let _ = cx.thread_static_address(class, field, domain, Some(thread));
            }
        }
    }
}

struct Sink(Arc<Told>);

impl BlockSink for Sink {
    fn block(&mut self, _event: u16, _payload: &[u8]) -> std::io::Result<()> {
        self.0.may_leave("at-block");
        Ok(())
    }

    fn end(&mut self) -> std::io::Result<()> {
        self.0.may_leave("at-end");
        Ok(())
    }
}

fn see(round: &mut Round<'_, '_>, told: &Told) {
    told.may_leave("in-round");
    if told.is("locks") {
        let _ = round.lock_waits();
        told.may_leave("after-locks");
    }
    if told.is("chains") {
        let mut starts = Vec::new();
        for sample in round.samples() {
            for (frame, sampled) in sample.frames().iter().enumerate().take(12) {
                let class = sampled.function.and_then(|function| round.cx().function_info(function).ok()?.class);
                let Some(class) = class else { continue };
                starts.push(ChainStart { sample, frame, outermost: frame + 1, class, offset: 0, mark: (8, 0) });
            }
        }
        let _ = round.object_chains(&starts, |_, _| {
            told.may_leave("at-class");
            ((), Some("_next"))
        });
    }
}

fn start(cx: &mut InCallback<'_>, words: String, detacher: Detacher) -> Result<Arc<Told>, BoxError> {
    let told = Arc::new(Told::new(words, detacher));
    let strategies =
        [("signals", Strategy::Signals), ("suspended", Strategy::SuspendedRuntime), ("seeded", Strategy::Seeded)];
    for (word, strategy) in strategies {
        if told.is(word) {
            let mode = if told.is("cpu") || word == "signals" { Mode::Cpu } else { Mode::Wall };
            let sampler = Sampler::every(Duration::from_micros(300)).budget(1.0).mode(mode).strategy(strategy);
            let own = told.clone();
            let filter = told.clone();
            let sampler = sampler.threads(move |_| {
                filter.may_leave("at-filter");
                true
            });
            if let Err(error) = sampler.start(cx, move |round| see(round, &own)) {
                eprintln!("attacks| no sampler: {error}");
            }
        }
    }
    type Reader = fn(&mut ProfilerThread<'_>, &Arc<Told>);
    let readers: [(&str, Reader); 3] = [
        ("threads", |cx, told| ask_about_threads(cx, told)),
        ("statics", |cx, told| thread_statics(cx, told)),
        ("snapshots", |cx, told| _ = cx.take_heap_snapshot(Duration::from_secs(5), Sink(told.clone()))),
    ];
    for (word, read) in readers {
        if told.is(word) {
            let own = told.clone();
            cx.spawn_profiler_thread(word, move |cx| {
                while !cx.is_stopping() {
                    read(cx, &own);
                    let _ = cx.wait(Duration::from_micros(50));
                }
            })?;
        }
    }
    if told.is("collects") {
        cx.spawn_profiler_thread("collects", |cx| {
            while cx.wait(Duration::from_millis(1)).is_continue() {
                let _ = cx.force_gc();
            }
        })?;
    }
    let after = told.words.split(' ').find_map(|word| word.strip_prefix("after=")?.parse().ok());
    if let Some(after) = after {
        let own = told.clone();
        std::thread::Builder::new().spawn(move || {
            std::thread::sleep(Duration::from_micros(after));
            own.leave();
        })?;
    }
    Ok(told)
}

/// What both do in callbacks.
struct Watching(Arc<Told>);

impl Watching {
    fn walk(&self, cx: &InNoGc<'_>, place: &str) {
        self.0.may_leave(place);
        if self.0.is("walks") {
            let _ = cx.own_stack(100);
            let _ = cx.walk_own_stack(|frame| {
                std::hint::black_box(frame.function().map(|function| cx.names().function(function)));
                self.0.may_leave("at-frame");
                ControlFlow::Continue(())
            });
        }
    }
}

#[derive(Profiler)]
#[profiler(clsid = "1F915C74-A1B1-43A4-A141-DB9B98B2C914", no_export)]
pub(crate) struct Watches(Watching);

#[callbacks]
impl Callbacks for Watches {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let detacher = cx.detacher()?;
        Ok(Self(Watching(start(cx, std::env::var("ATTACKS_WATCHES")?, detacher)?)))
    }

    fn initialize_for_attach(cx: &mut InAttach<'_>, data: &[u8]) -> Result<Self, BoxError> {
        let detacher = cx.detacher()?;
        Ok(Self(Watching(start(cx, String::from_utf8(data.to_vec())?, detacher)?)))
    }

    fn thread_created(&self, cx: &mut InCallback<'_>, thread: ThreadId) {
        self.0.walk(cx, "in-created");
        let _ = (cx.thread_name(thread), cx.os_thread_id(thread));
    }

    fn thread_destroyed(&self, cx: &mut InCallback<'_>, thread: ThreadId) {
        self.0.walk(cx, "in-destroyed");
        let _ = (cx.thread_name(thread), cx.os_thread_id(thread), cx.handle_from_thread(thread));
    }

    fn exception_thrown(&self, cx: &InNoGc<'_>, _thrown: ObjectId<'_>) {
        self.0.walk(cx, "in-thrown");
    }

    fn garbage_collection_started(&self, cx: &InNoGc<'_>, _generations: Generations, _reason: GcReason) {
        self.0.walk(cx, "in-gc");
    }

    fn shutdown(&self, cx: &mut InCallback<'_>) {
        self.0.walk(cx, "in-shutdown");
        let _ = cx.enum_threads();
    }
}

#[derive(Profiler)]
#[profiler(clsid = "1F915C74-A1B1-43A4-A141-DB9B98B2C915", no_export, notification_only)]
pub(crate) struct WatchesBeside(Watching);

#[callbacks]
impl Callbacks for WatchesBeside {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let detacher = cx.detacher()?;
        Ok(Self(Watching(start(cx, std::env::var("ATTACKS_WATCHES_BESIDE")?, detacher)?)))
    }

    fn initialize_for_attach(cx: &mut InAttach<'_>, data: &[u8]) -> Result<Self, BoxError> {
        let detacher = cx.detacher()?;
        Ok(Self(Watching(start(cx, String::from_utf8(data.to_vec())?, detacher)?)))
    }

    fn thread_created(&self, cx: &mut InCallback<'_>, thread: ThreadId) {
        self.0.walk(cx, "in-created");
        let _ = (cx.thread_name(thread), cx.os_thread_id(thread));
    }

    fn thread_destroyed(&self, cx: &mut InCallback<'_>, thread: ThreadId) {
        self.0.walk(cx, "in-destroyed");
        let _ = (cx.thread_name(thread), cx.os_thread_id(thread), cx.handle_from_thread(thread));
    }

    fn exception_thrown(&self, cx: &InNoGc<'_>, _thrown: ObjectId<'_>) {
        self.0.walk(cx, "in-thrown");
    }

    fn shutdown(&self, cx: &mut InCallback<'_>) {
        self.0.walk(cx, "in-shutdown");
        let _ = cx.enum_threads();
    }
}
