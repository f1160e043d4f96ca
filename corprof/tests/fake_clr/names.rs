//! Names and exceptions, injected codes, unloading: callbacks, and calls about their arguments.

use std::sync::Mutex;

use corprof::error::E_FAIL;
use corprof::event_mask::Event;
use corprof::id::Inert;
use corprof::prelude::*;
use corprof::sys;
use corprof::testing::{ClassSpec, FakeClr, Frame, FunctionSpec, Param};

/// Records its callbacks, by name.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B1E0A8C-51D5-4E9B-8F35-0F2A6C2E0001", no_export)]
struct Scribe(Mutex<Vec<String>>, Mutex<Option<Inert<ClassId>>>);

impl Scribe {
    fn note(&self, line: impl Into<String>) {
        self.0.lock().unwrap().push(line.into());
    }
}

#[callbacks]
impl Callbacks for Scribe {
    fn assembly_load_finished(&self, cx: &mut InCallback<'_>, assembly: AssemblyId, _status: Result<()>) {
        self.note(format!("assembly {}", cx.names().assembly(assembly)));
    }
    fn module_load_finished(&self, cx: &mut InCallback<'_>, module: ModuleId, _status: Result<()>) {
        self.note(format!("module {}", cx.names().module(module)));
    }
    fn class_load_started(&self, _cx: &mut InCallback<'_>, class: Inert<ClassId>) {
        *self.1.lock().unwrap() = Some(class);
    }
    fn class_load_finished(&self, cx: &mut InCallback<'_>, class: ClassId, _status: Result<()>) {
        assert_eq!(*self.1.lock().unwrap(), Some(class.into()));
        self.note(format!("class {}", cx.names().class(class)));
    }
    fn jit_compilation_started(&self, cx: &mut InCallback<'_>, function: FunctionId, _safe: bool) {
        self.note(format!("jit {}", cx.names().function(function)));
        // No call named this class before: it is known from the function.
        let name = cx.names().csharp().function(function);
        if let Some(class) = cx.function_info(function).unwrap().class {
            let class = cx.names().csharp().class(class);
            assert!(name.starts_with(&format!("{class}.")) && !class.contains('('), "{class} of {name}");
        }
    }
    fn dynamic_method_jit_compilation_started(
        &self,
        cx: &mut InCallback<'_>,
        function: FunctionId,
        _safe: bool,
        il: &[u8],
    ) {
        assert_eq!(il.len(), 2);
        self.note(format!("jit {}", cx.names().function(function)));
    }
    fn jit_inlining(&self, cx: &mut InCallback<'_>, _caller: FunctionId, callee: FunctionId) -> bool {
        !cx.names().function(callee).contains("Never")
    }
    fn exception_thrown(&self, cx: &InNoGc<'_>, thrown: ObjectId<'_>) {
        self.note(format!("thrown {}", cx.names().class(cx.class_of(thrown).unwrap())));
    }
    fn exception_search_function_enter(&self, cx: &mut InCallback<'_>, function: FunctionId) {
        self.note(format!("search {}", cx.names().function(function)));
    }
    fn exception_unwind_finally_enter(&self, cx: &InNoGc<'_>, function: FunctionId) {
        self.note(format!("finally {}", cx.names().function(function)));
    }
    fn exception_catcher_enter(&self, cx: &InNoGc<'_>, function: FunctionId, thrown: Option<ObjectId<'_>>) {
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
    // .NET 8, which does not report the class of shared code.
    let clr = FakeClr::builder().info_version(14).load::<Scribe>().unwrap();
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
