//! Profilers for `live/world.rs`: one that asks the runtime everything that there is to ask about classes, objects, the
//! heap, threads and so on, each from the weakest context that may, and some whose own threads misbehave.

#![allow(clippy::panic, reason = "that is what some are for")]

use std::collections::HashSet;
use std::fmt::Debug;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use corprof::Guid;
use corprof::args::EventPipeEvent;
use corprof::context::Context;
use corprof::events::{FieldType, Level};
use corprof::id::Inert;
use corprof::info::{
    EventPipeEventDefinition, EventPipeField, EventPipePayload, EventPipeProviderConfig, EventPipeProviderListener,
    EventPipeProviderState, HandleKind, ObjectHandle,
};
use corprof::metadata::FieldDef;
use corprof::prelude::*;
use corprof::sync::Mutex;

/// The state shared with the profiler thread.
#[derive(Default)]
struct Signals {
    go: AtomicBool,
    done: AtomicBool,
}

#[derive(Default, Profiler)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E1001", no_export)]
struct World {
    signals: Arc<Signals>,
    told: Mutex<HashSet<String>>,
    holder: Mutex<Option<ClassId>>,
    details: Mutex<Option<ClassId>>,
    app_domain: Mutex<Option<AppDomainId>>,
    handles: Mutex<Vec<ObjectHandle>>,
    /// A weak one of an array that nothing keeps.
    wasted: Mutex<Option<ObjectHandle>>,
    collections: AtomicU64,
}

/// Prints the answer of a call.
fn tell<T: Debug>(call: &str, answer: Result<T>) -> Option<T> {
    match answer {
        Ok(answer) => {
            eprintln!("world| {call}: {answer:?}");
            Some(answer)
        }
        Err(error) => {
            eprintln!("world| {call}: error {error}");
            None
        }
    }
}

impl World {
    /// Whether this is the first time.
    fn first(&self, cx: &impl Context, what: &str) -> bool {
        self.told.lock(cx).insert(what.to_owned())
    }

    /// Everything about static fields, once all are initialized.
    fn statics(&self, cx: &InNoGc<'_>) {
        let holder = *self.holder.lock(cx);
        let details = *self.details.lock(cx);
        let app_domain = *self.app_domain.lock(cx);
        let (Some(holder), Some(app_domain)) = (holder, app_domain) else { return };
        let Ok(layout) = cx.class_layout(holder) else { return };
        let Some(last) = layout.fields.iter().map(|field| field.field.as_raw()).max() else { return };
        let [ordinary, per_thread, literal] = [1, 2, 3].map(|n| FieldDef::from_raw(last + n));
        tell("static_field_info ordinary", cx.static_field_info(holder, ordinary));
        tell("static_field_info per thread", cx.static_field_info(holder, per_thread));
        if let Some(address) =
            tell("app_domain_static_address", cx.app_domain_static_address(holder, ordinary, app_domain))
        {
            // SAFETY: the field is an int, alive and aligned.
            tell("ordinary", Ok(unsafe { *(address as *const i32) }));
        }
        tell("app_domain_static_address literal", cx.app_domain_static_address(holder, literal, app_domain));
        let thread = cx.current_thread().ok().flatten();
        if let Some(address) =
            tell("thread_static_address", cx.thread_static_address(holder, per_thread, app_domain, thread))
        {
            // SAFETY: the field is an int, alive and aligned.
            tell("per thread", Ok(unsafe { *(address as *const i32) }));
        }
        tell("thread_static_address own", cx.thread_static_address(holder, per_thread, app_domain, None).map(|_| ()));
        if let Some(details) = details {
            let found = (1..64)
                .map(|n| FieldDef::from_raw(0x0400_0000 + n))
                .find_map(|field| cx.rva_static_address(details, field).ok());
            match found {
                // SAFETY: the field has the bytes of the initializer.
                Some(address) => tell("rva_static_address", Ok(unsafe { *(address as *const [u8; 4]) })),
                None => tell("rva_static_address", cx.rva_static_address(details, literal).map(|_| [0; 4])),
            };
        }
    }

