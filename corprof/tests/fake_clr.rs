//! The fake CLR, seen by profilers that are loaded into it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use corprof::error::{E_FAIL, E_INVALIDARG};
use corprof::prelude::*;
use corprof::testing::{ClassSpec, FakeClr, Frame, FunctionSpec, Param};
use corprof::{Event, sys};
use windows_core::{HRESULT, Interface};

const E_NOTIMPL: HRESULT = HRESULT(0x8000_4001_u32 as i32);
const E_NOINTERFACE: HRESULT = HRESULT(0x8000_4002_u32 as i32);

/// Writes down what it hears of, by name.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B1E0A8C-51D5-4E9B-8F35-0F2A6C2E0001", no_export)]
struct Scribe(Mutex<Vec<String>>);

impl Scribe {
    fn note(&self, line: impl Into<String>) {
        self.0.lock().unwrap().push(line.into());
    }
}

#[callbacks]
impl Callbacks for Scribe {
    fn assembly_load_finished(&self, cx: &mut InTriggers<'_>, assembly: AssemblyId, _status: Result<()>) {
        self.note(format!("assembly {}", cx.names().assembly(assembly)));
    }
    fn module_load_finished(&self, cx: &mut InTriggers<'_>, module: ModuleId, _status: Result<()>) {
        self.note(format!("module {}", cx.names().module(module)));
    }
    fn class_load_started(&self, cx: &mut InTriggers<'_>, class: ClassId) {
        let error = cx.class_info(class).unwrap_err();
        assert_eq!(error.code(), sys::CORPROF_E_DATAINCOMPLETE);
    }
    fn class_load_finished(&self, cx: &mut InTriggers<'_>, class: ClassId, _status: Result<()>) {
        self.note(format!("class {}", cx.names().class(class)));
    }
    fn jit_compilation_started(&self, cx: &mut InTriggers<'_>, function: FunctionId, _safe: bool) {
        self.note(format!("jit {}", cx.names().function(function)));
    }
    fn dynamic_method_jit_compilation_started(
        &self,
        cx: &mut InTriggers<'_>,
        function: FunctionId,
        _safe: bool,
        il: &[u8],
    ) {
        assert_eq!(il.len(), 2);
        self.note(format!("jit {}", cx.names().function(function)));
    }
    fn jit_inlining(&self, cx: &mut InTriggers<'_>, _caller: FunctionId, callee: FunctionId) -> bool {
        !cx.names().function(callee).contains("Never")
    }
    fn exception_thrown(&self, cx: &InCallback<'_>, thrown: ObjectId<'_>) {
        self.note(format!("thrown {}", cx.names().class(cx.class_of(thrown).unwrap())));
    }
    fn exception_search_function_enter(&self, cx: &mut InTriggers<'_>, function: FunctionId) {
        self.note(format!("search {}", cx.names().function(function)));
    }
    fn exception_unwind_finally_enter(&self, cx: &InCallback<'_>, function: FunctionId) {
        self.note(format!("finally {}", cx.names().function(function)));
    }
    fn exception_catcher_enter(&self, cx: &InCallback<'_>, function: FunctionId, thrown: Option<ObjectId<'_>>) {
        assert!(cx.class_of(thrown.unwrap()).is_ok());
        self.note(format!("catch {}", cx.names().function(function)));
    }
}

fn lines(clr: &FakeClr) -> Vec<String> {
    assert!(!clr.has_panicked());
    assert_eq!(clr.refusals(), []);
    std::mem::take(&mut clr.profiler::<Scribe>().unwrap().0.lock().unwrap())
}

