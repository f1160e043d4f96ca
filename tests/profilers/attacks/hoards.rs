//! Keeps what one attach has given, of every kind that can be kept, and uses all of it in the next ones: on callbacks'
//! threads, on a thread that no detach ends, and when threads of the application end.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use corprof::detach::Detacher;
use corprof::events::{KeywordSet, Level};
use corprof::id::{CodeAddress, EventPipeEventId, EventPipeProviderId, NativeCode};
use corprof::info::{
    EventPipeEventDefinition, EventPipePayload, EventPipeProviderListener, EventPipeProviderState, FunctionVersion,
    HandleKind, ObjectHandle, RuntimeEvents,
};
use corprof::names::Name;
use corprof::prelude::*;
use corprof::sync::{Merge, ThreadState};

/// The most of a kind that are kept: the oldest and the newest would not do more.
const MOST: usize = 3000;

#[derive(Default)]
struct Hoard {
    functions: BTreeSet<FunctionId>,
    codes: BTreeSet<NativeCode>,
    addresses: BTreeSet<CodeAddress>,
    classes: BTreeSet<ClassId>,
    threads: BTreeSet<ThreadId>,
    modules: BTreeSet<ModuleId>,
    infos: Vec<Info>,
    handles: Vec<ObjectHandle>,
    detachers: Vec<Detacher>,
    providers: Vec<EventPipeProviderId<'static>>,
    events: Vec<EventPipeEventId>,
    sessions: Vec<RuntimeEvents>,
    names: Vec<Name>,
}

static HOARD: Mutex<Option<Hoard>> = Mutex::new(None);

static OBJECTS: Mutex<Option<ThreadState<Count>>> = Mutex::new(None);

static ANSWERS: AtomicU64 = AtomicU64::new(0);
static ERRORS: AtomicU64 = AtomicU64::new(0);
static LAST_USES: AtomicU64 = AtomicU64::new(0);

#[derive(Default)]
struct Count(u64);

impl Merge for Count {
    fn merge(&mut self, other: Self) {
        self.0 += other.0;
    }
}

struct Listens;

impl EventPipeProviderListener for Listens {
    fn changed(state: EventPipeProviderState<'_>) {
        black_box(state.is_enabled);
        with(|hoard| note(&hoard.infos.last().map(|info| info.current_thread()).transpose()));
    }
}

fn with<R>(act: impl FnOnce(&mut Hoard) -> R) -> Option<R> {
    // A callback inside of a call gets nothing.
    HOARD.try_lock().ok().map(|mut hoard| act(hoard.get_or_insert_default()))
}

fn note<T>(answer: &Result<T>) {
    if answer.is_ok() { &ANSWERS } else { &ERRORS }.fetch_add(1, Relaxed);
}

fn keep<T: Ord>(set: &mut BTreeSet<T>, new: impl IntoIterator<Item = T>) {
    for one in new {
        if set.len() < MOST {
            set.insert(one);
        }
    }
}

/// A copy: calls make callbacks, which keep.
fn copy<T: Copy>(of: impl FnOnce(&Hoard) -> &BTreeSet<T>) -> Vec<T> {
    with(|hoard| of(hoard).iter().copied().collect()).unwrap_or_default()
}

/// What may be asked anywhere.
fn ask_info(info: &Info) {
    for function in copy(|hoard| &hoard.functions) {
        note(&info.function_info(function));
        note(&info.dynamic_function_name(function));
        note(&info.is_function_dynamic(function));
        note(&info.code_ranges(function));
        note(&info.native_code(function));
    }
    for class in copy(|hoard| &hoard.classes) {
        note(&info.class_info(class));
        note(&info.class_layout(class));
    }
    for thread in copy(|hoard| &hoard.threads) {
        note(&info.thread_app_domain(thread));
        black_box(info.thread_name(thread));
    }
    for address in copy(|hoard| &hoard.addresses) {
        note(&info.function_from_ip(address));
    }
    for module in copy(|hoard| &hoard.modules) {
        note(&info.module_info(module));
    }
    let providers = with(|hoard| (hoard.providers.clone(), hoard.events.clone())).unwrap_or_default();
    for provider in providers.0 {
        note(&info.event_pipe_provider_info(provider));
    }
    for event in providers.1 {
        note(&info.event_pipe_write_event(event, EventPipePayload::new().u32(7).string("kept"), None, None));
    }
    note(&info.event_mask());
}