    /// Everything that needs a context in which a collection may start.
    fn ask_in_callback(&self, cx: &mut InCallback<'_>, place: &str) {
        let tell = |call: &str, answer: Result<usize>| tell(&format!("{call} {place}"), answer);
        let modules = cx.enum_modules();
        let module = modules.as_ref().ok().and_then(|modules| modules.first().copied());
        tell("enum_modules", modules.map(|modules| modules.len()));
        if let Some(module) = module {
            tell("app_domains_containing_module", cx.app_domains_containing_module(module).map(|found| found.len()));
            tell("apply_meta_data", cx.apply_meta_data(module).map(|()| 0));
            tell("in_memory_symbols_length", cx.in_memory_symbols_length(module).map(|n| n.unwrap_or(9) as usize));
            tell("read_in_memory_symbols", cx.read_in_memory_symbols(module, 0, &mut [0; 16]));
        }
        let mut objects = 0;
        let walk = cx.enumerate_gc_heap_objects(|_, _| {
            objects += 1;
            ControlFlow::Continue(())
        });
        tell("enumerate_gc_heap_objects", walk.map(|()| objects));
        tell("initialize_current_thread", cx.initialize_current_thread().map(|()| 0));
        let threads = cx.enum_threads();
        let thread = threads.as_ref().ok().and_then(|threads| threads.first().copied());
        tell("enum_threads", threads.map(|threads| threads.len()));
        if let Some(thread) = thread {
            ask_of_thread(cx, thread, place);
        }
    }

    fn event_pipe(&self, cx: &mut InCallback<'_>) {
        let provider = tell("event_pipe_create_provider", cx.event_pipe_create_provider("Corprof-World"));
        let listened = cx.event_pipe_create_provider_with::<Listener>("Corprof-Listened");
        tell("event_pipe_create_provider_with", listened.map(|_| ()));
        let config = |name| EventPipeProviderConfig { name, keywords: u64::MAX, level: Level::Verbose, filter: None };
        let session = tell("event_pipe_start_session", cx.event_pipe_start_session(&[config("Corprof-World")], false));
        let (Some(provider), Some(session)) = (provider, session) else { return };
        tell(
            "event_pipe_add_provider_to_session",
            cx.event_pipe_add_provider_to_session(
                session,
                &EventPipeProviderConfig { filter: Some("corprof=listens"), ..config("Corprof-Listened") },
            ),
        );
        tell("event_pipe_provider_info", cx.event_pipe_provider_info(provider));
        let fields = [
            EventPipeField { name: "number", kind: FieldType::UInt32, is_array: false },
            EventPipeField { name: "text", kind: FieldType::String, is_array: false },
            EventPipeField { name: "list", kind: FieldType::UInt16, is_array: true },
        ];
        let definition = EventPipeEventDefinition {
            name: "Asked",
            id: 7,
            keywords: 1,
            version: 2,
            level: Level::Informational,
            opcode: 0,
            needs_stack: false,
            fields: &fields,
        };
        let Some(event) = tell("event_pipe_define_event", cx.event_pipe_define_event(provider, &definition)) else {
            return;
        };
        let plain = EventPipeEventDefinition { name: "Plain", id: 8, fields: &[], ..definition };
        let plain = cx.event_pipe_define_event(provider, &plain);
        let mut payload = EventPipePayload::new();
        payload.u32(5).string("five").u16(1).u16(55);
        tell("event_pipe_write_event", cx.event_pipe_write_event(event, &payload, None, None));
        let written = plain.and_then(|plain| {
            cx.event_pipe_write_event(plain, &EventPipePayload::new(), Some(&Guid::from_u128(1)), None)
        });
        tell("event_pipe_write_event plain", written);
        tell("event_pipe_stop_session", cx.event_pipe_stop_session(session));
    }
}

struct Listener;

impl EventPipeProviderListener for Listener {
    fn changed(state: EventPipeProviderState<'_>) {
        let filter = String::from_utf8_lossy(state.filter);
        eprintln!("world| listener: {} {} {filter:?}", state.is_enabled, state.level);
    }
}

