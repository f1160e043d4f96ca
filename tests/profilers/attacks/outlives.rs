//! Values kept longer than they are valid: metadata of unloaded modules, and handles and an `Info` on threads that end.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use corprof::id::{CodeAddress, HandleId, Inert};
use corprof::info::{HandleKind, Info, ObjectHandle};
use corprof::metadata::MetadataImport;
use corprof::prelude::*;

/// Events that the keeper must receive in this order: another module may be loaded at the address of an unloaded one.
enum Change {
    Loaded(ModuleId),
    Gone(Inert<ModuleId>),
}

#[derive(Default)]
struct Shared {
    changes: Mutex<Vec<Change>>,
    /// How many modules were loaded, and of how many the keeper has asked for the metadata.
    loaded: AtomicU64,
    kept: AtomicU64,
    has_ended: AtomicBool,
    refused: AtomicU64,
    answered: AtomicU64,
}

/// Keeps the metadata of all modules on a thread of its own, and asks it when they have gone.
#[derive(Profiler, Default)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E1205", no_export)]
pub(crate) struct Outlives(Arc<Shared>);

/// Makes calls that read memory of live things only.
fn ask(metadata: &MetadataImport<'_>) -> Result<String> {
    for class in metadata.type_defs()? {
        metadata.type_def(class)?;
        for method in metadata.methods(class)? {
            metadata.method(method)?;
        }
    }
    metadata.module_name()
}

fn keep(cx: &ProfilerThread<'_>, shared: &Shared) {
    let mut kept: Vec<(ModuleId, MetadataImport<'_>)> = Vec::new();
    while !cx.is_stopping() {
        let changes = std::mem::take(&mut *shared.changes.lock().unwrap());
        for change in changes {
            match change {
                Change::Loaded(module) => {
                    kept.extend(cx.metadata(module).ok().map(|metadata| (module, metadata)));
                    shared.kept.fetch_add(1, SeqCst);
                }
                Change::Gone(gone) => {
                    for (_, metadata) in kept.extract_if(.., |(module, _)| gone == Inert::from(*module)) {
                        let count = if ask(&metadata).is_err() { &shared.refused } else { &shared.answered };
                        count.fetch_add(1, Relaxed);
                    }
                }
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    shared.has_ended.store(true, SeqCst);
}

#[callbacks]
impl Callbacks for Outlives {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let profiler = Self::default();
        let shared = Arc::clone(&profiler.0);
        cx.spawn_profiler_thread("keeper", move |cx| keep(cx, &shared))?;
        Ok(profiler)
    }

    /// Waits until the keeper has the metadata, which it could not have of a module that has gone meanwhile.
    fn module_load_finished(&self, _cx: &mut InCallback<'_>, module: ModuleId, _status: Result<()>) {
        let shared = &self.0;
        let number = {
            let mut changes = shared.changes.lock().unwrap();
            changes.push(Change::Loaded(module));
            shared.loaded.fetch_add(1, SeqCst) + 1
        };
        while shared.kept.load(SeqCst) < number && !shared.has_ended.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn module_unload_finished(&self, _cx: &mut InCallback<'_>, module: Inert<ModuleId>, _status: Result<()>) {
        self.0.changes.lock().unwrap().push(Change::Gone(module));
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        let [refused, answered] = [&self.0.refused, &self.0.answered].map(|count| count.load(Relaxed));
        eprintln!("attacks| refused={refused} answered={answered}");
    }
}

static ENDED: AtomicU64 = AtomicU64::new(0);

/// Kept by a thread to its end, and used when its other thread-locals may be gone.
struct Last {
    info: Info,
    handle: Option<ObjectHandle>,
    code: Option<CodeAddress>,
}

impl Last {
    /// All calls that are allowed anywhere, with any answer.
    fn ask(&self) {
        let _ = (self.info.current_thread(), self.info.event_mask());
        let _ = self.code.map(|code| self.info.function_from_ip(code));
        let _ = self.info.environment_variable("PATH");
        let _ = self.info.add_events(EventMask::MONITOR_THREADS);
    }
}

/// Where the innermost managed method has called the runtime.
fn innermost_code(cx: &InNoGc<'_>) -> Option<CodeAddress> {
    let mut innermost = None;
    let walked = cx.walk_own_stack(|frame| {
        innermost = frame.code_address();
        if innermost.is_none() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    walked.ok().and(innermost)
}

impl Drop for Last {
    fn drop(&mut self) {
        self.ask();
        drop(self.handle.take());
        self.ask();
        ENDED.fetch_add(1, Relaxed);
    }
}

thread_local! {
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

/// Makes calls from destructors of thread-locals, and on a thread that is never stopped.
#[derive(Profiler, Default)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E1207", no_export)]
pub(crate) struct Leaves {
    is_handled: AtomicBool,
}

#[callbacks]
impl Callbacks for Leaves {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        cx.add_events(
            EventMask::MONITOR_GC | EventMask::ENABLE_OBJECT_ALLOCATED | EventMask::MONITOR_OBJECT_ALLOCATED,
        )?;
        let info = Info::clone(cx);
        std::thread::spawn(move || {
            let last = Last { info, handle: None, code: None };
            loop {
                last.ask();
            }
        });
        Ok(Self::default())
    }

    fn object_allocated(&self, cx: &InNoGc<'_>, object: ObjectId<'_>, _class: ClassId) {
        LAST.with_borrow_mut(|last| {
            if last.is_none() {
                let handle = cx.create_handle(object, HandleKind::Strong).ok();
                self.is_handled.fetch_or(handle.is_some(), Relaxed);
                *last = Some(Last { info: Info::clone(cx), handle, code: innermost_code(cx) });
            }
        });
    }

    fn handle_destroyed(&self, cx: &InNoGc<'_>, _handle: HandleId) {
        let _ = LAST.try_with(|last| last.try_borrow().map(drop));
        let _ = cx.runtime_info();
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        eprintln!("attacks| ended={} handles={}", ENDED.load(Relaxed), self.is_handled.load(Relaxed));
    }
}