fn ask(cx: &mut InCallback<'_>) {
    ask_info(cx);
    for code in copy(|hoard| &hoard.codes) {
        note(&cx.native_code_ranges(code));
        note(&cx.il_to_native_mapping(code));
        note(&cx.function_version_from_ip(code.into()));
        note(&cx.rejit_ids(code.function()));
        black_box(cx.names().function(code.function()));
    }
    for class in copy(|hoard| &hoard.classes) {
        note(&cx.array_class(class));
        black_box(cx.names().csharp().class(class));
    }
    for thread in copy(|hoard| &hoard.threads) {
        note(&cx.os_thread_id(thread));
    }
    for module in copy(|hoard| &hoard.modules) {
        std::mem::forget(cx.metadata(module));
        std::mem::forget(cx.metadata_emit(module));
        note(&cx.metadata(module).and_then(|metadata| metadata.type_defs()));
        note(&cx.app_domains_containing_module(module));
        note(&cx.in_memory_symbols_length(module));
    }
    let handles = with(|hoard| std::mem::take(&mut hoard.handles)).unwrap_or_default();
    handles.iter().for_each(|handle| note(&handle.is_alive()));
    let dropped = handles.len() / 2;
    drop(with(move |hoard| {
        let mut handles = handles;
        let gone = handles.split_off(dropped);
        hoard.handles.append(&mut handles);
        gone
    }));
    let sessions = with(|hoard| hoard.sessions.iter().map(RuntimeEvents::id).collect::<Vec<_>>()).unwrap_or_default();
    sessions.into_iter().for_each(|session| note(&cx.event_pipe_stop_session(session)));
    if let Some(objects) = &*OBJECTS.lock().unwrap() {
        objects.read(cx, |count| black_box(count.0));
    }
}

/// Of an application's thread, used when it ends.
struct AtEnd(Info, Option<ObjectHandle>);

impl Drop for AtEnd {
    fn drop(&mut self) {
        ask_info(&self.0);
        note(&self.1.take().map(ObjectHandle::destroy).transpose());
        LAST_USES.fetch_add(1, Relaxed);
    }
}

thread_local! {
    static AT_END: RefCell<Vec<AtEnd>> = const { RefCell::new(Vec::new()) };
}