/// Everything about a thread.
fn ask_of_thread(cx: &InNoGc<'_>, thread: ThreadId, place: &str) {
    tell(&format!("thread_app_domain {place}"), cx.thread_app_domain(thread).map(|_| ()));
    tell(&format!("thread_context {place}"), cx.thread_context(thread).map(|_| ()));
    tell(&format!("handle_from_thread {place}"), cx.handle_from_thread(thread).map(|_| ()));
    tell(&format!("os_thread_id {place}"), cx.os_thread_id(thread).map(|_| ()));
}

/// Calls about the heap that are allowed in callbacks of any kind.
fn ask_heap(cx: &InNoGc<'_>, place: &str) {
    let bounds = cx.generation_bounds().map(|bounds| bounds.len());
    tell(&format!("generation_bounds {place}"), bounds.map(|bounds| bounds > 0));
    tell(&format!("loh_object_size_threshold {place}"), cx.loh_object_size_threshold());
    tell(&format!("non_gc_heap_bounds {place}"), cx.non_gc_heap_bounds().map(|bounds| !bounds.is_empty()));
    let objects = cx.enumerate_non_gc_objects().map(|objects| objects.len());
    tell(&format!("enumerate_non_gc_objects {place}"), objects.map(|objects| objects > 0));
    tell(&format!("string_layout {place}"), cx.string_layout());
}

/// The calls that take an object.
fn ask_object(cx: &InNoGc<'_>, place: &str, object: ObjectId<'_>) {
    tell(&format!("object_size {place}"), cx.object_size(object).map(|size| size > 8));
    let generation = cx.object_generation(object);
    tell(&format!("object_generation {place}"), generation.map(|range| range.contains(object.as_raw())));
    tell(&format!("is_frozen_object {place}"), cx.is_frozen_object(object));
    let mut classes = Vec::new();
    let visited = cx.enumerate_object_references(object, |reference| {
        classes.push(cx.class_of(reference).map(|class| cx.names().class(class).to_string()));
        ControlFlow::Continue(())
    });
    classes.retain(|class| class.as_ref().is_ok_and(|class| class == "Holder"));
    tell(&format!("enumerate_object_references {place}"), visited.map(|()| classes.len()));
}

