//! Calls that make the callback which they are made in, without end.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use corprof::id::{EventPipeProviderId, HandleId};
use corprof::info::{HandleKind, ObjectHandle};
use corprof::metadata::TypeDef;
use corprof::prelude::*;
use corprof::sync::Mutex;

/// Notes the refusal that ends a recursion, once.
#[derive(Default)]
struct End {
    calls: AtomicUsize,
    is_told: AtomicBool,
}

impl End {
    fn count(&self) {
        self.calls.fetch_add(1, Relaxed);
    }

    fn refused(&self, error: &corprof::Error) {
        if !self.is_told.swap(true, Relaxed) {
            eprintln!("attacks| refused after {} calls: {error}", self.calls.load(Relaxed));
        }
    }
}

/// Makes a handle for each handle that is made.
#[derive(Profiler, Default)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E1201", no_export)]
pub(crate) struct Creates {
    end: End,
    handles: Mutex<Vec<ObjectHandle>>,
}

impl Creates {
    fn create(&self, cx: &InNoGc<'_>, object: ObjectId<'_>) {
        self.end.count();
        match cx.create_handle(object, HandleKind::Weak) {
            Ok(handle) => self.handles.lock(cx).push(handle),
            Err(error) => self.end.refused(&error),
        }
    }
}

#[callbacks]
impl Callbacks for Creates {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        cx.add_events(EventMask::MONITOR_GC)?;
        Ok(Self::default())
    }

    fn exception_thrown(&self, cx: &InNoGc<'_>, thrown: ObjectId<'_>) {
        self.create(cx, thrown);
        eprintln!("attacks| {} handles", self.handles.lock(cx).len());
    }

    fn handle_created(&self, cx: &InNoGc<'_>, _handle: HandleId, object: Option<ObjectId<'_>>) {
        if let Some(object) = object {
            self.create(cx, object);
        }
    }
}

/// Frees a handle for each handle that is freed.
#[derive(Profiler, Default)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E1202", no_export)]
pub(crate) struct Destroys {
    handles: Mutex<Vec<ObjectHandle>>,
    is_destroying: AtomicBool,
    destroyed: AtomicUsize,
}

impl Destroys {
    fn destroy_one(&self, cx: &InNoGc<'_>) {
        let handle = self.handles.lock(cx).pop();
        if let Some(handle) = handle {
            handle.destroy().unwrap();
        }
    }
}

#[callbacks]
impl Callbacks for Destroys {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        cx.add_events(EventMask::MONITOR_GC)?;
        Ok(Self::default())
    }

    fn exception_thrown(&self, cx: &InNoGc<'_>, thrown: ObjectId<'_>) {
        const HANDLES: usize = 100_000;
        let handles: Result<Vec<_>> = (0..HANDLES).map(|_| cx.create_handle(thrown, HandleKind::Weak)).collect();
        *self.handles.lock(cx) = handles.unwrap();
        self.is_destroying.store(true, Relaxed);
        self.destroy_one(cx);
        self.is_destroying.store(false, Relaxed);
        eprintln!("attacks| destroyed {}, left {}", self.destroyed.load(Relaxed), self.handles.lock(cx).len());
    }

    fn handle_destroyed(&self, cx: &InNoGc<'_>, _handle: HandleId) {
        if self.is_destroying.load(Relaxed) {
            self.destroyed.fetch_add(1, Relaxed);
            self.destroy_one(cx);
        }
    }
}

/// Loads a list of each list that is loaded.
#[derive(Profiler, Default)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E1203", no_export)]
pub(crate) struct Loads {
    end: End,
    list: Mutex<Option<(ModuleId, TypeDef)>>,
}

impl Loads {
    fn find_list(&self, cx: &InCallback<'_>, class: ClassId) -> Option<(ModuleId, TypeDef)> {
        let module = cx.class_info(class).ok()?.module;
        let list = cx.metadata(module).ok()?.find_type_def("System.Collections.Generic.List`1", None).ok()??;
        Some((module, list))
    }
}

#[callbacks]
impl Callbacks for Loads {
    fn class_load_finished(&self, cx: &mut InCallback<'_>, class: ClassId, _status: Result<()>) {
        let known = *self.list.lock(cx);
        let Some((module, list)) = known else {
            let found = self.find_list(cx, class);
            *self.list.lock(cx) = found;
            return;
        };
        // Each list brings a dozen other classes: without a limit there would be as many as the heap holds.
        const ENOUGH: usize = 500;
        if self.end.calls.load(Relaxed) == ENOUGH {
            return;
        }
        self.end.count();
        if let Err(error) = cx.class_from_token(module, list, &[class])
            && error.code() == corprof::sys::CORPROF_E_UNSUPPORTED_CALL_SEQUENCE
        {
            self.end.refused(&error);
        }
    }
}

/// Makes a provider for each provider that is made.
#[derive(Profiler, Default)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E1204", no_export)]
pub(crate) struct Provides {
    end: End,
}

#[callbacks]
impl Callbacks for Provides {
    fn event_pipe_provider_created(&self, cx: &mut InCallback<'_>, _provider: EventPipeProviderId<'_>) {
        self.end.count();
        let name = format!("Corprof-Attack-{}", self.end.calls.load(Relaxed));
        if let Err(error) = cx.event_pipe_create_provider(&name) {
            self.end.refused(&error);
        }
    }

    fn jit_compilation_started(&self, cx: &mut InCallback<'_>, function: FunctionId, _is_safe_to_block: bool) {
        if cx.names().function(function).to_string().contains("World.Main") {
            cx.event_pipe_create_provider("Corprof-Attack").unwrap();
        }
    }
}