#[test]
fn names_come_from_the_fake_world() {
    let clr = FakeClr::load::<Scribe>().unwrap();
    let app = clr.load_assembly("App");
    assert_eq!(lines(&clr), ["module App.dll", "assembly App"]);
    let int32 = clr.core_class("System.Int32");
    let string = clr.core_class("System.String");
    let strings = clr.load_array(string, 1);
    let table = clr.load_array(strings, 2);
    let shelf = clr.load_class(app, ClassSpec::new("App.Shelf`1").args([int32]));
    assert_eq!(clr.load_class(app, ClassSpec::new("App.Shelf`1").args([int32])), shelf, "loaded once");
    let batch = ClassSpec::new("Batch`1").nested_in("App.Shelf`1").args([string, table]).generic_params(["T", "U"]);
    let batch = clr.load_class(app, batch);
    let expected = [
        "module System.Private.CoreLib.dll",
        "assembly System.Private.CoreLib",
        "class System.Int32",
        "class System.String",
        "class string[]",
        "class string[][,]",
        "class App.Shelf<int32>",
        "class App.Shelf<string>+Batch<string[][,]>",
    ];
    assert_eq!(lines(&clr), expected);

    let takes = [Param::Class(int32), Param::ByRef(Box::new(Param::TypeParam(0))), Param::Class(table), shelf.into()];
    clr.jit(clr.function(shelf, FunctionSpec::new("Take").takes(takes).returns(int32).instance()));
    let swap = FunctionSpec::new("Swap").generic_params(["V"]).takes([Param::MethodParam(0)]).args([string]);
    clr.jit(clr.function(batch, swap));
    clr.jit(clr.function(batch, FunctionSpec::new("Describe").takes([batch]).shared()));
    clr.jit(clr.dynamic_function(app, "Emitted"));
    let expected = [
        "jit App.Shelf<int32>.Take(int32, int32&, string[][,], App.Shelf<int32>)",
        "jit App.Shelf<string>+Batch<string[][,]>.Swap<string>(string)",
        "jit App.Shelf<T>+Batch<U>.Describe(App.Shelf<string>+Batch<string[][,]>)",
        "jit <dynamic method Emitted>",
    ];
    assert_eq!(lines(&clr), expected);
}

#[test]
fn the_profiler_answers_the_runtime() {
    let clr = FakeClr::load::<Scribe>().unwrap();
    let class = clr.load_class(clr.load_assembly("App"), "App.Program");
    let main = clr.function(class, "Main");
    assert!(clr.inline(main, clr.function(class, "Small")));
    assert!(!clr.inline(main, clr.function(class, "NeverInlined")));
}

#[test]
fn an_exception_is_searched_for_and_unwound() {
    let clr = FakeClr::load::<Scribe>().unwrap();
    let class = clr.load_class(clr.load_assembly("App"), "App.Program");
    let exception = clr.core_class("System.Exception");
    let [main, outer, inner] = ["Main", "Outer", "Inner"].map(|name| clr.function(class, name));
    lines(&clr);
    clr.forget_delivered();
    let frames = [Frame::new(inner).finally(), Frame::new(outer).filter().catch(), Frame::new(main).catch()];
    clr.throw(exception, &frames);
    let expected = [
        "thrown System.Exception",
        "search App.Program.Inner()",
        "search App.Program.Outer()",
        "finally App.Program.Inner()",
        "catch App.Program.Outer()",
    ];
    assert_eq!(lines(&clr), expected);
    use Event::*;
    let expected = [
        ExceptionThrown,
        ExceptionSearchFunctionEnter,
        ExceptionSearchFunctionLeave,
        ExceptionSearchFunctionEnter,
        ExceptionSearchFilterEnter,
        ExceptionSearchFilterLeave,
        ExceptionSearchCatcherFound,
        ExceptionSearchFunctionLeave,
        ExceptionUnwindFunctionEnter,
        ExceptionUnwindFinallyEnter,
        ExceptionUnwindFinallyLeave,
        ExceptionUnwindFunctionLeave,
        ExceptionUnwindFunctionEnter,
        ExceptionCatcherEnter,
        ExceptionCatcherLeave,
    ];
    assert_eq!(clr.delivered(), expected);
}

#[test]
fn an_injected_code_reaches_the_profiler() {
    let clr = FakeClr::load::<Scribe>().unwrap();
    let class = clr.load_class(clr.load_assembly("App"), "App.Program");
    lines(&clr);
    let main = clr.function(class, "Main");
    clr.fail_next("GetFunctionInfo2", sys::CORPROF_E_DATAINCOMPLETE);
    clr.jit(main);
    clr.fail_always("GetMethodProps", sys::CLDB_E_RECORD_NOTFOUND);
    clr.jit(main);
    clr.fail_no_more("GetMethodProps");
    clr.jit(main);
    let lines = lines(&clr);
    assert!(lines[0].starts_with("jit <unknown function 0x") && lines[0].ends_with(": CORPROF_E_DATAINCOMPLETE>"));
    assert!(lines[1].contains("<unknown method ") && lines[1].contains("CLDB_E_RECORD_NOTFOUND"), "{}", lines[1]);
    assert_eq!(lines[2], "jit App.Program.Main()");
}