#[callbacks]
impl Callbacks for World {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let profiler = Self::default();
        cx.add_events(EventMask::MONITOR_GC)?; // the two callbacks around a collection alone would ask for less
        tell("environment_variable before", cx.environment_variable("CORPROF_WORLD"));
        tell("set_environment_variable", cx.set_environment_variable("CORPROF_WORLD", Some("größer")));
        tell("environment_variable", cx.environment_variable("CORPROF_WORLD"));
        tell("set_environment_variable none", cx.set_environment_variable("CORPROF_WORLD", None));
        tell("environment_variable after", cx.environment_variable("CORPROF_WORLD"));
        let signals = Arc::clone(&profiler.signals);
        cx.spawn_profiler_thread("world", move |cx| {
            tell("force_gc early", cx.force_gc());
            while !signals.go.load(SeqCst) {
                if cx.wait(Duration::from_millis(1)).is_break() {
                    return;
                }
            }
            tell("current_thread before force_gc", cx.current_thread());
            World::default().ask_in_callback(cx, "on profiler thread");
            tell("force_gc", cx.force_gc());
            tell("force_gc again", cx.force_gc());
            World::default().ask_in_callback(cx, "on profiler thread after force_gc");
            ask_heap(cx, "on profiler thread");
            signals.done.store(true, SeqCst);
        })?;
        cx.spawn_profiler_thread("idle", |cx| {
            while cx.wait(Duration::from_secs(3600)).is_continue() {}
            eprintln!("world| idle: {}", cx.is_stopping());
        })?;
        Ok(profiler)
    }

    fn thread_assigned_to_os_thread(&self, cx: &InNoGc<'_>, thread: ThreadId, _os_thread_id: u32) {
        if self.first(cx, "thread") {
            ask_of_thread(cx, thread, "in thread_assigned_to_os_thread");
        }
    }

    fn module_attached_to_assembly(&self, cx: &mut InCallback<'_>, _module: ModuleId, assembly: AssemblyId) {
        let app_domain = cx.assembly_info(assembly).ok().and_then(|info| info.app_domain);
        *self.app_domain.lock(cx) = app_domain;
    }

    fn class_load_finished(&self, cx: &mut InCallback<'_>, class: ClassId, _status: Result<()>) {
        let name = cx.names().class(class);
        match name.as_str() {
            "Holder" => {
                *self.holder.lock(cx) = Some(class);
                if let Ok(layout) = cx.class_layout(class) {
                    let offsets: Vec<_> = layout.fields.iter().map(|field| field.offset).collect();
                    tell("class_layout", Ok((layout.size, offsets)));
                }
            }
            "Pair" => {
                tell("box_class_layout", cx.box_class_layout(class));
            }
            name if name.starts_with("<PrivateImplementationDetails>") && !name.contains("StaticArray") => {
                *self.details.lock(cx) = Some(class);
            }
            _ => {}
        }
    }

    fn thread_name_changed(&self, cx: &mut InCallback<'_>, _thread: Inert<ThreadId>, name: &str) {
        if name == "prepared" {
            self.event_pipe(cx);
        }
    }

    fn jit_compilation_started(&self, cx: &mut InCallback<'_>, function: FunctionId, _is_safe_to_block: bool) {
        let name = cx.names().function(function);
        if name.as_str().starts_with("World.Prepared") && self.first(cx, "prepared") {
            self.ask_in_callback(cx, "in jit_compilation_started");
            ask_heap(cx, "in jit_compilation_started");
        }
        if name.as_str().starts_with("World.Collected") && self.first(cx, "collected") {
            self.signals.go.store(true, SeqCst);
            for _ in 0..20_000 {
                if self.signals.done.load(SeqCst) {
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            tell("profiler thread done", Ok(self.signals.done.load(SeqCst)));
            if let Some(handle) = self.handles.lock(cx).first() {
                tell("handle in jit_compilation_started", handle.get(cx).map(|_| ()));
            }
            for module in cx.enum_modules().unwrap_or_default() {
                if cx.in_memory_symbols_length(module) == Ok(Some(5)) {
                    let mut bytes = [0; 9];
                    let read = cx.read_in_memory_symbols(module, 1, &mut bytes);
                    tell("read_in_memory_symbols", read.map(|read| bytes[..read].to_vec()));
                }
            }
        }
    }

    fn object_allocated(&self, cx: &InNoGc<'_>, object: ObjectId<'_>, class: ClassId) {
        if !cx.array_class(class).is_ok_and(|array| array.is_some_and(|array| array.rank == 2)) {
            return;
        }
        let array = cx.array_object_info(object);
        let lengths = array.map(|array| (array.dimensions().map(|d| d.length).collect::<Vec<_>>(), array.len()));
        let name = match lengths {
            Ok((_, 12)) => "kept",
            Ok((_, 30)) => "wasted",
            _ => return, // not the program's
        };
        tell(&format!("array_object_info {name}"), lengths);
        if name == "wasted" {
            *self.wasted.lock(cx) = tell("create_handle of wasted", cx.create_handle(object, HandleKind::Weak));
        }
    }

    fn exception_thrown(&self, cx: &InNoGc<'_>, thrown: ObjectId<'_>) {
        if cx.class_of(thrown).is_ok_and(|class| cx.names().class(class) == "WorldException") {
            ask_object(cx, "in exception_thrown", thrown);
            ask_heap(cx, "in exception_thrown");
            tell("notified_exception_clause_info in exception_thrown", cx.notified_exception_clause_info().map(|_| ()));
            tell("array_object_info of none", cx.array_object_info(thrown).map(|_| ()));
            self.statics(cx);
            for kind in [HandleKind::Weak, HandleKind::Strong, HandleKind::Pinned] {
                if let Some(handle) = tell(&format!("create_handle {kind:?}"), cx.create_handle(thrown, kind)) {
                    let same = handle.get(cx).map(|object| object == Some(thrown));
                    tell(&format!("handle {kind:?}"), same);
                    self.handles.lock(cx).push(handle);
                }
            }
        }
    }

    fn exception_catcher_enter(&self, cx: &InNoGc<'_>, _function: FunctionId, _thrown: Option<ObjectId<'_>>) {
        if self.first(cx, "catcher") {
            let clause = cx.notified_exception_clause_info();
            let clause = clause.map(|clause| clause.map(|clause| (clause.kind, clause.program_counter != 0)));
            tell("notified_exception_clause_info in exception_catcher_enter", clause);
        }
    }

    fn garbage_collection_finished(&self, cx: &InNoGc<'_>) {
        if self.handles.lock(cx).is_empty() {
            return; // an early one: `force_gc` at the start
        }
        let number = self.collections.fetch_add(1, SeqCst);
        if number == 0 {
            ask_heap(cx, "in garbage_collection_finished");
        }
        for handle in self.handles.lock(cx).iter() {
            let found = handle.get(cx);
            let class = found.and_then(|found| found.map(|object| cx.class_of(object)).transpose());
            let name = class.map(|class| class.map(|class| cx.names().class(class).to_string()));
            tell(&format!("handle {:?} after collection {number}", handle.kind()), name);
            tell(&format!("is_alive {:?} after collection {number}", handle.kind()), handle.is_alive());
        }
        if let Some(handle) = self.wasted.lock(cx).take() {
            tell("wasted after a collection", handle.get(cx).map(|object| object.is_some()));
            tell("is_alive wasted after a collection", handle.is_alive());
        }
    }

    fn event_pipe_event_delivered(&self, cx: &InNoGc<'_>, event: EventPipeEvent<'_>) {
        let provider = cx.event_pipe_provider_info(event.provider);
        if provider.as_ref().is_ok_and(|name| name == "Corprof-World") {
            tell(&format!("event {}", event.id), Ok((event.version, event.data)));
        }
    }

    fn shutdown(&self, cx: &mut InCallback<'_>) {
        if let Some(handle) = self.handles.lock(cx).pop() {
            tell("handle destroy", handle.destroy());
        }
        eprintln!("world| shutdown: ()");
    }
}

/// Its own thread panics at once.
#[derive(Profiler)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E1002", no_export)]
struct PanicsOnProfilerThread;

#[callbacks]
impl Callbacks for PanicsOnProfilerThread {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        cx.spawn_profiler_thread("waiter", |cx| {
            while cx.wait(Duration::from_secs(3600)).is_continue() {}
            eprintln!("the waiter was told");
        })?;
        cx.spawn_profiler_thread("panicker", |_| panic!("on its own thread"))?;
        Ok(Self)
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        eprintln!("shutdown of a quiet profiler");
    }
}

/// Its own thread does not listen.
#[derive(Profiler)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E1003", no_export)]
struct DoesNotListen;

#[callbacks]
impl Callbacks for DoesNotListen {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        cx.spawn_profiler_thread("deaf", |_| std::thread::sleep(Duration::from_secs(3600)))?;
        Ok(Self)
    }

    fn shutdown(&self, cx: &mut InCallback<'_>) {
        let refused = cx.spawn_profiler_thread("late", |_| eprintln!("a late thread")).is_err();
        eprintln!("shutdown all the same, late thread refused: {refused}");
    }
}

/// Does not start, although it has a thread already.
#[derive(Profiler)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E1004", no_export)]
struct RefusesWithThread;

#[callbacks]
impl Callbacks for RefusesWithThread {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        cx.spawn_profiler_thread("orphan", |cx| {
            while cx.wait(Duration::from_secs(3600)).is_continue() {}
            eprintln!("the orphan was told");
        })?;
        Err("told to refuse".into())
    }
}

corprof::export!(World, PanicsOnProfilerThread, DoesNotListen, RefusesWithThread);