/// Asks with all that it has, on a thread that no detach ends.
fn start_outsider() {
    static IS_STARTED: AtomicBool = AtomicBool::new(false);
    if IS_STARTED.swap(true, Relaxed) {
        return;
    }
    let outside = || {
        loop {
            let infos = with(|hoard| hoard.infos.clone()).unwrap_or_default();
            infos.iter().for_each(ask_info);
            let detachers = with(|hoard| hoard.detachers.len()).unwrap_or_default();
            for at in 0..detachers.saturating_sub(1) {
                with(|hoard| hoard.detachers.get(at).map(|old| (black_box(old.state()), old.detach().is_ok())));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let _ = std::thread::Builder::new().name("outsider".to_owned()).spawn(outside); // or there is none
}

/// Leaves at an exception, after it has asked.
#[derive(Default, Profiler)]
#[profiler(clsid = "1F915C74-A1B1-43A4-A141-DB9B98B2C940", no_export)]
pub(crate) struct Hoards {
    detacher: Option<Detacher>,
    exceptions: AtomicU64,
}

#[callbacks]
impl Callbacks for Hoards {
    fn initialize_for_attach(cx: &mut InAttach<'_>, _data: &[u8]) -> Result<Self, BoxError> {
        let detacher = cx.detacher()?;
        OBJECTS.lock().unwrap().get_or_insert_default();
        cx.catch_up();
        ask(cx);
        start_outsider();
        let info = Info::clone(cx);
        std::thread::Builder::new().spawn(move || {
            AT_END.with_borrow_mut(|at_end| at_end.push(AtEnd(info.clone(), None)));
            ask_info(&info);
        })?;
        let provider = cx.event_pipe_create_provider_with::<Listens>("Corprof-Hoards")?;
        let definition = EventPipeEventDefinition {
            name: "Kept",
            id: 1,
            keywords: 1,
            version: 1,
            level: Level::Informational,
            opcode: 0,
            needs_stack: true,
            fields: &[],
        };
        let event = cx.event_pipe_define_event(provider, &definition)?;
        let session = cx.start_runtime_events(KeywordSet::CONTENTION)?;
        let info = Info::clone(cx);
        with(|hoard| {
            hoard.providers.push(provider);
            hoard.events.push(event);
            hoard.sessions.push(session);
            hoard.infos.push(info);
            hoard.detachers.push(detacher.clone());
        });
        cx.spawn_profiler_thread("inside", |cx| {
            while cx.wait(Duration::from_millis(1)).is_continue() {
                ask(cx);
            }
        })?;
        Ok(Self { detacher: Some(detacher), exceptions: AtomicU64::new(0) })
    }

    fn module_load_finished(&self, _cx: &mut InCallback<'_>, module: ModuleId, _status: Result<()>) {
        with(|hoard| keep(&mut hoard.modules, [module]));
    }

    fn class_load_finished(&self, cx: &mut InCallback<'_>, class: ClassId, _status: Result<()>) {
        let name = cx.names().class(class);
        with(|hoard| {
            keep(&mut hoard.classes, [class]);
            hoard.names.push(name);
        });
    }

    fn jit_compilation_finished(&self, cx: &mut InCallback<'_>, function: FunctionId, _: Result<()>, _: bool) {
        let codes = cx.native_code(function).unwrap_or_default();
        with(|hoard| {
            keep(&mut hoard.functions, [function]);
            keep(&mut hoard.addresses, codes.iter().map(|code| (*code).into()));
            keep(&mut hoard.codes, codes);
        });
    }

    fn dynamic_method_jit_compilation_finished(
        &self,
        cx: &mut InCallback<'_>,
        function: FunctionId,
        _status: Result<()>,
        _is_safe_to_block: bool,
    ) {
        let codes = cx.native_code(FunctionVersion::from(function)).unwrap_or_default();
        with(|hoard| {
            keep(&mut hoard.functions, [function]);
            keep(&mut hoard.addresses, codes.iter().map(|code| (*code).into()));
            keep(&mut hoard.codes, codes);
        });
    }

    fn dynamic_method_unloaded(&self, _cx: &mut InCallback<'_>, _function: corprof::id::Inert<FunctionId>) {}

    fn thread_created(&self, cx: &mut InCallback<'_>, thread: ThreadId) {
        let info = Info::clone(cx);
        with(|hoard| keep(&mut hoard.threads, [thread]));
        let _ = AT_END.try_with(|at_end| at_end.borrow_mut().push(AtEnd(info, None)));
    }

    fn exception_thrown(&self, cx: &InNoGc<'_>, thrown: ObjectId<'_>) {
        if let Some(objects) = &*OBJECTS.lock().unwrap() {
            objects.with(cx, |count| count.0 += 1);
        }
        for kind in [HandleKind::Weak, HandleKind::Strong, HandleKind::Pinned] {
            let handle = cx.create_handle(thrown, kind);
            with(|hoard| hoard.handles.extend(handle));
        }
        let last = AtEnd(Info::clone(cx), cx.create_handle(thrown, HandleKind::Strong).ok());
        let _ = AT_END.try_with(|at_end| at_end.borrow_mut().push(last));
        if self.exceptions.fetch_add(1, Relaxed) == 20 {
            let _ = self.detacher.as_ref().map(Detacher::detach); // it may have been asked before
        }
    }

    fn event_pipe_event_delivered(&self, cx: &InNoGc<'_>, event: corprof::args::EventPipeEvent<'_>) {
        black_box(event.of_runtime(cx).is_some());
    }

    fn shutdown(&self, cx: &mut InCallback<'_>) {
        ask(cx);
        let [answers, errors, last] = [&ANSWERS, &ERRORS, &LAST_USES].map(|count| count.load(Relaxed));
        eprintln!("attacks| hoard: answers={answers} errors={errors} at-ends={last}");
    }
}