#[test]
#[should_panic(expected = "fake CLR: there is no call GetFunctionInfo99")]
fn a_misspelt_call_is_no_call() {
    FakeClr::load::<Scribe>().unwrap().fail_next("GetFunctionInfo99", E_FAIL);
}

#[test]
fn what_initialize_answers_comes_back() {
    let error = FakeClr::builder().fail_next("SetEventMask2", E_FAIL).load::<Scribe>().unwrap_err();
    assert_eq!((error.code(), error.call()), (E_FAIL, "Initialize"));
}

#[test]
fn unloading_forgets_names() {
    let clr = FakeClr::load::<Scribe>().unwrap();
    let app = clr.load_assembly("App");
    let class = clr.load_class(app, "App.Program");
    let main = clr.function(class, "Main");
    clr.jit(main);
    clr.unload_assembly(app);
    assert_eq!(clr.count(Event::ModuleUnloadFinished), 1);
    let again = clr.load_class(clr.load_assembly("App"), "App.Program");
    assert_ne!(class, again);
    assert_eq!(lines(&clr).iter().filter(|line| *line == "class App.Program").count(), 2);
}

/// Calls the runtime below the contexts, from wherever a test wants it to.
fn raw<R>(clr: &FakeClr, call: impl FnOnce(&sys::ICorProfilerInfo15) -> R) -> R {
    call(&clr.info().cast::<sys::ICorProfilerInfo15>().unwrap())
}

fn thread_info(info: &sys::ICorProfilerInfo15, thread: ThreadId) -> HRESULT {
    let mut id = 0;
    // SAFETY: writes one number.
    unsafe { info.GetThreadInfo(thread.as_raw(), &mut id) }
}

/// Nothing at all.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B1E0A8C-51D5-4E9B-8F35-0F2A6C2E0002", no_export)]
struct Nothing;

#[callbacks]
impl Callbacks for Nothing {}

#[test]
fn calls_from_the_wrong_place_are_refused() {
    let clr = FakeClr::load::<Nothing>().unwrap();
    let thread = clr.current_thread();
    // Outside of a callback, on a managed thread and on a native one.
    assert_eq!(raw(&clr, |info| thread_info(info, thread)), sys::CORPROF_E_UNSUPPORTED_CALL_SEQUENCE);
    let native =
        std::thread::scope(|scope| scope.spawn(|| raw(&clr, |info| thread_info(info, thread))).join().unwrap());
    assert_eq!(native, HRESULT(0));
    assert_eq!(clr.refusals(), [("GetThreadInfo", sys::CORPROF_E_UNSUPPORTED_CALL_SEQUENCE)]);
    raw(&clr, |info| {
        let mut class = 0;
        // SAFETY: writes one number each.
        unsafe {
            // No hooks after Initialize.
            let code = info.SetEnterLeaveFunctionHooks3(None, None, None);
            assert_eq!(code, sys::CORPROF_E_CALL_ONLY_FROM_INIT);
            // Immutable flags neither.
            assert_eq!(info.SetEventMask2(EventMask::ENABLE_OBJECT_ALLOCATED.words().0, 0), E_FAIL);
            let gc = EventMask::MONITOR_GC.words().0;
            assert_eq!(info.SetEventMask2(gc, 0), sys::CORPROF_E_CONCURRENT_GC_NOT_PROFILABLE);
            // Objects need a callback that a collection waits for.
            assert_eq!(info.GetClassFromObject(8, &mut class), sys::CORPROF_E_UNSUPPORTED_CALL_SEQUENCE);
            // What the fake has no answer for is let in or not all the same.
            let code = info.GetHandleFromThread(8, std::ptr::null_mut());
            assert_eq!(code, sys::CORPROF_E_UNSUPPORTED_CALL_SEQUENCE);
            assert_eq!(info.ForceGC(), E_NOTIMPL);
        }
    });
}

/// Makes one call that may start a collection, below the contexts, wherever it is called.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B1E0A8C-51D5-4E9B-8F35-0F2A6C2E0003", no_export)]
struct Reckless(Mutex<Vec<(&'static str, HRESULT)>>);

impl Reckless {
    fn ask(&self, place: &'static str, info: &Info) {
        // SAFETY: nothing is written where there is no room.
        let code = unsafe { info.as_raw().GetClassFromToken(8, 8, std::ptr::null_mut()) };
        self.0.lock().unwrap().push((place, code));
    }
}

#[callbacks]
impl Callbacks for Reckless {
    fn initialize(&self, cx: &mut InInitialize<'_>) -> Result<(), BoxError> {
        assert_eq!(cx.current_thread()?, None, "there is no managed thread yet");
        self.ask("initialize", cx);
        Ok(())
    }
    fn class_load_finished(&self, cx: &mut InTriggers<'_>, _class: ClassId, _status: Result<()>) {
        self.ask("class", cx);
    }
    fn garbage_collection_started(&self, cx: &InCallback<'_>, _generations: Generations, _reason: GcReason) {
        self.ask("collection", cx);
    }
    fn thread_assigned_to_os_thread(&self, cx: &InCallback<'_>, _thread: ThreadId, _os_id: u32) {
        self.ask("thread", cx);
    }
}

#[test]
fn calls_that_may_start_a_collection_need_a_callback_for_it() {
    let clr = FakeClr::load::<Reckless>().unwrap();
    clr.start_up();
    clr.load_class(clr.core_module(), "System.Object");
    clr.collect();
    let expected = [
        ("initialize", E_INVALIDARG),
        ("thread", sys::CORPROF_E_UNSUPPORTED_CALL_SEQUENCE),
        ("class", E_INVALIDARG),
        ("collection", sys::CORPROF_E_UNSUPPORTED_CALL_SEQUENCE),
    ];
    assert_eq!(*clr.profiler::<Reckless>().unwrap().0.lock().unwrap(), expected);
}

/// Follows objects, and counts threads and collections.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B1E0A8C-51D5-4E9B-8F35-0F2A6C2E0004", no_export)]
struct Tracker {
    moved: Mutex<Vec<MovedRange>>,
    kept: Mutex<Vec<SurvivingRange>>,
    counts: Mutex<Vec<(String, u32)>>,
    allocated: Mutex<Vec<usize>>,
    roots: AtomicUsize,
}

#[callbacks]
impl Callbacks for Tracker {
    fn object_allocated(&self, cx: &InCallback<'_>, object: ObjectId<'_>, class: ClassId) {
        assert_eq!(cx.class_of(object), Ok(class));
        self.allocated.lock().unwrap().push(object.as_raw());
    }
    fn moved_references2(&self, _cx: &InCallback<'_>, ranges: MovedRanges<'_>) {
        self.moved.lock().unwrap().extend(ranges.iter());
    }
    fn surviving_references2(&self, _cx: &InCallback<'_>, ranges: SurvivingRanges<'_>) {
        self.kept.lock().unwrap().extend(ranges.iter());
    }
    fn root_references2(&self, cx: &InCallback<'_>, roots: Roots<'_>) {
        assert!(roots.iter().all(|root| cx.class_of(root.object.unwrap()).is_ok()));
        self.roots.fetch_add(roots.iter().count(), SeqCst);
    }
    fn objects_allocated_by_class(&self, cx: &InCallback<'_>, counts: ClassCounts<'_>) {
        let counts = counts.iter().map(|(class, count)| (cx.names().class(class).to_string(), count));
        self.counts.lock().unwrap().extend(counts);
    }
}

#[test]
fn a_collection_moves_objects() {
    let clr = FakeClr::load::<Tracker>().unwrap();
    let string = clr.core_class("System.String");
    let objects = [(); 4].map(|()| clr.allocate(string));
    let before = objects.map(|object| clr.address(object).unwrap());
    let tracker = clr.profiler::<Tracker>().unwrap();
    assert_eq!(*tracker.allocated.lock().unwrap(), before);
    clr.pin(objects[1]);
    clr.release(objects[2]);
    clr.collect();
    assert_eq!(clr.address(objects[2]), None);
    assert_eq!(clr.address(objects[1]), Some(before[1]));
    let now = |at: usize| clr.address(objects[at]).unwrap();
    assert!(now(0) != before[0] && now(3) != before[3]);
    let moved = tracker.moved.lock().unwrap();
    let expected = [
        MovedRange { old_start: before[0], new_start: now(0), length: 24 },
        MovedRange { old_start: before[3], new_start: now(3), length: 24 },
    ];
    assert_eq!(*moved, expected);
    assert_eq!(*tracker.kept.lock().unwrap(), [SurvivingRange { start: before[1], length: 24 }]);
    assert_eq!(*tracker.counts.lock().unwrap(), [("System.String".to_owned(), 4)]);
    assert_eq!(tracker.roots.load(SeqCst), 3);
    assert!(!clr.has_panicked() && clr.refusals().is_empty());
}

#[test]
fn a_callback_comes_only_if_its_flag_is_on() {
    let clr = FakeClr::load::<Tracker>().unwrap();
    let class = clr.core_class("System.Object");
    clr.jit(clr.function(class, "ToString"));
    clr.throw(class, &[]);
    clr.create_thread();
    clr.collect();
    use Event::*;
    // MONITOR_MODULE_LOADS is on for the SDK's own sake.
    let expected = [
        Initialize,
        ModuleLoadStarted,
        ModuleLoadFinished,
        ModuleAttachedToAssembly,
        ObjectAllocated,
        GarbageCollectionStarted,
        MovedReferences2,
        MovedReferences,
        RootReferences2,
        RootReferences,
        ObjectsAllocatedByClass,
        GarbageCollectionFinished,
    ];
    assert_eq!(clr.delivered(), expected);
    // SAFETY: the method of the event.
    let raised = clr.raise(Event::HandleDestroyed, |callback| unsafe { callback.HandleDestroyed(8) });
    assert_eq!(raised, Some(HRESULT(0)));
    // SAFETY: as above.
    let raised = clr.raise(Event::ExceptionThrown, |callback| unsafe { callback.ExceptionThrown(8) });
    assert_eq!(raised, None);
}

/// Hears of threads.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B1E0A8C-51D5-4E9B-8F35-0F2A6C2E0005", no_export)]
struct Threads(Mutex<Vec<(&'static str, ThreadId, std::thread::ThreadId)>>);

impl Threads {
    fn note(&self, what: &'static str, cx: &Info, thread: ThreadId) {
        assert_eq!(cx.current_thread(), Ok(Some(thread)), "on itself");
        self.0.lock().unwrap().push((what, thread, std::thread::current().id()));
    }
}

#[callbacks]
impl Callbacks for Threads {
    fn thread_created(&self, cx: &mut InTriggers<'_>, thread: ThreadId) {
        self.note("created", cx, thread);
    }
    fn thread_assigned_to_os_thread(&self, cx: &InCallback<'_>, thread: ThreadId, os_id: u32) {
        assert_eq!(cx.os_thread_id(thread), Ok(os_id));
        self.note("assigned", cx, thread);
    }
    fn thread_destroyed(&self, cx: &mut InTriggers<'_>, thread: ThreadId) {
        self.note("destroyed", cx, thread);
    }
    fn jit_compilation_started(&self, cx: &mut InTriggers<'_>, _function: FunctionId, _safe: bool) {
        self.note("jit", cx, cx.current_thread().unwrap().unwrap());
    }
}

#[test]
fn threads_live_and_die() {
    let clr = FakeClr::load::<Threads>().unwrap();
    let main = clr.function(clr.core_class("System.Object"), "Main");
    let thread = clr.create_thread();
    let os_thread = clr.on_thread(thread, || {
        clr.jit(main);
        std::thread::current().id()
    });
    clr.destroy_thread(thread);
    // A thread that comes from outside becomes a managed one.
    let (foreign, foreign_os) = std::thread::scope(|scope| {
        let foreign = scope.spawn(|| {
            clr.jit(main);
            let this = clr.current_thread();
            clr.destroy_thread(this);
            (this, std::thread::current().id())
        });
        foreign.join().unwrap()
    });
    assert_ne!(thread, foreign);
    assert_ne!(os_thread, std::thread::current().id());
    let steps = ["created", "assigned", "jit", "destroyed"];
    let expected: Vec<_> = steps.iter().map(|&step| (step, thread, os_thread)).collect();
    let expected = expected.into_iter().chain(steps.iter().map(|&step| (step, foreign, foreign_os)));
    let threads = clr.profiler::<Threads>().unwrap();
    assert_eq!(*threads.0.lock().unwrap(), expected.collect::<Vec<_>>());
    assert!(!clr.has_panicked());
    // It is gone.
    let native =
        std::thread::scope(|scope| scope.spawn(|| raw(&clr, |info| thread_info(info, thread))).join().unwrap());
    assert_eq!(native, E_INVALIDARG);
}

#[test]
fn a_panic_on_a_thread_goes_on_in_the_test() {
    let clr = FakeClr::load::<Nothing>().unwrap();
    let thread = clr.create_thread();
    let work = std::panic::AssertUnwindSafe(|| clr.on_thread(thread, || panic!("on purpose")));
    assert!(std::panic::catch_unwind(work).is_err());
    assert_eq!(clr.on_thread(thread, || 5), 5, "the thread lives on");
}

/// Panics at the second class, and says when it is dropped.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B1E0A8C-51D5-4E9B-8F35-0F2A6C2E0006", no_export)]
struct Fragile {
    classes: AtomicUsize,
    shut: AtomicUsize,
    alive: Mutex<Option<Arc<()>>>,
}

#[callbacks]
impl Callbacks for Fragile {
    fn class_load_finished(&self, _cx: &mut InTriggers<'_>, _class: ClassId, _status: Result<()>) {
        assert!(self.classes.fetch_add(1, SeqCst) == 0, "on purpose");
    }
    fn shutdown(&self, _cx: &mut InTriggers<'_>) {
        self.shut.fetch_add(1, SeqCst);
    }
}

#[test]
fn a_panic_makes_the_profiler_quiet() {
    let clr = FakeClr::load::<Fragile>().unwrap();
    let app = clr.load_assembly("App");
    for name in ["A", "B", "C"] {
        clr.load_class(app, name);
    }
    assert!(clr.has_panicked());
    assert_eq!(clr.profiler::<Fragile>().unwrap().classes.load(SeqCst), 2);
    assert_eq!(clr.count(Event::ClassLoadFinished), 3, "the runtime does not know");
}

#[test]
fn shutdown_drops_the_profiler() {
    let mut clr = FakeClr::load::<Fragile>().unwrap();
    let life = Arc::new(());
    *clr.profiler::<Fragile>().unwrap().alive.lock().unwrap() = Some(Arc::clone(&life));
    clr.shutdown();
    assert!(clr.profiler::<Fragile>().is_none());
    assert_eq!(Arc::strong_count(&life), 1);
    clr.load_assembly("Late");
    assert_eq!(clr.delivered().last(), Some(&Event::Shutdown));
}

#[test]
fn without_shutdown_the_last_reference_drops_it() {
    let clr = FakeClr::load::<Fragile>().unwrap();
    let life = Arc::new(());
    *clr.profiler::<Fragile>().unwrap().alive.lock().unwrap() = Some(Arc::clone(&life));
    drop(clr);
    assert_eq!(Arc::strong_count(&life), 1);
}

/// Wants a runtime of 2023.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B1E0A8C-51D5-4E9B-8F35-0F2A6C2E0007", min_info = 14, no_export)]
struct Modern;

#[callbacks]
impl Callbacks for Modern {
    fn initialize(&self, cx: &mut InInitialize<'_>) -> Result<(), BoxError> {
        assert!(cx.version() >= 14);
        Ok(())
    }
}

#[test]
fn an_old_runtime_is_refused_by_min_info() {
    assert_eq!(FakeClr::builder().info_version(11).load::<Modern>().unwrap_err().code(), E_FAIL);
    let clr = FakeClr::builder().info_version(14).load::<Modern>().unwrap();
    assert_eq!(clr.info().cast::<sys::ICorProfilerInfo15>().unwrap_err().code(), E_NOINTERFACE);
    assert!(clr.info().cast::<sys::ICorProfilerInfo14>().is_ok());
    assert!(FakeClr::load::<Modern>().is_ok());
}

/// Goes when it has seen enough.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B1E0A8C-51D5-4E9B-8F35-0F2A6C2E0008", no_export)]
struct Visitor(Mutex<Option<Vec<u8>>>);

#[callbacks]
impl Callbacks for Visitor {
    fn initialize_for_attach(&self, cx: &mut InTriggers<'_>, data: &[u8]) -> Result<(), BoxError> {
        let refused = cx.add_events(EventMask::MONITOR_ENTERLEAVE).unwrap_err();
        assert_eq!(refused.code(), sys::CORPROF_E_UNSUPPORTED_FOR_ATTACHING_PROFILER);
        *self.0.lock().unwrap() = Some(data.to_owned());
        Ok(())
    }
    fn profiler_attach_complete(&self, _cx: &mut InTriggers<'_>) {}
    fn thread_created(&self, cx: &mut InTriggers<'_>, _thread: ThreadId) {
        let info: sys::ICorProfilerInfo3 = cx.as_raw().cast().unwrap();
        // SAFETY: takes a number.
        let code = unsafe { info.RequestProfilerDetach(0) };
        assert_eq!(code, HRESULT(0));
        assert_eq!(cx.event_mask().unwrap_err().code(), sys::CORPROF_E_PROFILER_DETACHING);
    }
}

#[test]
fn a_profiler_attaches_and_detaches() {
    let mut clr = FakeClr::builder().attach(&[1, 2, 3]).load::<Visitor>().unwrap();
    assert_eq!(*clr.profiler::<Visitor>().unwrap().0.lock().unwrap(), Some(vec![1, 2, 3]));
    assert_eq!(clr.delivered(), [Event::InitializeForAttach, Event::ProfilerAttachComplete]);
    assert!(!clr.detach(), "nobody has asked for it");
    let thread = clr.create_thread();
    clr.destroy_thread(thread);
    assert!(!clr.has_panicked());
    assert!(clr.detach());
    assert!(clr.profiler::<Visitor>().is_none());
    let expected = [
        Event::InitializeForAttach,
        Event::ProfilerAttachComplete,
        Event::ThreadCreated,
        Event::ProfilerDetachSucceeded,
    ];
    assert_eq!(clr.delivered(), expected);
    assert_eq!(
        FakeClr::builder().attach(&[]).load::<Nothing>().unwrap_err().code(),
        sys::CORPROF_E_PROFILER_NOT_ATTACHABLE
    );
}

/// Looks everything up that comes along, from many threads at once.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B1E0A8C-51D5-4E9B-8F35-0F2A6C2E0009", no_export)]
struct Busy {
    jitted: AtomicUsize,
    allocated: AtomicUsize,
    threads: AtomicUsize,
    collections: AtomicUsize,
}

#[callbacks]
impl Callbacks for Busy {
    fn jit_compilation_finished(
        &self,
        cx: &mut InTriggers<'_>,
        function: FunctionId,
        _status: Result<()>,
        _safe: bool,
    ) {
        assert!(cx.names().function(function).starts_with("App.Worker"));
        self.jitted.fetch_add(1, SeqCst);
    }
    fn object_allocated(&self, cx: &InCallback<'_>, object: ObjectId<'_>, class: ClassId) {
        assert_eq!(cx.class_of(object), Ok(class));
        self.allocated.fetch_add(1, SeqCst);
    }
    fn thread_created(&self, _cx: &mut InTriggers<'_>, _thread: ThreadId) {
        self.threads.fetch_add(1, SeqCst);
    }
    fn thread_destroyed(&self, _cx: &mut InTriggers<'_>, _thread: ThreadId) {
        self.threads.fetch_sub(1, SeqCst);
    }
    fn garbage_collection_finished(&self, _cx: &InCallback<'_>) {
        self.collections.fetch_add(1, SeqCst);
    }
}

#[test]
fn many_threads_make_callbacks_at_once() {
    const THREADS: usize = 8;
    const ROUNDS: usize = 150;
    let mut clr = FakeClr::load::<Busy>().unwrap();
    let app = clr.load_assembly("App");
    let shared = &clr;
    std::thread::scope(|scope| {
        for number in 0..THREADS {
            scope.spawn(move || {
                let class = shared.load_class(app, ClassSpec::new(&format!("App.Worker{}", number % 3)));
                for round in 0..ROUNDS {
                    shared.jit(shared.function(class, FunctionSpec::new(&format!("M{round}"))));
                    let object = shared.allocate(class);
                    if round % 50 == 10 {
                        shared.collect();
                    }
                    shared.release(object);
                }
                shared.destroy_thread(shared.current_thread());
            });
        }
    });
    let busy = clr.profiler::<Busy>().unwrap();
    assert_eq!(busy.jitted.load(SeqCst), THREADS * ROUNDS);
    assert_eq!(busy.allocated.load(SeqCst), THREADS * ROUNDS);
    assert_eq!(busy.threads.load(SeqCst), 0);
    assert_eq!(busy.collections.load(SeqCst), THREADS * ROUNDS / 50);
    assert!(!clr.has_panicked() && clr.refusals().is_empty());
    clr.shutdown();
}

#[test]
fn start_up_is_that_of_a_runtime() {
    let clr = FakeClr::load::<Scribe>().unwrap();
    clr.start_up();
    assert_eq!(lines(&clr), ["module System.Private.CoreLib.dll", "assembly System.Private.CoreLib"]);
}
